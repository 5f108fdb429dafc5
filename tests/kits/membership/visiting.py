"""The kit in a server, for HTTP requests, with access to its service."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from fastapi import FastAPI

from keystead.kits.login import KIT as LOGIN
from keystead.kits.membership import KIT, Members
from keystead.server import Settings, create_app
from tests.kits.membership.asking import BASE, REDIRECT, SECRET, table
from tests.kits.membership.conftest import FakePatreon

SEAL_KEYS = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"


@dataclass(frozen=True)
class Visit:
    """An application, and the service it uses."""

    app: FastAPI
    http: httpx2.AsyncClient

    @property
    def members(self) -> Members:
        found: Members = self.app.state.kits["membership"]
        return found

    def at(self, address: str) -> httpx2.AsyncClient:
        """The same application from another address."""
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app, client=(address, 50_000)), base_url=BASE)

    async def sign_in(self, user: str = "123") -> str:
        told = await self.http.post("/api/auth/callback", json={"code": f"code-{user}", "redirect_uri": REDIRECT})
        assert told.status_code == 200, told.text
        token: str = told.json()["session_token"]
        return token

    async def pair(self, token: str) -> dict[str, Any]:
        told = await self.http.post("/api/auth/token", headers=bearer(token))
        assert told.status_code == 200, told.text
        found: dict[str, Any] = told.json()
        return found

    async def refresh(self, token: str) -> httpx2.Response:
        return await self.http.post("/api/auth/refresh", json={"refreshToken": token})

    async def quota(self, token: str) -> httpx2.Response:
        return await self.http.get("/api/quota/status", headers=bearer(token))

    async def works(self, token: str) -> bool:
        return (await self.http.post("/api/session/validate", json={"session_token": token})).status_code == 200


@asynccontextmanager
async def visiting(
    patreon: FakePatreon,
    *,
    now_ms: Callable[[], int] | None = None,
    own: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Visit]:
    clock = {} if now_ms is None else {"now_ms": now_ms}
    given = {"store": "memory://", "public_url": BASE, "seal_keys": SEAL_KEYS, **settings}
    made = Settings(**given, tables={"membership": table(patreon.server.url, **(own or {}))})
    app = create_app(made, [LOGIN, KIT], **clock)  # in this order the login kit would handle every logout
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app, client=("192.0.2.7", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            yield Visit(app, client)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def signature(body: bytes) -> dict[str, str]:
    return {"x-patreon-signature": hmac.new(SECRET.encode(), body, "md5").hexdigest()}
