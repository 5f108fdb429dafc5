"""JWT revocation: single tokens, all tokens of a user, and store outages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from keystead import Keyspace, Set, Store, Value, after, connect, sliding, until
from keystead.errors import BadDeclaration, DoesNotFit, StoreUnavailable
from keystead.parts.jwt import Access, AccessTokens, Denied, NewAccess, RevokedTokens, UncheckedToken
from keystead.schema.check import check
from keystead.stores import Command, Guarantees, Outcome, Reply, Step
from tests.every_store import held_by, on
from tests.parts.cache.conftest import until as wait_until
from tests.parts.jwt.conftest import Clock, access_of, by_hand, claims_at, everywhere, here, keys_of
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order


class RevokedKeys(Keyspace):
    """Revoked tokens, and the users."""

    revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable")
    since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable")
    user = Value("user:{sub}", str, lifetime=after("2h"))
    numbers = Value("numbers:{jti}", int, lifetime=until("expires_at"), role="durable")
    listed = Value("listed:{jti}", str, lifetime=until("expires_at"), role="durable", listed_in="index")
    index = Set("index", str, lifetime=until("expires_at"), role="durable")
    elsewhere = Value("elsewhere:{sub}", int, lifetime=after("2h"), role="other")
    cached = Value("cached:{jti}", int, lifetime=until("expires_at"), role="cache")
    brief = Value("brief:{sub}", int, lifetime=after("1h"), role="durable")
    bounded = Value("bounded:{jti}", int, lifetime=until("expires_at", at_most="1h"), role="durable")
    erased = Value("erased:{sub}", int, lifetime=after("2h"), role="durable", member_of="user:{sub}")
    slides = Value("slides:{sub}", int, lifetime=sliding("2h", touch_every="1m"), role="durable")
    text = Value("text:{sub}", str, lifetime=after("2h"), role="durable")


def tokens_on(store: Store, clock: Clock, **options: Any) -> tuple[AccessTokens, RevokedKeys]:
    keys = RevokedKeys(store, now_ms=clock)
    revoked = RevokedTokens(keys.revoked, keys.since, **{"may_forget": True, **options})
    return access_of(keys_of("EdDSA"), clock, revoked=revoked), keys


async def admitted(access: AccessTokens, new: NewAccess) -> Access:
    found = await access.admitted(new.token)
    assert isinstance(found, Access)
    return found


@everywhere
async def test_a_revoked_token_is_refused_and_the_others_are_not(store: Store, clock: Clock) -> None:
    access, _ = tokens_on(store, clock)
    one, other = access.issue("ann"), access.issue("ann")
    assert await access.revoke(await admitted(access, one)) is True
    assert await access.admitted(one.token) == Denied("revoked")
    assert await admitted(access, other)


@everywhere
async def test_a_revocation_lives_exactly_as_long_as_the_token_is_accepted(store: Store, clock: Clock) -> None:
    """Until the expiry plus the leeway, to the millisecond. With the real clock, because the store has its own."""
    keys = RevokedKeys(store)
    access = AccessTokens(
        keys_of("EdDSA"),
        issuer="i",
        audience="a",
        lifetime="100s",
        leeway="20s",
        revoked=RevokedTokens(keys.revoked, keys.since, may_forget=True),
        now_ms=keys.now_ms,
    )
    new = access.issue("ann")
    assert await access.revoke(await admitted(access, new))
    stored, ends_ms = await store.run([("GET", keys.revoked(new.jti).key), ("PEXPIRETIME", keys.revoked(new.jti).key)])
    assert (stored, ends_ms) == (b"1", new.expires_at_ms + 20_000)


@here
async def test_revoking_an_expired_token_writes_nothing(store: Store, clock: Clock) -> None:
    access, keys = tokens_on(store, clock)
    one, other = access.issue("ann"), access.issue("ann")
    found, late = await admitted(access, one), await admitted(access, other)
    clock.now_ms = one.expires_at_ms + access.leeway_ms - 1
    assert await access.revoke(found) is True
    clock.pass_ms(1)
    watched = Relay(store)
    access, keys = tokens_on(watched, clock)
    assert await access.revoke(late) is False
    assert watched.log == [[]]
    assert await keys.run(access.revoke(late), keys.user("ann").exists()) == (False, False)
    assert not await keys.revoked(other.jti).exists()


@on("sqlite", "redis", "postgres", "mariadb")
async def test_expired_keys_leave_no_rows(
    store: Store, request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> None:
    """Checks the actual contents of the file or server after the expiry: no entry and no index."""
    keys = RevokedKeys(store)
    access = AccessTokens(
        keys_of("EdDSA"),
        issuer="i",
        audience="a",
        lifetime="1s",
        leeway="1ms",
        revoked=RevokedTokens(keys.revoked, keys.since, may_forget=True),
        now_ms=keys.now_ms,
    )
    revoked = 0
    for _ in range(20):
        found = access.check(access.issue("ann").token)
        revoked += isinstance(found, Access) and await access.revoke(found)
    assert revoked > 0
    name = request.node.callspec.params["stores"]

    async def held() -> int:
        return held_by(name, request, tmp_path)

    await wait_until(held, lambda count: count == 0)


@everywhere
async def test_revoke_all_ends_all_tokens_and_admits_those_of_the_next_login(store: Store, clock: Clock) -> None:
    access, keys = tokens_on(store, clock)
    old, others = access.issue("ann"), access.issue("bob")
    await access.revoke_all("ann")  # in the very millisecond in which the token was issued
    clock.pass_ms(1)
    new = access.issue("ann")  # in the same second as the old one
    assert await access.admitted(old.token) == Denied("revoked")
    assert await admitted(access, new)
    assert await admitted(access, others)
    left = await keys.since("ann").remaining()
    assert left is not None
    assert timedelta(minutes=119) < left <= timedelta(hours=2)


@here
async def test_a_clock_that_is_behind_does_not_revive_tokens(store: Store, clock: Clock) -> None:
    ahead = Clock(clock() + 2_000)
    access, _ = tokens_on(store, ahead)
    late, _ = tokens_on(store, clock)
    token = access.issue("ann").token
    await access.revoke_all("ann")
    await late.revoke_all("ann")
    assert await access.admitted(token) == Denied("revoked")


@here
async def test_two_ends_at_the_same_moment_leave_the_later_one(store: Store, clock: Clock) -> None:
    ahead = Clock(clock() + 2_000)

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        gated = Gated(store)
        (a, keys), (b, _) = tokens_on(gated, clock), tokens_on(gated, ahead)
        programs: dict[Actor, Callable[[], Awaitable[Any]]] = {
            "a": lambda: a.revoke_all("ann"),
            "b": lambda: b.revoke_all("ann"),
        }
        order, _ = await in_order(gated, programs, first)
        assert await keys.since("ann").get() == ahead()
        await keys.since("ann").delete()
        return order

    assert await every_order(one) > 2


@here
async def test_revoke_all_covers_the_same_millisecond_but_not_later_tokens(store: Store) -> None:
    """With the real clock, repeatedly: tokens issued before the call are revoked, later ones are valid."""
    keys = RevokedKeys(store)
    revoked = RevokedTokens(keys.revoked, keys.since, may_forget=True)
    access = AccessTokens(keys_of("EdDSA"), issuer="i", audience="a", revoked=revoked)
    for _ in range(50):
        before = access.issue("ann")
        await access.revoke_all("ann")
        after_it = access.issue("ann")
        assert await access.admitted(before.token) == Denied("revoked")
        assert await admitted(access, after_it)


@here
@pytest.mark.parametrize(("issued_s", "is_good"), [(-1, False), (0, False), (1, True)])
async def test_without_a_time_in_the_jti_the_whole_second_is_revoked(
    store: Store, clock: Clock, issued_s: int, is_good: bool
) -> None:
    """An earlier token is never valid; a later one of the same second is refused, too."""
    access, _ = tokens_on(store, clock)
    clock.now_ms += 400
    await access.revoke_all("42")
    keys = keys_of("EdDSA")
    token = by_hand(keys, claims_at(clock, jti="no time in it", iat=clock() // 1000 + issued_s))
    clock.now_ms += 2_000
    assert bool(await access.admitted(token)) is is_good


@here
async def test_a_jti_whose_time_contradicts_iat_is_ignored(store: Store, clock: Clock) -> None:
    access, _ = tokens_on(store, clock)
    later = access.issue("42").jti  # tells this second
    token = by_hand(keys_of("EdDSA"), claims_at(clock, jti=later, iat=clock() // 1000 - 10))
    clock.now_ms -= 5_000
    await access.revoke_all("42")
    clock.now_ms += 5_000
    assert await access.admitted(token) == Denied("revoked")


@everywhere
async def test_the_revocation_check_and_the_user_are_one_round_trip(store: Store, clock: Clock) -> None:
    watched = Relay(store)
    access, keys = tokens_on(watched, clock)
    await keys.user("ann").set("Ann")
    new = access.issue("ann")
    found = await admitted(access, new)
    watched.log.clear()
    assert await keys.run(access.is_revoked(found), keys.user("ann").get()) == (False, "Ann")
    assert len(watched.log) == 1
    assert await access.admitted_with(new.token, lambda who: keys.user(who.sub).get()) == (found, "Ann")
    assert len(watched.log) == 2
    assert await access.admitted_with("made up", lambda who: keys.user(who.sub).get()) == Denied("malformed")
    assert len(watched.log) == 2
    await keys.run(access.revoke(found), keys.user("ann").delete())  # a logout, in one round trip
    assert len(watched.log) == 3
    assert await keys.run(access.is_revoked(found), keys.user("ann").get()) == (True, None)
    assert await access.admitted_with(new.token, lambda who: keys.user(who.sub).get()) == Denied("revoked")


@here
async def test_a_failing_extra_read_neither_admits_nor_denies(store: Store, clock: Clock) -> None:
    async with connect("memory://") as other:
        keys = RevokedKeys(Down(store), durable=other, now_ms=clock)
        revoked = RevokedTokens(keys.revoked, keys.since, may_forget=True)
        access = access_of(keys_of("EdDSA"), clock, revoked=revoked)
        new = access.issue("ann")
        found = await admitted(access, new)
        with pytest.raises(StoreUnavailable):
            await access.admitted_with(new.token, lambda who: keys.user(who.sub).get())
        await access.revoke(found)
        assert await access.admitted_with(new.token, lambda who: keys.user(who.sub).get()) == Denied("revoked")
        swapped = RevokedKeys(other, durable=Down(store), now_ms=clock)
        revoked = RevokedTokens(swapped.revoked, swapped.since, may_forget=True)
        access = access_of(keys_of("EdDSA"), clock, revoked=revoked)
        token = access.issue("bob").token
        assert await access.admitted_with(token, lambda who: swapped.user(who.sub).get()) == Denied("unavailable")


@here
async def test_without_a_denylist_the_user_is_still_read(store: Store, clock: Clock) -> None:
    keys = RevokedKeys(store, now_ms=clock)
    access = access_of(keys_of("EdDSA"), clock)
    await keys.user("ann").set("Ann")
    found = await access.admitted_with(access.issue("ann").token, lambda who: keys.user(who.sub).get())
    assert not isinstance(found, Denied)
    assert found[1] == "Ann"


@everywhere
@pytest.mark.parametrize("ends", ["one", "all"])
async def test_in_every_order_of_a_logout_and_a_request_the_next_request_is_refused(
    store: Store, clock: Clock, ends: str
) -> None:
    """A concurrent request may be admitted; requests after the logout are not."""
    outcomes: set[bool] = set()

    async def once(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        gated = Gated(store)
        (asking, _), (ending, keys), (later, _) = (
            tokens_on(gated, clock),
            tokens_on(gated, clock),
            tokens_on(store, clock),
        )
        new = asking.issue("ann")
        found = ending.check(new.token)
        assert isinstance(found, Access)
        programs: dict[Actor, Callable[[], Awaitable[Any]]] = {
            "a": lambda: asking.admitted(new.token),
            "b": lambda: ending.revoke_all("ann") if ends == "all" else ending.revoke(found),
        }
        order, results = await in_order(gated, programs, first)
        outcomes.add(bool(results["a"]))
        assert await later.admitted(new.token) == Denied("revoked")
        await keys.since("ann").delete()
        return order

    assert await every_order(once) >= 2
    assert outcomes == {True, False}


@everywhere
async def test_both_revocation_checks_are_one_round_trip_and_an_invalid_token_costs_none(
    store: Store, clock: Clock
) -> None:
    watched = Relay(store)
    access, _ = tokens_on(watched, clock)
    await admitted(access, access.issue("ann"))
    assert len(watched.log) == 1
    assert len(watched.log[0]) == 2
    assert not await access.admitted("made up")
    assert len(watched.log) == 1


class Down(Relay):
    """A store that is down."""

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        raise StoreUnavailable("the store is away")

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        raise StoreUnavailable("the store is away")


@here
async def test_an_outage_denies_all_tokens(store: Store, clock: Clock) -> None:
    access, _ = tokens_on(Down(store), clock)
    new = access.issue("ann")
    assert await access.admitted(new.token) == Denied("unavailable")
    found = access.check(new.token)
    assert isinstance(found, Access)
    for write in (access.revoke(found), access.revoke_all("ann")):
        with pytest.raises(StoreUnavailable):
            await write


@here
async def test_when_down_allow_reports_each_unchecked_token(
    store: Store, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[UncheckedToken] = []

    async def tell(event: UncheckedToken) -> None:
        told.append(event)
        raise RuntimeError("nobody listens")

    with pytest.raises(BadDeclaration, match="pass tell"):
        tokens_on(Down(store), clock, when_down="allow")
    access, _ = tokens_on(Down(store), clock, when_down="allow", tell=tell)
    new = access.issue("ann")
    await admitted(access, new)
    assert told == [UncheckedToken("ann", new.jti, "store-unavailable")]
    assert "reporting an unchecked token failed: RuntimeError" in caplog.text
    assert new.token not in caplog.text


@here
async def test_unreadable_revocations_deny_whatever_the_policy(store: Store, clock: Clock) -> None:
    async def tell(event: UncheckedToken) -> None:
        raise AssertionError("the store is not away")

    access, keys = tokens_on(store, clock, when_down="allow", tell=tell)
    await store.run([("SET", keys.since("ann").key, "never")])
    assert await access.admitted(access.issue("ann").token) == Denied("unreadable")
    await store.run([("DEL", keys.since("ann").key), ("SADD", keys.since("ann").key, "a")])
    assert await access.admitted(access.issue("ann").token) == Denied("unreadable")


@everywhere
@pytest.mark.parametrize("stored", [("SET", "never"), ("SADD", "of another kind")])
async def test_revoke_all_replaces_an_unreadable_record(store: Store, clock: Clock, stored: tuple[str, str]) -> None:
    access, keys = tokens_on(store, clock)
    await store.run([(stored[0], keys.since("ann").key, stored[1])])
    old = access.issue("ann")
    await access.revoke_all("ann")
    clock.pass_ms(1)
    assert await access.admitted(old.token) == Denied("revoked")
    assert await admitted(access, access.issue("ann"))
    left = await keys.since("ann").remaining()
    assert left is not None
    assert left <= timedelta(hours=2)


async def test_revocations_survive_a_restart(tmp_path: Path, clock: Clock) -> None:
    url = f"sqlite:///{tmp_path}/kept.db"
    async with connect(url) as store:
        access, _ = tokens_on(store, clock, may_forget=False)
        one, all_of_bob = access.issue("ann"), access.issue("bob")
        await access.revoke(await admitted(access, one))
        clock.pass_ms(1)
        await access.revoke_all("bob")
    async with connect(url) as store:
        access, _ = tokens_on(store, clock, may_forget=False)
        assert await access.admitted(one.token) == Denied("revoked")
        assert await access.admitted(all_of_bob.token) == Denied("revoked")


@here
async def test_a_volatile_store_is_refused_unless_allowed(store: Store, clock: Clock) -> None:
    with pytest.raises(DoesNotFit, match="may_forget"):
        tokens_on(store, clock, may_forget=False)


def test_check_warns_if_a_restart_would_lose_revocations() -> None:
    class TokenKeys(Keyspace):
        revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable", doc="a token")
        since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable", doc="a moment")

    forgets, keeps = ("redis://a", Guarantees(durability="memory")), ("redis://b", Guarantees(durability="seconds"))
    found = check([TokenKeys], {"default": forgets})
    assert [(one.code, one.family) for one in found] == [
        ("role-weak", "TokenKeys.revoked"),
        ("role-weak", "TokenKeys.since"),
    ]
    assert check([TokenKeys], {"default": forgets, "durable": keeps}) == []


@here
async def test_families_of_another_shape_are_refused_with_the_reason(store: Store, clock: Clock) -> None:
    keys = RevokedKeys(store, now_ms=clock)
    numbers = RevokedTokens(keys.numbers, keys.since, may_forget=True)
    found = access_of(keys_of("EdDSA"), clock).check(access_of(keys_of("EdDSA"), clock).issue("ann").token)
    assert isinstance(found, Access)
    await numbers.revoke(found, found.expires_at_ms)
    assert await keys.numbers(found.jti).get() == 1

    def refused(tokens: Any, since: Any, **options: Any) -> str:
        with pytest.raises(BadDeclaration) as caught:
            access_of(keys_of("EdDSA"), clock, revoked=RevokedTokens(tokens, since, **{"may_forget": True, **options}))
        return str(caught.value)

    assert "a cache may lose revocations" in refused(keys.cached, keys.since)
    assert "would outlive their revocation" in refused(keys.revoked, keys.brief)
    assert "at most 1 hour" in refused(keys.bounded, keys.since)
    assert "two families" in refused(keys.revoked, keys.text)
    assert "two families" in refused(keys, keys.since)
    assert "two families" in refused(keys.listed, keys.since)
    with_others = RevokedKeys(store, other=Down(store), now_ms=clock)
    assert "give both one role" in refused(with_others.revoked, with_others.elsewhere)
    assert "until(" in refused(keys.since, keys.since)
    assert 'after("2h")' in refused(keys.revoked, keys.slides)
    assert "erasing it would make revoked tokens valid again" in refused(keys.revoked, keys.erased)
    assert "deny or allow" in refused(keys.revoked, keys.since, when_down="maybe")


@here
async def test_without_a_place_for_them_nothing_can_be_revoked(store: Store, clock: Clock) -> None:
    access = access_of(keys_of("EdDSA"), clock)
    new = access.issue("ann")
    found = await admitted(access, new)
    with pytest.raises(BadDeclaration, match="valid until they expire"):
        await access.revoke(found)
    with pytest.raises(BadDeclaration, match="valid until they expire"):
        await access.revoke_all("ann")


@here
@pytest.mark.parametrize("sub", ["a:b", "{ann}", "*", "ann.", "é", " "])
async def test_names_of_any_characters_end_for_themselves_only(store: Store, clock: Clock, sub: str) -> None:
    access, _ = tokens_on(store, clock)
    one, other = access.issue(sub), access.issue("ann")
    clock.pass_ms(1)
    await access.revoke_all(sub)
    assert await access.admitted(one.token) == Denied("revoked")
    assert await admitted(access, other)
