"""The sharing kit in an application of this process, visitors, and the service alone."""

from __future__ import annotations

import base64
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from keystead import KeyRing, Store
from keystead.kits.kit import Site
from keystead.kits.sharing import KIT, SharingKeys, SharingSettings
from keystead.kits.sharing.service import SealedLinks, Sharing, SharingRefused
from keystead.kits.sharing.service.place import MARKER
from keystead.parts.blobs import open_blobs
from keystead.schema.lifetime import duration_ms
from keystead.server import Settings, create_app
from keystead.stores import Command, Reply

BASE = "http://127.0.0.1:8713"
RING = KeyRing({"test": b"k" * 32})
RING_TEXT = f"test:{base64.b64encode(b'k' * 32).decode()}"
TOKEN_KEY = b"t" * 32
CLEANUP_SECRET = "the secret of the clean-up"
HOST = "files.public.blob.vercel-storage.com"
URL = f"https://{HOST}/prizes/demo.zip"
WEEK_MS = duration_ms("7d")
LONGEST_MS = duration_ms("14d")
CONTENT = b"the content of the file, which is not a secret of ours\n" * 40

_READS: dict[str, Callable[[str], Command]] = {
    "string": lambda key: ("GET", key),
    "set": lambda key: ("SMEMBERS", key),
    "zset": lambda key: ("ZRANGE", key, 0, -1),
    "stream": lambda key: ("XRANGE", key, "-", "+"),
    "hash": lambda key: ("HGETALL", key),
}
_BESIDE = ("audit:", "receive:rl:", "receive:past:", "receive:stored:", "receive:files", "schedule:")
_addresses = (f"10.{a}.{b}.{c}" for a, b, c in itertools.product(range(256), repeat=3))


def key_text(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).rstrip(b"=").decode()


class Clock:
    """A clock that a test moves. It starts at the real time, because stores have their own clock."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._stands_at: int | None = None

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms if self._stands_at is None else self._stands_at

    def move(self, duration: str) -> None:
        self._ahead_ms += duration_ms(duration)

    def stand_at(self, ms: int) -> None:
        self._stands_at = ms


class Kept:
    """Raw access to a store, without the schema."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def ask(self, *command: str | bytes | float) -> Any:
        return (await self.store.run([command]))[0]

    async def all_keys(self) -> list[str]:
        return sorted({key.decode() async for page in self.store.scan() for key in page})

    async def keys(self) -> list[str]:
        """The keys of links and files that are there: without the audit, counters of all kinds, what is remembered of
        links and of the place of the files, and what the schedule of the server has.
        """
        return [key for key in await self.all_keys() if not key.startswith(_BESIDE)]

    async def key(self, prefix: str) -> str:
        [found] = [key for key in await self.keys() if key.startswith(prefix)]
        return found

    async def left_ms(self, key: str) -> int:
        left: int = await self.ask("PTTL", key)
        return left

    async def everything(self) -> str:
        """All keys and values, as text."""
        found = []
        for key in await self.all_keys():
            kind: str | bytes = await self.ask("TYPE", key)
            held: Reply = await self.ask(*_READS[kind.decode() if isinstance(kind, bytes) else kind](key))
            found.append(f"{key} {held!r}")
        return "\n".join(found)


class Visitor:
    """A client with its own address. Its requests do not come from a page, as with curl."""

    def __init__(self, app: FastAPI, address: str) -> None:
        transport = httpx2.ASGITransport(app, client=(address, 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=BASE)

    async def get(self, path: str, headers: dict[str, str] | None = None, **query: str | int) -> httpx2.Response:
        return await self.http.get(path, params=query, headers=headers)

    async def post(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> httpx2.Response:
        return await self.http.post(path, json=body, headers=headers)

    async def issue(self, url: str = URL, **more: object) -> dict[str, Any]:
        return ok(await self.post("/api/receive/token", {"url": url, **more}))

    async def upload(
        self, content: bytes = CONTENT, headers: dict[str, str] | None = None, **query: str | int
    ) -> dict[str, Any]:
        return ok(await self.try_upload(content, headers, **query))

    async def try_upload(
        self, content: bytes = CONTENT, headers: dict[str, str] | None = None, **query: str | int
    ) -> httpx2.Response:
        return await self.http.post("/api/receive/upload", content=content, params=query, headers=headers)

    async def resolve(self, token: str, **query: str | int) -> httpx2.Response:
        return await self.http.get("/api/receive/resolve", params={"t": token, **query})

    async def download(self, token: str, **headers: str) -> httpx2.Response:
        """Download the file with a ticket."""
        url = ok(await self.resolve(token))["url"]
        return await self.http.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})

    async def end(self, **body: str) -> httpx2.Response:
        return await self.post("/api/receive/delete", body)

    async def clean_up(self, authorization: str | None = f"Bearer {CLEANUP_SECRET}", **query: int) -> httpx2.Response:
        headers = {} if authorization is None else {"authorization": authorization}
        return await self.http.post("/api/cron/receive-cleanup", params=query, headers=headers)


def ok(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert told["ok"] is True
    return told


def refused(answer: httpx2.Response) -> tuple[int, str]:
    """The status and code of a refusal, after checking its format."""
    told = answer.json()
    assert told["ok"] is False, told
    assert told["error"], told
    return answer.status_code, told["code"]


class Running(Kept):
    """One application."""

    def __init__(self, app: FastAPI, folder: Path, clock: Clock) -> None:
        super().__init__(app.state.stores["default"])
        self.app = app
        self.folder = folder
        self.clock = clock

    def visitor(self, address: str | None = None) -> Visitor:
        return Visitor(self.app, address or next(_addresses))

    @property
    def sharing(self) -> Sharing:
        sharing: Sharing = self.app.state.kits["sharing"]
        return sharing

    def files(self) -> list[Path]:
        return files_in(self.folder)


def files_in(folder: Path) -> list[Path]:
    """All files, including incomplete ones, without the marker. A server may delete folders meanwhile."""
    return [Path(inside, name) for inside, _, names in os.walk(folder) for name in names if name != MARKER]


def table(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "files": str(folder),
        "token_keys": key_text(TOKEN_KEY),
        "cleanup_secret": CLEANUP_SECRET,
        "limits": dict.fromkeys(("token", "resolve", "delete", "upload", "csrf", "page", "download"), 0),
        **more,
    }


@asynccontextmanager
async def running(
    store: str, folder: Path, *, clock: Clock | None = None, settings: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Running]:
    clock = clock or Clock()
    app = create_app(
        Settings(
            store=store,
            seal_keys=RING_TEXT,
            kits=("sharing",),
            metrics=False,
            tables={"sharing": table(folder, **more)},
            **{"public_url": BASE, **(settings or {})},
        ),
        [KIT],
        now_ms=clock,
    )
    async with app.router.lifespan_context(app):
        yield Running(app, folder, clock)


async def no_pause(seconds: float) -> None:
    """Retry without waiting."""


def service_on(
    store: Store,
    folder: Path,
    clock: Callable[[], int],
    *,
    pause: Callable[[float], Awaitable[None]] = no_pause,
    **more: Any,
) -> Sharing:
    """The service alone, like another process on the same store and files."""
    settings = SharingSettings(files=str(folder), **more)
    site = Site(BASE, BASE, True, clock, lambda *_, **__: "")
    keys = SharingKeys(store, seal=RING, now_ms=clock)
    return Sharing(keys, settings, site, open_blobs(folder), SealedLinks([TOKEN_KEY]), pause=pause)


async def fetched(sharing: Sharing, token: str, where: str = "") -> bytes:
    """The complete file of a link."""
    ticket = (await sharing.resolve(token, where=where)).ticket
    assert ticket is not None
    return b"".join([piece async for piece in (await sharing.download(ticket, where=where)).body])


async def body_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class Reason:
    """The reason of a refusal; empty if not refused."""

    def __init__(self) -> None:
        self.word = ""

    def __enter__(self) -> Reason:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, SharingRefused):
            self.word = error.reason
            return True
        return False
