"""Refresh tokens over HTTP: lost replies, concurrent use, late reuse and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.kits.membership.conftest import FakePatreon
from tests.kits.membership.visiting import Visit, visiting
from tests.parts.sessions.conftest import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock) -> AsyncIterator[Visit]:
    async with visiting(patreon, now_ms=clock) as opened:
        yield opened


async def test_a_lost_reply_leaves_a_working_client(visit: Visit, clock: Clock) -> None:
    token = await visit.sign_in()
    first = (await visit.pair(token))["refreshToken"]
    # The reply is lost, and the client retries: it gets the same successor, which works.
    lost = (await visit.refresh(first)).json()["refreshToken"]
    clock.pass_ms(29_000)
    second = (await visit.refresh(first)).json()["refreshToken"]
    assert second == lost
    third = (await visit.refresh(second)).json()["refreshToken"]
    # Two replies arrive in reverse order, and both are the same.
    found = await asyncio.gather(*(visit.refresh(third) for _ in range(20)))
    assert {one.status_code for one in found} == {200}
    [fourth] = {one.json()["refreshToken"] for one in found}
    assert (await visit.refresh(fourth)).status_code == 200
    assert await visit.works(token)


async def test_a_reused_refresh_token_after_the_grace_period_revokes_the_chain(visit: Visit, clock: Clock) -> None:
    token = await visit.sign_in()
    first = (await visit.pair(token))["refreshToken"]
    second = (await visit.refresh(first)).json()["refreshToken"]
    clock.pass_ms(30_000)
    late = await visit.refresh(first)
    assert (late.status_code, late.json()["error_code"]) == (401, "INVALID_REFRESH_TOKEN")
    assert (await visit.refresh(second)).status_code == 401
    # The session stays valid, and issues new tokens.
    assert (await visit.refresh((await visit.pair(token))["refreshToken"])).status_code == 200


async def test_a_refresh_token_chain_expires_30_days_after_its_first_token(visit: Visit, clock: Clock) -> None:
    token = (await visit.pair(await visit.sign_in()))["refreshToken"]
    for _ in range(29):
        clock.pass_ms(86_400_000)
        token = (await visit.refresh(token)).json()["refreshToken"]
    clock.pass_ms(86_400_000)
    assert (await visit.refresh(token)).status_code == 401
