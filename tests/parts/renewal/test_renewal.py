"""A provider's tokens are renewed before they expire: once, stored before use, and lost by no failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from keystead import Store, connect
from keystead.errors import BadDeclaration, DoesNotFit, StoreUnavailable
from keystead.parts.oauth import Client
from keystead.parts.renewal import Fresh, Over, Renewal, Unrenewed
from keystead.stores import Guarantees, Outcome, Step
from tests.parts.oauth.stand_in import answer
from tests.parts.renewal.conftest import (
    BEFORE_MS,
    LIFETIME_S,
    App,
    Clock,
    Late,
    Provider,
    everywhere,
    held,
    here,
    renewed,
)
from tests.parts.sessions.relays import Actor, Gated, Killed, Mortal, Relay, Slots, every_order, in_order

LIFETIME_MS = 1000 * LIFETIME_S


@here
async def test_tokens_are_renewed_five_minutes_before_they_expire_and_not_earlier(
    app: App, provider: Provider, clock: Clock
) -> None:
    clock.pass_ms(LIFETIME_MS - BEFORE_MS - 1)
    assert await app.access_token() == "access-1"
    assert provider.uses == 0
    clock.pass_ms(1)
    assert await app.access_token() == "access-2"
    assert await app.access_token() == "access-2"
    assert provider.uses == 1
    stored = await app.session.get()
    assert stored is not None
    assert (stored.refresh_token, stored.expires_at_ms) == ("refresh-2", clock() + LIFETIME_MS)


@everywhere
async def test_twenty_requests_in_two_processes_share_one_load(
    store: Store, app: App, client: Client, provider: Provider, clock: Clock
) -> None:
    other = App(store, client, clock)
    for number in range(2, 5):
        clock.pass_ms(LIFETIME_MS)
        found = await asyncio.gather(*(one.access_token() for one in [app, other] * 10))
        assert set(found) == {f"access-{number}"}
    assert (provider.uses, provider.thefts) == (3, 0)
    assert not await app.keys.renewing("s1").exists()


@here
async def test_during_a_renewal_others_use_the_still_valid_token(
    store: Store, app: App, client: Client, provider: Provider, clock: Clock
) -> None:
    clock.pass_ms(LIFETIME_MS - 1)
    given = provider.server.answers.pop("/token")  # it takes its time
    asking = asyncio.ensure_future(app.fresh())
    await provider.server.until_asked("/token", 1)
    other = App(store, client, clock, wait="1ms")
    assert await other.access_token() == "access-1"
    clock.pass_ms(1)
    assert isinstance(await other.fresh(), Unrenewed)
    assert (await other.fresh()).reason == "busy"
    assert provider.uses == 1
    asking.cancel()
    provider.server.answers["/token"] = given


@here
async def test_the_new_tokens_are_stored_before_anybody_has_them(app: App, provider: Provider, clock: Clock) -> None:
    clock.pass_ms(LIFETIME_MS)
    found = await app.fresh()
    assert isinstance(found, Fresh)
    assert found.was_renewed
    assert await app.session.get() == found.value
    assert not (await app.fresh()).was_renewed
    assert "access-" not in repr(found)


@here
async def test_a_renewal_does_not_make_a_session_live_longer(app: App, clock: Clock) -> None:
    await app.session.bound.store.run([("PEXPIRE", app.session.key, 90_000)])
    clock.pass_ms(LIFETIME_MS)
    assert await app.access_token() == "access-2"
    left = await app.session.remaining()
    assert left is not None
    assert left.total_seconds() <= 90


@everywhere
async def test_a_refusal_recorded_in_the_record_is_not_retried(
    store: Store, client: Client, provider: Provider, clock: Clock
) -> None:
    """As after a renewal whose answer was lost: the old refresh token is spent, and stays so."""
    app = App(store, client, clock, refused=lambda session: session.model_copy(update={"refresh_token": None}))
    await app.log_in()
    provider.number = 7
    clock.pass_ms(LIFETIME_MS)
    for _ in range(3):
        assert await app.fresh() == Over("refused")
        await store.run([("DEL", app.keys.renewing("s1").key)])  # the claim has ended
    assert provider.uses == 1
    await app.log_in()
    assert await app.access_token() == "access-1"


@here
async def test_a_refused_refresh_token_is_final(app: App, provider: Provider, clock: Clock) -> None:
    before = await app.session.get()
    provider.number = 7  # the user took the permission back
    clock.pass_ms(LIFETIME_MS)
    assert await app.fresh() == Over("refused")
    assert await app.session.get() == before  # whether the session ends is for the application to say
    assert await app.fresh() == Over("refused")
    assert provider.uses == 1  # it is not asked again for a while


@here
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (answer({"error": "invalid_client"}, 401), "misconfigured"),
        (answer({"error": "unauthorized_client"}, 400), "misconfigured"),
        (answer({"message": "no"}, 403), "misconfigured"),
        (answer({}, 500), "unavailable"),
        (answer({}, 429), "unavailable"),
        (answer(b"<html>"), "unavailable"),
        (answer({"access_token": "x"}), "unavailable"),
        (b"nonsense", "unavailable"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[:60].decode().split("\r")[0],
)
async def test_a_failing_provider_ends_no_session_and_is_called_once(
    app: App, provider: Provider, clock: Clock, given: bytes, reason: Any
) -> None:
    works = provider.server.answers["/token"]
    provider.server.answers["/token"] = given
    clock.pass_ms(LIFETIME_MS - 1)
    assert await app.access_token() == "access-1"  # it is still good
    clock.pass_ms(1)
    for _ in range(5):
        found = await app.fresh()
        assert isinstance(found, Unrenewed)
        assert found.reason == reason
    assert provider.uses == 1
    provider.server.answers["/token"] = works
    await app.keys.renewing("s1").delete()  # 20 s later
    assert await app.access_token() == "access-2"


@here
async def test_a_provider_without_a_response_times_out(
    store: Store, app: App, client: Client, provider: Provider, clock: Clock
) -> None:
    del provider.server.answers["/token"]
    clock.pass_ms(LIFETIME_MS)
    hasty = App(store, client, clock, within="50ms")
    found = await hasty.fresh()
    assert isinstance(found, Unrenewed)
    assert found.reason == "unavailable"


@everywhere
async def test_tokens_renewed_for_an_ended_session_are_revoked(
    store: Store, app: App, late: Late, provider: Provider, clock: Clock
) -> None:
    clock.pass_ms(LIFETIME_MS)

    async def log_out() -> None:
        await app.session.delete()

    given = await _interrupted(store, late, clock, log_out)
    assert given == Over("gone")
    assert await app.session.get() is None
    assert [sent for path, sent in provider.server.asked if path == "/revoke" and "token=refresh-2" in sent]


@everywhere
async def test_concurrent_writes_are_not_lost(store: Store, app: App, late: Late, clock: Clock) -> None:
    clock.pass_ms(LIFETIME_MS)

    async def change() -> None:
        await app.session.change(lambda session: session.model_copy(update={"theme": "dark"}))

    given = await _interrupted(store, late, clock, change)
    assert isinstance(given, Fresh)
    stored = await app.session.get()
    assert stored is not None
    assert (stored.theme, stored.access_token) == ("dark", "access-2")


@here
@pytest.mark.parametrize("refuses", [False, True])
async def test_a_concurrent_login_wins_over_the_renewal_of_the_old_tokens(
    store: Store, app: App, late: Late, provider: Provider, clock: Clock, refuses: bool
) -> None:
    if refuses:
        provider.number = 99
    clock.pass_ms(LIFETIME_MS)

    async def log_in_again() -> None:
        update = {"access_token": "new", "refresh_token": "newer", "expires_at_ms": clock() + LIFETIME_MS}
        await app.session.change(lambda session: session.model_copy(update=update))

    given = await _interrupted(store, late, clock, log_in_again)
    assert isinstance(given, Fresh)
    assert given.value.access_token == "new"
    assert await app.access_token() == "new"
    assert provider.uses == 1


async def _interrupted(store: Store, late: Late, clock: Clock, meanwhile: Callable[[], Awaitable[Any]]) -> Any:
    """Do something between the provider's response and its arrival."""
    task = asyncio.ensure_future(App(store, late, clock).fresh())
    await late.answered.wait()
    await meanwhile()
    late.arrives.set()
    return await task


@here
async def test_cancelling_the_caller_does_not_lose_the_new_tokens(app: App, provider: Provider, clock: Clock) -> None:
    clock.pass_ms(LIFETIME_MS)
    asking = asyncio.ensure_future(app.fresh())
    await provider.server.until_asked("/token", 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await app.renewal.finish()
    assert await app.access_token() == "access-2"
    assert (provider.uses, provider.thefts) == (1, 0)


class Flaky(Relay):
    """A store that loses replies of some atomic steps, before or after they took effect."""

    def __init__(self, inner: Store, lost: int, *, takes_effect: bool) -> None:
        super().__init__(inner)
        self._left = lost
        self._takes_effect = takes_effect

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        if self._left == 0:
            return await super().atomically(steps)
        self._left -= 1
        if self._takes_effect:
            await super().atomically(steps)
        raise StoreUnavailable("the store is away")


@here
@pytest.mark.parametrize("takes_effect", [True, False])
async def test_a_short_outage_does_not_lose_the_new_tokens(
    store: Store, app: App, client: Client, provider: Provider, clock: Clock, takes_effect: bool
) -> None:
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    clock.pass_ms(LIFETIME_MS)
    flaky = App(Flaky(store, 3, takes_effect=takes_effect), client, clock, pause=pause)
    assert await flaky.access_token() == "access-2"
    assert waits == ([0.1] if takes_effect else [0.1, 0.2, 0.4])
    assert await app.access_token() == "access-2"
    assert provider.uses == 1


@here
async def test_a_lasting_outage_is_reported(store: Store, app: App, client: Client, clock: Clock) -> None:
    async def pause(seconds: float) -> None: ...

    clock.pass_ms(LIFETIME_MS)
    with pytest.raises(StoreUnavailable):
        await App(Flaky(store, 99, takes_effect=False), client, clock, pause=pause).fresh()


@here
async def test_the_claim_of_a_killed_process_expires(
    store: Store, app: App, client: Client, provider: Provider, clock: Clock
) -> None:
    clock.pass_ms(LIFETIME_MS)
    for lives in range(1, 3):  # before it asked the provider: nothing was spent
        with pytest.raises(Killed):
            await App(Mortal(store, lives), client, clock).fresh()
        assert provider.uses == 0
        left = await app.keys.renewing("s1").remaining()
        assert left is None or left.total_seconds() <= 20
        await app.keys.renewing("s1").delete()  # 20 s later
    assert await app.access_token() == "access-2"


@here
async def test_a_record_that_is_not_there_is_gone(app: App, provider: Provider) -> None:
    assert await app.renewal.fresh(app.keys.session("other")) == Over("gone")
    assert provider.uses == 0


@here
async def test_tokens_without_a_refresh_token_are_good_until_they_expire(
    app: App, provider: Provider, clock: Clock
) -> None:
    await app.session.change(lambda session: session.model_copy(update={"refresh_token": None}))
    clock.pass_ms(LIFETIME_MS - 1)
    assert await app.access_token() == "access-1"
    clock.pass_ms(1)
    assert await app.fresh() == Over("refused")
    assert provider.uses == 0


@here
async def test_no_token_is_in_a_log(
    app: App, provider: Provider, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.server.answers["/token"] = answer({"error": "invalid_client"}, 401)
    clock.pass_ms(LIFETIME_MS)
    await app.fresh()
    assert "refuses us: invalid_client" in caplog.text
    assert "refresh-1" not in caplog.text
    assert "access-1" not in caplog.text


@here
async def test_families_of_another_shape_are_refused_with_the_reason(store: Store, app: App, client: Client) -> None:
    def refused(claims: Any, **options: Any) -> str:
        with pytest.raises((BadDeclaration, DoesNotFit)) as caught:
            Renewal(client, claims, held=held, renewed=renewed, **options)
        return str(caught.value)

    assert "keys.renewing" in refused(app.keys)
    assert "keys.renewing" in refused(app.keys.session)
    assert "so that only one request calls it" in refused(app.keys.brief)
    assert "so that only one request calls it" in refused(app.keys.renewing, within="1m")
    weak = Relay(store)
    weak.guarantees = Guarantees(atomic="nothing")
    app.keys.renewing.store = weak
    assert "two processes could spend" in refused(app.keys.renewing)


@pytest.mark.parametrize("slots", [False, True])
async def test_two_renewals_spend_a_refresh_token_once_in_every_order(
    client: Client, provider: Provider, clock: Clock, slots: bool
) -> None:
    async def pause(seconds: float) -> None: ...

    async with Slots() if slots else connect("memory://") as store:
        outside = App(store, client, clock)

        async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
            provider.number, used = 1, provider.uses
            await outside.log_in()
            clock.pass_ms(LIFETIME_MS)
            gated = Gated(store)
            a, b = (App(gated, client, clock, pause=pause, wait="1ms") for _ in range(2))
            order, found = await in_order(gated, {"a": a.fresh, "b": b.fresh}, first)
            assert (provider.uses - used, provider.thefts) == (1, 0)
            assert any(isinstance(each, Fresh) for each in found.values())
            for each in found.values():
                assert each.value.access_token == "access-2" if each else each.reason == "busy"
            assert await outside.access_token() == "access-2"
            return order

        assert await every_order(one, switches=3) > 20
