"""Tokens that were revoked before their time, one by one or all of a user, and what holds while nobody can say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from keystead import BadDeclaration, DoesNotFit, Keyspace, Store, Value, after, connect, sliding, until
from keystead.errors import StoreUnavailable
from keystead.parts.jwt import Access, AccessTokens, Denied, NewAccess, RevokedTokens, UncheckedToken
from keystead.stores import Command, Outcome, Reply, Step
from tests.parts.jwt.conftest import Clock, access_of, everywhere, here, keys_of
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order


class RevokedKeys(Keyspace):
    """Tokens that count no more."""

    revoked = Value("jwt:revoked:{jti}", int, lifetime=until("expires_at"))
    since = Value("jwt:since:{sub}", int, lifetime=after("2h"))
    cached = Value("cached:{jti}", int, lifetime=until("expires_at"), role="cache")
    brief = Value("brief:{sub}", int, lifetime=after("1h"))
    bounded = Value("bounded:{jti}", int, lifetime=until("expires_at", at_most="1h"))
    slides = Value("slides:{sub}", int, lifetime=sliding("2h", touch_every="1m"))
    text = Value("text:{sub}", str, lifetime=after("2h"))


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
async def test_it_stays_revoked_until_nobody_would_take_it_any_more(store: Store, clock: Clock) -> None:
    """Until it expires and the leeway beyond. The clock of the keyspace is the real one here: the store has its own."""
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
    left = await keys.revoked(new.jti).remaining()
    assert left is not None
    assert timedelta(seconds=115) < left <= timedelta(seconds=120)


@here
async def test_a_token_that_has_expired_needs_no_revoking(store: Store, clock: Clock) -> None:
    access, keys = tokens_on(store, clock)
    new = access.issue("ann")
    found = await admitted(access, new)
    clock.now_ms = new.expires_at_ms + access.leeway_ms - 1
    assert await access.revoke(found) is True
    clock.pass_ms(1)
    assert await access.revoke(found) is False
    assert await keys.revoked(new.jti).exists()


@everywhere
async def test_all_tokens_of_a_user_end_at_once_and_those_of_the_next_login_are_good(
    store: Store, clock: Clock
) -> None:
    access, keys = tokens_on(store, clock)
    old, others = access.issue("ann"), access.issue("bob")
    clock.pass_ms(1)
    await access.revoke_all("ann")
    new = access.issue("ann")  # in the same millisecond, and in the same second as the old one
    assert await access.admitted(old.token) == Denied("revoked")
    assert await admitted(access, new)
    assert await admitted(access, others)
    left = await keys.since("ann").remaining()
    assert left is not None
    assert timedelta(minutes=119) < left <= timedelta(hours=2)


@here
async def test_a_clock_that_is_behind_does_not_make_tokens_good_again(store: Store, clock: Clock) -> None:
    ahead = Clock(clock() + 2_000)
    access, _ = tokens_on(store, ahead)
    late, _ = tokens_on(store, clock)
    token = access.issue("ann").token
    ahead.pass_ms(1)
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


@everywhere
async def test_both_questions_are_one_round_trip_and_a_bad_token_costs_none(store: Store, clock: Clock) -> None:
    watched = Relay(store)
    access, _ = tokens_on(watched, clock)
    await admitted(access, access.issue("ann"))
    assert len(watched.log) == 1
    assert len(watched.log[0]) == 2
    assert not await access.admitted("made up")
    assert len(watched.log) == 1


class Down(Relay):
    """A store that is away."""

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        raise StoreUnavailable("the store is away")

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        raise StoreUnavailable("the store is away")


@here
async def test_while_the_store_is_away_nobody_is_let_in(store: Store, clock: Clock) -> None:
    access, _ = tokens_on(Down(store), clock)
    new = access.issue("ann")
    assert await access.admitted(new.token) == Denied("unavailable")
    found = access.check(new.token)
    assert isinstance(found, Access)
    for write in (access.revoke(found), access.revoke_all("ann")):
        with pytest.raises(StoreUnavailable):
            await write


@here
async def test_who_chooses_to_let_tokens_pass_hears_of_each(
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
    assert "could be told of an unchecked token: RuntimeError" in caplog.text
    assert new.token not in caplog.text


@here
async def test_what_cannot_be_read_lets_nobody_in_whatever_was_chosen(store: Store, clock: Clock) -> None:
    async def tell(event: UncheckedToken) -> None:
        raise AssertionError("the store is not away")

    access, keys = tokens_on(store, clock, when_down="allow", tell=tell)
    await store.run([("SET", keys.since("ann").key, "never")])
    assert await access.admitted(access.issue("ann").token) == Denied("unavailable")


async def test_a_restart_does_not_make_a_revoked_token_good_again(tmp_path: Path, clock: Clock) -> None:
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
async def test_a_store_that_forgets_is_refused_unless_that_was_chosen(store: Store, clock: Clock) -> None:
    with pytest.raises(DoesNotFit, match="may_forget"):
        tokens_on(store, clock, may_forget=False)


@here
async def test_families_of_another_shape_are_refused_with_the_reason(store: Store, clock: Clock) -> None:
    keys = RevokedKeys(store, now_ms=clock)

    def refused(tokens: Any, since: Any, **options: Any) -> str:
        with pytest.raises(BadDeclaration) as caught:
            access_of(keys_of("EdDSA"), clock, revoked=RevokedTokens(tokens, since, **{"may_forget": True, **options}))
        return str(caught.value)

    assert "a cache may forget" in refused(keys.cached, keys.since)
    assert "would outlive its end" in refused(keys.revoked, keys.brief)
    assert "1 hour at most" in refused(keys.bounded, keys.since)
    assert "two families" in refused(keys.revoked, keys.text)
    assert "two families" in refused(keys, keys.since)
    assert "until(" in refused(keys.since, keys.since)
    assert 'after("2h")' in refused(keys.revoked, keys.slides)
    assert "deny or allow" in refused(keys.revoked, keys.since, when_down="maybe")


@here
async def test_without_a_place_for_them_nothing_can_be_revoked(store: Store, clock: Clock) -> None:
    access = access_of(keys_of("EdDSA"), clock)
    new = access.issue("ann")
    found = await admitted(access, new)
    with pytest.raises(BadDeclaration, match="good until they expire"):
        await access.revoke(found)
    with pytest.raises(BadDeclaration, match="good until they expire"):
        await access.revoke_all("ann")


@here
@pytest.mark.parametrize("sub", ["a:b", "{ann}", "*", "ann\n", "é", " "])
async def test_names_of_any_characters_end_for_themselves_only(store: Store, clock: Clock, sub: str) -> None:
    access, _ = tokens_on(store, clock)
    one, other = access.issue(sub), access.issue("ann")
    clock.pass_ms(1)
    await access.revoke_all(sub)
    assert await access.admitted(one.token) == Denied("revoked")
    assert await admitted(access, other)
