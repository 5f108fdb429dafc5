"""The middleware in each framework, with and without a lifespan, and during store outages."""

import asyncio
import json
import os
import re
import socket
import subprocess
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import pytest
from pydantic import Field, model_validator

import keystead
from keystead.errors import BadDeclaration, BadUrl, StoreUnavailable
from keystead.integrations.asgi import SessionMiddleware, session_keys, session_of
from keystead.parts.sessions import Policy, SessionRecord, Sessions
from keystead.schema import KeyRing, Sealed
from keystead.schema.record_copies import copier_of
from tests import servers
from tests.integrations.apps import Visit
from tests.integrations.serving import ROOT, Browser, Served, serving
from tests.serving import environment, free_port, keystead_command, wait_until


def reads_of(redis: servers.Server) -> int:
    """How many values were read from this server so far."""
    found = re.search(rb"cmdstat_get:calls=(\d+)", bytes(redis.ask("INFO", "commandstats")))
    return int(found[1]) if found else 0


@pytest.mark.parametrize("near", [None, "1s"], ids=["far", "near"])
@pytest.mark.parametrize("framework", ["starlette", "fastapi", "litestar"])
@pytest.mark.everyday("starlette")
def test_a_session_begins_changes_and_ends_in_each_framework(
    framework: str, near: str | None, tmp_path: Path, redis: servers.Server
) -> None:
    options = {"store": redis.url, "prefix": framework, "policy": {"near": near}}
    with serving(tmp_path, framework, **options) as served, Browser(served) as browser:  # type: ignore[arg-type]
        assert browser.me()["signed_in"] is False
        refused = browser.get("/private")
        assert (refused.status_code, refused.json()["code"]) == (401, "SIGNED_OUT")
        assert browser.send("POST", "/login", json={"user": "ann"}).json()["code"] == "CSRF"
        browser.login("ann")
        assert browser.get("/private").json() == {"name": "Ann"}
        assert browser.post("/update", {"theme": "dark"}, "PATCH").json()["theme"] == "dark"
        found = browser.get("/me")
        assert (found.json()["user"], found.json()["theme"]) == ("ann", "dark")
        assert found.headers["cache-control"] == "no-store"

        def is_read_near() -> bool:
            before = reads_of(redis)
            assert browser.me()["theme"] == "dark"
            return reads_of(redis) == before

        if near is None:
            assert not is_read_near()
        else:
            wait_until(is_read_near, "a copy answers")
        with browser.copy() as tab:
            assert browser.post("/logout").json()["ended"] is True
            assert tab.me()["gone"] == "unknown"
        assert list(redis.ask("KEYS", f"{framework}:*")) == []


@pytest.mark.everyday("off")
@pytest.mark.parametrize("server", ["granian", "uvicorn"])
@pytest.mark.parametrize("lifespan", ["on", "off"])
def test_an_application_without_lifespan_has_sessions_and_ends_cleanly(
    server: str, lifespan: str, tmp_path: Path
) -> None:
    """Without a lifespan, the first requests open the store: concurrently, and only once."""
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with serving(tmp_path, "bare", server=server, lifespan=lifespan, store=store) as served:
        browsers = [Browser(served) for _ in range(6)]
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda browser: browser.me()["signed_in"], browsers))
        for browser in browsers:
            browser.__exit__()
        assert found == [False] * 6
    assert served.process.returncode in (0, -15)
    assert "Traceback" not in served.said


@pytest.mark.parametrize("app", ["starlette", "litestar", "bare"])
def test_an_unreachable_store_fails_startup_with_the_reason(app: str, tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}/0?connect_timeout=200ms"
    with pytest.raises(AssertionError, match="sessions: "), serving(tmp_path, app, store=nowhere):
        pass


def test_a_store_outage_is_a_503_never_signed_out_and_recovers(tmp_path: Path) -> None:
    with servers.redis("--appendonly", "yes", "--appendfsync", "always") as server:
        url = f"{server.url}?timeout=1s&connect_timeout=300ms"
        with serving(tmp_path, "starlette", store=url) as served, Browser(served) as browser:
            browser.login("ann")
            token = browser.token
            server.kill()
            for answer in [browser.get("/me"), browser.post("/logout"), browser.get("/public")]:
                assert answer.status_code == 503
                assert answer.json() == {
                    "ok": False,
                    "error": "The store does not answer; try again in a moment.",
                    "code": "STORE_UNAVAILABLE",
                }
                assert answer.headers["retry-after"] == "1"
                assert answer.headers["cache-control"] == "no-store"
                assert browser.set_cookies == []
            assert browser.token == token
            server.restart()
            wait_until(lambda: browser.get("/me").status_code == 200, "the store is back")
            assert browser.me()["user"] == "ann"


@pytest.mark.parametrize("framework", ["starlette", "fastapi", "litestar"])
@pytest.mark.everyday("starlette")
def test_a_store_outage_during_a_request_is_a_503(framework: str, tmp_path: Path) -> None:
    with servers.redis() as server:
        url = f"{server.url}?timeout=1s&connect_timeout=300ms"
        with serving(tmp_path, framework, store=url) as served, Browser(served) as browser:
            csrf = browser.csrf()
            server.kill()
            # Without a cookie nothing is read; the login itself meets the dead store.
            answer = browser.send("POST", "/login", {"x-csrf-token": csrf}, json={"user": "ann"})
            assert (answer.status_code, answer.json()["code"]) == (503, "STORE_UNAVAILABLE")
            assert answer.headers["retry-after"] == "1"


# --- WebSockets --------------------------------------------------------------------------------------------


class Socket:
    """A minimal WebSocket client: text frames of less than 126 bytes."""

    def __init__(self, served: Served, cookie: str, origin: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", served.port), timeout=300)
        key = b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET /socket HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nCookie: {cookie}\r\n"
            f"Origin: {origin}\r\n\r\n".encode()
        )
        self._stream = self._socket.makefile("rb")
        self.status = int(self._stream.readline().split()[1])
        while self._stream.readline() != b"\r\n":
            pass

    def heard(self) -> dict[str, Any]:
        length = self._stream.read(2)[1]
        if length == 126:
            length = int.from_bytes(self._stream.read(2))
        found: dict[str, Any] = json.loads(self._stream.read(length))
        return found

    def say(self, text: bytes) -> None:
        self._socket.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def test_a_websocket_has_the_session_and_notices_a_logout(browser: Browser, served: Served) -> None:
    browser.login("ws-ann")
    opened = Socket(served, f"__Host-sid={browser.token}", served.origin)
    try:
        assert (opened.status, opened.heard()) == (101, {"user": "ws-ann"})
        opened.say(b"again")
        problem = "rotate sets a cookie, which a WebSocket cannot do; call it in an HTTP request"
        assert opened.heard() == {"user": "ws-ann", "problem": problem}
        browser.post("/logout")
        opened.say(b"again")
        assert opened.heard()["user"] is None
    finally:
        opened.close()


@pytest.mark.matrix
def test_a_websocket_of_another_site_is_refused(browser: Browser, served: Served) -> None:
    browser.login("ws-ann")
    opened = Socket(served, f"__Host-sid={browser.token}", "https://evil.example")
    opened.close()
    assert opened.status == 403


# --- on plain http, for development ------------------------------------------------------------------------


@pytest.mark.matrix
def test_in_development_cookies_work_over_plain_http(tmp_path: Path) -> None:
    with serving(tmp_path, "starlette", store="memory://", development=True) as served, Browser(served) as browser:
        token = browser.get("/csrf").json()["token"]
        assert browser.set_cookies == [f"csrf={token}; Path=/; HttpOnly; SameSite=Lax"]
        headers = {"x-csrf-token": token, "origin": served.url}
        browser.send("POST", "/login", headers, content=b'{"user":"ann"}')
        assert browser.set_cookies[0].startswith("sid=")
        assert browser.me()["user"] == "ann"


# --- in process: deadlines by a clock, a keyspace of one's own, declarations ----------------------------------


class Called:
    """An application called with one request, and its response."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def by(self, app: Any, cookie: str = "") -> "Called":
        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            self.sent.append(message)

        headers = [(b"cookie", cookie.encode())] if cookie else []
        await app({"type": "http", "method": "GET", "path": "/", "headers": headers}, receive, send)
        return self

    @property
    def said(self) -> Any:
        return json.loads(self.sent[1]["body"])

    @property
    def set_cookie(self) -> str:
        header: bytes = dict(self.sent[0]["headers"]).get(b"set-cookie", b"")
        return header.decode()


def app_that(do: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        answer = json.dumps(await do(scope["state"]["session"])).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": answer})

    return app


class OwnSession(SessionRecord):
    secret: Sealed[str]


async def test_sessions_of_a_custom_keyspace_use_its_clock() -> None:
    now_ms = 1_700_000_000_000
    policy = Policy(idle="10m", absolute="1h")
    async with keystead.connect("memory://") as store:
        keys = session_keys(OwnSession, policy, prefix="shop")(
            store, seal=KeyRing({"2026": os.urandom(32)}), now_ms=lambda: now_ms
        )
        sessions = Sessions(keys.session, policy)

        async def login(session: Any) -> Any:
            await session.start(OwnSession(uid="ann", secret="s3cret"))
            return session.data.secret

        async def read(session: Any) -> Any:
            return session.data and session.data.secret

        signed = await Called().by(SessionMiddleware(app_that(login), sessions=sessions, csrf=False))
        assert signed.said == "s3cret"
        assert "Max-Age=3600;" in signed.set_cookie
        cookie = signed.set_cookie.partition(";")[0]
        app = SessionMiddleware(app_that(read), sessions=sessions)
        for minutes in (9, 18, 27, 36, 45, 54):  # in use all the time
            now_ms = 1_700_000_000_000 + minutes * 60_000
            assert (await Called().by(app, cookie)).said == "s3cret"
        now_ms = 1_700_000_000_000 + 3_600_000
        ended = await Called().by(app, cookie)
        assert ended.said is None
        assert ended.set_cookie == ""


class Counted(SessionRecord):
    """Counts how often it is decoded."""

    decoded: ClassVar[int] = 0
    items: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def count(self) -> Self:
        Counted.decoded += 1
        return self


@pytest.mark.parametrize("near", [None, "1s"], ids=["far", "near"])
async def test_a_record_is_decoded_once_and_copied_only_for_who_asks_for_its_data(
    near: str | None, redis: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = 0

    def count_copies(record: Any) -> Any:
        copy = copier_of(record)
        assert copy is not None

        def counted() -> Any:
            nonlocal copies
            copies += 1
            return copy()

        return counted

    monkeypatch.setattr("keystead.parts.sessions.sessions.copier_of", count_copies)

    async def login(session: Any) -> Any:
        await session.start(Counted(uid="ann", items=["apple"]))

    async def who(session: Any) -> Any:
        request = SimpleNamespace(scope={"state": {"session": session}})
        return [session_of(request, Counted).user, session.id is not None, session.gone, bool(session)]

    async def change_own(session: Any) -> Any:
        session.data.items.append("changed")
        return [session.require().items, session.data.items]

    options: Any = {"model": Counted, "policy": Policy(near=near), "csrf": False}
    async with keystead.connect(redis.url) as store:
        signed = await Called().by(SessionMiddleware(app_that(login), store=store, **options))
        cookie = signed.set_cookie.partition(";")[0]
        asked, changed = (SessionMiddleware(app_that(do), store=store, **options) for do in (who, change_own))
        for app in (asked, changed):
            await Called().by(app, cookie)
        Counted.decoded = copies = 0
        for _ in range(20):
            assert (await Called().by(asked, cookie)).said == ["ann", True, None, True]
        assert (Counted.decoded, copies) == (0, 0)
        for number in range(1, 5):
            assert (await Called().by(changed, cookie)).said == [["apple", "changed"]] * 2
            assert (Counted.decoded, copies) == (0, number)


async def test_a_store_that_the_application_opens_is_left_open() -> None:
    async with keystead.connect("memory://") as store:

        async def who(session: Any) -> Any:
            return session.user

        app = SessionMiddleware(app_that(who), store=store)
        assert (await Called().by(app)).said is None
        await app.close()
        assert await store.run([("DBSIZE",)]) == [0]


async def test_an_unreadable_session_is_signed_out_and_keeps_its_cookie(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with keystead.connect("memory://") as store:
        sessions = Sessions(session_keys(Visit)(store).session)
        new = await sessions.create(Visit(uid="ann", name="Ann"))
        await store.run([("SET", f"app:sess:{new.id}", b"{}")])

        async def gone(session: Any) -> Any:
            return session.gone

        found = await Called().by(SessionMiddleware(app_that(gone), sessions=sessions), f"__Host-sid={new.token}")
        assert (found.said, found.set_cookie) == ("unreadable", "")
        assert "a session cannot be read" in caplog.text
        assert new.token not in caplog.text


async def test_a_login_refused_by_the_cap_is_an_error_the_application_can_handle() -> None:
    async with keystead.connect("memory://") as store:

        async def login(session: Any) -> Any:
            try:
                await session.start(SessionRecord(uid="ann"))
            except keystead.errors.CapReached:
                return "refused"
            return "signed in"

        app = SessionMiddleware(app_that(login), store=store, policy=Policy(cap=1, at_cap="refuse"))
        first = await Called().by(app)
        assert (first.said, (await Called().by(app)).said) == ("signed in", "refused")
        # The browser that is signed in may sign in again: its own session makes room.
        assert (await Called().by(app, first.set_cookie.partition(";")[0])).said == "signed in"


async def test_an_error_of_another_store_passes_unchanged() -> None:
    async with keystead.connect("memory://") as store:

        async def fail(session: Any) -> Any:
            raise StoreUnavailable("another store of the application is down")

        with pytest.raises(StoreUnavailable):
            await Called().by(SessionMiddleware(app_that(fail), store=store))


async def test_the_model_of_a_session_is_checked() -> None:
    class Request:
        def __init__(self, **state: Any) -> None:
            self.scope = {"state": state}

    with pytest.raises(LookupError, match="add SessionMiddleware"):
        session_of(Request(), Visit)
    async with keystead.connect("memory://") as store:

        async def ask(session: Any) -> Any:
            await session.start(SessionRecord(uid="ann"))
            with pytest.raises(TypeError, match="sessions hold SessionRecord here, not Visit"):
                session_of(Request(session=session), Visit)
            return session_of(Request(session=session), SessionRecord).user

        assert (await Called().by(SessionMiddleware(app_that(ask), store=store))).said == "ann"


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({}, BadDeclaration, "needs store="),
        ({"store": "nowhere"}, BadUrl, "scheme"),
        ({"store": "memory://", "model": dict}, BadDeclaration, "SessionRecord"),
        ({"store": "memory://", "skip": "/static"}, BadDeclaration, r'skip=\["/static/"\]'),
        ({"store": "memory://", "csrf_exempt": ["hook"]}, BadDeclaration, "csrf_exempt"),
        ({"store": "memory://", "trusted_origins": ["example.com"]}, BadDeclaration, "https://app.example.com"),
    ],
)
def test_invalid_declarations_are_reported_immediately(
    options: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        SessionMiddleware(app_that(None), **options)


def run_on_visits(command: str, *options: str) -> str:
    """What a command of `keystead` says of `VisitKeys`: from anywhere, so that no settings of the checkout are read."""
    done = subprocess.run(
        keystead_command(command, "tests.integrations.apps:VisitKeys", *options),
        env=environment({"PYTHONPATH": str(ROOT)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_keyspace_of_an_application_can_be_checked_and_documented() -> None:
    run_on_visits("check")
    document = run_on_visits("docs")
    for pattern in ("app:sess:{sid}", "app:user:{uid}:sessions", "app:next:{sid}", "app:end:{sid}"):
        assert pattern in document


def test_the_doctor_finds_nothing_wrong_with_the_keys_of_a_live_application(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with serving(tmp_path, "starlette", store=store) as served, Browser(served) as browser, Browser(served) as other:
        browser.login("ann")
        other.login("ann")
        browser.post("/rotate")
        other.post("/end-others")
        other.post("/update", {"theme": "dark"}, "PATCH")
        run_on_visits("doctor", "--store", store)


async def test_a_cancelled_lifespan_is_not_mistaken_for_no_lifespan() -> None:
    entered = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = SessionMiddleware(slow, store="memory://", model=SessionRecord)
    running = asyncio.create_task(app({"type": "lifespan"}, receive, send))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sent == []
