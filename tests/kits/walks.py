"""Every route of every kit, asked once, with the cookies, tokens and ids of somebody who has really used it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from fastapi import FastAPI

from keystead.kits.kit import Kit
from keystead.kits.login import KIT as LOGIN
from keystead.kits.login.revocation import TOPIC as REVOCATIONS
from keystead.kits.membership import KIT as MEMBERSHIP
from keystead.kits.sessiondata import KIT as SESSIONDATA
from keystead.kits.sharing import KIT as SHARING
from keystead.kits.sharing.service import User
from keystead.kits.teamwork import KIT as TEAMWORK
from keystead.kits.teamwork.models import UserSession
from keystead.kits.widgets import KIT as WIDGETS
from keystead.kits.widgets.routes.actions import ADMIN, ENDPOINTS
from keystead.kits.widgets.service import LIMITS
from keystead.parts.outbox.outbox_keys import QueueName
from keystead.parts.outbox.queue_control import QueueControl
from keystead.server import Settings, create_app
from tests.kits.membership.asking import REDIRECT
from tests.kits.membership.asking import table as membership_table
from tests.kits.membership.conftest import FakePatreon
from tests.kits.membership.visiting import bearer, signature
from tests.kits.sharing.visiting import BASE, CLEANUP_SECRET, RING_TEXT, URL
from tests.kits.sharing.visiting import table as sharing_table
from tests.parts.oauth.stand_in import answer, stand_in

HTML: Final = {"accept": "text/html"}
JSON: Final = {"accept": "application/json"}
OWN: Final = {**JSON, "origin": BASE}  # what a page of the site sends
ADDRESS: Final = "192.0.2.7"
UNREACHABLE: Final = "http://127.0.0.1:9/hook"  # the discard port: nobody listens there


@dataclass(frozen=True)
class Step:
    """One request. `route` is what it shows to have been asked, as in `GET /api/auth/me`."""

    route: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    form: Mapping[str, str] | None = None
    method: str = ""  # where `route` does not begin with it
    streams: bool = False  # it answers for as long as the client listens


@dataclass
class Walk:
    """An application that somebody has used, and the requests that they make next."""

    kit: Kit
    app: FastAPI
    steps: list[Step]
    beside: Mapping[str, Callable[[], Awaitable[Any]]] = field(default_factory=dict)  # what only a command asks for

    @property
    def routes(self) -> set[str]:
        """All that the kit answers, from its own declaration."""
        if self.kit is WIDGETS:
            pages = {"GET /widgets", "GET /components/{name}.js"}
            return pages | {f"{one.path} {name}" for one in (*ENDPOINTS, ADMIN) for name in one.actions}
        found = [route for route in self.kit.router().routes if hasattr(route, "methods")]
        return {f"{method} {route.path}" for route in found for method in route.methods}  # type: ignore[attr-defined]

    async def ask(self, step: Step) -> tuple[int, str]:
        """The status and the body of an answer. No cookie is kept from one request to the next."""
        if step.streams:
            return await _first_of_stream(self.app, step)
        method = step.method or ("POST" if step.route[0] == "/" else step.route.split(" ")[0])
        told = await self.http.request(
            method, step.path, headers=dict(step.headers), json=step.json, content=step.content, data=step.form
        )
        self.http.cookies.clear()
        return told.status_code, told.text

    @cached_property
    def http(self) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(self.app, client=(ADDRESS, 50_000), raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=BASE)


async def _first_of_stream(app: FastAPI, step: Step) -> tuple[int, str]:
    """The status, and the first of what is sent; then the client goes away."""
    method, (path, _, query) = step.route.split(" ")[0], step.path.partition("?")
    began, told, gone = [0], [b""], asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not began[0]:
            began[0] = 1
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            began[0] = message["status"]
        elif message["type"] == "http.response.body":
            told[0] += message.get("body", b"")
            gone.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in step.headers.items()],
        "client": (ADDRESS, 50_000), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    async with asyncio.timeout(20):
        await app(scope, receive, send)
    return began[0], told[0].decode()


class Browser:
    """Whoever uses the application at first. It keeps its cookies."""

    def __init__(self, app: FastAPI, **cookies: str) -> None:
        transport = httpx2.ASGITransport(app, client=(ADDRESS, 50_000))
        self.http = httpx2.AsyncClient(transport=transport, base_url=BASE, cookies=cookies)

    async def ask(self, method: str, path: str, expect: int = 200, **more: Any) -> httpx2.Response:
        headers = {**OWN, **more.pop("headers", {})}
        told = await self.http.request(method, path, headers=headers, **more)
        assert told.status_code == expect, f"{method} {path}: {told.status_code} {told.text}"
        return told

    @property
    def cookies(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{one.name}={one.value}" for one in self.http.cookies.jar)}


@asynccontextmanager
async def _running(kit: Kit, store: str, table: dict[str, Any], **more: Any) -> AsyncIterator[FastAPI]:
    began = time.time_ns() // 1_000_000  # the clock stands: a minute's counters are those of the walk, too
    given = {"store": store, "public_url": BASE, "seal_keys": RING_TEXT, "metrics": False, **more}
    app = create_app(Settings(**given, kits=(kit.name,), tables={kit.name: table}), [kit], now_ms=lambda: began)
    async with app.router.lifespan_context(app):
        yield app


# --- login ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def login(store: str, folder: Path) -> AsyncIterator[Walk]:
    async with stand_in() as provider:
        tokens = {"access_token": "a", "refresh_token": "r", "token_type": "Bearer", "expires_in": 30, "scope": "x"}
        provider.answers["/token"] = answer(tokens)
        provider.answers["/me"] = answer({"id": "123", "username": "Ada", "avatar": None, "sub": "123"})
        provider.answers["/revoke"] = answer({})
        urls = {
            "authorize_url": "/authorize",
            "token_url": "/token",
            "userinfo_url": "/me",
            "revoke_url": "/revoke",
        }
        client = {"client_id": "c", "client_secret": "s", "scope": "identify"}
        own = client | {name: f"{provider.url}{path}" for name, path in urls.items()}
        providers = {name: {**own, "redirect_uri": f"{BASE}/api/auth/{name}/callback"} for name in ("discord", "acme")}
        async with _running(LOGIN, store, {"providers": providers}) as app:
            outbox = app.state.kits["login"].revocations.outbox
            control, queue = QueueControl(outbox._keys), QueueName(REVOCATIONS, "A" * 43)
            looking: dict[str, Callable[[], Awaitable[Any]]] = {
                "outbox state": lambda: outbox.state(*queue),
                "dead letters": lambda: control.retry_dead_letters(queue),
            }
            yield Walk(LOGIN, app, await _login_steps(app), looking)


async def _login_steps(app: FastAPI) -> list[Step]:
    me, other = Browser(app), Browser(app)
    for browser in (other, me):
        await _logged_in(browser)
    listed = (await me.ask("GET", "/api/auth/sessions")).json()["sessions"]
    [elsewhere] = [one["id"] for one in listed if not one["current"]]
    ended, third = other.cookies, Browser(app)
    await me.ask("DELETE", f"/api/auth/sessions/{elsewhere}")
    await _logged_in(third)
    listed = (await me.ask("GET", "/api/auth/sessions")).json()["sessions"]
    [elsewhere] = [one["id"] for one in listed if not one["current"]]
    own = {**OWN, **me.cookies}
    pair = (await me.ask("POST", "/api/auth/token", headers=own)).json()
    steps = [
        Step("GET /login", "/login", {**HTML, **me.cookies}),
        Step("GET /login", "/login", {**HTML, **ended}),
        Step("GET /account", "/account", {**HTML, **me.cookies}),
        Step("GET /login/everywhere", "/login/everywhere", {**HTML, **me.cookies}),
        Step("GET /api/auth/providers", "/api/auth/providers", own),
        *(Step(f"GET {path}", path, own) for path in ("/api/auth/csrf", "/api/discord/csrf", "/api/auth/me")),
        Step("GET /api/discord/me", "/api/discord/me", {**JSON, **ended}),
        Step("GET /api/auth/sessions", "/api/auth/sessions", own),
        Step("POST /api/auth/token", "/api/auth/token", own),
        Step("GET /api/auth/me", "/api/auth/me", {**JSON, "authorization": f"Bearer {pair['accessToken']}"}),
        Step("POST /api/auth/refresh", "/api/auth/refresh", JSON, json={"refreshToken": pair["refreshToken"]}),
    ]
    for name in ("discord", "acme"):
        begun, asked, app_browser = Browser(app), Browser(app), Browser(app)
        first, second, third_state = [await _begun(one, name) for one in (begun, asked, app_browser)]
        parked = await _begun(app_browser, name, context="pwa")
        await app_browser.ask("GET", f"/api/auth/{name}/callback?state={parked}&code=c")
        page = await Browser(app).ask("GET", f"/api/auth/{name}/callback?state={second}&code=c", headers=HTML)
        found = re.search(r'name="confirm" value="([^"]+)"', page.text)
        assert found is not None, page.text
        waiting = {"cookie": "; ".join(one.partition(";")[0] for one in page.headers.get_list("set-cookie"))}
        base = f"/api/auth/{name}"
        steps += [
            Step("GET /api/auth/{provider}/start", f"{base}/start", own),
            Step(
                "GET /api/auth/{provider}/callback", f"{base}/callback?state={first}&code=c", {**JSON, **begun.cookies}
            ),
            Step("GET /api/auth/{provider}/callback", f"{base}/callback?state={third_state}&error=no", JSON),
            Step(
                "POST /api/auth/{provider}/confirm", f"{base}/confirm", {**OWN, **waiting}, form={"confirm": found[1]}
            ),
            Step(
                "POST /api/auth/{provider}/claim-session",
                f"{base}/claim-session",
                {**OWN, **app_browser.cookies},
                json={"state": parked},
            ),
        ]
    return [
        *steps,
        Step("DELETE /api/auth/sessions/{id}", f"/api/auth/sessions/{elsewhere}", own),
        Step("POST /api/auth/sessions/{id}/end", f"/api/auth/sessions/{elsewhere}/end", own),
        Step("POST /api/auth/logout-others", "/api/auth/logout-others", own),
        Step("POST /api/auth/logout", "/api/auth/logout", {**OWN, **ended}),
        Step("POST /api/auth/logout-all", "/api/auth/logout-all", own),
        Step("POST /api/auth/logout", "/api/auth/logout", own),
    ]


async def _begun(browser: Browser, provider: str, **query: str) -> str:
    state: str = (await browser.ask("GET", f"/api/auth/{provider}/start", params=query)).json()["state"]
    return state


async def _logged_in(browser: Browser) -> None:
    state = await _begun(browser, "discord")
    await browser.ask("GET", f"/api/auth/discord/callback?state={state}&code=c")


# --- sharing -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def sharing(store: str, folder: Path) -> AsyncIterator[Walk]:
    table = sharing_table(folder, limits={})
    async with _running(SHARING, store, table) as app:
        own = User("42", "login:42")
        beside = {"links of a user": lambda: app.state.kits["sharing"].links_of(own)}
        yield Walk(SHARING, app, await _sharing_steps(app), beside)


async def _sharing_steps(app: FastAPI) -> list[Step]:
    me = Browser(app)
    upload = "/api/receive/upload?name=a.txt&maxDownloads=9"
    kept = (await me.ask("POST", upload, content=b"content", headers={"x-link-password": "open"})).json()
    plain = (await me.ask("POST", upload, content=b"content")).json()
    issued = (await me.ask("POST", "/api/receive/token", json={"url": URL})).json()
    edge = {"pathname": "prizes/demo.zip", "downloadUrl": URL, "displayName": "A prize", "userId": "42"}
    registered = (await me.ask("POST", "/api/receive/edge-resolve", json=edge)).json()
    wrong = {"t": kept["shortToken"], "password": "wrong"}
    await me.ask("POST", "/api/receive/resolve", 403, json=wrong)
    right = {"t": kept["shortToken"], "password": "open"}
    resolved = (await me.ask("POST", "/api/receive/resolve", json=right)).json()
    await me.ask("GET", f"/api/receive/resolve?t={plain['shortToken']}")
    ticket = urlsplit(resolved["url"]).query
    assert parse_qs(ticket)["ticket"]
    gone = (await me.ask("POST", upload, content=b"gone")).json()
    await me.ask("POST", "/api/receive/delete", json={"token": gone["token"]})
    owner = {"id": kept["id"], "ownerKey": kept["ownerKey"]}
    again = {**edge, "pathname": "prizes/other.zip"}
    later = kept["exp"] + 60_000
    steps = [
        Step("GET /receive", f"/receive?t={plain['shortToken']}", HTML),
        Step("GET /receive", f"/receive?t={issued['token']}", HTML),
        Step("GET /receive", f"/receive?key={registered['key']}", HTML),
        Step("GET /share", "/share", HTML),
        Step("GET /share/links", "/share/links", HTML),
        Step("POST /share/links", "/share/links", OWN, form={"what": "end", "id": plain["id"]}),
        Step("GET /api/receive/links", "/api/receive/links", JSON),
        Step("POST /api/receive/extend", "/api/receive/extend", OWN, json={**owner, "validUntil": later}),
        Step("GET /api/blob/csrf", "/api/blob/csrf"),
        Step("POST /api/receive/status", "/api/receive/status", JSON, json=owner),
        Step("GET /api/receive/resolve", f"/api/receive/resolve?t={plain['shortToken']}", JSON),
        Step("GET /api/receive/resolve", f"/api/receive/resolve?t={issued['token']}", JSON),
        Step("POST /api/receive/resolve", "/api/receive/resolve", JSON, json=wrong),
        Step("POST /api/receive/resolve", "/api/receive/resolve", JSON, json=right),
        Step("POST /api/receive/resolve", "/api/receive/resolve", HTML, form=right),
        Step("GET /api/receive/download", f"/api/receive/download?{ticket}"),
        Step("GET /api/receive/edge-resolve", f"/api/receive/edge-resolve?key={registered['key']}", JSON),
        Step("POST /api/receive/edge-resolve", "/api/receive/edge-resolve", JSON, json=edge),
        Step("POST /api/receive/edge-resolve", "/api/receive/edge-resolve", JSON, json=again),
        Step("POST /api/receive/token", "/api/receive/token", JSON, json={"url": URL}),
        Step("POST /api/receive/upload", upload, JSON, content=b"more"),
        Step("PUT /api/receive/upload", upload, JSON, content=b"more"),
    ]
    cron, secret = "/api/cron/receive-cleanup", {"authorization": f"Bearer {CLEANUP_SECRET}"}
    return [
        *steps,
        Step(f"GET {cron}", cron, secret),
        Step("POST /api/receive/delete", "/api/receive/delete", JSON, json={"token": plain["token"]}),
        Step("POST /api/receive/delete", "/api/receive/delete", JSON, json=owner),
        Step("POST /api/receive/delete", "/api/receive/delete", JSON, json={"token": issued["shortToken"]}),
        Step(f"POST {cron}", cron, secret),
        Step(f"POST {cron}", cron, {"authorization": "Bearer wrong"}),
    ]


# --- membership ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def membership(store: str, folder: Path) -> AsyncIterator[Walk]:
    async with stand_in() as server:
        patreon = FakePatreon(server)
        server.answers["/translate"] = answer({"usage": {"total_tokens": 1}})
        table = membership_table(patreon.server.url, translate_url=f"{server.url}/translate")
        async with _running(MEMBERSHIP, store, table, database="memory://") as app:
            steps, programs = await _membership_steps(app), app.state.kits["membership"].programs
            yield Walk(MEMBERSHIP, app, steps, {"keystead membership list-keys": programs.list_keys})


async def _membership_steps(app: FastAPI) -> list[Step]:
    me = Browser(app)
    tokens = []
    for user in ("123", "456"):
        signed = await me.ask("POST", "/api/auth/callback", json={"code": f"code-{user}", "redirect_uri": REDIRECT})
        tokens.append(signed.json()["session_token"])
    token, second = tokens
    session, other = {**JSON, **bearer(token)}, {**JSON, **bearer(second)}
    pair = (await me.ask("POST", "/api/auth/token", headers=session)).json()
    last = (await me.ask("POST", "/api/auth/token", headers=other)).json()
    await me.ask("POST", "/api/session/validate", json={"session_token": token})
    await me.ask("GET", "/api/quota/status", headers=bearer(pair["accessToken"]))
    await me.ask("GET", "/api/patreon/license-status", headers=session)
    words = ("crash_timestamp", "error_message", "app_version", "os_version")
    crash = {"report_id": "00000000-0000-4000-8000-000000000000", **dict.fromkeys(words, "x")}
    event = json.dumps({"data": {"type": "member", "relationships": {"user": {"data": {"id": "123"}}}}}).encode()
    told = {**signature(event), "x-patreon-event": "members:pledge:update", "content-type": "application/json"}
    access = {**JSON, **bearer(pair["accessToken"])}
    sign_in = {"code": "code-123", "redirect_uri": REDIRECT}
    program = {**JSON, **bearer((await app.state.kits["membership"].programs.issue_key("walk")).token)}
    consent = {
        "user_id": "123",
        "consent_type": "privacy_policy",
        "version": "1",
        "accepted_at": "2026-01-18T09:30:00Z",
    }
    use = {"user_id": "123", "event_id": "e", "tokens": 1}
    bonus = {"user_id": "123", "bonus_id": "b", "tokens": 1}
    reports = "/api/membership/crash-reports"
    return [
        *(Step(f"{method} /health", "/health") for method in ("GET", "POST", "PUT", "PATCH", "DELETE")),
        Step("GET /api/sync/init", "/api/sync/init", session),
        Step("POST /api/consent/record", "/api/consent/record", session, json=consent),
        Step("GET /api/consent/status", "/api/consent/status", session),
        Step("POST /api/promotion/redeem", "/api/promotion/redeem", session, json={"code": "x"}),
        Step("GET /api/promotion/status", "/api/promotion/status", session),
        Step("GET /api/bonus-tokens/status", "/api/bonus-tokens/status", access),
        Step("POST /api/bonus-tokens/sync", "/api/bonus-tokens/sync", session, json={"bonuses": []}),
        Step("POST /api/translate", "/api/translate", session, json={"text": "x"}),
        Step("POST /api/membership/usage", "/api/membership/usage", program, json=use),
        Step("POST /api/membership/bonus", "/api/membership/bonus", program, json=bonus),
        Step("GET /api/membership/status", "/api/membership/status?user_id=123", program),
        Step("GET /api/membership/plan-history", "/api/membership/plan-history?user_id=123", program),
        Step(f"GET {reports}", reports, program),
        Step(f"GET {reports}/{{report_id}}", f"{reports}/{crash['report_id']}", program),
        Step("GET /api/membership", "/api/membership", {**JSON, **bearer("access-123-1")}),
        Step("POST /oauth/token", "/oauth/token", JSON, json=sign_in),
        Step("POST /oauth/refresh", "/oauth/refresh", JSON, json={"refresh_token": "refresh-123"}),
        Step("POST /api/session/validate", "/api/session/validate", JSON, json={"session_token": token}),
        Step("GET /api/patreon/license-status", "/api/patreon/license-status", session),
        Step("POST /api/auth/refresh", "/api/auth/refresh", JSON, json={"refreshToken": pair["refreshToken"]}),
        Step("POST /api/auth/token", "/api/auth/token", session),
        Step("GET /api/quota/status", "/api/quota/status", access),
        Step("GET /api/quota/status", "/api/quota/status", {**JSON, **bearer(last["accessToken"])}),
        Step("GET /.well-known/jwks.json", "/.well-known/jwks.json"),
        Step("POST /webhook", "/webhook", told, content=event),
        Step("POST /api/crash-report", "/api/crash-report", JSON, json=crash),
        Step("GET /membership/try", "/membership/try", HTML),
        Step("POST /api/auth/callback", "/api/auth/callback", JSON, json=sign_in),
        Step("POST /api/patreon/exchange", "/api/patreon/exchange", JSON, json=sign_in),
        Step("POST /api/auth/logout", "/api/auth/logout", session),
        Step("POST /api/patreon/revoke", "/api/patreon/revoke", session),
        Step("POST /api/patreon/revoke-all", "/api/patreon/revoke-all", other),
        Step("POST /api/auth/logout", "/api/auth/logout", session),
    ]


# --- teamwork ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def teamwork(store: str, folder: Path) -> AsyncIterator[Walk]:
    async with _running(TEAMWORK, store, {}, database="memory://") as app:
        steps = await _teamwork_steps(app)
        # What the relay has not published by itself meanwhile.
        yield Walk(TEAMWORK, app, steps, {"relay": app.state.kits["teamwork"].relay.publish_waiting})


async def _teamwork_steps(app: FastAPI) -> list[Step]:
    kit, me = app.state.kits["teamwork"], Browser(app)
    people = {42: "OWNER", 7: "MEMBER"}
    for user, role in people.items():
        person = UserSession(name=f"u{user}", email="u@example.com", role="DEVELOPER", team_id=3, team_role=role)
        await kit.people.save(user, person)
    newcomer = await kit.people.add("New")
    new = {**JSON, **bearer(kit.tokens.issue(str(newcomer)).token)}
    await kit.keys.deadlines.store.run([("ZADD", kit.keys.deadlines(3).key, 4_000_000_000, "DEFECT:7")])
    invitation = await kit.invite(3, by=42)
    ann, ben = ({**JSON, **bearer(kit.tokens.issue(str(user)).token)} for user in people)
    spent = {**JSON, **bearer(kit.tokens.issue("42").token)}
    await me.ask("POST", "/api/tokens/revoke", headers=spent)
    item = {"refType": "DEFECT", "refId": 101, "title": "Print", "docNo": "D-1", "status": "x", "assigneeId": 7}
    event = {"kind": "assigned", "id": "e1", "item": item}
    await me.ask("POST", "/api/events", json=event, headers=ann)
    due = {"due": "2096-10-05", "title": "Print", "docNo": "D-1", "assigneeId": 7}
    one = "/api/deadlines/DEFECT/101"
    await me.ask("PUT", one, json=due, headers=ann)
    await me.ask("PUT", "/api/team/zone", json={"zone": "Asia/Seoul"}, headers=ann)
    await kit.relay.publish_waiting()
    for headers in (ann, ben):
        await me.ask("GET", "/api/dashboard/summary", headers=headers)
    [notice] = (await me.ask("GET", "/api/notifications", headers=ben)).json()["items"]
    base, team = "/api/notifications", "/api/team"
    demo = "/api/teamwork/demo"
    return [
        *(Step(f"GET {path}", path, ben) for path in (base, f"{base}/unread-counts", f"{base}/preferences")),
        Step(f"GET {base}/stream", f"{base}/stream?lastEventId=0", ben, streams=True),
        Step("GET /api/me", "/api/me", spent),
        *(Step(f"GET {path}", path, ann) for path in ("/api/me", "/api/deadlines", "/api/dashboard/summary")),
        Step("GET /api/dashboard/summary", "/api/dashboard/summary", ben),
        Step("GET /teamwork", "/teamwork", HTML),
        Step(f"PUT {base}/preferences", f"{base}/preferences", ben, json={"assign": True}),
        Step("POST /api/events", "/api/events", ann, json={**event, "id": "e2"}),
        Step(f"GET {base}/{{id}}", f"{base}/{notice['id']}", ben),
        Step(f"PATCH {base}/{{id}}/read", f"{base}/{notice['id']}/read", ben),
        Step(f"DELETE {base}/{{id}}", f"{base}/{notice['id']}", ben),
        *(Step(f"GET {team}{path}", f"{team}{path}", ann) for path in ("", "/members", "/invitations", "/slack-log")),
        Step(f"PATCH {team}", team, ann, json={"name": "Print shop", "zone": "Asia/Seoul", "deadlineDays": [7, 3]}),
        Step(f"PATCH {team}/members/{{id}}", f"{team}/members/7", ann, json={"slackId": "U012ABC"}),
        Step(f"POST {team}/invitations", f"{team}/invitations", ann, json={"userId": newcomer}),
        Step("GET /api/invitations", "/api/invitations", new),
        Step("POST /api/invitations/look", "/api/invitations/look", new, json={"token": invitation.token}),
        Step("POST /api/invitations/accept", "/api/invitations/accept", new, json={"token": invitation.token}),
        Step(f"DELETE {team}/invitations/{{id}}", f"{team}/invitations/{invitation.invitation.id}", ann),
        Step(f"DELETE {team}/members/{{id}}", f"{team}/members/{newcomer}", ann),
        Step(f"POST {team}/leave", f"{team}/leave", new),
        Step("POST /api/teams", "/api/teams", new, json={"name": "Night shift", "zone": "Asia/Seoul"}),
        Step(f"PATCH {base}/read-by-ref", f"{base}/read-by-ref?refType=DEFECT&refId=101", ben),
        Step(f"PATCH {base}/read-all", f"{base}/read-all", ben),
        Step("PUT /api/deadlines/{refType}/{refId:path}", one, ann, json=due),
        Step("PUT /api/deadlines/{refType}/{refId:path}", "/api/deadlines/DEFECT/102", ann, json=due),
        Step("PUT /api/team/zone", "/api/team/zone", ann, json={"zone": "Europe/Berlin"}),
        Step(f"POST {demo}/sign-in", f"{demo}/sign-in", OWN, json={"person": 900000001}),
        Step(f"POST {demo}/events", f"{demo}/events", ann, json={"what": "assigned"}),
        Step(f"POST {demo}/deadlines", f"{demo}/deadlines", ann, json={}),
        Step(f"POST {demo}/join", f"{demo}/join", new),
        Step("DELETE /api/deadlines/{refType}/{refId:path}", one, ann),
        Step("POST /api/tokens/revoke", "/api/tokens/revoke", ann),
        Step("POST /api/tokens/revoke-all", "/api/tokens/revoke-all", ben),
    ]


# --- widgets -------------------------------------------------------------------------------------------------------

_OWNER: Final = {"token": "Ann+likes-tea"}
_ADMIN: Final = "an-admin-token-of-the-tests"
_WITHOUT_ID: Final = ("create", "batchCreate", "sumByPrefix")
_LAST: Final = ("remove", "deleteMessage", "deleteMessageById", "clear", "delete")


@asynccontextmanager
async def widgets(store: str, folder: Path) -> AsyncIterator[Walk]:
    table = {"private_webhooks": True, "admin_token": _ADMIN, "limits": dict.fromkeys(LIMITS, 1_000)}
    async with _running(WIDGETS, store, table) as app:
        yield Walk(WIDGETS, app, await _widgets_steps(app))


async def _widgets_steps(app: FastAPI) -> list[Step]:
    me, page = Browser(app), "https://example.com/page"
    names = ("visit", "like", "ranking", "bbs", "yokoso")
    new = {"action": "create", "url": page, "webhookUrl": UNREACHABLE, **_OWNER}
    more: dict[str, Any] = {"yokoso": {"message": "Hello"}}
    ids = {
        name: (await me.ask("POST", f"/api/{name}", json=new | more.get(name, {}))).json()["data"]["id"]
        for name in names
    }

    async def does(service: str, action: str, **body: Any) -> Any:
        return (await me.ask("POST", f"/api/{service}", json={"action": action, "id": ids[service], **body})).json()

    await does("visit", "increment")
    await does("like", "toggle")
    await does("ranking", "submit", score=10, name="Ann")
    await does("ranking", "update", score=10, name="Cid", **_OWNER)  # an equal one: who came first is looked up
    await does("yokoso", "update", message="Hello!", **_OWNER)
    posted = await does("bbs", "post", message="Hello", author="Ann")
    message = {"messageId": posted["messageId"]}
    author = {**message, "editToken": posted["editToken"]}
    hook = {"webhookUrl": f"{UNREACHABLE}/other"}
    given: dict[str, dict[str, Any]] = {
        "create": {"url": page, **_OWNER},
        "set": _OWNER,
        "/api/visit set": {"total": 5},
        "/api/like set": {"value": 5},
        "update": {**_OWNER},
        "/api/visit update": hook,
        "/api/like update": hook,
        "/api/ranking update": {"name": "Ann", "score": 3},
        "/api/bbs update": {**message, "message": "Changed"},
        "/api/yokoso create": {"message": "Hello"},
        "/api/yokoso update": {"message": "Hello again"},
        "updateSettings": {**_OWNER, **hook},
        "batchCreate": {"items": [{"id": "other", "url": "https://example.com/other"}], **_OWNER},
        "sumByPrefix": {"prefix": "example"},
        "submit": {"score": 11, "name": "Ben"},
        "remove": _OWNER,
        "/api/ranking remove": {"name": "Ann"},
        "/api/bbs remove": message,
        "clear": _OWNER,
        "delete": _OWNER,
        "post": {"message": "Hello again", "author": "Ben"},
        "editMessageById": {**author, "message": "Changed"},
        "deleteMessageById": author,
        "editMessage": {**message, "message": "Changed", **_OWNER},
        "deleteMessage": {**message, **_OWNER},
    }
    steps = [
        Step("GET /widgets", "/widgets", HTML),
        Step("GET /components/{name}.js", "/components/visit.js"),
    ]
    for endpoint, name in zip(ENDPOINTS, names, strict=True):
        actions = endpoint.actions
        for action in sorted(actions, key=lambda one: (one in _LAST, actions[one].writes)):
            route, id = f"{endpoint.path} {action}", ids[name]
            which = {"ids": [id]} if action == "batchGet" else {"id": id}
            body = {"action": action, **which, **given.get(action, {}), **given.get(route, {})}
            body = {key: value for key, value in body.items() if key != "id" or action not in _WITHOUT_ID}
            steps.append(Step(route, endpoint.path, JSON, json=body))
            if action == "get":
                steps.append(Step(route, endpoint.path, JSON, json={**body, **_OWNER}))
            if action in ("get", "display"):
                query = f"?action={action}&id={id}&format=text"
                steps.append(Step(route, endpoint.path + query, method="GET"))
            if action in ("increment", "toggle", "submit", "post"):
                steps.append(Step(route, endpoint.path, {**JSON, "user-agent": "another visitor"}, json=body))
    cleaning: dict[str, dict[str, Any]] = {
        "autoCleanup": {},
        "cleanupByUrl": {"urlPattern": "https://example.com/*"},
        "cleanup": {"targetId": ids["visit"]},
    }
    for name, wanted in cleaning.items():
        for dry_run in (True, False):
            body = {"action": name, "adminToken": _ADMIN, "dryRun": dry_run, **wanted}
            steps.append(Step(f"{ADMIN.path} {name}", ADMIN.path, JSON, json=body))
    return steps


# --- session data --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def sessiondata(store: str, folder: Path) -> AsyncIterator[Walk]:
    async with _running(SESSIONDATA, store, {}) as app:
        steps = await _sessiondata_steps(app)
        yield Walk(SESSIONDATA, app, steps, {"keystead apikeys": app.state.kits["sessiondata"].data.api_keys.list})


async def _sessiondata_steps(app: FastAPI) -> list[Step]:
    data, me = app.state.kits["sessiondata"].data, Browser(app)
    key = (await data.api_keys.issue(42, "a test")).token
    wanted = {"ApiKey": key, "SessionKey": "Theme"}
    begun = (await me.ask("POST", "/api/Sessions/Set", json={**wanted, "SessionValue": "dark"})).json()
    own = {**wanted, "SessionGuid": begun["Response"]["SessionGuid"]}
    user = {**wanted, "SavePerUser": True}
    area = data.session(own["SessionGuid"])
    await area.set_once("User_Message", "read me once")
    for body in (own, user):
        await me.ask("POST", "/api/Sessions/Set", json={**body, "SessionValue": "light"})
    await me.ask("POST", "/api/Sessions/Get", 401, json={**own, "ApiKey": "wrong"})
    bodies = (own, {**own, "SessionKey": "Message"}, user, {**own, "ApiKey": "wrong"})
    return [
        Step(f"POST {path}", path, JSON, json=body | ({"SessionValue": "x"} if verb == "Set" else {}))
        for verb in ("Get", "Set", "Delete")
        for path in (f"/api/Sessions/{verb}",)
        for body in bodies
    ]


WALKS: Final[dict[str, Callable[[str, Path], AbstractAsyncContextManager[Walk]]]] = {
    "login": login,
    "sharing": sharing,
    "membership": membership,
    "teamwork": teamwork,
    "widgets": widgets,
    "sessiondata": sessiondata,
}
