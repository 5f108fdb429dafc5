"""The widgets kit in an application of this process, and its visitors."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from fastapi import FastAPI

from keystead.kits.widgets import KIT
from keystead.kits.widgets.service import LIMITS
from keystead.server import Settings, create_app
from keystead.stores import Command
from tests.kits.sharing.visiting import BASE, RING_TEXT, Clock, Kept

URL = "https://example.com/page"
TOKEN = "Ann+likes-tea"
VISIT, LIKE, RANKING, BBS = "/api/visit", "/api/like", "/api/ranking", "/api/bbs"
PATHS = (VISIT, LIKE, RANKING, BBS)

_READS: dict[str, Callable[[str], Command]] = {
    "string": lambda key: ("GET", key),
    "set": lambda key: ("SMEMBERS", key),
    "zset": lambda key: ("ZRANGE", key, 0, -1),
    "hash": lambda key: ("HGETALL", key),
    "list": lambda key: ("LRANGE", key, 0, -1),
    "stream": lambda key: ("XRANGE", key, "-", "+"),
}
_addresses = (f"10.{a}.{b}.{c}" for a, b, c in itertools.product(range(256), repeat=3))


class Visitor:
    """A visitor with its own IP address."""

    def __init__(self, app: FastAPI, address: str) -> None:
        transport = httpx2.ASGITransport(app, client=(address, 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=BASE)

    async def get(
        self, path: str, action: str, headers: dict[str, str] | None = None, /, **query: str | int
    ) -> httpx2.Response:
        return await self.http.get(path, params={"action": action, **query}, headers=headers)

    async def post(
        self, path: str, action: str, headers: dict[str, str] | None = None, /, **body: object
    ) -> httpx2.Response:
        return await self.http.post(path, json={"action": action, **body}, headers=headers)

    async def create(self, path: str, url: str = URL, **more: object) -> str:
        """The id of a new widget."""
        id: str = data(await self.post(path, "create", url=url, token=TOKEN, **more))["id"]
        return id


def data(answer: httpx2.Response) -> Any:
    """The data of a success."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["success"] is True, told
    assert answer.headers["cache-control"] == "no-store"
    return told["data"]


def refused(answer: httpx2.Response) -> tuple[int, str]:
    """The status and the code of an error, which has the fields of the server and of the original."""
    told = answer.json()
    assert (told["ok"], told["success"]) == (False, False), told
    assert told["statusCode"] == answer.status_code
    assert told["error"], told
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, told["code"]


class Running(Kept):
    """One application."""

    def __init__(self, app: FastAPI, clock: Clock) -> None:
        super().__init__(app.state.stores["default"])
        self.app = app
        self.clock = clock

    async def everything(self) -> str:
        """All keys and all that they hold, as text, but for the counts of requests and the schedule of the server."""
        found = []
        for key in await self.all_keys():
            if not key.startswith(("schedule:", "widgets:requests:")):
                kind = await self.ask("TYPE", key)
                held = await self.ask(*_READS[kind.decode() if isinstance(kind, bytes) else kind](key))
                found.append(f"{key} {held!r}")
        return "\n".join(found)

    def visitor(self, address: str | None = None) -> Visitor:
        return Visitor(self.app, address or next(_addresses))


@asynccontextmanager
async def running(
    store: str, *, clock: Clock | None = None, settings: dict[str, Any] | None = None, **table: Any
) -> AsyncIterator[Running]:
    clock = clock or Clock()
    own = {"limits": dict.fromkeys(LIMITS, 0), **table}
    app = create_app(
        Settings(
            store=store,
            seal_keys=RING_TEXT,
            kits=("widgets",),
            metrics=False,
            tables={"widgets": own},
            **{"public_url": BASE, **(settings or {})},
        ),
        [KIT],
        now_ms=clock,
    )
    async with app.router.lifespan_context(app):
        yield Running(app, clock)
