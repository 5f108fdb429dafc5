"""Storage for libraries that applications already use: limits with Flask-Limiter and slowapi, and Litestar's stores.

Their own tests run against ours, from their source distributions: see the lists of deviations.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import limits
import pytest
from cachelib import SimpleCache
from fastapi import FastAPI, Request
from flask import Flask
from flask import session as flask_session
from flask_limiter import Limiter as FlaskLimiter
from flask_limiter.util import get_remote_address
from flask_session import Session as PeerSession
from litestar import Litestar, get, post
from litestar.connection import Request as LitestarRequest
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.middleware.session.server_side import ServerSideSessionConfig
from litestar.stores.registry import StoreRegistry
from litestar.testing import AsyncTestClient
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address as slow_address

from keystead import Store, connect
from keystead.errors import BadUrl, BadValue
from keystead.integrations.flask import KeysteadSessions
from keystead.integrations.limits import AsyncKeysteadStorage, KeysteadStorage
from keystead.integrations.limits.limits_counts import LimitsKeys
from keystead.integrations.litestar import KeysteadStore
from tests import servers
from tests.integrations.source_distributions import unpacked_source
from tests.real_servers import redis_server

__all__ = ["redis_server"]

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"
STRATEGIES = ("fixed-window", "moving-window", "sliding-window-counter")

LIMITS_DEVIATIONS = {
    "test_strategy.py::TestMovingWindow::test_moving_window_huge_cost[keystead]": "a moving window keeps each hit; "
    "more than 100,000 in one window are refused with advice instead of filling the memory",
}
FLASK_SESSION_DEVIATIONS = {
    "test_null_session": "there is no session type that stores nothing, so nothing to warn about: an application "
    "without a store is refused when it starts",
}


def run_suite(name: str, source: Path, url: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / f"{name}_own_suite.py"), str(source), url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def check(report: dict[str, Any], deviations: dict[str, str], page: str, suite: str, url: str) -> None:
    """The suite passes but for the stated deviations, and its row in the guide is right."""
    assert {name: text for name, text in report["failed"].items() if name not in deviations} == {}
    assert set(report["failed"]) == set(deviations), "a deviation is none any more: remove it from the list"
    skipped, failed = len(report["skipped"]), len(report["failed"])
    ran, where = report["ran"] + skipped, "memory" if url == "memory://" else "SQLite, Redis"
    row = f"| {suite} | {where} | {ran} | {ran - skipped - failed} | {skipped} | {failed} |"
    text = (DOCS / page).read_text("utf-8")
    assert row in text.splitlines(), row
    assert [name for name in (*deviations, *report["skipped"]) if _short(name) not in text] == []


def _short(test: str) -> str:
    return f"`{test.split('::')[-1].split('[')[0]}`"


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/suite.db"
    server: servers.Server = request.getfixturevalue("redis_server")
    server.ask("FLUSHALL")
    return server.url


@pytest.mark.matrix
def test_the_own_tests_of_limits_pass_but_for_the_stated_deviations(url: str) -> None:
    """In memory all of them, by a clock that travels; on a real store those that compare no times."""
    deviations = LIMITS_DEVIATIONS if url == "memory://" else {}
    report = run_suite("limits", unpacked_source("limits", limits.__version__), url)
    check(report, deviations, "storage_adapters.md", f"limits {limits.__version__}", url)


@pytest.mark.matrix
def test_litestars_own_tests_of_stores_pass(url: str) -> None:
    """In memory all of them, by a clock that travels; on a real store those in which no time passes."""
    report = run_suite("litestar", unpacked_source("litestar", "2.12.0"), url)
    check(report, {}, "storage_adapters.md", "Litestar 2.12.0", url)


@pytest.mark.matrix
def test_flask_sessions_own_tests_pass_but_for_the_stated_deviations(url: str) -> None:
    report = run_suite("flask_session", unpacked_source("flask-session", "0.5.0"), url)
    check(report, FLASK_SESSION_DEVIATIONS, "flask.md", "Flask-Session 0.5.0", url)


# --- limits ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.matrix)])
def limits_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"keystead+sqlite:///{tmp_path}/limits.db"
    server: servers.Server = request.getfixturevalue("redis_server")
    server.ask("FLUSHALL")
    return f"keystead+{server.url}"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_flask_limiter_passes_exactly_the_limit_however_many_requests_arrive(strategy: str, limits_uri: str) -> None:
    app = Flask("limited")
    limiter = FlaskLimiter(get_remote_address, app=app, storage_uri=limits_uri, strategy=strategy, headers_enabled=True)

    @app.get("/")
    @limiter.limit("20/hour")
    def view() -> str:
        return "passed"

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: app.test_client().get("/"), range(64)))
    passed = [answer.status_code for answer in answers].count(200)
    assert passed == 20
    refused = app.test_client().get("/")
    assert refused.status_code == 429
    assert 0 < int(refused.headers["Retry-After"]) <= 7200
    assert app.test_client().get("/", environ_base={"REMOTE_ADDR": "192.0.2.7"}).status_code == 200
    limiter.reset()
    assert app.test_client().get("/").status_code == 200


async def test_slowapi_limits_synchronous_and_asynchronous_views(limits_uri: str) -> None:
    limiter = SlowLimiter(key_func=slow_address, storage_uri=limits_uri)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]

    @app.get("/async")
    @limiter.limit("2/minute")
    async def in_loop(request: Request) -> str:
        return "passed"

    @app.get("/sync")
    @limiter.limit("2/minute")
    def in_thread(request: Request) -> str:
        return "passed"

    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://testserver") as client:
        for path in ("/async", "/sync"):
            assert [(await client.get(path)).status_code for _ in range(3)] == [200, 200, 429]


async def test_each_strategy_works_in_asynchronous_programs_and_reset_deletes_only_limits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    storage = limits.storage.storage_from_string(f"async+keystead+{url}")
    assert isinstance(storage, AsyncKeysteadStorage)
    item = limits.parse("3/hour")
    for kind in ("FixedWindow", "MovingWindow", "SlidingWindowCounter"):
        strategy = getattr(limits.aio.strategies, f"{kind}RateLimiter")(storage)
        assert [await strategy.hit(item, kind) for _ in range(4)] == [True, True, True, False]
        assert (await strategy.get_window_stats(item, kind)).remaining == 0
        await strategy.clear(item, kind)
        assert await strategy.hit(item, kind, cost=3)
        assert not await strategy.test(item, kind)
    assert await storage.check()
    async with connect(url) as store:
        await store.run([("SET", "limits:of-another", "kept")])
        assert await storage.reset() == 3
        assert await store.run([("GET", "limits:of-another")]) == [b"kept"]


def test_mistakes_are_one_line_errors_and_an_outage_is_an_error_of_the_storage(tmp_path: Path) -> None:
    with pytest.raises(BadUrl, match="no option 'socket_timeout'"):
        limits.storage.storage_from_string("keystead+memory://", socket_timeout=1)
    storage = KeysteadStorage("keystead+memory://")
    with pytest.raises(BadValue, match="use a sliding window counter"):
        storage.acquire_entry("client", 1_000_000, 60)
    down = KeysteadStorage("keystead+redis://127.0.0.1:1?connect_timeout=50ms&timeout=50ms", wrap_exceptions=True)
    assert not down.check()
    with pytest.raises(limits.errors.StorageError):
        down.incr("client", 60)


def test_keys_of_limits_are_a_key_document() -> None:
    assert {family.pattern.text for family in LimitsKeys.families.values()} == {
        "limits:fixed:{name<=200}", "limits:moving:{name<=200}", "limits:counted:{name<=200}:{window:int}",
    }  # fmt: skip


# --- Litestar --------------------------------------------------------------------------------------------------


@pytest.fixture
async def store() -> Any:
    async with connect("memory://") as opened:
        yield opened


async def test_nested_namespaces_never_meet_and_delete_all_touches_only_its_own_keys(store: Store) -> None:
    root, ab = KeysteadStore(store, "a"), KeysteadStore(store, "ab")
    child, tricky = root.with_namespace("b"), KeysteadStore(store, "a/b")
    nested, other = child.with_namespace("c"), root.with_namespace("b/c")
    everyone = [root, ab, child, tricky, nested, other]
    for number, one in enumerate(everyone):
        for name in ("x", "b:x", "b/x", "%2F"):
            await one.set(name, f"{number} {name}")
    await store.run([("SET", "litestar-of-another", "kept")])
    for number, one in enumerate(everyone):
        for name in ("x", "b:x", "b/x", "%2F"):
            assert await one.get(name) == f"{number} {name}".encode()
    await child.delete_all()
    assert [await one.exists("x") for one in everyone] == [True, True, False, True, False, True]
    await root.delete_all()
    assert [await one.exists("x") for one in everyone] == [False, True, False, True, False, False]
    assert await store.run([("GET", "litestar-of-another")]) == [b"kept"]


async def test_entries_expire_are_renewed_and_tell_when(store: Store) -> None:
    entries = KeysteadStore(store)
    assert await entries.expires_in("n") is None
    await entries.set("n", b"\xff\x00", 10)
    assert await entries.expires_in("n") in (9, 10)
    assert await entries.get("n", renew_for=timedelta(minutes=5)) == b"\xff\x00"
    assert await entries.expires_in("n") in (299, 300)
    await entries.set("n", "for ever")
    assert await entries.get("n", renew_for=5) == b"for ever"
    assert await entries.expires_in("n") == -1
    await entries.set("n", "over", 0)
    assert not await entries.exists("n")


async def test_litestars_sessions_response_cache_and_rate_limit_use_one_store(tmp_path: Path) -> None:
    url, calls = f"sqlite:///{tmp_path}/litestar.db", []

    @get("/cached", cache=60)
    async def cached() -> str:
        calls.append(1)
        return "cached"

    @post("/cart")
    async def put(request: LitestarRequest[Any, Any, Any]) -> None:
        request.session["cart"] = [*request.session.get("cart", []), "apple"]

    @get("/cart")
    async def cart(request: LitestarRequest[Any, Any, Any]) -> dict[str, Any]:
        return dict(request.session)

    shared = KeysteadStore(url)
    app = Litestar(
        [cached, put, cart],
        middleware=[ServerSideSessionConfig().middleware, RateLimitConfig(rate_limit=("minute", 6)).middleware],
        stores=StoreRegistry(default_factory=shared.with_namespace),
        logging_config=None,
    )
    async with AsyncTestClient(app) as client:
        assert [(await client.get("/cached")).text for _ in range(3)] == ["cached"] * 3
        assert len(calls) == 1
        await client.post("/cart")
        assert (await client.get("/cart")).json() == {"cart": ["apple"]}
        statuses = [(await client.get("/cart")).status_code for _ in range(3)]
        assert statuses[-1] == 429


# --- Flask-Session ---------------------------------------------------------------------------------------------


def _shop(begins_permanent: bool) -> Flask:
    app = Flask("shop")
    app.config.update(SESSION_PERMANENT=begins_permanent, SESSION_COOKIE_SAMESITE="Lax")

    @app.get("/<path:action>")
    def act(action: str) -> list[Any]:
        match action.split("/"):
            case ["set", name, value]:
                flask_session[name] = value
            case ["drop", name]:
                flask_session.pop(name, None)
            case ["permanent", wanted]:
                flask_session.permanent = wanted == "yes"
            case ["clear"]:
                flask_session.clear()
            case ["regenerate"]:
                app.session_interface.regenerate(flask_session)  # type: ignore[attr-defined]
        return sorted((name, value) for name, value in flask_session.items() if name != "_permanent")

    return app


def _visible(app: Flask) -> list[Any]:
    """What a browser sees of a sequence of requests: data, and what happens to its cookie."""
    browser, seen = app.test_client(), []
    for action in (
        *("see", "set/a/1", "see", "set/b/2", "drop/a", "see", "permanent/yes", "see", "permanent/no", "see"),
        *("regenerate", "see", "drop/b", "see", "set/c/3", "clear", "see", "drop/x", "set/d/4"),
    ):
        before = browser.get_cookie("session")
        response = browser.get(f"/{action}")
        cookie, header = browser.get_cookie("session"), response.headers.get("Set-Cookie", "")
        is_new = cookie is not None and (before is None or cookie.value != before.value)
        marks = [mark for mark in ("HttpOnly", "SameSite=Lax", "Path=/") if mark in header and cookie is not None]
        expires = "Expires" in header and cookie is not None
        seen.append(
            (action, response.json, is_new, cookie is None, bool(header), expires, marks, response.vary.as_set())
        )
    return seen


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("begins_permanent", [False, True])
def test_a_browser_sees_the_same_as_with_flask_session(begins_permanent: bool) -> None:
    ours, theirs = _shop(begins_permanent), _shop(begins_permanent)
    KeysteadSessions(ours, connect("memory://"))
    theirs.config.update(SESSION_TYPE="cachelib", SESSION_CACHELIB=SimpleCache())
    PeerSession(theirs)
    assert _visible(ours) == _visible(theirs)
