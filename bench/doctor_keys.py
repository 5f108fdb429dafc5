"""The keyspace that the doctor is measured on, a store full of it, and the defects that are planted there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from keystead import Counter, Hash, Keyspace, Set, SortedSet, Value, after, link, never
from keystead.schema import VALUE, Versions
from keystead.stores import Command, Store

DAY_MS = 86_400_000
GROUP = 20  # keys that belong together; a user has so many
BATCH = 50  # groups that are written at once


class Session(BaseModel):
    uid: str
    device: str
    scopes: list[str]


class Profile(BaseModel):
    name: str
    mail: str


class BenchKeys(Keyspace):
    """Users with their sessions, counters and addresses."""

    users = SortedSet("users:index", str, lifetime=never("emptied with its users"), doc="all users")
    user = Value(
        "user:{uid}",
        Profile,
        versions=Versions("v", 2, {1: lambda old: {"name": old["name"], "mail": old["email"]}}),
        lifetime=never("deleted by its owner"),
        listed_in=users,
        owns=["visits", "daily", "settings"],
        doc="who the user is",
    )
    visits = Counter("user:{uid}:visits", lifetime=never("deleted with its user"), doc="all visits")
    daily = Counter("user:{uid}:daily:{day:date}", lifetime=after("30d"), doc="visits of a day")
    settings = Hash("user:{uid}:settings", dict[str, str], lifetime=never("deleted with its user"), doc="settings")
    address = Value("mail:{mail:uri}", str, lifetime=never("deleted with its user"), leads_to=link("user", uid=VALUE))
    sessions = Set("sessions:{uid}", str, lifetime=never("pruned by readers"), doc="the sessions of a user")
    session = Value("session:{sid}", Session, lifetime=after("30d"), listed_in=sessions, doc="a session")


def session_key(number: int) -> str:
    """The key of a session that exists if there are more keys than this."""
    return f"session:s{number // GROUP:07d}-{number % 10}"


def group(number: int) -> Iterator[Command]:
    """The 20 keys of one user, as a program writes them."""
    uid = f"u{number:07d}"
    yield ("SET", f"user:{uid}", f'{{"name":"Ada {number}","mail":"ada{number}@example.com","v":2}}')
    yield ("ZADD", "users:index", number, uid)
    yield ("INCRBY", f"user:{uid}:visits", number)
    for day in range(5):
        yield ("SET", f"user:{uid}:daily:2026-02-{day + 1:02d}", day, "PX", (20 + day) * DAY_MS)
    yield ("HSET", f"user:{uid}:settings", "theme", "dark", "language", "en")
    yield ("SET", f"mail:ada{number}%40example.com", uid)
    members = [f"s{number:07d}-{place}" for place in range(10)]
    yield ("SADD", f"sessions:{uid}", *members)
    value = f'{{"uid":"{uid}","device":"a browser on a laptop","scopes":["read","write","admin"]}}'
    for member in members:
        yield ("SET", f"session:{member}", value, "PX", 29 * DAY_MS)


async def fill(store: Store, keys: int, advance: Callable[[int], None]) -> int:
    """Write about this many keys. Returns the number of users."""
    users = keys // GROUP
    for start in range(0, users, BATCH):
        commands = [command for number in range(start, min(start + BATCH, users)) for command in group(number)]
        await store.run(commands)
        advance(len(commands))
    return users


async def plant(store: Store, users: int, of_each: int) -> dict[str, int]:
    """Plant this many defects of each code at random places. Returns the expected findings."""
    chance = random.Random(11)
    chosen = iter(chance.sample(range(users), of_each * len(_PLANTS)))
    planted = {}
    for code, plant_one in _PLANTS.items():
        commands = [command for _ in range(of_each) for command in plant_one(f"u{next(chosen):07d}")]
        await store.run(commands)
        planted[code] = of_each
    return planted


def _session_of(uid: str) -> str:
    return f"session:s{uid[1:]}-3"


_PLANTS: dict[str, Callable[[str], list[Any]]] = {
    "orphan": lambda uid: [("SET", f"user:{uid}x:visits", 1)],
    "dead-entry": lambda uid: [("SADD", f"sessions:{uid}", "gone")],
    "not-listed": lambda uid: [("SREM", f"sessions:{uid}", _session_of(uid).removeprefix("session:"))],
    "no-deadline": lambda uid: [("PERSIST", _session_of(uid))],
    "late-deadline": lambda uid: [("PEXPIRE", _session_of(uid), 90 * DAY_MS)],
    "unexpected-deadline": lambda uid: [("PEXPIRE", f"user:{uid}:settings", DAY_MS)],
    "wrong-kind": lambda uid: [("RPUSH", f"sessions:{uid}x", "x")],
    "unreadable": lambda uid: [("SET", f"user:{uid}:visits", "many")],
    "unknown-key": lambda uid: [("SET", f"tmp:{uid}", "x")],
    "leads-nowhere": lambda uid: [("SET", f"mail:gone-{uid}", f"{uid}x")],
    "old-version": lambda uid: [("SET", f"user:{uid}", '{"name":"Ada","email":"ada@example.com","v":1}')],
}
