"""The application in this process, and browsers with their own cookies and addresses."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from fastapi import FastAPI

from keystead import KeyRing, Store
from keystead.kits.login import KIT
from keystead.server import Settings, create_app
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in

BASE = "http://127.0.0.1:8712"
SECURE_BASE = "https://app.example"
PROVIDERS = ("discord", "acme")
REDIRECT_URIS = [f"{base}/api/auth/{name}/callback" for base in (BASE, SECURE_BASE) for name in PROVIDERS]
ACCOUNT = "123456789012345678"  # as Discord's are
JSON = {"accept": "application/json"}
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
RING = f"test:{KeyRing.new_key()}"

_addresses = (f"10.{a}.{b}.{c}" for a, b, c in itertools.product(range(256), repeat=3))


class Clock:
    """A clock that a test moves. It starts at the real time, because the provider has its own clock."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def move(self, *, seconds: float) -> None:
        self._ahead_ms += round(seconds * 1000)


class Browser:
    """A browser. It accepts JSON by default; its POST requests come from a page of the site."""

    def __init__(self, app: FastAPI, base: str, address: str) -> None:
        self.address = address
        self.base = base
        transport = httpx2.ASGITransport(app, client=(address, 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=base, headers=JSON)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(path, headers=headers)

    async def post(self, path: str, body: object = None, **headers: str) -> httpx2.Response:
        return await self.http.post(path, json=body, headers={"origin": self.base, **headers})

    async def delete(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.delete(path, headers={"origin": self.base, **headers})

    def cookie(self, name: str) -> str | None:
        return next((one.value for one in self.http.cookies.jar if one.name == name), None)

    def forget(self, *names: str) -> None:
        for one in list(self.http.cookies.jar):
            if not names or one.name in names:
                self.http.cookies.jar.clear(one.domain, one.path, one.name)

    async def start(self, provider: str = "discord", **query: str) -> dict[str, Any]:
        """Start a sign-in; returns the response."""
        answer = await self.http.get(f"/api/auth/{provider}/start", params=query)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def back(self, callback_url: str, **headers: str) -> httpx2.Response:
        """Come back from the provider."""
        parts = urlsplit(callback_url)
        return await self.get(f"{parts.path}?{parts.query}", **headers)

    async def log_in(self, account: str = ACCOUNT, provider: str = "discord", **query: str) -> httpx2.Response:
        """A complete login; returns the response to the callback."""
        started = await self.start(provider, **query)
        answer = await self.back(await log_in(started["authorizeUrl"], account))
        assert answer.status_code == 200, answer.text
        return answer

    async def is_logged_in(self) -> bool:
        answer = await self.get("/api/auth/me?soft=1")
        assert answer.status_code == 200, answer.text
        logged_in: bool = answer.json()["loggedIn"]
        return logged_in

    async def sessions(self) -> list[dict[str, Any]]:
        answer = await self.get("/api/auth/sessions")
        assert answer.status_code == 200, answer.text
        listed: list[dict[str, Any]] = answer.json()["sessions"]
        return listed


class Running:
    """One application. Two of them on one store act like two processes."""

    def __init__(self, app: FastAPI, base: str, clock: Clock) -> None:
        self.app = app
        self.base = base
        self.clock = clock

    def browser(self, *, address: str | None = None) -> Browser:
        return Browser(self.app, self.base, address or next(_addresses))

    def copy_of(self, browser: Browser) -> Browser:
        """The same browser, visiting this application."""
        other = self.browser(address=browser.address)
        other.http.cookies.update(browser.http.cookies)
        return other

    @property
    def store(self) -> Store:
        store: Store = self.app.state.stores["default"]
        return store

    async def ask(self, *command: str | bytes | int) -> Any:
        return (await self.store.run([command]))[0]

    async def keys(self, *, counters: bool = False) -> list[str]:
        """The keys of the store, without request counters, audit log and outbox."""
        found = sorted([key.decode() async for page in self.store.scan() for key in page])
        beside = ("rl:", "audit:", "outbox:", "login:revoke:")
        return [key for key in found if counters or not key.startswith(beside)]

    async def key(self, prefix: str) -> str:
        [found] = [key for key in await self.keys() if key.startswith(prefix)]
        return found

    async def held(self, prefix: str) -> dict[str, Any]:
        """The JSON of the one key with this prefix."""
        read: dict[str, Any] = json.loads(await self.ask("GET", await self.key(prefix)))
        return read

    async def everything(self) -> str:
        """The whole content of the store, as text."""
        found = []
        for key in await self.keys(counters=True):
            read = {
                "set": ("SMEMBERS", key),
                "list": ("LRANGE", key, 0, -1),
                "stream": ("XRANGE", key, "-", "+"),
                "zset": ("ZRANGE", key, 0, -1),
            }.get((await self.ask("TYPE", key)).decode(), ("GET", key))
            found.append(f"{key} {await self.ask(*read)!r}")
        return "\n".join(found)

    async def left_s(self, key: str) -> float:
        left: int = await self.ask("PTTL", key)
        return left / 1000


def login_table(provider: OidcProvider, front: Front, base: str = BASE, **more: Any) -> dict[str, Any]:
    """`[login]` with two providers: plain OAuth 2 under the name `discord`, and OpenID Connect under `acme`."""
    client = {
        "client_id": provider.client_id,
        "client_secret": provider.client_secret,
        "scope": "openid profile offline_access",
        "token_url": f"{front.url}/token",
        "revoke_url": f"{front.url}/token/revocation",
    }
    discord = {
        **client,
        "authorize_url": f"{provider.issuer}/auth",
        "userinfo_url": f"{front.url}/me",
        "redirect_uri": f"{base}/api/auth/discord/callback",
    }
    acme = {**client, "issuer": provider.issuer, "redirect_uri": f"{base}/api/auth/acme/callback"}
    return {"providers": {"discord": discord, "acme": acme}, **more}


@asynccontextmanager
async def running(
    store: str, table: dict[str, Any], *, base: str = BASE, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Running]:
    clock = clock or Clock()
    app = create_app(
        Settings(
            store=store,
            public_url=base,
            seal_keys=RING,
            kits=("login",),
            metrics=False,
            tables={"login": table},
            **settings,
        ),
        [KIT],
        now_ms=clock,
    )
    async with app.router.lifespan_context(app):
        yield Running(app, base, clock)


def parameters(url: str) -> dict[str, str]:
    """The query of a URL without repeated parameters."""
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


def set_cookies(answer: httpx2.Response) -> list[str]:
    return answer.headers.get_list("set-cookie")
