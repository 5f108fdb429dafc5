"""A request costs one round trip to a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from keystead import connect
from keystead.kits.kit import Site
from keystead.kits.membership import Members, MembershipKeys, MembershipSettings
from keystead.kits.membership.service import Patreon
from tests.kits.membership.conftest import BASE, RING, Books, refusal, signed_in
from tests.parts.sessions.conftest import Clock
from tests.servers import Server
from tests.stores.redis.proxy import Proxy


class Counting(Proxy):
    """Counts the batches that were sent. Each is awaited before the next."""

    def __init__(self, server_port: int) -> None:
        super().__init__(server_port)
        self.sent = 0

    def _passing_requests(self, data: bytes) -> bytes | None:
        self.sent += 1
        return super()._passing_requests(data)


@pytest.fixture
async def proxy(redis_server: Server) -> AsyncIterator[Counting]:
    redis_server.ask("FLUSHALL")
    async with Counting(redis_server.port) as opened:
        yield opened


async def test_validating_a_session_or_bearer_token_is_one_round_trip(
    proxy: Counting, settings: MembershipSettings, clock: Clock, ledger: Books
) -> None:
    site = Site(public_url=BASE, internal_url=BASE, development=True, now_ms=clock, render=lambda *_, **__: "")
    async with connect(proxy.url) as store, httpx2.AsyncClient(trust_env=False) as http:
        keys = MembershipKeys(store, seal=RING, now_ms=clock)
        members = Members(keys, settings, site, Patreon(settings.provider, http, clock, development=True), ledger)
        token = await signed_in(members)
        pair = await members.token_pairs.issue(token)
        await members.entitled(token)
        for ask in (
            lambda: members.validate(token),
            lambda: members.entitled(token),
            lambda: members.entitled(pair.access_token),
        ):
            proxy.sent = 0
            assert await refusal(ask()) is None
            assert proxy.sent == 1
        old = token
        await signed_in(members)
        proxy.sent = 0
        assert await refusal(members.validate(old)) == "SESSION_INVALID"
        assert proxy.sent == 1
        await members.close()
