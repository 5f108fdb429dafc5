"""Erasure: all data of one subject is found and deleted, and no other data."""

from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from keystead import (
    Channel,
    Counter,
    Hash,
    KeyRing,
    Keyspace,
    List,
    Sealed,
    Set,
    Store,
    Value,
    after,
    connect,
    link,
    never,
)
from keystead.errors import BadArgument, BadKey
from keystead.schema import Pattern
from keystead.schema.doctor import examine, repair
from keystead.schema.erasure import ErasureProgress, erase, plan_erase, subject_kinds, value_of
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)

FOREVER = never("a test")
RING = KeyRing({"2026": b"k" * 32})


class Level(StrEnum):
    gold = "gold"


class Session(BaseModel):
    uid: int
    level: Level = Level.gold


class Letter(BaseModel):
    to: str
    text: Sealed[str]


class Users(Keyspace):
    sessions = Set("user:{uid:int}:sessions", str, lifetime=FOREVER, member_of="user:{uid}")
    session = Value(
        "sess:{sid}", Session, lifetime=after("1d"), listed_in=sessions, owns="lock", member_of="user:{uid}"
    )
    lock = Value("lock:{sid}", str, lifetime=after("1h"))
    profile = Hash("user:{uid:int}", Session, lifetime=FOREVER, member_of="user:{uid}")
    visits = Counter("visits:{uid:int}:{page}", lifetime=FOREVER, member_of="user:{uid}")
    letters = Value("letter:{id}", Letter, lifetime=FOREVER, member_of="user:{to}")
    device = Hash("device:{did}", Session, lifetime=FOREVER, member_of="user:{uid}")
    news = Channel("news:{uid:int}", str, member_of="user:{uid}")
    teams = Value("team:{tid}", str, lifetime=FOREVER, member_of="team:{tid}")


class Texts(Keyspace):
    notes = List("notes:{uid}", str, lifetime=FOREVER, member_of="user:{uid}", role="durable")
    long = Value("long:{uid<=45}:{n:int}", str, lifetime=FOREVER, member_of="user:{uid}")
    mapping = Value("mail:{mail}:{n:int}", str, lifetime=FOREVER, leads_to=link("long", uid="mail"))


async def fill(users: Users, texts: Texts, uid: int) -> None:
    for number in range(3):
        await users.session(sid=f"s{uid}-{number}").add(Session(uid=uid))
        await users.lock(sid=f"s{uid}-{number}").add("x")
        await users.visits(uid=uid, page=f"p{number}").increment()
        await users.letters(id=f"l{uid}-{number}").add(Letter(to=str(uid), text="hush"))
        await users.device(did=f"d{uid}-{number}").add(Session(uid=uid))
        await texts.long(uid=str(uid), n=number).add("x")
    await users.profile(uid=uid).add(Session(uid=uid))
    await texts.notes(uid=str(uid)).append("a note")


async def keys_of(store: Store) -> set[str]:
    return {key.decode() async for page in store.scan() for key in page}


@everywhere
async def test_erasing_a_subject_deletes_its_rows_and_no_others(store: Store) -> None:
    users, texts = Users(store, seal=RING), Texts(store)
    await fill(users, texts, 4)
    others = await keys_of(store)
    await fill(users, texts, 42)
    await users.teams(tid="42").add("a team, and no user")
    others.add(users.teams(tid="42").key)

    plan = await plan_erase([users, texts], "user:42")
    assert {step.key for step in plan.steps if step.action == "delete"} == await keys_of(store) - others
    assert plan.notes == []
    assert plan.keys == 3 * 6 + 3

    erased = await erase([users, texts], "user:42")
    assert await keys_of(store) == others
    assert (erased.left, erased.notes) == (0, [])
    assert (await plan_erase([users, texts], "user:42")).count == 0
    assert (await examine([users, texts])).found == []


async def test_a_plan_changes_nothing(memory: Store) -> None:
    users, texts = Users(memory, seal=RING), Texts(memory)
    await fill(users, texts, 42)
    before = await keys_of(memory)
    seen: list[ErasureProgress] = []
    plan = await plan_erase([users, texts], "user:42", on_progress=seen.append, shown=4)
    assert await keys_of(memory) == before
    assert len(plan.steps) == 4
    assert plan.count > plan.keys == len(before)
    assert "more" in str(plan)
    assert seen[-1].found > 0


async def test_a_subject_is_erased_from_all_stores(memory: Store) -> None:
    async with connect("memory://") as durable:
        users, texts = Users(memory, seal=RING), Texts(memory, durable=durable)
        await fill(users, texts, 42)
        assert await keys_of(durable) == {"notes:42"}
        await erase([users, texts], "user:42")
        assert await keys_of(durable) == await keys_of(memory) == set()


async def test_a_subject_with_a_long_id_is_found_by_its_hash(memory: Store) -> None:
    texts = Texts(memory)
    uid = "u" * 100
    await texts.long(uid=uid, n=1).add("x")
    await texts.long(uid=f"{uid}2", n=1).add("x")
    await erase([texts], f"user:{uid}")
    assert await keys_of(memory) == {texts.long(uid=f"{uid}2", n=1).key}


async def test_a_subject_may_hold_anything(memory: Store) -> None:
    texts = Texts(memory)
    for uid in ("a:b*", "a:bc", "*", "a"):
        await texts.notes(uid=uid).append("x")
        await texts.long(uid=uid, n=1).add("x")
    await erase([texts], "user:a:b*")
    assert await keys_of(memory) == {
        key for uid in ("a:bc", "*", "a") for key in (texts.notes(uid=uid).key, texts.long(uid=uid, n=1).key)
    }


async def test_quarantined_keys_of_a_subject_are_erased_too(memory: Store) -> None:
    users = Users(memory, seal=RING)
    await memory.run([("SET", "user:42", "x"), ("SET", "user:4", "x")])
    assert (await repair([users], set_aside="all")).repaired == 2
    assert (await plan_erase([users], "user:42")).families == {"quarantine": 1}
    await erase([users], "user:42")
    assert await keys_of(memory) == {"keystead:quarantine:user%3A4"}


async def test_unexamined_keys_are_noted(memory: Store) -> None:
    users, texts = Users(memory, seal=RING), Texts(memory)
    await fill(users, texts, 42)
    await memory.run([("SET", "sess:bad", "{")])
    plan = await plan_erase([Users(memory, needs_seal=False)], "user:42")
    assert len(plan.notes) == 2
    assert any("Users.letters are sealed" in note and "3 keys" in note for note in plan.notes)
    assert any("unreadable values of Users.session" in note and "1 keys" in note for note in plan.notes)


@pytest.mark.parametrize("subject", ["42", "user:", ":42", "", "users:42"])
async def test_an_undeclared_subject_is_an_error_that_lists_the_declared_ones(subject: str, memory: Store) -> None:
    with pytest.raises(BadArgument, match="team:42 or user:42"):
        await plan_erase([Users(memory, seal=RING)], subject)


async def test_keyspaces_without_subjects_say_how_to_declare_one(memory: Store) -> None:
    class Nobodys(Keyspace):
        one = Value("one:{id}", str, lifetime=FOREVER)

    with pytest.raises(BadArgument, match="member_of"):
        await erase([Nobodys(memory)], "user:42")
    assert subject_kinds([Nobodys]) == []


async def test_an_id_that_no_key_can_have_finds_nothing(memory: Store) -> None:
    users = Users(memory, seal=RING)
    await users.profile(uid=42).add(Session(uid=42))
    assert (await plan_erase([users], "user:ada")).count == 0
    assert (await plan_erase([users], "user:042")).count == 0


@pytest.mark.parametrize(
    ("pattern", "text", "value"),
    [
        ("a:{x}", "42", "42"),
        ("a:{x:int}", "42", 42),
        ("a:{x:uuid}", "3F2A9C1E-8B4D-4F6A-9E2B-7C5D1A0B8E4F", UUID("3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f")),
    ],
)
def test_text_becomes_the_value_of_its_placeholder(pattern: str, text: str, value: Any) -> None:
    assert value_of(Pattern(pattern), "x", text) == value


@pytest.mark.parametrize(("pattern", "text"), [("a:{x:int}", "4_2"), ("a:{x:int}", "x"), ("a:{x:date}", "2026-02-30")])
def test_text_that_is_not_such_a_value_is_refused(pattern: str, text: str) -> None:
    with pytest.raises(BadKey, match="x takes"):
        value_of(Pattern(pattern), "x", text)
