"""Users of each kit on a server of this process, whose clock the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import time_ns
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
import pytest
import uvicorn

from keystead.kits.teamwork.models import UserSession
from keystead.parts.oauth import challenge_of, new_verifier
from keystead.server import Settings, create_app
from keystead.stores.sqlite.sqlite_store import SqliteStore
from tests.cli.program import SEAL_KEYS
from tests.serving import free_port

_HTML: Final = {"accept": "text/html"}
_APP: Final = "http://127.0.0.1:49152/callback"


class KitServer:
    """A running server with one kit, and a browser for each of its users."""

    def __init__(self, port: int, store_url: str) -> None:
        self.store_url = store_url
        self.url = f"http://127.0.0.1:{port}"
        self.passed_ms = 0
        self.services: dict[str, Any] = {}
        self._browsers: dict[int, httpx2.AsyncClient] = {}

    def now_ms(self) -> int:
        return time_ns() // 1_000_000 + self.passed_ms

    def browser(self, user: int) -> httpx2.AsyncClient:
        """The browser of a user, behind an address of its own. It keeps its cookies."""
        if user not in self._browsers:
            headers = {"x-forwarded-for": f"10.0.{user // 250}.{user % 250 + 1}", "origin": self.url}
            self._browsers[user] = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=300)
        return self._browsers[user]

    async def close(self) -> None:
        for browser in self._browsers.values():
            await browser.aclose()


@asynccontextmanager
async def kit_server(kit: str, folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[KitServer]:
    """The server, on a SQLite database in this folder. The stores of this process have its clock."""
    port = free_port()
    server = KitServer(port, f"sqlite:///{folder}/keystead.db")
    patch.setitem(SqliteStore.__init__.__kwdefaults__ or {}, "clock", server.now_ms)
    more: dict[str, object] = (
        {"allowed_hosts": ["example.com"], "files": str(folder / "files")} if kit == "sharing" else {}
    )
    if kit == "widgets":
        more = {"private_webhooks": True}
    settings = Settings(
        store=server.store_url, database=f"sqlite:///{folder}/tables.db", kits=(kit,), port=port, seal_keys=SEAL_KEYS,
        forwarded_allow=("127.0.0.1",), tables={kit: more}, metrics=False,
    )  # fmt: skip
    app = create_app(settings, now_ms=server.now_ms)
    config = uvicorn.Config(app, port=port, log_level="error", proxy_headers=False)
    running = uvicorn.Server(config)
    task = asyncio.create_task(running.serve())
    try:
        while not running.started:
            assert not task.done(), task.result()
            await asyncio.sleep(0)
        server.services = app.state.kits
        yield server
    finally:
        await server.close()
        running.should_exit = True
        await task


async def _json(answer: Awaitable[httpx2.Response]) -> dict[str, Any]:
    told = await answer
    assert told.is_success, f"{told.request.url}: {told.status_code} {told.text}"
    found: dict[str, Any] = told.json()
    return found


# Each function is what a user does: at first, and then again with what `came_back` keeps of the first time.
Visits = dict[str, Any]


async def use_widgets(server: KitServer, user: int, known: Visits) -> None:
    http = server.browser(user)

    async def ask(service: str, **said: Any) -> dict[str, Any]:
        return await _json(http.post(f"/api/{service}", json=said))

    if not known:
        page = {"url": f"https://example.com/{user}", "token": f"my-own-token-{user}"}
        for service in ("visit", "like", "ranking", "bbs"):
            known[service] = (await ask(service, action="create", **page))["data"]["id"]
        known["yokoso"] = (await ask("yokoso", action="create", message="Hello", **page))["data"]["id"]
    await ask("visit", action="increment", id=known["visit"])
    await ask("like", action="toggle", id=known["like"])
    await ask("ranking", action="submit", id=known["ranking"], name=f"Ada {user}", score=user)
    await ask("bbs", action="post", id=known["bbs"], author="Ada", message=f"message {user}")


async def use_sharing(server: KitServer, user: int, known: Visits) -> None:
    http = server.browser(user)
    uploaded = await _json(http.post(f"/api/receive/upload?name={user}.txt&maxDownloads=3", content=b"shared"))
    resolved = await http.get("/api/receive/resolve", params={"t": uploaded["shortToken"], "redirect": 1})
    assert resolved.status_code == 302, resolved.text
    assert (await http.get(resolved.headers["location"])).content == b"shared"
    elsewhere = {"url": f"https://example.com/{user}.pdf", "password": "secret"}
    issued = await _json(http.post("/api/receive/token", json=elsewhere))
    wrong = await http.post("/api/receive/resolve", json={"t": issued["shortToken"], "password": "wrong"})
    assert 400 <= wrong.status_code < 500, wrong.text
    ended = await _json(http.post(f"/api/receive/upload?name={user}-b.txt", content=b"ended"))
    await _json(http.post("/api/receive/delete", json={"token": ended["token"]}))


async def use_login(server: KitServer, user: int, known: Visits) -> None:
    if not known:
        for device in (user, user + 1_000):
            await _log_in(server.browser(device), f"Ada {user}")
        await _json(server.browser(user).post("/api/auth/token"))
        known["signed in"] = True
    await _json(server.browser(user).get("/api/auth/me"))
    assert (await server.browser(user + 2_000).get("/api/auth/demo/start?format=json")).is_success  # never finished


async def _log_in(http: httpx2.AsyncClient, name: str) -> None:
    start = await http.get("/api/auth/demo/start?returnTo=/login", headers=_HTML)
    asked = urlsplit(start.headers["location"])
    agreed = await http.post(asked.path, data={**dict(parse_qsl(asked.query)), "name": name})
    back = urlsplit(agreed.headers["location"])
    assert (await http.get(f"{back.path}?{back.query}")).status_code == 200


async def use_membership(server: KitServer, user: int, known: Visits) -> None:
    http, verifier = server.browser(user), new_verifier()
    if not known:
        asked = {
            "response_type": "code", "client_id": "demo-patreon", "redirect_uri": _APP, "scope": "identity",
            "state": "the-state", "code_challenge": challenge_of(verifier), "code_challenge_method": "S256",
            "name": f"Ada {user}",
        }  # fmt: skip
        agreed = await http.post("/demo/authorize", data=asked)
        code = parse_qs(urlsplit(agreed.headers["location"]).query)["code"][0]
        proof = {"code": code, "redirect_uri": _APP, "code_verifier": verifier}
        known["token"] = (await _json(http.post("/api/auth/callback", json=proof)))["session_token"]
    bearer = {"authorization": f"Bearer {known['token']}"}
    await _json(http.post("/api/session/validate", json={"session_token": known["token"]}))
    pair = await _json(http.post("/api/auth/token", headers=bearer))
    await _json(http.post("/api/auth/refresh", json={"refreshToken": pair["refreshToken"]}))
    await _json(http.get("/api/quota/status", headers=bearer))


async def use_session_data(server: KitServer, user: int, known: Visits) -> None:
    data, http = server.services["sessiondata"].data, server.browser(user)
    if not known:
        known["key"] = (await data.api_keys.issue(user, f"key {user}")).token
    own = {"ApiKey": known["key"], "SessionKey": "Theme", "SessionValue": f"Dark {user}"}
    await _json(http.post("/api/Sessions/Set", json={**own, "SavePerUser": True}))
    begun = await _json(http.post("/api/Sessions/Set", json=own | {"SessionGuid": known.get("guid", "")}))
    known["guid"] = begun["Response"].get("SessionGuid") or known["guid"]
    await data.session(known["guid"]).set_once("User_Message", f"read me once, {user}")


async def use_teamwork(server: KitServer, user: int, known: Visits) -> None:
    kit, http, team = server.services["teamwork"], server.browser(user), 1 + user % 12
    person = UserSession(
        name=f"User {user}", email=f"u{user}@example.com", role="DEVELOPER", team_id=team, team_role="MEMBER"
    )
    if not known:
        await kit.people.save(100 + user, person)
        known["team"] = team
        leaving = {"authorization": f"Bearer {kit.tokens.issue(str(100 + user)).token}"}
        await _json(http.post("/api/tokens/revoke", headers=leaving))
    bearer = {"authorization": f"Bearer {kit.tokens.issue(str(100 + user)).token}"}
    await _json(http.get("/api/me", headers=bearer))
    due = {"due": "2096-10-05", "title": f"Print {user}", "docNo": f"D-{user}", "assigneeId": 100 + user}
    await _json(http.put(f"/api/deadlines/DEFECT/{user}", headers=bearer, json=due))
    event = {"kind": "assigned", "id": f"e{user}-{server.passed_ms}", "item": {
        "refType": "DEFECT", "refId": user, "title": "Print", "docNo": f"D-{user}", "status": "x",
        "assigneeId": 100 + (user + 12) % 60,
    }}  # fmt: skip
    await _json(http.post("/api/events", headers=bearer, json=event))
    await _json(http.get("/api/dashboard/summary", headers=bearer))


USERS: Final[dict[str, Callable[[KitServer, int, Visits], Awaitable[None]]]] = {
    "login": use_login,
    "sharing": use_sharing,
    "membership": use_membership,
    "teamwork": use_teamwork,
    "widgets": use_widgets,
    "sessiondata": use_session_data,
}
