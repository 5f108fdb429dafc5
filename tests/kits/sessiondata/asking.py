"""The session data kit in an application of this process, and a client of its API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from keystead.kits.kit import Kit
from keystead.kits.sessiondata import KIT, SessionData
from keystead.server import Settings, create_app
from tests.kits.conftest import Raw
from tests.kits.sharing.visiting import BASE, RING_TEXT, Clock

KEY = {"SessionKey": "My_Key"}
VALUE = {**KEY, "SessionValue": "x"}
WRONG = {"Id", "StatusCode", "Message"}  # fields of an error response


class Client:
    """A client with an API key of user 42."""

    def __init__(self, app: Any, token: str, address: str = "10.0.0.1") -> None:
        transport = httpx2.ASGITransport(app, client=(address, 50_000))
        self.app = app
        self.token = token
        self.http = httpx2.AsyncClient(transport=transport, base_url=BASE)
        self.data: SessionData = app.state.kits["sessiondata"].data
        self.raw = Raw(app.state.stores["default"])
        self.durable = Raw(app.state.stores.get("durable", app.state.stores["default"]))

    def elsewhere(self, address: str) -> Client:
        """The same key, at another address and without its cookies."""
        return Client(self.app, self.token, address)

    async def ask(self, verb: str, **body: object) -> httpx2.Response:
        return await self.http.post(f"/api/Sessions/{verb}", json={"ApiKey": self.token, **body})

    async def send(self, path: str, body: object, **headers: str) -> httpx2.Response:
        """Send raw bytes, or JSON that may contain lone surrogates."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(path, content=content, headers=headers)

    async def held(self) -> set[bytes]:
        """The contents of all stores, without rate-limit counters."""
        lines = b"\n".join([await self.raw.everything(), await self.durable.everything()]).split(b"\n")
        return {line for line in lines if line and not line.startswith(b"sessiondata:asked:")}


@asynccontextmanager
async def running(
    stores: Mapping[str, str] | None = None, kit: Kit = KIT, clock: Clock | None = None, **table: Any
) -> AsyncIterator[Client]:
    app = create_app(
        Settings(
            stores=dict(stores or {"default": "memory://"}),
            seal_keys=RING_TEXT,
            kits=("sessiondata",),
            metrics=False,
            tables={"sessiondata": table},
            public_url=BASE,
        ),
        [kit],
        now_ms=clock or Clock(),
    )
    async with app.router.lifespan_context(app):
        data: SessionData = app.state.kits["sessiondata"].data
        yield Client(app, (await data.api_keys.issue(42, "a test")).token)
