"""The cost of sessions in a web application, and a million sessions.

Starlette, FastAPI and Litestar applications with and without our middleware, beside starsessions and Litestar's own
server-side sessions: all on one real Redis, each under Granian with one worker. With two cores, the servers have one,
and the client and Redis the other.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx2

from bench import serving
from bench.measure import (
    Contender,
    Effort,
    Match,
    Operation,
    Peer,
    Progress,
    Row,
    Target,
    compare,
    together,
)
from bench.session_apps import NAME, Visit
from keystead.integrations.asgi import session_keys
from keystead.parts.sessions import Policy, Sessions, id_of
from keystead.parts.sessions.session_token import new_token
from keystead.stores import Command, Store, connect
from tests import servers

SIGNED_IN = 1_000

# Each application with sessions, the same one without, its label, and the target.
OURS: dict[str, tuple[str, str, Target | None]] = {
    # How far that could be: a middleware that only reads a key and sets a header.
    "starlette-by-hand": ("starlette", "Starlette, ten lines by hand on Redis", None),
    "starlette-keystead": ("starlette", "Starlette, keystead on Redis", Target("at least", 0.75)),
    "starlette-keystead-near": ("starlette", "Starlette, keystead on Redis, near reads", Target("at least", 0.92)),
    "starlette-keystead-sqlite": ("starlette", "Starlette, keystead on SQLite", None),
    "starlette-keystead-sqlite-near": (
        "starlette", "Starlette, keystead on SQLite, near reads", Target("at least", 0.9),
    ),
    "starlette-request-session": ("starlette", "Starlette, request.session on Redis", None),
    "fastapi-keystead": ("fastapi", "FastAPI, keystead on Redis", None),
    "fastapi-keystead-near": ("fastapi", "FastAPI, keystead on Redis, near reads", None),
    "litestar-keystead": ("litestar", "Litestar, keystead on Redis", None),
    "litestar-keystead-near": ("litestar", "Litestar, keystead on Redis, near reads", None),
}  # fmt: skip
PEERS: dict[str, tuple[str, str, Target | None]] = {
    "starlette-starsessions": ("starlette", "Starlette, starsessions", None),
    "litestar-sessions": ("litestar", "Litestar, its own", None),
}


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    return [
        *await throughput(folder, effort, progress, quick=quick),
        *await _many_on_redis(effort, progress, quick=quick),
        *await _many_on_sqlite(folder, effort, progress, quick=quick),
    ]


# --- throughput --------------------------------------------------------------------------------------------


async def throughput(
    folder: Path,
    effort: Effort,
    progress: Progress,
    *,
    quick: bool,
    peers: bool = True,
    turn_s: float = serving.TURN_S,
    signed_in: int = SIGNED_IN,
) -> list[Row]:
    """The throughput with sessions as a fraction of that without."""
    pairs = {**OURS, **(PEERS if peers else {})}
    apps = tuple(dict.fromkeys(itertools.chain.from_iterable((app, plain) for app, (plain, _, _) in pairs.items())))
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(servers.redis())
        first, rest = serving.cores()
        os.sched_setaffinity(redis.pid, rest)
        ports, cookies = {}, {}
        for app in apps:
            database = f"sqlite:///{folder}/{app}.db"
            environment = {"BENCH_APP": app, "BENCH_REDIS": redis.url, "BENCH_SQLITE": database}
            port = await stack.enter_async_context(serving.serve_app("bench.session_apps:make", environment, first))
            ports[app], cookies[app] = port, await _sign_in(port, 50 if quick else signed_in)
        # Applications without sessions get the same requests, with the cookies of one that has them.
        sent = next(filter(None, cookies.values()))
        asked = {
            app: serving.Load(ports[app], [_ask(cookie) for cookie in cookies[app] or sent], holds='{"name":"')
            for app in apps
        }
        client = await stack.enter_async_context(serving.client(rest))
        turn_s = serving.TURN_S_QUICK if quick else turn_s
        with progress.activity("sessions · throughput", (effort.rounds + 1) * len(apps)) as advance:
            times = await serving.rounds(client, asked, effort.rounds, turn_s, advance)
    return [
        serving.ratio_row("sessions", name, times[app], times[plain], f"{plain}, no sessions", target)
        for app, (plain, name, target) in pairs.items()
    ]


def _ask(cookie: str) -> str:
    return f"GET /me\nAccept: application/json\nCookie: {cookie}"


async def _sign_in(port: int, count: int) -> list[str]:
    """The cookies of this many users; none for an application without sessions."""
    cookies = []
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        for _ in range(count):
            answer = await client.post("/login")
            if "set-cookie" not in answer.headers:
                return []
            cookies.append(answer.headers["set-cookie"].partition(";")[0])
            client.cookies.clear()
    return cookies


# --- a million sessions ------------------------------------------------------------------------------------

PER_USER = 5
FEW, MANY, MANY_ON_SQLITE = 10_000, 1_000_000, 200_000
FEW_QUICK, MANY_QUICK = 200, 1_000
BATCH_OF_USERS = 400
SAMPLE = 5_000  # the number of readers among the few, so that both sides read as many
NO_SLOWER = Target("at most", 1.5)


class Loaded(NamedTuple):
    """A store full of sessions. Readers are other users than those who log in and out."""

    sessions: Sessions[Visit]
    store: Store
    size: int
    tokens: list[str]  # of sessions that stay alive
    users: list[str]  # who log in and out


async def _many_on_redis(effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    few, many = (FEW_QUICK, MANY_QUICK) if quick else (FEW, MANY)
    bounds = ("--maxmemory", "1200mb", "--maxmemory-policy", "noeviction")
    with servers.redis(*bounds) as small, servers.redis(*bounds) as large:
        async with connect(small.url) as one, connect(large.url) as other:
            rows = await _compare_sizes("sessions, redis", one, few, other, many, effort, progress)
        used = {
            name: value for line in bytes(large.ask("INFO", "memory")).decode().splitlines()
            for name, _, value in [line.partition(":")]
        }  # fmt: skip
    return [
        *rows,
        Row("sessions, redis", f"memory of Redis, {many:,} sessions", int(used["used_memory"]) / 2**20, "MB"),
    ]


async def _many_on_sqlite(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    few, many = (FEW_QUICK, MANY_QUICK) if quick else (FEW, MANY_ON_SQLITE)
    async with (
        connect(f"sqlite:///{folder / 'few.db'}") as one,
        connect(f"sqlite:///{folder / 'many.db'}") as other,
    ):
        return await _compare_sizes("sessions, sqlite", one, few, other, many, effort, progress)


async def _compare_sizes(
    subject: str, small: Store, few: int, large: Store, many: int, effort: Effort, progress: Progress
) -> list[Row]:
    filled = [await _fill(subject, store, count, progress) for store, count in ((small, few), (large, many))]
    for one in filled:  # the first read after a minute also updates `last_seen_at`
        for at in range(0, len(one.tokens), 200):
            await asyncio.gather(*map(one.sessions.read, one.tokens[at : at + 200]))
    rows: list[Row] = []
    for name, make, draws in (
        ("read", _read, _tokens),
        ("login", _login, _users),
        ("revoke-all and 5 logins", _revoke_all, _users),
    ):
        theirs, ours = (Contender(f"{one.size:,} sessions", together(make(one), draws(one))) for one in filled)
        match = Match(f"32 tasks, {name}, {many:,} sessions", ours, [Peer(theirs, "times the time", NO_SLOWER)])
        rows += await compare(subject, match, effort, progress)
    return rows


def _login(loaded: Loaded) -> Operation:
    """The sixth session of a user, which evicts the oldest."""

    async def login(user: str) -> None:
        await loaded.sessions.create(Visit(uid=user, name=NAME))

    return login


def _read(loaded: Loaded) -> Operation:
    async def read(token: str) -> None:
        if not await loaded.sessions.read(token):
            raise RuntimeError("a session is missing")

    return read


def _revoke_all(loaded: Loaded) -> Operation:
    async def revoke_all(user: str) -> None:
        await loaded.sessions.revoke_all(user)
        for _ in range(PER_USER):
            await loaded.sessions.create(Visit(uid=user, name=NAME))

    return revoke_all


def _tokens(loaded: Loaded) -> Iterator[str]:
    return itertools.cycle(loaded.tokens)


def _users(loaded: Loaded) -> Iterator[str]:
    """Users in random order, none twice in a row: concurrent logins of one user wait for each other."""
    order = list(loaded.users)
    random.Random(7).shuffle(order)
    return itertools.cycle(order)


async def _fill(subject: str, store: Store, count: int, progress: Progress) -> Loaded:
    """Write sessions as logins do, in large batches."""
    policy = Policy(cap=PER_USER)
    keys = session_keys(Visit, policy)(store)
    sessions = Sessions(keys.session, policy, successors=keys.session_successor, ends=keys.session_end)
    chance, now = random.Random(count), datetime.now(UTC)
    lives_ms = policy.idle_ms
    users = [f"user-{number}" for number in range(count // PER_USER)]
    tokens: list[str] = []
    with progress.activity(f"{subject} · {count:,} sessions", len(users)) as advance:
        for at in range(0, len(users), BATCH_OF_USERS):
            commands: list[Command] = []
            batch = users[at : at + BATCH_OF_USERS]
            for user in batch:
                made = [new_token(chance.randbytes(32), user) for _ in range(PER_USER)]
                visit = Visit(uid=user, name=NAME, created_at=now, last_seen_at=now)
                for token in made:
                    key = keys.session(id_of(token)).key
                    data = keys.session.family.codec.encode(visit, key)
                    commands.append(("SET", key, data, "PX", lives_ms))
                listed = keys.user_sessions(user).key
                commands += [("SADD", listed, *map(id_of, made)), ("PEXPIRE", listed, lives_ms)]
                tokens += made
            await store.run(commands)
            advance(len(batch))
    half = len(users) // 2
    readers = tokens[: half * PER_USER]
    sample = random.Random(9).sample(readers, min(SAMPLE, len(readers)))
    return Loaded(sessions, store, count, sample, users[half:])
