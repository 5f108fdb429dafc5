"""The doctor: every defect is found once, none is invented, all are repaired, and healthy data is unharmed."""

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from keystead import (
    Counter,
    Hash,
    KeyRing,
    Keyspace,
    List,
    Log,
    Sealed,
    Set,
    SortedSet,
    Store,
    Value,
    after,
    connect,
    end_of_day,
    link,
    never,
    sliding,
    until,
)
from keystead.errors import BadValue, WrongSealKey
from keystead.schema import VALUE, EpochMs, OmittedIfNone, Versions, chunked_reading, doctor
from keystead.schema.doctor import Excess, Progress, QuarantineKeys, Report, examine, guarded_changes, repair, restore
from keystead.schema.doctor.examination import Unknown
from keystead.schema.family import Family
from keystead.stores.sqlite import SqliteStore
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)
# Stores on which one atomic step spans any keys, so that nothing can interleave with a repair.
atomic_anywhere = pytest.mark.parametrize("store_url", ["memory", "valkey"], indirect=True)

FOREVER = never("a test")
OLD, NEW = b"o" * 32, b"n" * 32
RING = KeyRing({"2025": OLD, "2026": NEW})
DAY_MS = 86_400_000
MADE_AT = datetime(2026, 2, 23, tzinfo=UTC)
MADE_MS = MADE_AT.timestamp() * 1000


class Session(BaseModel):
    uid: str
    seen: int = 0


class Account(BaseModel):
    name: str
    secret: Sealed[str]


class Profile(BaseModel):
    full_name: str


class Link(BaseModel):
    to: str
    expires_at: EpochMs


class Item(BaseModel):
    made_at: EpochMs


class Device(BaseModel):
    uid: str
    name: str
    token: OmittedIfNone[Sealed[str]] = None


class Keys(Keyspace):
    """Every kind, every lifetime, every relation."""

    sessions = Set("user:{uid}:sessions", str, lifetime=FOREVER)
    session = Value("sess:{sid}", Session, lifetime=sliding("30d", touch_every="1d"), listed_in=sessions)
    lock = Value("lock:{sid}", str, lifetime=after("1h"))

    boards = SortedSet("boards:index", str, lifetime=FOREVER)
    board = Value("board:{id}", Profile, lifetime=FOREVER, listed_in=boards, owns=["total", "daily", "messages"])
    total = Counter("board:{id}:total", lifetime=FOREVER)
    daily = Counter("board:{id}:daily:{day:date}", lifetime=after("30d"))
    messages = List("board:{id}:messages", Profile, lifetime=FOREVER)
    address = Value("url:{url:uri}", str, lifetime=FOREVER, leads_to=link("board", id=VALUE))

    devices = SortedSet("user:{uid}:devices", str, lifetime=FOREVER)
    device = Hash("device:{uid}:{did}", Device, lifetime=after("30d"), listed_in=devices, owns="events")
    events = Log("device:{uid}:{did}:events", Profile, lifetime=after("30d"))

    account = Value("account:{uid}", Account, lifetime=FOREVER)
    letters = List("letters:{uid}", Account, lifetime=FOREVER)
    profile = Value(
        "profile:{uid}",
        Profile,
        versions=Versions("v", 2, {1: lambda old: {"full_name": old["name"]}}),
        lifetime=FOREVER,
    )
    share = Value("share:{id}", Link, lifetime=until("expires_at", at_most="14d"))
    pass_ = Value("pass:{id}", str, lifetime=until("ends"))
    visit = Value("visit:{who}", str, lifetime=end_of_day("UTC"))
    bag = Hash("bag:{id}", dict[str, int], lifetime=FOREVER)
    tags = Set("tags:{id}", int, lifetime=FOREVER)
    scores = SortedSet("scores:{id}", int, lifetime=FOREVER)
    log = Log("log:{id}", Profile, lifetime=FOREVER)
    recent = Log("recent:{id}", Profile, keep=2, lifetime=FOREVER)

    newest = SortedSet("items:newest", str, lifetime=FOREVER)
    item = Value("item:{id}", Item, lifetime=FOREVER, listed_in=newest.by(score="made_at"))
    tickets = SortedSet("tickets:{uid}", str, lifetime=FOREVER)
    ticket = Value("ticket:{uid}:{id}", str, lifetime=after("1h"), listed_in=tickets)


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store, seal=RING)


def in_days(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


async def fill(keys: Keys) -> None:
    """Data of every family, as written by a program."""
    for number in range(3):
        await keys.session(sid=f"s{number}").add(Session(uid="u1"))
        await keys.board(id=f"b{number}").add(Profile(full_name="a board"))
        await keys.total(id=f"b{number}").increment()
        await keys.daily(id=f"b{number}", day=date(2026, 2, 23)).increment()
        await keys.messages(id=f"b{number}").append(Profile(full_name="a message"))
        await keys.address(url=f"https://example.com/{number}").add(f"b{number}")
        await keys.device(uid="u1", did=f"d{number}").add(Device(uid="u1", name="phone", token="t"))
        await keys.events(uid="u1", did=f"d{number}").append(Profile(full_name="on"))
        await keys.account(uid=f"u{number}").add(Account(name="Ada", secret="hush"))
        await keys.letters(uid=f"u{number}").append(Account(name="Ada", secret="hush"))
        await keys.profile(uid=f"u{number}").add(Profile(full_name="Ada"))
        await keys.share(id=f"l{number}").add(Link(to="x", expires_at=in_days(3)))
        await keys.pass_(id=f"p{number}").add("x", ends=in_days(3))
        await keys.visit(who=f"w{number}").add("x")
        await keys.lock(sid=f"s{number}").add("x")
        await keys.bag(id=f"g{number}").put({"a": 1, "b": 2})
        await keys.tags(id=f"t{number}").add(1, 2, 3)
        await keys.scores(id=f"z{number}").put({1: 0, 2: 7})
        await keys.log(id=f"e{number}").append(Profile(full_name="on"))
        for name in ("a", "b", "c"):
            await keys.recent(id=f"r{number}").append(Profile(full_name=name))
        await keys.item(id=f"i{number}").add(Item(made_at=MADE_AT))
        await keys.ticket(uid="u1", id=f"k{number}").add("x")


async def raw(store: Store, *command: Any) -> Any:
    return (await store.run([command]))[0]


async def contents(store: Store) -> dict[bytes, Any]:
    """All keys of a store, each with its content."""
    reads = {"string": ("GET",), "hash": ("HGETALL",), "set": ("SMEMBERS",), "list": ("LRANGE", 0, -1),
             "zset": ("ZRANGE", 0, -1, "WITHSCORES"), "stream": ("XRANGE", "-", "+")}  # fmt: skip
    found = {}
    async for page in store.scan():
        for key in page:
            name, *arguments = reads[(await raw(store, "TYPE", key)).decode()]
            found[key] = await raw(store, name, key, *arguments)
    return found


def said(report: Report) -> set[tuple[str, str | None, str | None]]:
    return {(found.finding.code, found.finding.family, found.finding.key) for found in report.found}


# --- one defect of each code -------------------------------------------------------------------------------


class Defect(NamedTuple):
    code: str
    family: str | None
    key: str
    plant: Callable[[Keys, Store], Awaitable[Any]]
    repaired: Callable[[Keys, Store], Awaitable[bool]]


async def _old_seal(keys: Keys, store: Store) -> None:
    await Keys(store, seal=KeyRing({"2025": OLD})).account(uid="u1").set(Account(name="Ada", secret="hush"))


async def _old_seal_in_a_field(keys: Keys, store: Store) -> None:
    old = Keys(store, seal=KeyRing({"2025": OLD}))
    await old.device(uid="u1", did="d1").update({"token": "t"})


def written(*command: Any) -> Callable[[Keys, Store], Awaitable[Any]]:
    return lambda keys, store: raw(store, *command)


def is_gone(key: str) -> Callable[[Keys, Store], Awaitable[bool]]:
    async def check(keys: Keys, store: Store) -> bool:
        return bool(await raw(store, "EXISTS", key) == 0)

    return check


def is_aside(key: str) -> Callable[[Keys, Store], Awaitable[bool]]:
    async def check(keys: Keys, store: Store) -> bool:
        copy = await QuarantineKeys(store).quarantine(key=key).get()
        return copy is not None and copy.key == key and bool(await raw(store, "EXISTS", key) == 0)

    return check


def has_left(key: str, low_ms: int, high_ms: int) -> Callable[[Keys, Store], Awaitable[bool]]:
    async def check(keys: Keys, store: Store) -> bool:
        return bool(low_ms <= await raw(store, "PTTL", key) <= high_ms)

    return check


def is_member(key: str, member: str, wanted: bool) -> Callable[[Keys, Store], Awaitable[bool]]:
    async def check(keys: Keys, store: Store) -> bool:
        kind = await raw(store, "TYPE", key)
        found = await raw(store, "SISMEMBER" if kind == b"set" else "ZSCORE", key, member)
        return bool(found is not None and found != 0) is wanted

    return check


def entries_are(read: Callable[[Keys], Any], wanted: Any) -> Callable[[Keys, Store], Awaitable[bool]]:
    async def check(keys: Keys, store: Store) -> bool:
        return bool(await read(keys) == wanted)

    return check


async def _sealed_anew(keys: Keys, store: Store) -> bool:
    data = await raw(store, "GET", "account:u1")
    account = await keys.account(uid="u1").get()
    return b"sealed.2026." in data and b"sealed.2025." not in data and account == Account(name="Ada", secret="hush")


async def _field_sealed_anew(keys: Keys, store: Store) -> bool:
    data = await raw(store, "HGET", "device:u1:d1", "token")
    return bool(data.startswith(b"sealed.2026.")) and await keys.device(uid="u1", did="d1").field("token") == "t"


async def _rewritten(keys: Keys, store: Store) -> bool:
    data = await raw(store, "GET", "profile:u1")
    return json.loads(data) == {"full_name": "Ada", "v": 2} and await has_left("profile:u1", -1, -1)(keys, store)


def _scored(index: str, member: str, score: float) -> Callable[[Keys, Store], Awaitable[bool]]:
    async def check(keys: Keys, store: Store) -> bool:
        return bool(await raw(store, "ZSCORE", index, member) == score)

    return check


PAST_MS = 1_700_000_000_000
FAR_MS = int(time.time() * 1000) + 90 * DAY_MS
LINK = f'{{"to":"x","expires_at":{int(time.time() * 1000) + 3 * DAY_MS}}}'

DEFECTS = {
    "an orphan": Defect(
        "orphan", "Keys.total", "board:gone:total", written("SET", "board:gone:total", 1), is_gone("board:gone:total")
    ),
    "an orphan of another kind": Defect(
        "orphan",
        "Keys.events",
        "device:u1:gone:events",
        lambda keys, store: keys.events(uid="u1", did="gone").append(Profile(full_name="on")),
        is_gone("device:u1:gone:events"),
    ),
    "a dead entry of a set": Defect(
        "dead-entry",
        "Keys.sessions",
        "user:u1:sessions",
        written("SADD", "user:u1:sessions", "gone"),
        is_member("user:u1:sessions", "gone", False),
    ),
    "a dead entry of a sorted set": Defect(
        "dead-entry",
        "Keys.boards",
        "boards:index",
        written("ZADD", "boards:index", 0, "gone"),
        is_member("boards:index", "gone", False),
    ),
    "a record that its set does not name": Defect(
        "not-listed",
        "Keys.session",
        "sess:s1",
        written("SREM", "user:u1:sessions", "s1"),
        is_member("user:u1:sessions", "s1", True),
    ),
    "a record that its sorted set does not name": Defect(
        "not-listed",
        "Keys.board",
        "board:b1",
        written("ZREM", "boards:index", "b1"),
        is_member("boards:index", "b1", True),
    ),
    "a hash that its index does not name": Defect(
        "not-listed",
        "Keys.device",
        "device:u1:d1",
        written("ZREM", "user:u1:devices", "d1"),
        is_member("user:u1:devices", "d1", True),
    ),
    "no deadline where it slides": Defect(
        "no-deadline",
        "Keys.session",
        "sess:s1",
        written("PERSIST", "sess:s1"),
        has_left("sess:s1", 29 * DAY_MS, 30 * DAY_MS),
    ),
    "no deadline of a hash": Defect(
        "no-deadline",
        "Keys.device",
        "device:u1:d1",
        written("PERSIST", "device:u1:d1"),
        has_left("device:u1:d1", 29 * DAY_MS, 30 * DAY_MS),
    ),
    "no deadline, and the value says when": Defect(
        "no-deadline",
        "Keys.share",
        "share:l1",
        written("SET", "share:l1", LINK),
        has_left("share:l1", 2 * DAY_MS, 3 * DAY_MS),
    ),
    "no deadline, and by its value it is dead": Defect(
        "no-deadline",
        "Keys.share",
        "share:l1",
        written("SET", "share:l1", f'{{"to":"x","expires_at":{PAST_MS}}}'),
        is_gone("share:l1"),
    ),
    "no deadline at the end of the day": Defect(
        "no-deadline", "Keys.visit", "visit:w1", written("PERSIST", "visit:w1"), has_left("visit:w1", 0, DAY_MS)
    ),
    "a late deadline": Defect(
        "late-deadline",
        "Keys.lock",
        "lock:s1",
        written("PEXPIRE", "lock:s1", DAY_MS),
        has_left("lock:s1", 3_500_000, 3_600_000),
    ),
    "a deadline later than the value says": Defect(
        "late-deadline",
        "Keys.share",
        "share:l1",
        written("PEXPIRE", "share:l1", 10 * DAY_MS),
        has_left("share:l1", 2 * DAY_MS, 3 * DAY_MS),
    ),
    "a deadline after the end of the day": Defect(
        "late-deadline",
        "Keys.visit",
        "visit:w1",
        written("PEXPIRE", "visit:w1", 3 * DAY_MS),
        has_left("visit:w1", 0, DAY_MS),
    ),
    "a deadline earlier than the value says": Defect(
        "early-deadline",
        "Keys.share",
        "share:l1",
        written("PEXPIRE", "share:l1", 60_000),
        has_left("share:l1", 2 * DAY_MS, 3 * DAY_MS),
    ),
    "a score that is another than its record says": Defect(
        "wrong-score",
        "Keys.item",
        "item:i1",
        written("ZADD", "items:newest", 7, "i1"),
        _scored("items:newest", "i1", MADE_MS),
    ),
    "a log that is too long": Defect(
        "too-long",
        "Keys.recent",
        "recent:r1",
        lambda keys, store: store.run([("XADD", "recent:r1", "*", "data", '{"full_name":"d"}')] * 2),
        entries_are(lambda keys: keys.recent(id="r1").count(), 2),
    ),
    "an unexpected deadline": Defect(
        "unexpected-deadline",
        "Keys.board",
        "board:b1",
        written("PEXPIRE", "board:b1", DAY_MS),
        has_left("board:b1", -1, -1),
    ),
    "a string instead of a hash": Defect(
        "wrong-kind", "Keys.bag", "bag:x", written("SET", "bag:x", b"\xff\x00"), is_aside("bag:x")
    ),
    "a hash instead of a value": Defect(
        "wrong-kind",
        "Keys.account",
        "account:x",
        written("HSET", "account:x", "a", "1", "b", "2"),
        is_aside("account:x"),
    ),
    "a list instead of a set": Defect(
        "wrong-kind", "Keys.tags", "tags:x", written("RPUSH", "tags:x", "a", "a", "b"), is_aside("tags:x")
    ),
    "a set instead of a list": Defect(
        "wrong-kind", "Keys.letters", "letters:x", written("SADD", "letters:x", "a", "b"), is_aside("letters:x")
    ),
    "a sorted set instead of a log": Defect(
        "wrong-kind", "Keys.log", "log:x", written("ZADD", "log:x", 1, "a", 2, "b"), is_aside("log:x")
    ),
    "a log instead of a counter": Defect(
        "wrong-kind", "Keys.scores", "scores:x", written("XADD", "scores:x", "*", "data", "x"), is_aside("scores:x")
    ),
    "a value that is no JSON": Defect(
        "unreadable", "Keys.share", "share:x", written("SET", "share:x", b"\xff{", "PX", DAY_MS), is_aside("share:x")
    ),
    "a counter that is no number": Defect(
        "unreadable",
        "Keys.total",
        "board:b1:total",
        written("SET", "board:b1:total", "many"),
        is_aside("board:b1:total"),
    ),
    "a counter too large to be counted on": Defect(
        "unreadable",
        "Keys.total",
        "board:b1:total",
        written("SET", "board:b1:total", "9" * 19),
        is_aside("board:b1:total"),
    ),
    "a hash that lacks a field": Defect(
        "unreadable", "Keys.device", "device:u1:d1", written("HDEL", "device:u1:d1", "name"), is_aside("device:u1:d1")
    ),
    "a seal that was changed": Defect(
        "unreadable",
        "Keys.account",
        "account:u1",
        written("SET", "account:u1", f'{{"name":"Ada","secret":"sealed.2026.{"A" * 16}.{"A" * 43}"}}'),
        is_aside("account:u1"),
    ),
    "a field of a hash": Defect(
        "unreadable",
        "Keys.bag",
        "bag:g1",
        written("HSET", "bag:g1", "c", "x"),
        entries_are(lambda keys: keys.bag(id="g1").get(), {"a": 1, "b": 2}),
    ),
    "a member of a set": Defect(
        "unreadable",
        "Keys.tags",
        "tags:t1",
        written("SADD", "tags:t1", "x", "y"),
        entries_are(lambda keys: keys.tags(id="t1").members(), {1, 2, 3}),
    ),
    "a member of a sorted set": Defect(
        "unreadable",
        "Keys.scores",
        "scores:z1",
        written("ZADD", "scores:z1", 5, "x"),
        entries_are(lambda keys: keys.scores(id="z1").lowest(9), [(1, 0.0), (2, 7.0)]),
    ),
    "an item of a list": Defect(
        "unreadable",
        "Keys.messages",
        "board:b1:messages",
        written("LPUSH", "board:b1:messages", "x", "x"),
        entries_are(lambda keys: keys.messages(id="b1").items(), [Profile(full_name="a message")]),
    ),
    "an entry of a log": Defect(
        "unreadable",
        "Keys.log",
        "log:e1",
        written("XADD", "log:e1", "*", "other", "x"),
        entries_are(lambda keys: keys.log(id="e1").count(), 1),
    ),
    "a mapping to nothing": Defect(
        "leads-nowhere", "Keys.address", "url:gone", written("SET", "url:gone", "gone"), is_gone("url:gone")
    ),
    "an old version": Defect(
        "old-version", "Keys.profile", "profile:u1", written("SET", "profile:u1", '{"name":"Ada","v":1}'), _rewritten
    ),
    "an old seal": Defect("old-seal", "Keys.account", "account:u1", _old_seal, _sealed_anew),
    "an old seal in a hash": Defect(
        "old-seal", "Keys.device", "device:u1:d1", _old_seal_in_a_field, _field_sealed_anew
    ),
}


@everywhere
async def test_a_clean_store_has_no_findings(keys: Keys) -> None:
    await fill(keys)
    report = await examine([keys])
    assert report.found == []
    assert (report.findings, report.left) == (0, 0)
    assert report.examined == await raw(keys.lock.store, "DBSIZE") > 50


@everywhere
@pytest.mark.parametrize("name", DEFECTS)
async def test_a_defect_is_found_once_and_repaired(name: str, keys: Keys, store: Store) -> None:
    defect = DEFECTS[name]
    await fill(keys)
    await defect.plant(keys, store)

    report = await examine([keys])
    assert said(report) == {(defect.code, defect.family, defect.key)}
    assert report.counts == {defect.code: {defect.family: 1}}
    assert (report.repaired, report.left) == (0, 1)

    report = await repair([keys], set_aside="all")
    assert report.counts == {defect.code: {defect.family: 1}}
    assert report.found[0].fixed, report.found
    assert report.left == 0
    assert await defect.repaired(keys, store)

    assert (await examine([keys])).found == []


@everywhere
async def test_all_defects_at_once_are_repaired_and_a_second_run_is_clean(keys: Keys, store: Store) -> None:
    planted = {defect.key: defect for defect in DEFECTS.values()}
    await fill(keys)
    for defect in planted.values():
        await defect.plant(keys, store)
    report = await examine([keys])
    assert said(report) == {(defect.code, defect.family, key) for key, defect in planted.items()}
    assert report.findings == len(planted)

    report = await repair([keys], set_aside="all")
    assert report.findings == report.repaired == len(planted)
    assert (await examine([keys])).found == []


@atomic_anywhere
async def test_a_key_that_a_scan_names_twice_counts_once(
    keys: Keys, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(keys)
    await store.run([("SET", "tmp:1", "x"), ("SADD", "user:u1:sessions", "gone"), ("PERSIST", "lock:s1")])
    scan = store.scan

    async def twice(*args: Any, **options: Any) -> AsyncIterator[list[bytes]]:
        async for page in scan(*args, **options):
            yield page
            yield page

    monkeypatch.setattr(store, "scan", twice)
    report = await examine([keys])
    assert {code: report.count(code) for code in report.counts} == {
        "unknown-key": 1, "dead-entry": 1, "no-deadline": 1,
    }  # fmt: skip


# --- scope -------------------------------------------------------------------------------------------------


@everywhere
async def test_a_key_of_no_family_is_reported_and_left_alone(keys: Keys, store: Store) -> None:
    await store.run([("SET", "tmp:1", "x"), ("SET", b"\xff\xfe", "x"), ("SET", "board:b:c:d:e", "x")])
    report = await repair([keys], set_aside="all")
    assert report.counts == {"unknown-key": {"": 3}}
    assert report.repaired == 0
    assert await raw(store, "EXISTS", "tmp:1") == 1


@everywhere
async def test_keys_of_no_family_are_set_aside_on_request(keys: Keys, store: Store) -> None:
    await store.run([("SET", "tmp:1", "x"), ("SET", b"\xff\xfe", "y"), ("RPUSH", "tmp:2", "a", "b")])
    report = await repair([keys], set_aside="all", unknown="set-aside")
    assert (report.count("unknown-key"), report.repaired) == (3, 3)
    assert await raw(store, "EXISTS", "tmp:1", b"\xff\xfe", "tmp:2") == 0
    assert (await examine([keys])).found == []
    quarantine = QuarantineKeys(store)
    assert await restore(quarantine, "\\xff\\xfe") is not None
    assert await raw(store, "GET", b"\xff\xfe") == b"y"


async def test_only_the_families_that_are_named_are_looked_at(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await fill(keys)
    await memory.run([("SET", "tmp:1", "x"), ("PERSIST", "lock:s1"), ("PERSIST", "sess:s1"), ("PERSIST", "visit:w1")])
    wanted: Collection[Family[Any]] = [Keys.lock]
    assert said(await examine([keys], families=wanted)) == {("no-deadline", "Keys.lock", "lock:s1")}
    report = await examine([keys], families=[Keys.lock, Keys.visit])
    assert report.counts == {"no-deadline": {"Keys.lock": 1, "Keys.visit": 1}}


async def test_all_findings_are_counted_and_the_first_are_shown(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await memory.run([("SET", f"lock:{number}", "x") for number in range(300)])
    seen: list[Progress] = []
    report = await examine([keys], examples=7, page=50, on_progress=seen.append)
    assert report.count("no-deadline") == 300
    assert len(report.found) == 7
    assert seen[-1] == Progress(300, 300, 300, 0)
    assert [progress.examined for progress in seen] == sorted(progress.examined for progress in seen)


async def test_a_family_of_two_keyspaces_is_examined_once(memory: Store) -> None:
    class Cached(Keyspace):
        lock = Value("other:{id}", str, lifetime=after("1h"))
        board = Value("cached:{id}", str, lifetime=after("1h"), role="cache", leads_to=link("lock", id=VALUE))

    async with connect("memory://") as other:
        keys, cached = Keys(memory, seal=RING), Cached(memory, cache=other)
        await cached.board(id="1").add("here")
        await cached.lock(id="here").add("x")
        await other.run([("SET", "tmp:1", "x"), ("SET", "other:1", "x", "PX", 1000)])
        report = await examine([keys, cached, Keys(memory, seal=RING)])
        # A family belongs to the store of its role: elsewhere its keys are unknown.
        assert said(report) == {("unknown-key", None, "tmp:1"), ("unknown-key", None, "other:1")}
        assert report.examined == 4
        await other.run([("DEL", "tmp:1", "other:1")])
        await memory.run([("DEL", "other:here")])
        report = await repair([keys, cached], set_aside="all")
        assert said(report) == {("leads-nowhere", "Cached.board", "cached:1")}
        assert await raw(other, "EXISTS", "cached:1") == 0


async def test_a_missing_owner_that_does_not_follow_from_the_key_is_not_reported(memory: Store) -> None:
    class Meta(BaseModel):
        short: str

    class Sharing(Keyspace):
        token = Value("token:{short}", str, lifetime=FOREVER)
        meta = Value("meta:{id}", Meta, lifetime=FOREVER, owns=token.by(short="short"))

    keys = Sharing(memory)
    await keys.token(short="a").add("x")
    assert (await examine([keys])).found == []


async def test_of_several_owners_one_is_enough(memory: Store) -> None:
    class Teams(Keyspace):
        seat = Value("seat:{team}:{user}", str, lifetime=FOREVER)
        team = Value("team:{team}", str, lifetime=FOREVER, owns=seat)
        user = Value("person:{user}", str, lifetime=FOREVER, owns=seat)

    keys = Teams(memory)
    await keys.seat(team="t", user="u").add("x")
    await keys.team(team="t").add("x")
    assert (await examine([keys])).found == []
    await memory.run([("DEL", "team:t")])
    assert said(await examine([keys])) == {("orphan", "Teams.seat", "seat:t:u")}


async def test_findings_caused_by_a_repair_are_repaired_in_the_same_run(memory: Store) -> None:
    """The mapping comes before the board in a scan of SQLite, and leads nowhere only when the board is gone."""

    class Chain(Keyspace):
        mapping = Value("a:{id}", str, lifetime=FOREVER, leads_to=link("board", id=VALUE))
        site = Value("c:{id}", str, lifetime=FOREVER, owns="board")
        board = Value("b:{id}", str, lifetime=FOREVER)

    keys = Chain(memory)
    await keys.mapping(id="1").add("1")
    await keys.board(id="1").add("x")
    report = await repair([keys], set_aside="all")
    assert said(report) == {("orphan", "Chain.board", "b:1"), ("leads-nowhere", "Chain.mapping", "a:1")}
    assert report.left == 0
    assert (await examine([keys])).examined == 0


async def test_deleting_an_orphan_cascades(memory: Store) -> None:
    class Tree(Keyspace):
        index = Set("leaves", str, lifetime=FOREVER)
        root = Value("root:{id}", str, lifetime=FOREVER, owns="branch")
        branch = Value("branch:{id}", str, lifetime=FOREVER, owns=["leaf", "fruit"], listed_in=index)
        leaf = Value("leaf:{id}", str, lifetime=FOREVER)
        fruit = Value("fruit:{id}:{n:int}", str, lifetime=FOREVER)

    keys = Tree(memory)
    await keys.branch(id="1").add("x")
    await keys.leaf(id="1").add("x")
    await keys.fruit(id="1", n=1).add("x")
    report = await repair([keys], set_aside="all")
    assert said(report) == {("orphan", "Tree.branch", "branch:1")}
    assert (await examine([keys])).examined == 0


# --- large keys --------------------------------------------------------------------------------------------


@pytest.mark.matrix
@atomic_anywhere
async def test_an_index_of_many_pages_is_cleaned_as_a_whole(keys: Keys, store: Store) -> None:
    await fill(keys)
    await store.run([("ZADD", "boards:index", number, f"gone{number}") for number in range(1_700)])
    assert (await examine([keys])).count("dead-entry") == 1_700
    assert (await repair([keys], set_aside="all")).repaired == 1_700
    assert await keys.boards().count() == 3
    assert (await examine([keys])).found == []


@atomic_anywhere
async def test_long_lists_and_logs_are_read_to_their_end(keys: Keys, store: Store) -> None:
    good = b'{"full_name":"Ada"}'
    await store.run([("RPUSH", "board:b1:messages", *[good] * 1_200, "bad")])
    await store.run([("XADD", "log:e1", "*", "data", good) for _ in range(1_200)])
    await store.run(
        [("XADD", "log:e1", "*", "data", "bad"), ("SET", "board:b1", good), ("ZADD", "boards:index", 1, "b1")]
    )
    await keys.board(id="b1").set(Profile(full_name="a board"))
    report = await repair([keys], set_aside="all")
    assert report.counts == {"unreadable": {"Keys.messages": 1, "Keys.log": 1}}
    assert await keys.messages(id="b1").count() == await keys.log(id="e1").count() == 1_200


async def test_a_set_too_large_for_one_read_is_reported_and_not_read(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys(memory, seal=RING)
    await memory.run(
        [("SADD", "tags:t1", *range(chunked_reading.AT_ONCE + 1)), ("SADD", "tags:t2", *range(300), "bad")]
    )
    report = await examine([keys])
    assert report.not_read == {"Keys.tags": 1}
    assert said(report) == {("unreadable", "Keys.tags", "tags:t2")}


@atomic_anywhere
async def test_a_log_with_thousands_of_entries_too_many_is_shortened(keys: Keys, store: Store) -> None:
    data = '{"full_name":"Ada"}'
    await store.run([("XADD", "recent:r", f"{number}-1", "data", data) for number in range(1, 7_502)])
    report = await repair([keys], families=[Keys.recent])
    assert (report.count("too-long"), report.left) == (1, 0)
    assert [entry for entry, _ in await raw(store, "XRANGE", "recent:r", "-", "+")] == [b"7500-1", b"7501-1"]


async def test_a_list_longer_than_its_family_keeps_is_reported_and_left_to_its_program(memory: Store) -> None:
    class Keeping(Keyspace):
        last = List("last:{id}", str, keep=2, lifetime=FOREVER)

    keys = Keeping(memory)
    await memory.run([("RPUSH", "last:1", "a", "b", "c")])
    report = await repair([keys], set_aside="all")
    assert report.counts == {"too-long": {"Keeping.last": 1}}
    assert (report.left, "next write" in report.found[0].note) == (1, True)
    await keys.last("1").append("d")
    assert (await examine([keys])).found == []


async def test_an_entry_of_a_record_that_expired_as_declared_is_not_a_finding(memory: Store) -> None:
    """As on a board on which two visitors posted: the mark of the first is over, and the index lives on."""
    keys = Keys(memory, seal=RING)
    await keys.ticket(uid="u1", id="new").add("x")
    now_ms = int(time.time() * 1000)
    await memory.run([("ZADD", "tickets:u1", now_ms - 60_000, "over", now_ms + 60_000, "deleted")])
    report = await repair([keys])
    assert report.counts == {"dead-entry": {"Keys.tickets": 1}}
    assert await raw(memory, "ZSCORE", "tickets:u1", "over") is not None
    assert await raw(memory, "ZSCORE", "tickets:u1", "deleted") is None


async def test_a_key_with_an_optional_owner_is_not_an_orphan(memory: Store) -> None:
    class Files(Keyspace):
        upload = Value("upload:{id}", str, lifetime=FOREVER, owns=[link("share", optional=True), "size"])
        share = Value("share:{id}", str, lifetime=FOREVER)
        size = Counter("size:{id}", lifetime=FOREVER)

    keys = Files(memory)
    for id in ("a", "b"):
        await keys.share(id).set("x")
    await keys.size("b").increment()
    assert said(await examine([keys])) == {("orphan", "Files.size", "size:b")}
    await keys.upload("a").set("x")
    await keys.upload("a").delete()
    assert await keys.share("a").get() is None


async def test_keys_of_keyspaces_that_are_known_are_neither_examined_nor_unknown(memory: Store) -> None:
    class Others(Keyspace):
        other = Value("other:{id}", str, lifetime=after("1h"), tag="id")

    await memory.run([("SET", "other:1", "no deadline"), ("SET", "other:{2}", "x"), ("SET", "tmp:1", "x")])
    keys = Keys(memory, seal=RING)
    report = await repair([keys], set_aside="all", unknown="set-aside", known=[Others])
    assert (report.counts, report.others) == ({"unknown-key": {"": 1}}, {"Others": 2})
    assert await raw(memory, "EXISTS", "other:1", "other:{2}") == 2


# --- seals and versions ------------------------------------------------------------------------------------


@everywhere
async def test_without_a_key_ring_sealed_values_are_not_unreadable(keys: Keys, store: Store) -> None:
    await fill(keys)
    report = await repair([Keys(store, needs_seal=False)], set_aside="all")
    assert report.found == []
    assert report.sealed == {"Keys.account": 3, "Keys.device": 3}


async def test_without_a_key_ring_an_unsealed_text_in_a_sealed_field_is_unreadable(memory: Store) -> None:
    await memory.run([("SET", "account:u1", '{"name":"Ada","secret":"plain"}'), ("RPUSH", "letters:u1", "x")])
    report = await examine([Keys(memory, needs_seal=False)])
    assert said(report) == {("unreadable", "Keys.account", "account:u1"), ("unreadable", "Keys.letters", "letters:u1")}


@atomic_anywhere
async def test_a_value_sealed_with_a_key_that_is_missing_is_never_set_aside(keys: Keys, store: Store) -> None:
    await fill(keys)
    other = Keys(store, seal=KeyRing({"2027": b"x" * 32}))
    await other.account(uid="u9").add(Account(name="Bob", secret="his"))
    report = await repair([other], set_aside="all", families=[Keys.account])
    assert report.count("unreadable") == report.left == 3
    assert "key ring" in report.found[0].note
    assert await keys.account(uid="u1").get() == Account(name="Ada", secret="hush")


@atomic_anywhere
@pytest.mark.parametrize("key_id", ["2026", "2027"])
async def test_if_no_sealed_value_opens_nothing_is_repaired(keys: Keys, store: Store, key_id: str) -> None:
    await fill(keys)
    await store.run([("PERSIST", "lock:s1"), ("SET", "share:x", "junk", "PX", DAY_MS)])
    other = Keys(store, seal=KeyRing({key_id: b"x" * 32}))
    before = await contents(store)
    assert (await examine([other])).locked == {"Keys.account": 3, "Keys.letters": 3, "Keys.device": 3}
    with pytest.raises(WrongSealKey, match="KEYSTEAD_SEAL_KEYS"):
        await repair([other], set_aside="all")
    assert await contents(store) == before


@atomic_anywhere
async def test_more_than_one_in_a_hundred_of_a_family_is_set_aside_only_if_that_is_wanted(
    keys: Keys, store: Store
) -> None:
    await store.run([("SET", f"profile:u{number}", '{"full_name":"Ada","v":2}') for number in range(198)])
    await store.run([("SET", "profile:x1", "junk"), ("SET", "profile:x2", "junk"), ("SADD", "tags:t", "junk")])
    await store.run([("SET", "tmp:1", "x"), ("SET", "lock:s1", "x")])
    plan = await examine([keys])
    assert plan.excess(unknown=False) == [Excess("Keys.tags", 1, 1, "entry")]
    assert plan.excess(unknown=True) == plan.excess(unknown=False)  # 1 of 203

    await store.run([("SET", "profile:x3", "junk")])
    report = await repair([keys])
    assert {found.finding.key for found in report.found if found.fixed} == {"lock:s1"}
    assert report.counts["unreadable"] == {"Keys.profile": 3, "Keys.tags": 1}
    assert all("confirm" in found.note for found in report.found if found.finding.code == "unreadable")
    assert (await repair([keys], set_aside="all")).count("unreadable") == 4
    assert set((await examine([keys])).counts) == {"unknown-key"}


@atomic_anywhere
async def test_keys_that_appear_after_the_plan_are_not_quarantined_beyond_the_limit(keys: Keys, store: Store) -> None:
    await store.run([("SET", f"profile:u{number}", '{"full_name":"Ada","v":2}') for number in range(300)])
    plan = await examine([keys])
    await store.run([("SET", f"profile:u{number}", "junk") for number in range(250)])
    report = await repair([keys], plan=plan)
    assert (report.count("unreadable"), report.repaired) == (250, 3)


class Owned(Keyspace):
    """Keys whose owners, and mappings whose targets, are in another store."""

    user = Value("user:{uid}", str, role="users", lifetime=FOREVER, owns="note")
    note = Value("note:{uid}:{n:int}", str, lifetime=FOREVER)
    email = Value("email:{email}", str, lifetime=FOREVER, leads_to=link("user", uid=VALUE))


async def test_to_delete_more_than_one_in_a_hundred_of_a_family_must_be_confirmed(memory: Store) -> None:
    keys = Owned(memory)
    await keys.user(uid="a").add("x")
    await memory.run([("SET", f"note:a:{number}", "x") for number in range(198)])
    await memory.run([("SET", f"email:{number}", "a") for number in range(9)])
    await memory.run([("SET", "note:b:1", "x"), ("SET", "note:b:2", "x"), ("SET", "email:b", "b")])
    plan = await examine([keys])
    assert plan.excess(unknown=False) == [Excess("Owned.email", 1, 10, "key", "delete")]  # and 2 of 200 notes
    report = await repair([keys])
    assert {found.finding.key for found in report.found if found.fixed} == {"note:b:1", "note:b:2"}
    [left] = [found for found in report.found if not found.fixed]
    assert (left.finding.key, left.note) == (
        "email:b",
        "more than 1 % of them would be deleted, which an operator must confirm",
    )
    assert (await repair([keys], set_aside="all")).left == 0
    assert await raw(memory, "EXISTS", "email:b") == 0


async def test_a_key_that_two_findings_delete_is_counted_once(memory: Store) -> None:
    class Both(Keyspace):
        user = Value("user:{uid}", str, lifetime=FOREVER, owns="friend")
        friend = Value("friend:{uid}", str, lifetime=FOREVER, leads_to=link("user", uid=VALUE))

    keys = Both(memory)
    await keys.friend(uid="a").add("b")
    plan = await examine([keys])
    assert (plan.findings, plan.excess(unknown=False)) == (2, [Excess("Both.friend", 1, 1, "key", "delete")])


async def test_if_no_key_has_its_owner_the_store_is_wrong_and_none_is_deleted(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_changes, "SETTLE_S", 0)
    async with connect("memory://") as users, connect("memory://") as wrong:
        keys = Owned(memory, users=users)
        for uid in map(str, range(11)):
            await keys.user(uid=uid).add("x")
            await keys.note(uid=uid, n=1).add("x")
            await keys.email(email=uid).add(uid)
        before = await contents(memory)
        misled = Owned(memory, users=wrong)
        plan = await examine([misled])
        assert plan.astray == {"Owned.note": "orphan", "Owned.email": "leads-nowhere"}
        assert plan.excess(unknown=False) == []
        report = await repair([misled], plan=plan, set_aside="all")
        assert (report.findings, report.repaired) == (22, 0)
        assert all("store" in found.note for found in report.found)
        assert await contents(memory) == before

        # One owner that is there says that it is the right store; then somebody may confirm.
        await misled.user(uid="0").add("x")
        assert (await repair([misled])).repaired == 0
        assert (await repair([misled], set_aside="all")).repaired == 20


@atomic_anywhere
async def test_a_value_of_a_newer_program_is_never_set_aside(keys: Keys, store: Store) -> None:
    await store.run([("SET", "profile:u1", '{"name":"Ada","v":3}')])
    report = await repair([keys], set_aside="all")
    assert said(report) == {("unreadable", "Keys.profile", "profile:u1")}
    assert "newer program" in report.found[0].note
    assert await raw(store, "GET", "profile:u1") == b'{"name":"Ada","v":3}'


async def test_entries_under_a_key_that_is_not_there_are_never_set_aside(memory: Store) -> None:
    class Entries(Keyspace):
        items = List("items", Account, lifetime=FOREVER, keep=100, doc="a list")
        log = Log("log", Account, lifetime=FOREVER, keep=100, doc="a log")
        fields = Hash("fields", dict[str, Account], lifetime=FOREVER, doc="a hash")

    account = Account(name="Ada", secret="hush")
    for ring in (KeyRing({"2027": b"x" * 32}), RING):
        keys = Entries(memory, seal=ring)
        await keys.items().append(account)
        await keys.log().append(account)
        await keys.fields().put({ring.current: account})
    await memory.run([("RPUSH", "items", "junk")])
    before = await contents(memory)
    report = await repair([keys], set_aside="all")
    assert sorted((one.finding.key, one.fixed, one.note.partition(":")[0]) for one in report.found) == [
        ("fields", False, "it may be valid"),
        ("items", False, "it may be valid"),
        ("items", True, ""),
        ("log", False, "it may be valid"),
    ]
    after_it = await contents(memory)
    assert all(after_it[name] == before[name] for name in (b"fields", b"log"))
    assert await raw(memory, "LLEN", "items") == 2


async def test_a_text_that_only_looks_sealed_is_not_an_old_seal(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await keys.account(uid="u1").add(Account(name=f"sealed.2025.{'A' * 16}.{'A' * 22}", secret="hush"))
    assert (await examine([keys])).found == []


async def test_old_seals_in_a_list_are_reported_although_they_cannot_be_rewritten(memory: Store) -> None:
    old = Keys(memory, seal=KeyRing({"2025": OLD}))
    await old.letters(uid="u1").append(Account(name="Ada", secret="hush"))
    report = await repair([Keys(memory, seal=RING)], set_aside="all")
    assert report.counts == {"old-seal": {"Keys.letters": 1}}
    assert report.left == 1
    assert "keep the old key" in report.found[0].note


async def test_no_finding_holds_a_secret(memory: Store) -> None:
    await memory.run([("SET", "account:u1", '{"name":"Ada","secret":"correct horse"}')])
    await memory.run([("SET", "share:x", "correct horse", "PX", 1000), ("SADD", "tags:t", "correct horse")])
    for keys in (Keys(memory, seal=RING), Keys(memory, needs_seal=False)):
        assert "correct horse" not in json.dumps((await examine([keys])).as_json())


# --- deadlines ---------------------------------------------------------------------------------------------


@everywhere
async def test_a_repair_lets_no_key_live_longer_whose_value_does_not_say_so(keys: Keys, store: Store) -> None:
    await fill(keys)
    short = ("lock:s0", "sess:s0", "visit:w0", "device:u1:d0")
    await store.run([("PEXPIRE", key, 60_000) for key in short])
    report = await repair([keys], set_aside="all")
    assert report.found == []
    assert all(left <= 60_000 for left in await store.run([("PTTL", key) for key in short]))


async def test_an_unstored_deadline_is_not_guessed(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await memory.run([("SET", "pass:p1", "x")])
    report = await repair([keys], set_aside="all")
    assert (report.count("no-deadline"), report.left) == (1, 1)
    assert "at_most" in report.found[0].note
    assert await raw(memory, "PTTL", "pass:p1") == -1


async def test_a_hash_lives_until_the_moment_it_was_last_given(memory: Store) -> None:
    class Growing(Keyspace):
        link = Hash("link:{id}", Link, lifetime=until("expires_at"))

    keys = Growing(memory)
    await keys.link(id="1").add(Link(to="x", expires_at=in_days(9)))
    await keys.link(id="1").update({"expires_at": in_days(1)})
    assert (await examine([keys])).found == []


# --- quarantine --------------------------------------------------------------------------------------------


@everywhere
async def test_a_quarantined_key_can_be_restored(keys: Keys, store: Store) -> None:
    await fill(keys)
    names = ("a string instead of a hash", "a hash instead of a value", "a list instead of a set",
             "a set instead of a list", "a sorted set instead of a log", "a log instead of a counter")  # fmt: skip
    before = {}
    for name in names:
        await DEFECTS[name].plant(keys, store)
        await store.run([("PEXPIRE", DEFECTS[name].key, DAY_MS)])
        before[name] = await everything(store, DEFECTS[name].key)
    assert (await repair([keys], set_aside="all")).repaired == len(names)
    quarantine = QuarantineKeys(store)
    for name in names:
        key = DEFECTS[name].key
        assert await restore(quarantine, key) is not None
        assert await everything(store, key) == before[name]
        assert DAY_MS - 60_000 < await raw(store, "PTTL", key) <= DAY_MS
        assert await restore(quarantine, key) is None


async def everything(store: Store, key: str) -> Any:
    kind = (await raw(store, "TYPE", key)).decode()
    return kind, await raw(store, *chunked_reading.whole(kind, key))


@everywhere
async def test_nothing_is_written_over_when_it_is_brought_back(keys: Keys, store: Store) -> None:
    await store.run([("SET", "bag:x", "old")])
    await repair([keys], set_aside="all")
    await keys.bag(id="x").put({"a": 1})
    with pytest.raises(BadValue, match="'bag:x' exists again"):
        await restore(QuarantineKeys(store), "bag:x")
    assert await keys.bag(id="x").get() == {"a": 1}
    assert await restore(QuarantineKeys(store), "bag:never") is None


async def test_a_quarantined_key_past_its_deadline_is_not_restored() -> None:
    ahead_ms = 0
    async with SqliteStore(":memory:", clock=lambda: time.time_ns() // 1_000_000 + ahead_ms) as store:
        keys = Keys(store, seal=RING)
        await store.run([("SET", "share:x", "{", "PX", DAY_MS)])
        assert (await repair([keys], set_aside="all")).repaired == 1
        ahead_ms = 2 * DAY_MS
        with pytest.raises(BadValue, match="it is not restored"):
            await restore(QuarantineKeys(store), "share:x")


@atomic_anywhere
async def test_a_second_copy_does_not_write_over_the_first(keys: Keys, store: Store) -> None:
    for content in ("one", "two"):
        await store.run([("SET", "bag:x", content)])
        assert (await repair([keys], set_aside="all")).repaired == 1
    quarantine = QuarantineKeys(store).quarantine
    copies = {copy: await quarantine(key="bag:x", copy=copy).get() for copy in (None, 2)}
    held = {copy: base64.b64decode(found.content) for copy, found in copies.items() if found is not None}
    assert held == {None: b"one", 2: b"two"}
    await restore(QuarantineKeys(store), "bag:x")
    assert await raw(store, "GET", "bag:x") == b"two"


@everywhere
async def test_keys_of_a_quarantined_owner_are_not_deleted(keys: Keys, store: Store) -> None:
    await fill(keys)
    await store.run([("SET", "board:b1", "{")])
    report = await repair([keys], set_aside="all")
    assert said(report) == {("unreadable", "Keys.board", "board:b1")}
    assert (await repair([keys], set_aside="all")).found == []
    assert await raw(store, "EXISTS", "board:b1:total") == 1
    await store.run([("DEL", "keystead:quarantine:board%3Ab1")])
    report = await examine([keys])
    assert {code: report.count(code) for code in report.counts} == {"orphan": 3, "dead-entry": 1, "leads-nowhere": 1}


@everywhere
async def test_an_index_of_another_kind_is_recreated(keys: Keys, store: Store) -> None:
    await fill(keys)
    await store.run([("DEL", "user:u1:sessions"), ("SET", "user:u1:sessions", "x")])
    report = await repair([keys], set_aside="all")
    assert report.counts == {"wrong-kind": {"Keys.sessions": 1}, "not-listed": {"Keys.session": 3}}
    assert report.left == 0
    assert await keys.sessions(uid="u1").live() == {"s0", "s1", "s2"}
    assert (await examine([keys])).found == []


# --- concurrent program ------------------------------------------------------------------------------------


async def keep_busy(keys: Keys, stop: asyncio.Event, seed: int, alive: set[str]) -> None:
    """A program that creates, uses and deletes listed records with owned keys. `alive` has the keys that must exist."""
    chance = random.Random(seed)
    number = 0
    while not stop.is_set():
        number += 1
        name = f"{seed}-{number % 39}"
        match chance.randrange(7):
            case 0 | 1:
                await keys.session(sid=name).set(Session(uid=f"u{number % 3}"))
                alive.add(f"sess:{name}")
            case 2:
                alive.discard(f"sess:{name}")
                await keys.session(sid=name).delete()
            case 6:
                await keys.session(sid=name).touch()
            case 3:
                await keys.atomically(
                    keys.board(id=name).set(Profile(full_name="x")),
                    keys.total(id=name).increment(),
                    keys.address(url=name).set(name),
                    keys.daily(id=name, day=date(2026, 2, 23)).increment(),
                )
                alive |= {f"board:{name}", f"board:{name}:total", f"url:{name}"}
            case 4:
                alive -= {f"board:{name}", f"board:{name}:total", f"url:{name}"}
                await keys.atomically(keys.address(url=name).delete(), keys.board(id=name).exists())
                await keys.board(id=name).delete()
            case 5:
                await keys.device(uid=f"u{seed}", did=name).set(Device(uid="x", name="y", token="z"))
                alive.add(f"device:u{seed}:{name}")
        await asyncio.sleep(0)


@pytest.mark.matrix
@pytest.mark.everyday("fix")
@atomic_anywhere
@pytest.mark.parametrize("fix", [False, True], ids=["examine", "fix"])
async def test_next_to_a_busy_program_there_are_no_false_findings_and_no_live_deletes(
    keys: Keys, store: Store, fix: bool
) -> None:
    await fill(keys)
    stop, alive = asyncio.Event(), set[str]()
    busy = [asyncio.create_task(keep_busy(keys, stop, seed, alive)) for seed in range(4)]
    reports: list[Report] = []
    try:
        ends = time.monotonic() + 2.5
        while (time.monotonic() < ends or len(reports) < 3) and not any(task.done() for task in busy):
            reports.append(await (repair([keys], set_aside="all", page=20) if fix else examine([keys], page=20)))
    finally:
        stop.set()
        await asyncio.gather(*busy)
    assert len(reports) > 2
    # A board is deleted in steps, because its daily counters must be scanned for: those may be seen without it.
    findings = [found for report in reports for found in report.found if found.finding.family != "Keys.daily"]
    assert findings == []
    there = await store.run([("EXISTS", key) for key in sorted(alive)])
    assert [key for key, found in zip(sorted(alive), there, strict=True) if not found] == []


@atomic_anywhere
async def test_a_fix_beside_a_program_that_recreates_keys_never_deletes_live_ones(keys: Keys, store: Store) -> None:
    """The program creates and repairs defects while the doctor is about to repair them."""
    stop = asyncio.Event()

    async def revive(seed: int) -> None:
        while not stop.is_set():
            name = f"r{seed}"
            await store.run([("SET", f"board:{name}:total", 1), ("SET", f"url:{name}", name)])  # an orphan, and so on
            await asyncio.sleep(0)
            await keys.atomically(
                keys.board(id=name).set(Profile(full_name="x")),
                keys.total(id=name).set(5),
                keys.address(url=name).set(name),
            )
            for _ in range(5):
                await asyncio.sleep(0)
                found = await store.run([("EXISTS", f"board:{name}", f"board:{name}:total", f"url:{name}")])
                assert found == [3], "the doctor deleted something that lives"
            await store.run([("DEL", f"board:{name}"), ("ZREM", "boards:index", name)])

    tasks = [asyncio.create_task(revive(seed)) for seed in range(4)]
    try:
        ends = time.monotonic() + 2
        runs = 0
        while (time.monotonic() < ends or runs < 3) and not any(task.done() for task in tasks):
            await repair([keys], set_aside="all", page=20)
            runs += 1
    finally:
        stop.set()
        await asyncio.gather(*tasks)
    assert runs > 2


@pytest.mark.matrix
async def test_an_examination_can_be_stopped_at_any_moment(memory: Store) -> None:
    keys = Keys(memory, seal=RING)
    await keys.board(id="here").add(Profile(full_name="a board"))
    await keys.total(id="here").increment()
    await memory.run([("SET", f"board:b{number}:total", 1) for number in range(2_000)])
    begun = asyncio.Event()

    def on_progress(now: Progress) -> None:
        if now.fixed:
            begun.set()

    walk = asyncio.create_task(repair([keys], set_aside="all", on_progress=on_progress))
    await begun.wait()
    walk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walk
    assert 3 < await raw(memory, "DBSIZE") < 2_003
    assert (await repair([keys], set_aside="all")).left == 0
    assert await raw(memory, "DBSIZE") == 3  # the board, its total and the index


def test_the_public_face_is_small() -> None:
    assert set(doctor.__all__) == {
        "Excess", "Found", "Progress", "QuarantineKeys", "Quarantined", "Report", "examine", "repair", "restore",
    }  # fmt: skip
    assert Unknown.__args__ == ("report", "set-aside")  # type: ignore[attr-defined]


class Tagged(Keyspace):
    """Records that share a slot with their index and with what they own."""

    sessions = Set("user:{uid}:sessions", str, lifetime=FOREVER, tag="uid")
    session = Value("sess:{uid}:{sid}", str, lifetime=after("1d"), listed_in=sessions, owns="lock", tag="uid")
    lock = Value("sess:{uid}:{sid}:lock", str, lifetime=after("1h"), tag="uid")


@everywhere
async def test_keys_with_a_hash_tag_are_known_and_repaired(store: Store) -> None:
    keys = Tagged(store)
    for sid in ("a", "b", "c"):
        await keys.session(uid="u", sid=sid).add("x")
        await keys.lock(uid="u", sid=sid).add("x")
    assert (await examine([keys])).found == []
    await store.run([("DEL", keys.session(uid="u", sid="a").key)])
    await keys.sessions(uid="u").remove("b")
    report = await repair([keys], set_aside="all")
    assert {code: report.count(code) for code in report.counts} == {"dead-entry": 1, "orphan": 1, "not-listed": 1}
    assert report.left == 0
    assert (await examine([keys])).found == []
    assert await keys.sessions(uid="u").live() == {"b", "c"}
