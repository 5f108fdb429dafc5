"""Several kits in one application, and browsers that are signed in there, each with its own cookies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from fastapi import FastAPI

from keystead.kits.kit import Kit
from keystead.kits.login import KIT as LOGIN
from keystead.kits.login import Session
from keystead.schema.times import moment
from keystead.server import Settings, create_app
from tests.parts.sessions.conftest import Clock

BASE = "http://127.0.0.1:8714"
RING = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
NOON = 4_000_017_600_000  # 2096-10-02
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OWN = {"origin": BASE}


class Server:
    """An application of this process."""

    def __init__(self, app: FastAPI, clock: Clock) -> None:
        self.app = app
        self.clock = clock
        self.opened: list[httpx2.AsyncClient] = []

    def browser(self, token: str | None = None) -> httpx2.AsyncClient:
        """A browser, with the cookie of a session or without."""
        transport = httpx2.ASGITransport(self.app, client=("127.0.0.1", 50_000))
        client = httpx2.AsyncClient(transport=transport, base_url=BASE)
        if token is not None:
            client.cookies.set("sid", token, domain="127.0.0.1")
        self.opened.append(client)
        return client

    async def sign_in(self, id: str = "demo.demo-ada", name: str = "Ada Lovelace") -> httpx2.AsyncClient:
        """The browser of somebody who has signed in at the demo provider."""
        session = Session(
            uid=id,
            name=name,
            avatar=None,
            access_token="a",
            refresh_token="r",
            scope="identify",
            token_type="Bearer",
            access_expires_at=moment(self.clock() + 3_600_000),
            created_at=moment(0),
            last_seen_at=moment(0),
            provider="demo",
        )
        made = await self.app.state.kits["login"].sessions.create(session)
        return self.browser(made.token)


@asynccontextmanager
async def serving(
    kits: Sequence[Kit] = (LOGIN,), clock: Callable[[], int] | None = None, **settings: Any
) -> AsyncIterator[Server]:
    told = {"store": "memory://", "public_url": BASE, "seal_keys": RING, "database": "memory://", **settings}
    now = clock if isinstance(clock, Clock) else Clock(NOON)
    app = create_app(Settings(**told), list(kits), now_ms=now)
    server = Server(app, now)
    async with app.router.lifespan_context(app):
        try:
            yield server
        finally:
            for client in server.opened:
                await client.aclose()
