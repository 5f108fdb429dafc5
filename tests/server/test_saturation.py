"""Overload: a worker with more to do than it can refuses what it could only answer late, and nothing else."""

import asyncio
import time
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message

from keystead.server.request_layer import RequestLayer, RequestLimits

FEW = 64  # are always accepted
WORK_S = 0.0002  # of CPU time a request


class Worker:
    """Its requests work, or wait until `leave` is set."""

    def __init__(self, at_once: int = 1000) -> None:
        self.layer = RequestLayer(self.app, RequestLimits(30, 1000, at_once=at_once, streams=["/stream"]))
        self.leave = asyncio.Event()
        self.asked = FastAPI()

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await self.leave.wait()
        for _ in range(2):
            began = time.thread_time()
            while time.thread_time() - began < WORK_S / 2:
                pass
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def request(self, path: str = "/") -> int:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], "app": self.asked}
        await self.layer(scope, None, send)  # type: ignore[arg-type]
        status: int = sent[0]["status"]
        return status

    async def burst(self, count: int, path: str = "/") -> list[int]:
        return await asyncio.gather(*(self.request(path) for _ in range(count)))

    async def overload(self, turns: int = 20) -> int:
        """Three times the load that it can take, until for so many turns only few were accepted at once.

        Returns how many were refused. The rate is by CPU time: on a busy machine, requests come more slowly, too.
        """
        begun: set[asyncio.Future[int]] = set()
        began, few_since = time.thread_time(), 0
        async with asyncio.timeout(60):
            while few_since < turns:
                due = round((time.thread_time() - began) / WORK_S * 3) - len(begun)
                begun |= {asyncio.ensure_future(self.request()) for _ in range(due)}
                await asyncio.sleep(0)
                few_since = few_since + 1 if 0 < self.layer.requests.count <= FEW else 0
        return (await asyncio.gather(*begun)).count(503)


async def test_a_burst_of_quick_requests_is_not_refused() -> None:
    assert set(await Worker().burst(400)) == {200}


async def test_under_lasting_overload_few_are_accepted_at_once_and_so_they_are_fast() -> None:
    worker = Worker()
    assert await worker.overload() > 0
    assert set(await worker.burst(FEW)) == {200}


async def test_a_while_after_an_overload_bursts_are_accepted_again() -> None:
    worker = Worker()
    await worker.overload()
    worker.layer.saturation._long_turn_at -= 10  # ten seconds later
    assert set(await worker.burst(400)) == {200}


async def test_requests_that_wait_for_something_else_are_no_work() -> None:
    worker = Worker()
    waiting = [asyncio.ensure_future(worker.request("/wait")) for _ in range(500)]
    for _ in range(200):
        assert await worker.request() == 200
    assert worker.layer.requests.count == 500
    worker.leave.set()
    assert set(await asyncio.gather(*waiting)) == {200}


@pytest.mark.parametrize(("at_once", "path"), [(0, "/"), (100_000, "/stream")])
async def test_no_limit_is_none_and_streams_that_begin_have_only_their_own(at_once: int, path: str) -> None:
    worker = Worker(at_once)
    async with asyncio.timeout(60):
        assert set(await worker.burst(1500, path)) == {200}
