"""A worker that cannot open its store: it retries temporary errors, and exits with a message on others."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI

from keystead.errors import DoesNotFit, StoreUnavailable
from keystead.server.server_worker import ServerWorker
from tests.server.chores import KIT


@asynccontextmanager
async def nullcontext_of_an_application() -> AsyncIterator[None]:
    yield


class Life:
    """The lifespan messages between a server and a worker."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.tried = 0
        self.open = asyncio.Event()
        self.ended = asyncio.Event()
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self._says: asyncio.Queue[str] = asyncio.Queue()
        self._task = asyncio.create_task(
            ServerWorker(FastAPI(lifespan=self._lifespan), end=self.ended.set)(
                {"type": "lifespan"}, self._receive, self._send
            )
        )

    async def starts(self) -> str:
        await self._says.put("lifespan.startup")
        return await asyncio.wait_for(self.told.get(), 20)

    async def stops(self) -> str:
        await self._says.put("lifespan.shutdown")
        told = await asyncio.wait_for(self.told.get(), 20)
        await self._task
        return told

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        self.tried += 1
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        self.open.set()
        yield

    def run(self, app: FastAPI) -> None:
        """Another application in the place of its own."""
        self._task.cancel()
        self._task = asyncio.create_task(ServerWorker(app)({"type": "lifespan"}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        return {"type": await self._says.get()}

    async def _send(self, message: Any) -> None:
        await self.told.put(message["type"])


@pytest.fixture(autouse=True)
def interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers ignore Ctrl-C; the process of these tests must not."""
    monkeypatch.setattr("keystead.server.server_worker._ignore_interrupts", lambda: None)


async def test_an_unavailable_store_is_retried_until_it_opens() -> None:
    life = Life(StoreUnavailable("It is away."), StoreUnavailable("It is away."), None)
    assert await life.starts() == "lifespan.startup.complete"
    await asyncio.wait_for(life.open.wait(), 20)
    assert await life.stops() == "lifespan.shutdown.complete"
    assert not life.ended.is_set()


async def test_a_permanent_error_is_logged_and_ends_the_worker(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("keystead"), "propagate", True)
    life = Life(StoreUnavailable("It is away."), DoesNotFit("It forgets too soon."))
    assert await life.starts() == "lifespan.startup.complete"
    await asyncio.wait_for(life.ended.wait(), 20)
    [line] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert line.getMessage() == "a worker cannot continue: It forgets too soon."
    assert line.exc_info is None  # its sentence says all there is to say
    assert life.tried == 2
    assert await life.stops() == "lifespan.shutdown.complete"


async def test_a_worker_that_cannot_start_is_logged_and_not_retried() -> None:
    life = Life(DoesNotFit("It forgets too soon."))
    assert await life.starts() == "lifespan.startup.failed"
    assert life.tried == 1


async def test_kits_are_stopped_immediately_and_one_failure_does_not_block_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("keystead"), "propagate", True)
    stopped: asyncio.Queue[str] = asyncio.Queue()

    def fails(service: str) -> None:
        raise RuntimeError(service)

    app = FastAPI(lifespan=lambda app: nullcontext_of_an_application())
    app.state.running = [
        replace(KIT, name="fails", stop=fails),
        replace(KIT, name="tells", stop=stopped.put_nowait),
        replace(KIT, name="closed", stop=stopped.put_nowait),
    ]
    app.state.kits = {"fails": "the first", "tells": "the second"}
    life = Life(None)
    life.run(app)
    before = signal.getsignal(signal.SIGTERM)
    assert await life.starts() == "lifespan.startup.complete"
    signal.raise_signal(signal.SIGTERM)
    assert await asyncio.wait_for(stopped.get(), 20) == "the second"
    assert stopped.empty()
    assert "the kit fails failed to stop" in caplog.text
    assert await life.stops() == "lifespan.shutdown.complete"
    assert signal.getsignal(signal.SIGTERM) is before
