"""Unreadable records, store outages, leftovers of a crash, and declarations that do not fit."""

from dataclasses import replace
from time import time_ns
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Keyspace, Set, SortedSet, Store, Value, after, connect, end_of_day, link, never, sliding
from keystead.errors import BadDeclaration, DoesNotFit, StoreUnavailable
from keystead.parts.sessions import Gone, Policy, SessionRecord, Sessions, Successor
from keystead.schema import EpochMs, Lifetime
from keystead.schema.doctor import examine, repair
from tests import servers
from tests.parts.sessions.conftest import DAY_MS, RING, AppKeys, AppSession, Clock, everywhere, is_new, sessions_of
from tests.parts.sessions.relays import Relay

MONTH = sliding("30d", touch_every="1m")


# --- unreadable records --------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("data", [b"not JSON", b"{}", b"\x80\x04K\x01.", b'{"uid":"ann","provider_token":"sealed.x"}'])
async def test_an_unreadable_record_is_refused_and_left_for_the_doctor(
    store: Store, sessions: Sessions[AppSession], keys: AppKeys, data: bytes
) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    key = keys.session(made.id).key
    await store.run([("SET", key, data, "KEEPTTL")])
    assert await sessions.read(made.token) == Gone("unreadable")
    assert await sessions.rotate(made.token) == Gone("unreadable")
    assert await sessions.update(made.token, theme="dark") == Gone("unreadable")
    assert await sessions.touch(made.token) is False
    assert await sessions.list_for("ann") == []
    assert (await store.run([("GET", key)]))[0] == data
    report = await repair([keys], set_aside="all")
    assert [(one.finding.code, one.finding.key, one.fixed) for one in report.found] == [("unreadable", key, True)]
    assert (await store.run([("EXISTS", key)]))[0] == 0
    assert await sessions.read(made.token) == Gone("expired")  # it is listed, and its record is no more
    assert await sessions.read(made.token) == Gone("unknown")


@everywhere
async def test_a_session_that_cannot_be_read_is_ended_as_any_other(
    store: Store, sessions: Sessions[AppSession], keys: AppKeys
) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    await store.run([("SET", keys.session(made.id).key, b"not JSON", "KEEPTTL")])
    assert await sessions.revoke(made.token) is True
    assert [key async for page in store.scan() for key in page] == []


@everywhere
async def test_a_key_of_another_kind_is_unreadable_and_not_an_error(
    store: Store, sessions: Sessions[AppSession], keys: AppKeys
) -> None:
    made, good = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    key = keys.session(made.id).key
    await store.run([("DEL", key), ("SADD", key, "x")])
    assert await sessions.read(made.token) == Gone("unreadable")
    assert [live.id for live in await sessions.list_for("ann")] == [good.id]


@everywhere
async def test_an_unreadable_successor_is_reported(store: Store, sessions: Sessions[AppSession], keys: AppKeys) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    rotated = is_new(await sessions.rotate(made.token))
    await store.run([("SET", keys.successor(made.id).key, b"not JSON", "KEEPTTL")])
    assert await sessions.read(made.token) == Gone("unreadable")
    assert await sessions.revoke(made.token) is False
    assert await sessions.read(rotated.token)


@everywhere
@pytest.mark.parametrize("at_cap", ["evict", "refuse"])
async def test_entries_that_are_not_ids_are_ignored(store: Store, clock: Clock, keys: AppKeys, at_cap: Any) -> None:
    sessions = sessions_of(store, clock, Policy(cap=2, at_cap=at_cap))
    made = await sessions.create(AppSession(uid="ann"))
    name = keys.user_sessions("ann").key
    await store.run([("SADD", name, b"\xff", "no id", "*")])
    assert [live.id for live in await sessions.list_for("ann")] == [made.id]
    other = await sessions.create(AppSession(uid="ann"))
    assert other.evicted == ()
    assert (await store.run([("SMEMBERS", name)]))[0] == {made.id.encode(), other.id.encode()}
    await store.run([("SADD", name, b"\xff", "no id")])
    assert await sessions.revoke_others(made.token) == 1
    await store.run([("SADD", name, b"\xff", "no id")])
    assert await sessions.revoke_all("ann") == 1
    assert not await sessions.read(made.token)


@everywhere
async def test_a_clock_that_is_behind_those_of_the_others_can_change_a_session(store: Store, clock: Clock) -> None:
    """The TTL of its record would exceed that of its family."""
    made = await sessions_of(store, clock).create(AppSession(uid="ann"))
    behind = sessions_of(store, Clock(clock.now_ms - 2000))
    assert await behind.update(made.token, theme="dark")
    assert await behind.rotate(made.token)


# --- store outages -------------------------------------------------------------------------------------------


async def test_an_outage_is_an_error_and_not_a_logout(clock: Clock) -> None:
    with servers.redis() as server:
        async with connect(f"{server.url}?timeout=1s") as store:
            sessions = sessions_of(store, clock)
            made = await sessions.create(AppSession(uid="ann"))
            server.kill()
            for call in (
                sessions.read(made.token),
                sessions.touch(made.token),
                sessions.rotate(made.token),
                sessions.update(made.token, theme="dark"),
                sessions.revoke(made.token),
                sessions.revoke_all("ann"),
                sessions.list_for("ann"),
                sessions.create(AppSession(uid="ann")),
            ):
                with pytest.raises(StoreUnavailable):
                    await call


# --- the doctor ----------------------------------------------------------------------------------------------


@everywhere
async def test_after_real_use_the_doctor_finds_nothing(store: Store) -> None:
    clock = RealClock()
    keys = AppKeys(store, seal=RING, now_ms=clock)
    sessions = sessions_of(store, clock, Policy(cap=3))
    made = []
    for _ in range(6):
        clock.pass_ms(1)
        made.append(await sessions.create(AppSession(uid="ann")))
    await sessions.create(AppSession(uid="bob"))
    rotated = is_new(await sessions.rotate(made[-1].token))
    clock.pass_ms(120_000)
    assert await sessions.read(rotated.token)
    assert await sessions.update(rotated.token, theme="dark")
    assert await sessions.revoke(made[-2].token)
    assert await sessions.revoke_others(rotated.token) == 1
    assert (await examine([keys])).found == []
    assert await sessions.revoke_all("ann") == 1
    assert (await examine([keys])).found == []


class RealClock(Clock):
    """As far ahead of the real clock as it was set."""

    def __init__(self) -> None:
        super().__init__(time_ns() // 1_000_000)


@everywhere
async def test_the_doctor_deletes_session_leftovers_of_a_crash(store: Store) -> None:
    clock = RealClock()
    keys = AppKeys(store, seal=RING, now_ms=clock)
    sessions = sessions_of(store, clock)
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(2)]
    name = keys.user_sessions("ann").key
    await store.run([("SREM", name, made[0].id)])  # ended, and the program died before it cleaned up
    report = await examine([keys])
    assert [(one.finding.code, one.finding.key, one.fixed) for one in report.found] == [
        ("not-listed", keys.session(made[0].id).key, False)
    ]
    assert "so it has ended" in str(report.found[0].finding)
    report = await repair([keys], set_aside="all")
    assert [(one.finding.code, one.fixed) for one in report.found] == [("not-listed", True)]
    assert (await store.run([("EXISTS", keys.session(made[0].id).key), ("SMEMBERS", name)])) == [
        0,
        {made[1].id.encode()},
    ]
    assert await sessions.read(made[0].token) == Gone("unknown")
    assert await sessions.read(made[1].token)
    assert (await examine([keys])).found == []


# --- declarations --------------------------------------------------------------------------------------------


def declared(**replaced: Any) -> type[Keyspace]:
    """A keyspace of sessions in which some families or options are other ones."""
    session = {"lifetime": MONTH, "listed_in": link("user_sessions", admits=True), **replaced.pop("session", {})}
    pattern, model = replaced.pop("pattern", "sess:{sid:token}"), replaced.pop("model", SessionRecord)
    families = {"user_sessions": Set("user:{uid}:sessions", str, lifetime=MONTH), **replaced}
    return type("Keys", (Keyspace,), {"session": Value(pattern, model, **session), **families})


class Undated(BaseModel):
    uid: str
    created_at: EpochMs


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no index": ({"session": {"listed_in": None}}, r'listed_in=link\("user_sessions", admits=True\)'),
    "an index that does not admit": (
        {"session": {"listed_in": link("user_sessions")}},
        r'listed_in=link\("user_sessions", admits=True\)',
    ),
    "two indexes": (
        {
            "session": {"listed_in": [link("user_sessions", admits=True), link("all_sessions")]},
            "all_sessions": Set("sessions", str, lifetime=MONTH),
        },
        "sessions need a Set that lists and admits them by user",
    ),
    "a model without its times": ({"model": Undated}, "subclass SessionRecord, or write last_seen_at: EpochMs"),
    "a key with more than an id": (
        {"pattern": "sess:{uid}:{sid:token}"},
        "the only placeholder of a session's key must be its id",
    ),
    "an id that fits no key": (
        {"pattern": "sess:{sid:int}", "user_sessions": Set("user:{uid}:s", int, lifetime=MONTH)},
        "43 base64url characters",
    ),
}


@pytest.mark.parametrize("wrong", BAD)
async def test_a_keyspace_unfit_for_sessions_is_refused_with_advice(wrong: str) -> None:
    families, sentence = BAD[wrong]
    async with connect("memory://") as store:
        keys: Any = declared(**families)(store)
        with pytest.raises(BadDeclaration, match=sentence):
            Sessions(keys.session)


@pytest.mark.parametrize(
    ("lifetime", "policy", "fits"),
    [
        (sliding("30d", touch_every="1m"), Policy(), True),
        (sliding("29d", touch_every="1m"), Policy(), False),
        (sliding("1h", touch_every="1m"), Policy(idle="1h"), True),
        (after("90d"), Policy(), True),
        (after("89d"), Policy(), False),
        (never("a test"), Policy(), False),
        (end_of_day("UTC"), Policy(idle="1h"), False),
    ],
    ids=repr,
)
async def test_a_record_that_would_be_gone_before_its_session_ends_is_refused(
    lifetime: Lifetime, policy: Policy, fits: bool
) -> None:
    async with connect("memory://") as store:
        keys: Any = declared(session={"lifetime": lifetime})(store)
        if fits:
            Sessions(keys.session, policy)
            return
        with pytest.raises(BadDeclaration, match="would end sessions that may be idle for"):
            Sessions(keys.session, policy)


@pytest.mark.parametrize("lifetime", [after("90d"), sliding("29d", touch_every="1m"), never("a test")], ids=repr)
async def test_a_list_that_would_be_gone_before_its_sessions_end_is_refused(lifetime: Lifetime) -> None:
    async with connect("memory://") as store:
        keys: Any = declared(user_sessions=Set("user:{uid}:sessions", str, lifetime=lifetime))(store)
        with pytest.raises(BadDeclaration, match="would end sessions that may be idle for 30 days"):
            Sessions(keys.session, Policy())


@pytest.mark.parametrize(
    ("record", "listing", "idle_ms", "absolute_ms"),
    [
        (MONTH, MONTH, 30 * DAY_MS, 90 * DAY_MS),
        (sliding("60d", touch_every="1m"), sliding("60d", touch_every="1m"), 30 * DAY_MS, 90 * DAY_MS),
        (sliding("1d", touch_every="1m"), MONTH, DAY_MS, 90 * DAY_MS),
        (MONTH, sliding("1d", touch_every="1m"), DAY_MS, 90 * DAY_MS),
        (after("7d"), MONTH, 7 * DAY_MS, 7 * DAY_MS),
    ],
    ids=repr,
)
async def test_without_a_policy_the_deadlines_are_those_that_the_families_can_keep(
    record: Lifetime, listing: Lifetime, idle_ms: int, absolute_ms: int
) -> None:
    async with connect("memory://") as store:
        listed = Set("user:{uid}:sessions", str, lifetime=listing)
        keys: Any = declared(session={"lifetime": record}, user_sessions=listed)(store)
        policy = Sessions(keys.session).policy
        assert (policy.idle_ms, policy.absolute_ms, policy.cap) == (idle_ms, absolute_ms, 5)


async def test_successors_in_another_store_are_refused() -> None:
    class Split(AppKeys):
        elsewhere = Value("next2:{sid:token}", Successor, lifetime=after("10s"), role="cache")

    async with connect("memory://") as store, connect("memory://") as other:
        keys = Split(store, cache=other, seal=RING)
        with pytest.raises(BadDeclaration, match="need the same role"):
            Sessions(keys.session, successors=keys.elsewhere)


async def test_a_store_in_which_a_logout_may_be_missed_is_refused() -> None:
    class Cached(Keyspace):
        session = Value(
            "sess:{sid:token}",
            SessionRecord,
            lifetime=MONTH,
            listed_in=link("user_sessions", admits=True),
            role="cache",
        )
        user_sessions = Set("user:{uid}:sessions", str, lifetime=MONTH, role="cache")

    async with connect("memory://") as store:
        late = Relay(store)
        late.guarantees = replace(store.guarantees, consistency="eventual")
        with pytest.raises(DoesNotFit, match="a read may miss an acknowledged logout"):
            Sessions(Cached(late).session)


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"idle": "2d", "absolute": "1d"}, r"idle timeout \(2d\) exceeds the absolute timeout \(1d\)"),
        ({"cap": 0}, "cap must be a whole number from 1, or None"),
        ({"cap": True}, "cap must be a whole number from 1, or None"),
        ({"at_cap": "drop"}, "at_cap must be evict or refuse"),
        ({"idle": 30}, "idle needs a unit"),
        ({"grace": "0s"}, "grace of '0s' is not valid"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(rules: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadDeclaration, match=sentence):
        Policy(**rules)


def test_only_a_set_can_admit() -> None:
    with pytest.raises(BadDeclaration, match="an index that admits must be a Set"):
        declared(user_sessions=SortedSet("user:{uid}:sessions", str, lifetime=MONTH))
