"""The console in this process, and the requests of one person who uses it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead.console.console_access import ConsoleAccess
from keystead.console.console_keys import ConsoleKeys, Role
from keystead.kits.kit import Kit
from keystead.server import Settings, create_app
from keystead.server.kit_loading import load_kits
from tests.console.shop_keys import SEAL_KEYS

ORIGIN = "http://127.0.0.1:8700"


class HttpBrowser:
    """Requests of one person, with the cookies and the form token of a browser."""

    def __init__(self, app: Any, access: ConsoleAccess, keys: Any = None, **headers: str) -> None:
        self.app, self.access, self.keys = app, access, keys
        self._http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url=ORIGIN, headers={"accept": "text/html", **headers}
        )

    async def enter(self, role: Role, who: str = "operator:ann") -> None:
        secret = await self.access.create_link(who, role)
        await self._http.get("/console/enter")
        assert (await self.post("/console/enter", secret=secret)).status_code == 303

    async def get(self, path: str) -> Any:
        return await self._http.get(path)

    async def post(self, path: str, **fields: str) -> Any:
        data = {"csrf": self._http.cookies["csrf"], **fields}
        return await self._http.post(path, data=data, headers={"origin": ORIGIN})

    async def post_from_elsewhere(self, path: str) -> Any:
        return await self._http.post(path, headers={"origin": "https://evil.example"})


@asynccontextmanager
async def opened(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    keyspaces: Sequence[str] = ("tests.console.app_keys:AppKeys",),
    kits: Sequence[Kit] = (),
    stores: Mapping[str, str] | None = None,
    **console: Any,
) -> AsyncIterator[tuple[Any, ConsoleAccess]]:
    """The application with the console for these keyspaces, and what makes links to it."""
    monkeypatch.chdir(folder)
    settings = Settings(
        store="sqlite:///app.db",
        stores=dict(stores or {}),
        kits=["console"],
        seal_keys=SEAL_KEYS,
        console={"keyspaces": list(keyspaces), **console},
    )
    app = create_app(settings, [*load_kits(settings), *kits])
    async with app.router.lifespan_context(app):
        yield app, ConsoleAccess(ConsoleKeys(app.state.stores["default"]))
