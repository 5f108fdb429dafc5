"""The write guard: raw commands of any client, checked against the declared families."""

import gc
import random
import time
import tracemalloc
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from keystead import (
    Channel,
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
from keystead.errors import CommandError, CrossSlot, WriteRefused
from keystead.schema import VALUE, EpochMs, Versions
from keystead.schema.doctor import examine
from keystead.schema.finding import Finding
from keystead.schema.guard import GuardedStore, Mode, WriteGuard
from keystead.stores.commands import TABLE
from keystead.stores.derived import DERIVED, run_derived

pytestmark = pytest.mark.anyio
everywhere = pytest.mark.parametrize("store_url", ["memory", "sqlite", "redis"], indirect=True)
DAY_MS = 86_400_000
FOREVER = never("a test")
RING = KeyRing({"2026": b"n" * 32})


class Cart(BaseModel):
    items: int
    note: str = ""


class Offer(BaseModel):
    to: str
    expires_at: EpochMs


class Member(BaseModel):
    name: str
    visits: int = 0
    level: int = 0


class Span(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def in_order(self) -> "Span":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Account(BaseModel):
    name: str
    secret: Sealed[str]


class Item(BaseModel):
    made_at: EpochMs


class Keys(Keyspace):
    """Every kind, every lifetime, every relation."""

    cart = Value("cart:{id}", Cart, lifetime=after("90d"))
    draft = Value("draft:{id}", str, lifetime=sliding("1h", touch_every="1m"))
    offer = Value("offer:{id}", Offer, lifetime=until("expires_at", at_most="14d"))
    ticket = Value("ticket:{id}", int, lifetime=until("ends", at_most="14d"))
    visit = Value("visit:{id}", str, lifetime=end_of_day("UTC"))
    name = Value("name:{id}", str, lifetime=FOREVER)
    account = Value("account:{id}", Account, lifetime=FOREVER)
    old = Value("old:{id}", Cart, versions=Versions("v", 2, {1: lambda old: old}), lifetime=FOREVER)
    hits = Counter("hits:{id}", lifetime=after("1d"))
    total = Counter("total:{id}", lifetime=FOREVER)
    member = Hash("member:{id}", Member, lifetime=after("30d"))
    span = Hash("span:{id}", Span, lifetime=FOREVER)
    bag = Hash("bag:{id}", dict[str, int], lifetime=sliding("7d", touch_every="1h"))
    tags = Set("tags:{id}", int, lifetime=after("7d"))
    ranks = SortedSet("ranks:{id}", str, lifetime=FOREVER)
    news = List("news:{id}", Cart, keep=3, lifetime=after("7d"))
    log = Log("log:{id}", Cart, keep=3, lifetime=FOREVER)
    feed = Channel("feed:{id}", Cart)

    sessions = Set("user:{uid}:sessions", str, lifetime=FOREVER)
    session = Value("session:{uid}:{sid}", str, lifetime=after("30d"), listed_in=sessions, owns="seen")
    seen = Counter("seen:{uid}:{sid}", lifetime=after("30d"))
    page = Value("page:{id}", str, lifetime=FOREVER)
    alias = Value("alias:{name}", str, lifetime=FOREVER, leads_to=link("page", id=VALUE))
    newest = SortedSet("items:newest", str, lifetime=FOREVER)
    item = Value("item:{id}", Item, lifetime=FOREVER, listed_in=newest.by(score="made_at"))


def guarded(store: Store, mode: Mode = "enforce", report: Callable[[Finding], None] | None = None) -> GuardedStore:
    return GuardedStore(store, WriteGuard([Keys(store, seal=RING)], mode, report))


async def refusal(store: Store, *command: Any) -> str:
    """The finding for which this command is refused, or nothing."""
    [reply] = await run_derived(store, [command])
    assert reply is None or not isinstance(reply, CommandError) or isinstance(reply, WriteRefused), reply
    return reply.finding if isinstance(reply, WriteRefused) else ""


SOON_MS = int(time.time() * 1000) + 3 * DAY_MS


@pytest.mark.parametrize(
    ("command", "finding"),
    [
        (("SET", "nothing:1", "x"), "unknown-key"),
        (("INCR", "nothing:1"), "unknown-key"),
        (("PUBLISH", "nothing:1", "x"), "unknown-key"),
        (("PUBLISH", "cart:1", '{"items":1}'), "unknown-key"),
        (("PUBLISH", "feed:1", '{"items":"many"}'), "unreadable"),
        (("PUBLISH", "feed:1", '{"items":1}'), ""),
        (("SET", "feed:1", "x"), "unknown-key"),
        (("DEL", "nothing:1"), ""),
        (("HSET", "cart:1", "items", "1"), "wrong-kind"),
        (("SET", "member:1", "{}"), "wrong-kind"),
        (("RPUSH", "tags:1", "1"), "wrong-kind"),
        (("SET", "cart:1", "{}", "EX", 60), "unreadable"),
        (("SET", "cart:1", '{"items":1}'), "no-deadline"),
        (("SET", "cart:1", '{"items":1}', "EX", 60), ""),
        (("SETEX", "cart:1", 90 * 86_400, '{"items":1}'), ""),
        (("SETEX", "cart:1", 91 * 86_400, '{"items":1}'), "late-deadline"),
        (("SET", "cart:1", '{"items":1}', "KEEPTTL"), "no-deadline"),
        (("SET", "cart:1", '{"items":1}', "XX", "KEEPTTL"), ""),
        (("SETNX", "cart:1", '{"items":1}'), "no-deadline"),
        (("MSET", "name:1", "x", "cart:1", '{"items":1}'), "no-deadline"),
        (("MSET", "name:1", "x", "name:2", "y"), ""),
        (("SET", "name:1", "x", "EX", 60), "unexpected-deadline"),
        (("EXPIRE", "name:1", 60), "unexpected-deadline"),
        (("EXPIRE", "cart:1", 60), ""),
        (("EXPIRE", "cart:1", 91 * 86_400), "late-deadline"),
        (("EXPIRE", "name:1", 0), ""),
        (("PERSIST", "cart:1"), "no-deadline"),
        (("PERSIST", "name:1"), ""),
        (("GETEX", "cart:1", "PERSIST"), "no-deadline"),
        (("SET", "offer:1", f'{{"to":"x","expires_at":{SOON_MS}}}', "PXAT", SOON_MS), ""),
        (("SET", "offer:1", f'{{"to":"x","expires_at":{SOON_MS}}}', "EX", 60), "early-deadline"),
        (("SET", "offer:1", f'{{"to":"x","expires_at":{SOON_MS}}}', "KEEPTTL"), "no-deadline"),
        (("EXPIRE", "offer:1", 60), "early-deadline"),
        (("SET", "ticket:1", "7", "EX", 60), ""),
        (("SET", "visit:1", "x", "EX", 2 * 86_400), "late-deadline"),
        (("SET", "account:1", '{"name":"Ada","secret":"plain"}'), "unreadable"),
        (("SET", "old:1", '{"v":1,"items":1}'), "old-version"),
        (("INCR", "hits:1"), "no-deadline"),
        (("SET", "hits:1", "0", "EX", 60), ""),
        (("SET", "hits:1", "many", "EX", 60), "unreadable"),
        (("INCR", "total:1"), ""),
        (("INCR", "name:1"), "unreadable"),
        (("HSET", "member:1", "name", "Ada"), "no-deadline"),
        (("HSET", "member:1", "age", "7"), "unreadable"),
        (("HSET", "member:1", "visits", "many"), "unreadable"),
        (("HINCRBY", "span:1", "low", 1), "unreadable"),
        (("HSET", "span:1", "low", 1, "high", 2), ""),
        (("HSET", "span:1", "low", 2, "high", 1), "unreadable"),
        (("SADD", "tags:1", "x"), "unreadable"),
        (("SADD", "tags:1", "7"), "no-deadline"),
        (("ZINCRBY", "ranks:1", 1, "ann"), ""),
        (("XADD", "log:1", "*", "data", '{"items":1}'), ""),
        (("XADD", "log:1", "*", "other", "x"), "unreadable"),
        (("SET", "session:7:a", "x", "EX", 60), "not-listed"),
        (("SADD", "user:7:sessions", "a"), "dead-entry"),
        (("SET", "seen:7:a", "1", "EX", 60), "orphan"),
        (("SET", "alias:x", "nobody"), "leads-nowhere"),
        (("SET", "item:1", '{"made_at":5}'), "not-listed"),
        (("ZADD", "items:newest", 5, "1"), "wrong-score"),
    ],
)
@everywhere
async def test_what_the_doctor_would_report_is_refused(store: Store, command: tuple[Any, ...], finding: str) -> None:
    assert await refusal(guarded(store), *command) == finding
    assert [(await store.run([("DBSIZE",)]))[0]] == [0] if finding else True


@everywhere
async def test_a_collection_is_created_with_its_lifetime_in_one_transaction(store: Store) -> None:
    guard = guarded(store)
    assert await guard.atomically([("HSET", "member:1", "name", "Ada"), ("EXPIRE", "member:1", 60)])
    assert await refusal(guard, "HSET", "member:1", "visits", 2) == ""
    assert await refusal(guard, "HDEL", "member:1", "name") == "unreadable"
    with pytest.raises(WriteRefused, match="no-deadline"):
        await guard.atomically([("EXPIRE", "tags:1", 60), ("SADD", "tags:1", 1)])
    assert await store.run([("HGETALL", "member:1"), ("EXISTS", "tags:1")]) == [{b"name": b"Ada", b"visits": b"2"}, 0]


@everywhere
async def test_a_refused_write_leaves_the_others_of_its_pipeline(store: Store) -> None:
    guard = guarded(store)
    await guard.atomically([("HSET", "member:1", "name", "Ada"), ("EXPIRE", "member:1", 60)])
    pipeline: list[tuple[Any, ...]] = [
        ("HSET", "member:1", "visits", 1),
        ("HSET", "member:2", "name", "Bob"),
        ("GET", "member:1"),
        ("SET", "name:1", "x", "EX", 5),
        ("HINCRBY", "member:1", "visits", 1),
    ]
    replies = await run_derived(guard, pipeline)
    codes = [getattr(reply, "finding", "") or getattr(reply, "code", "") or reply for reply in replies]
    assert codes == [1, "no-deadline", "wrong-kind", "unexpected-deadline", 2]
    assert await run_derived(guard, [pipeline[0], pipeline[4], ("HLEN", "member:1")]) == [0, 2, 2]


@everywhere
@pytest.mark.parametrize("removal", [("DEL", "tags:1"), ("SREM", "tags:1", 1, 2), ("PEXPIREAT", "tags:1", 1)])
async def test_what_a_pipeline_has_removed_is_not_created_again_without_its_lifetime(
    store: Store, removal: tuple[Any, ...]
) -> None:
    guard = guarded(store)
    await guard.atomically([("SADD", "tags:1", 1), ("EXPIRE", "tags:1", 60)])
    replies = await run_derived(guard, [("SADD", "tags:1", 2), ("SADD", "tags:1", 2), removal, ("SADD", "tags:1", 3)])
    assert [getattr(reply, "finding", bool(reply)) for reply in replies] == [True, False, True, "no-deadline"]
    assert await store.run([("EXISTS", "tags:1")]) == [0]


async def test_long_keys_of_a_client_take_no_memory() -> None:
    async with connect("memory://") as store:
        guard = guarded(store)
        tracemalloc.start()
        for number in range(100):
            assert await refusal(guard, "SET", f"{number}" + "x" * 200_000, "1") == "unknown-key"
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held < 2_000_000


@everywhere
async def test_a_list_is_trimmed_in_the_same_transaction(store: Store) -> None:
    guard, item = guarded(store), '{"items":1}'
    push = [("LPUSH", "news:1", item, item), ("EXPIRE", "news:1", 60)]
    assert await guard.atomically(push)
    assert await refusal(guard, "LPUSH", "news:1", item) == ""
    assert await refusal(guard, "LPUSH", "news:1", item) == "too-long"
    assert await guard.atomically([*push, ("LTRIM", "news:1", 0, 2)])
    assert await store.run([("LLEN", "news:1")]) == [3]


@everywhere
async def test_a_record_and_its_index_are_written_together(store: Store) -> None:
    guard = guarded(store)
    assert await guard.atomically([("SET", "session:7:a", "x", "EX", 60), ("SADD", "user:7:sessions", "a")])
    assert await refusal(guard, "SET", "session:7:a", "y", "EX", 60) == ""
    assert await refusal(guard, "SREM", "user:7:sessions", "a") == "not-listed"
    assert await refusal(guard, "DEL", "session:7:a") == "dead-entry"
    assert await guard.atomically([("SET", "seen:7:a", 1, "EX", 60)])
    with pytest.raises(WriteRefused, match="orphan"):
        await guard.atomically([("DEL", "session:7:a"), ("SREM", "user:7:sessions", "a")])
    assert await guard.atomically([("DEL", "session:7:a", "seen:7:a"), ("SREM", "user:7:sessions", "a")])
    item = ("SET", "item:1", '{"made_at":5}')
    with pytest.raises(WriteRefused, match="not-listed"):
        await guard.atomically([item, ("ZADD", "items:newest", 4, "1")])
    assert await guard.atomically([item, ("ZADD", "items:newest", 5, "1")])
    assert (await examine([Keys(store, seal=RING)])).found == []


@everywhere
async def test_fixing_sets_the_declared_lifetime_and_lists_the_record(store: Store) -> None:
    found: list[Finding] = []
    guard = guarded(store, "fix", found.append)
    commands: list[tuple[Any, ...]] = [
        ("SET", "cart:1", '{"items":1}'),
        ("SET", "cart:2", '{"items":1}', "EX", 91 * 86_400, "GET"),
        ("SET", "offer:1", f'{{"to":"x","expires_at":{SOON_MS}}}'),
        ("HSET", "member:1", "name", "Ada"),
        ("INCRBY", "hits:1", 5),
        ("EXPIRE", "hits:1", 2 * 86_400),
        ("PERSIST", "cart:1"),
        ("SET", "name:1", "x", "EX", 60),
        ("LPUSH", "news:1", *['{"items":1}'] * 5),
        ("SET", "session:7:a", "x"),
        ("SET", "item:1", '{"made_at":5}'),
    ]
    replies = await guard.run(commands)
    assert replies == [b"OK", None, b"OK", 1, 5, 1, 1, b"OK", 5, b"OK", b"OK"]
    assert (await examine([Keys(store, seal=RING)])).found == []
    assert await store.run([("LLEN", "news:1"), ("SMEMBERS", "user:7:sessions")]) == [3, {b"a"}]
    left = await store.run([("PTTL", key) for key in ("cart:1", "cart:2", "offer:1", "member:1", "hits:1", "name:1")])
    assert [round(ms / DAY_MS, 1) for ms in left[:5]] == [90, 90, 3, 30, 1]
    assert left[5] == -1
    assert Tally(one.code for one in found) == {
        "no-deadline": 4,
        "late-deadline": 2,
        "unexpected-deadline": 1,
        "too-long": 1,
    }


@everywhere
async def test_observing_changes_nothing_and_reports_what_was_wrong(store: Store) -> None:
    found: list[Finding] = []
    guard = guarded(store, "observe", found.append)
    commands: list[tuple[Any, ...]] = [
        ("SET", "nothing:1", "x"),
        ("SET", "cart:1", "{}"),
        ("HSET", "member:1", "name", "Ada"),
        ("HSET", "member:1", "visits", "2"),
        ("SET", "session:7:a", "x", "EX", 60),
        ("GET", "cart:1"),
    ]
    assert await guard.run(commands) == [b"OK", b"OK", 1, 1, b"OK", b"{}"]
    assert [(one.code, one.family) for one in found] == [
        ("unknown-key", None),
        ("unreadable", "Keys.cart"),
        ("no-deadline", "Keys.member"),
        ("not-listed", "Keys.session"),
    ]
    assert guard.guard.counts[("unreadable", "Keys.cart")] == 1


@pytest.mark.parametrize("store_url", ["cluster"], indirect=True)
async def test_in_a_cluster_only_enforcing_makes_a_write_fail_that_spans_slots(store: Store) -> None:
    write = ("SET", "session:7:a", "x", "EX", 60)
    modes: tuple[Mode, ...] = ("observe", "fix")
    for mode in modes:
        assert await guarded(store, mode).run([write, ("INCRBY", "hits:1", 1)]) == [
            b"OK",
            1 if mode == "observe" else 2,
        ]
    with pytest.raises(CrossSlot):
        await guarded(store).run([write])
    assert await refusal(guarded(store), "HSET", "member:1", "name", "Ada") == "no-deadline"


# --- random writes ------------------------------------------------------------------------------------------

KEYS = [
    f"{name}:{number}"
    for name in (
        *("cart", "draft", "offer", "ticket", "visit", "name", "account", "old", "hits", "total", "member", "span"),
        *("bag", "tags", "ranks", "news", "log", "alias", "item", "nothing"),
    )
    for number in (1, 2)
] + ["session:7:1", "session:7:2", "seen:7:1", "seen:7:2", "user:7:sessions", "items:newest"]


class Writer:
    """Random commands, many of them right: the values and lifetimes of a command are often those of its key."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def key(self, *kinds: str) -> str:
        fitting = [key for key in KEYS if key.split(":")[0] in kinds]
        return self.random.choice(fitting if fitting and self.random.random() < 0.8 else KEYS)

    def value(self) -> Any:
        made = int(time.time() * 1000) + 3 * DAY_MS
        return self.random.choice(
            (*('{"items":1}', '{"items":"x"}', f'{{"to":"x","expires_at":{made}}}', "1", "2", "x", ""), '{"made_at":5}')
        )

    def lifetime(self) -> tuple[Any, ...]:
        soon = int(time.time() * 1000) + 3 * DAY_MS
        return self.random.choice(
            ((), (), ("EX", 60), ("EX", 60), ("PX", 100 * DAY_MS), ("PXAT", soon), ("PXAT", soon), ("KEEPTTL",))
        )

    def seconds(self) -> int:
        return self.random.choice((60, 3600, 3600, 400 * 86_400))

    def command(self) -> tuple[Any, ...]:
        draw = self.random
        strings = ("cart", "draft", "offer", "ticket", "visit", "name", "account", "old", "alias", "item", "session")
        key, number, member = self.key(*strings), draw.choice(("1", "2", "x")), draw.choice(("1", "2", "low", "name"))
        counter = self.key("hits", "total", "seen", "ticket")
        record, tags, ranks = self.key("member", "span", "bag"), self.key("tags", "user"), self.key("ranks", "items")
        news, log, any_key, other = self.key("news"), self.key("log"), draw.choice(KEYS), draw.choice(KEYS)
        field = draw.choice(("name", "visits", "low", "high", "a", "none"))
        return draw.choice(
            (
                *[("SET", key, self.value(), *self.lifetime(), *draw.choice(((), (), ("NX",), ("XX",), ("GET",))))] * 6,
                *[("SET", counter, number, *self.lifetime())] * 2,
                *(("SETEX", key, self.seconds(), self.value()), ("GETSET", key, self.value()), ("SETNX", key, "x")),
                *(("MSET", key, self.value(), other, self.value()), ("APPEND", key, "x"), ("SETRANGE", key, 1, "x")),
                *(("INCR", counter), ("DECRBY", counter, 2), ("INCRBYFLOAT", key, 0.5), ("INCR", any_key)),
                *(("GETEX", key, *self.lifetime()), ("GETEX", key, "PERSIST"), ("GETDEL", key)),
                *(("EXPIRE", any_key, self.seconds()), ("EXPIRE", any_key, 0), ("PERSIST", any_key)),
                *(("DEL", any_key), ("DEL", any_key, other), ("RENAME", any_key, other), ("COPY", any_key, other)),
                *[("HSET", record, field, number), ("HSET", record, "low", 1, "high", number)] * 2,
                *(
                    ("HSETNX", record, field, number),
                    ("HINCRBY", record, field, 1),
                    ("HINCRBYFLOAT", record, field, 0.5),
                ),
                *(("HDEL", record, field), ("HSET", any_key, field, "x")),
                *[("SADD", tags, member, number), ("SADD", tags, "1")] * 2,
                *(("SREM", tags, member), ("SPOP", tags), ("SMOVE", tags, self.key("tags", "user"), member)),
                *(
                    ("ZADD", ranks, 5, member),
                    ("ZINCRBY", ranks, 1, member),
                    ("ZREM", ranks, member),
                    ("ZPOPMIN", ranks),
                ),
                *(("ZADD", ranks, "XX", 7, member), ("ZREMRANGEBYSCORE", ranks, 0, 5), ("ZPOPMAX", ranks)),
                *(("LPUSH", news, self.value()), ("RPUSH", news, '{"items":1}', '{"items":2}'), ("LPOP", news)),
                *(
                    ("LSET", news, 0, self.value()),
                    ("LTRIM", news, 0, 1),
                    ("LINSERT", news, "AFTER", '{"items":1}', "x"),
                ),
                *(("LMOVE", news, self.key("news"), "LEFT", "RIGHT"), ("LREM", news, 0, '{"items":2}')),
                *(("XADD", log, "*", "data", self.value()), ("XADD", log, "MAXLEN", 2, "*", "data", '{"items":1}')),
                *[("XADD", log, "*", "data", '{"items":1}')] * 2,
                *(("XADD", log, "*", "x", "1"), ("XTRIM", log, "MAXLEN", 1)),
            )
        )

    def transaction(self) -> list[tuple[Any, ...]]:
        """Commands of the stores, often with the lifetime, the trim or the entry that makes them right."""
        draw, number = self.random, self.random.choice("12")
        commands: list[tuple[Any, ...]] = []
        for _ in range(draw.randint(1, 3)):
            command = self.command()
            if command[0] not in TABLE:
                continue
            commands.append(command)
            if draw.random() < 0.6:
                commands.append(("EXPIRE", command[1], self.seconds(), *draw.choice(((), ("NX",), ("GT",)))))
            if command[0] in ("LPUSH", "RPUSH") and draw.random() < 0.7:
                commands.append(("LTRIM", command[1], 0, draw.choice((1, 2, 9))))
        session = [("SET", f"session:7:{number}", "x", "EX", 60), ("SADD", "user:7:sessions", number)]
        gone = [("DEL", f"session:7:{number}", f"seen:7:{number}"), ("SREM", "user:7:sessions", number)]
        item = [("SET", f"item:{number}", '{"made_at":5}'), ("ZADD", "items:newest", draw.choice((4, 5)), number)]
        drop = [("DEL", f"item:{number}"), ("ZREM", "items:newest", number)]
        return draw.choice((commands, commands, session, gone, item, drop)) or session


async def write_at_random(store: Store, seed: int, count: int) -> Tally[str]:
    """Random writes on a guarded store; how many were done, and how many were refused for which finding."""
    writer, guard, tally = Writer(seed), guarded(store), Tally[str]()
    await store.run([("SET", "page:1", "x"), ("SET", "page:2", "x")])
    while tally.total() < count:
        if writer.random.random() < 0.3:
            try:
                await guard.atomically(writer.transaction())
                tally["written"] += 1
            except WriteRefused as error:
                tally[error.finding] += 1
            except CommandError as error:
                tally[f"error {error.code}"] += 1
            continue
        for reply in await run_derived(guard, [writer.command() for _ in range(4)]):
            match reply:
                case WriteRefused():
                    tally[reply.finding] += 1
                case CommandError():
                    tally[f"error {reply.code}"] += 1
                case _:
                    tally["written"] += 1
    return tally


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["memory", "redis"], indirect=True)
async def test_after_ten_thousand_random_writes_the_doctor_finds_nothing(store: Store) -> None:
    """In rounds, each from an empty store: else most writes would meet keys that are already right."""
    tally: Tally[str] = Tally()
    for seed in range(20):
        tally += await write_at_random(store, seed, 500)
        report = await examine([Keys(store, seal=RING)])
        assert [(found.finding.code, found.finding.where, found.finding.sentence) for found in report.found] == []
        keys = [key async for page in store.scan() for key in page]
        await store.run([("DEL", key) for key in keys])
    assert tally["written"] > 2_000
    expected = {
        *("unknown-key", "wrong-kind", "unreadable", "no-deadline", "late-deadline", "early-deadline", "too-long"),
        *("unexpected-deadline", "not-listed", "dead-entry", "orphan", "leads-nowhere"),
    }
    assert expected <= tally.keys(), expected - tally.keys()


def test_every_command_that_writes_is_checked_or_only_removes() -> None:
    """A new command must not pass the guard unnoticed."""
    checked = {
        *("SET", "INCRBY", "DECRBY", "GETEX", "EXPIRE", "PEXPIRE", "PEXPIREAT", "PERSIST"),
        *("HSET", "HSETNX", "HINCRBY", "HDEL", "SADD", "SREM", "ZADD", "ZREM", "LPUSH", "RPUSH", "LSET", "XADD"),
        "PUBLISH",
    }
    removing = {
        *("DEL", "GETDEL", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK", "ZPOPMIN", "LPOP", "RPOP", "LTRIM", "LREM"),
        *("XDEL", "XTRIM"),
    }
    assert {spec.name for spec in TABLE.values() if spec.writes} == checked | removing
    assert DERIVED.keys().isdisjoint(TABLE)
