"""Round trips: a visit takes one to a real Redis, including the rate limit, whether it counts or not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from keystead import connect
from keystead.kits.widgets.service import LIMITS, Visitor
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.opened import ME, TOKEN, URL, service_on, somebody
from tests.servers import Server
from tests.stores.redis.proxy import Proxy

pytestmark = pytest.mark.usefixtures("quick_hash")


class Counting(Proxy):
    """Counts how often something was sent. Whatever is sent is waited for before there is more to send."""

    def __init__(self, server_port: int) -> None:
        super().__init__(server_port)
        self.sent = 0

    def forget(self) -> None:
        self.sent = 0

    def _passing_requests(self, data: bytes) -> bytes | None:
        self.sent += 1
        return super()._passing_requests(data)


@pytest.fixture
async def proxy(redis_server: Server) -> AsyncIterator[Counting]:
    redis_server.ask("FLUSHALL")
    async with Counting(redis_server.port) as opened:
        yield opened


async def test_a_visit_to_a_cached_counter_is_one_round_trip(proxy: Counting) -> None:
    """Also for a repeated visit, beyond the limit, and for reading the counts."""
    async with connect(proxy.url) as store:
        widgets = service_on(store, Clock(), limits=LIMITS | {"write": 50})
        id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
        await widgets.counters.increment(id, somebody(1))
        for visitor, duplicate in ((somebody(2), False), (somebody(2), True), (somebody(1), True)):
            proxy.forget()
            assert (await widgets.counters.increment(id, visitor)).duplicate is duplicate
            assert proxy.sent == 1
        proxy.forget()
        assert (await widgets.counters.get(id, somebody(3))).total == 2
        assert proxy.sent == 1
        crowd = [Visitor("192.0.2.1", f"browser {one}") for one in range(60)]
        proxy.forget()
        answers = await asyncio.gather(*(widgets.counters.increment(id, one) for one in crowd), return_exceptions=True)
        assert sum(isinstance(one, Exception) for one in answers) == 10
        assert proxy.sent < 20  # concurrent requests are sent together


async def test_a_visit_to_an_uncached_counter_is_two_round_trips(proxy: Counting) -> None:
    async with connect(proxy.url) as store:
        id = (await service_on(store).counters.create(URL, TOKEN, visitor=ME)).id
        await service_on(store).counters.increment(id, somebody(1))
        widgets = service_on(store, limits=LIMITS)
        proxy.forget()
        await widgets.counters.increment(id, somebody(2))
        assert proxy.sent == 2


async def test_round_trips_of_other_actions(proxy: Counting) -> None:
    async with connect(proxy.url) as store:
        widgets = service_on(store, limits=LIMITS)
        like = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
        board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
        ranking = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
        for one in (1, 2):  # the first time the store learns its scripts
            proxy.forget()
            await widgets.likes.toggle(like, somebody(one))
            toggled = proxy.sent
            proxy.forget()
            await widgets.rankings.submit(ranking, somebody(one), f"n{one}", one)
            submitted = proxy.sent
            proxy.forget()
            await widgets.boards.post(board, somebody(one), "hello")
            posted = proxy.sent
        assert (toggled, submitted, posted) == (3, 5, 3)
        for read in (widgets.likes.get(like, ME), widgets.boards.get(board, 1, ME), widgets.rankings.get(ranking)):
            proxy.forget()
            await read
            assert proxy.sent <= 2
