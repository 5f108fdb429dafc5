"""Flask: sessions with real requests, their cookies, cached views and rate limits."""

from __future__ import annotations

import functools
import os
import signal
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from flask import Flask, Response, flash, get_flashed_messages, session
from flask import request as flask_request
from flask.testing import FlaskClient
from markupsafe import Markup

from keystead import Keyspace, Store, after, connect, wait
from keystead.errors import BadArgument, BadDeclaration, BadValue, KeysteadError, StoreUnavailable
from keystead.integrations.flask import CachedPage, FlaskSession, KeysteadSessions, cached_view, rate_limit
from keystead.parts.decorators import Cached, Limited
from keystead.testing import TravellingClock
from tests import servers
from tests.every_store import EVERY, mariadb_server, on_urls, postgres_server, redis_server, urls
from tests.gunicorn_server import gunicorn
from tests.integrations.flask_interleavings import FlaskSite
from tests.integrations.interleaved_requests import (
    ENDS,
    FEWER,
    WORK,
    check_bots,
    check_cart,
    check_lost_updates,
    check_over_http,
    check_pairing,
    check_tabs_at_sign_in,
)
from tests.parts.sessions.relays import Relay
from tests.serving import wait_until

__all__ = ["mariadb_server", "postgres_server", "redis_server", "urls"]


class ShopKeys(Keyspace):
    """A shop."""

    searches = Limited("shop:searches:{client}", "3/minute")
    page = Cached("shop:page:{path<=200}", CachedPage, lifetime=after("5m"), doc="pages")
    kept = Cached("shop:kept:{path<=200}", CachedPage, lifetime=after("5m"), stale="1d", doc="pages with stale copies")


class Shop:
    """An application, its sessions and its store."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.app = app = Flask("shop")
        app.testing = True
        self.relay = Relay(store or connect("memory://"))
        self.sessions = sessions = KeysteadSessions(app, self.relay, **options)
        self.client = app.test_client()

        @app.get("/")
        def nothing() -> str:
            return "a page without a session"

        @app.get("/whoami")
        def whoami() -> dict[str, Any]:
            return {"user": session.get("_user_id"), "cart": session.get("cart"), "new": session.new}

        @app.post("/cart/<item>")
        def put(item: str) -> str:
            session.setdefault("cart", []).append(item)
            return "put"

        @app.post("/nested/<item>")
        def put_inside(item: str) -> str:
            session["cart"].append(item)  # and no session.modified = True
            return "put"

        @app.post("/sign-in/<user>")
        def sign_in(user: str) -> str:
            session["_user_id"] = user
            return "signed in"

        @app.post("/sign-out")
        def sign_out() -> str:
            session.pop("_user_id")
            return "signed out"

        @app.post("/clear")
        def clear() -> str:
            session.clear()
            return "cleared"

        @app.post("/permanent")
        def permanent() -> str:
            session.permanent = True
            session["kept"] = 1
            return "permanent"

        @app.post("/regenerate")
        def regenerate() -> str:
            sessions.regenerate()
            return "regenerated"

        @app.post("/others")
        def end_others() -> dict[str, int]:
            return {"ended": sessions.end_other_sessions()}

    def stored(self) -> set[str]:
        async def scanned() -> set[str]:
            return {key.decode() async for page in self.relay.scan() for key in page}

        return wait(scanned())

    def signed_in(self, user: str = "ann") -> FlaskClient:
        client = self.app.test_client()
        client.post(f"/sign-in/{user}")
        return client


def token(client: FlaskClient) -> str:
    cookie = client.get_cookie("session")
    return "" if cookie is None else cookie.value


# --- sessions --------------------------------------------------------------------------------------------------


def test_a_session_begins_with_its_first_write_and_a_visit_creates_no_key() -> None:
    shop = Shop()
    for _ in range(100):
        response = shop.client.get("/whoami")
        assert "Set-Cookie" not in response.headers
        assert response.vary.as_set() == {"cookie"}
    shop.client.post("/permanent", headers={"Cookie": "session=attackerchosenid"})
    assert "attackerchosenid" not in token(shop.client)
    assert len(shop.stored()) == 3
    shop.relay.log.clear()
    assert "Vary" not in shop.client.get("/").headers
    assert shop.relay.log == [], "a request that does not use the session costs no round trip"


def test_signing_in_keeps_the_cart_and_replaces_the_token_in_one_step() -> None:
    shop = Shop(sessions_per_user=3)
    shop.client.post("/cart/apple")
    shop.client.post("/nested/pear")
    before = token(shop.client)
    shop.client.post("/sign-in/ann")
    assert token(shop.client) != before
    assert shop.client.get("/whoami").json == {"user": "ann", "cart": ["apple", "pear"], "new": False}
    old = shop.app.test_client()
    old.set_cookie("session", before)
    assert old.get("/whoami").json == {"user": None, "cart": None, "new": True}
    assert before.split(".")[1] not in repr(shop.stored())


def test_signing_out_ends_the_session_and_what_is_left_begins_an_anonymous_one() -> None:
    shop = Shop()
    shop.client.post("/cart/apple")
    shop.client.post("/sign-in/ann")
    signed_in = token(shop.client)
    shop.client.post("/sign-out")
    assert shop.sessions.list_sessions("ann") == []
    assert shop.client.get("/whoami").json == {"user": None, "cart": ["apple"], "new": False}
    shop.client.set_cookie("session", signed_in)
    assert shop.client.get("/whoami").json == {"user": None, "cart": None, "new": True}


def test_clearing_ends_the_session_and_deletes_the_cookie_with_the_same_attributes() -> None:
    shop = Shop()
    set_ = shop.client.post("/cart/apple").headers["Set-Cookie"]
    cleared = shop.client.post("/clear").headers["Set-Cookie"]
    assert "Max-Age=0" in cleared
    assert set_.split("; ")[1:] == [one for one in cleared.split("; ")[1:] if "=0" not in one and "Exp" not in one]
    assert {key for key in shop.stored() if ":end:" not in key} == set()


def test_the_sessions_of_a_user_are_listed_limited_and_ended() -> None:
    shop = Shop(sessions_per_user=3)
    clients = [shop.signed_in() for _ in range(4)]
    assert len(shop.sessions.list_sessions("ann")) == 3
    assert [client.get("/whoami").get_json()["user"] for client in clients] == [None, "ann", "ann", "ann"]
    assert clients[3].post("/others").json == {"ended": 2}
    [left] = shop.sessions.list_sessions("ann")
    assert not shop.sessions.end_session("bob", left.id)
    assert shop.sessions.end_session("ann", left.id)
    shop.signed_in(), shop.signed_in("bob")
    assert shop.sessions.end_sessions("ann") == 1
    assert len(shop.sessions.list_sessions("bob")) == 1


def test_another_user_does_not_get_the_data_of_the_one_before() -> None:
    shop = Shop()
    shop.client.post("/sign-in/ann")
    shop.client.post("/cart/apple")
    shop.client.post("/sign-in/bob")
    assert shop.client.get("/whoami").json == {"user": "bob", "cart": None, "new": False}
    assert shop.sessions.list_sessions("ann") == []


def test_regenerate_replaces_the_token_and_keeps_the_data() -> None:
    shop = Shop()
    shop.client.post("/cart/apple")
    before = token(shop.client)
    shop.client.post("/regenerate")
    assert token(shop.client) not in ("", before)
    assert shop.client.get("/whoami").json == {"user": None, "cart": ["apple"], "new": False}
    shop.client.set_cookie("session", before)
    assert shop.client.get("/whoami").json == {"user": None, "cart": None, "new": True}


def test_values_come_back_as_flask_stores_them_and_others_are_refused() -> None:
    shop = Shop()
    values = {
        "tuple": (1, "2"), "bytes": b"\xff", "markup": Markup("<b>"), "uuid": uuid.UUID(int=7),
        "time": datetime(2026, 1, 2, tzinfo=UTC), "nested": {"a": [None, 1.5, {"b": ()}]}, "ß {}": "\n",
    }  # fmt: skip
    with shop.client.session_transaction() as stored:
        stored.update(values)
    with shop.client.session_transaction() as found:
        assert dict(found) == values
        assert isinstance(found, FlaskSession)
        assert "1.5" not in repr(found)
    with (
        pytest.raises(BadValue, match="'view' of the session cannot be stored"),
        shop.client.session_transaction() as one,
    ):
        one["view"] = print


def test_a_flash_message_is_shown_once() -> None:
    shop = Shop()

    @shop.app.get("/saved")
    def saved() -> str:
        flash("saved", "info")
        return ""

    @shop.app.get("/messages")
    def messages() -> list[Any]:
        return get_flashed_messages(with_categories=True, category_filter=["info"])

    shop.client.get("/saved")
    assert shop.client.get("/messages").json == [["info", "saved"]]
    assert shop.client.get("/messages").json == []


def test_asynchronous_views_and_handlers_use_the_session_too() -> None:
    shop = Shop()

    @shop.app.post("/async")
    async def view() -> dict[str, Any]:
        session["n"] = session.get("n", 0) + 1
        return {"n": session["n"]}

    shop.client.post("/async")
    assert shop.client.post("/async").json == {"n": 2}


class Away(Relay):
    """A store that does not answer, or answers nonsense."""

    error: KeysteadError = StoreUnavailable("the store does not answer")

    async def before(self) -> None:
        raise self.error


@pytest.mark.parametrize("has_handler", [False, True])
def test_a_store_outage_in_a_view_or_while_saving_is_a_503_and_a_defect_is_a_500(has_handler: bool) -> None:
    app, store, closed = Flask("shop"), Away(connect("memory://")), []
    if has_handler:
        app.register_error_handler(503, lambda error: ("back soon", 503, {"Retry-After": f"{error.retry_after}0"}))
    sessions = KeysteadSessions(app, store)

    @app.get("/read")
    def read() -> dict[str, Any]:
        return {"cart": session.get("cart")}

    @app.get("/write")
    def write() -> Response:
        session["cart"] = 1  # a new session: the store is asked when it is saved
        return Response(Lines(), headers={"Set-Cookie": "seen=1", "X-Shop": "1"})

    @app.get("/own")
    def own() -> list[Any]:
        return sessions.list_sessions("ann")

    class Lines:
        def __iter__(self) -> Any:
            return iter(["a line"])

        def close(self) -> None:
            closed.append(1)

    client = app.test_client()
    for path in ("/write", "/own", "/read"):
        if path == "/read":
            client.set_cookie("session", f"{'a' * 43}.{'b' * 43}.dmlzaXRvcg")
        answer = client.get(path)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10" if has_handler else "1"), path
        assert answer.text == "back soon" or not has_handler
        assert {"Set-Cookie", "X-Shop"} & set(answer.headers.keys()) == set()
    assert closed == [1]
    store.error = BadArgument("a defect")
    assert client.get("/read").status_code == 500


# --- lifetimes and cookies -------------------------------------------------------------------------------------


def test_the_permanent_lifetime_is_that_of_the_store_and_of_a_permanent_cookie() -> None:
    shop = Shop(anonymous_lifetime="1h")
    shop.app.config["PERMANENT_SESSION_LIFETIME"] = timedelta(days=2)
    assert "Expires" not in shop.client.post("/cart/apple").headers["Set-Cookie"]
    assert "Expires" in shop.client.post("/permanent").headers["Set-Cookie"]
    assert "Set-Cookie" in shop.client.get("/whoami").headers, "SESSION_REFRESH_EACH_REQUEST"
    shop.app.config["SESSION_REFRESH_EACH_REQUEST"] = False
    assert "Set-Cookie" not in shop.client.get("/whoami").headers

    def hours() -> float:
        [key] = [key for key in shop.stored() if ":sess:" in key]
        [left_ms] = wait(shop.relay.run([("PTTL", key)]))
        return float(left_ms) / 3_600_000

    assert 0.9 < hours() <= 1
    shop.client.post("/sign-in/ann")
    assert 47 < hours() <= 48
    shop.app.config["PERMANENT_SESSION_LIFETIME"] = timedelta(0)
    assert "Max-Age=0" in shop.client.post("/cart/pear").headers["Set-Cookie"]
    assert shop.sessions.list_sessions("ann") == []


def test_cookies_follow_the_settings_of_flask_and_a_host_cookie_is_secure() -> None:
    shop = Shop()
    shop.app.config.update(SESSION_COOKIE_NAME="__Host-shop", SESSION_COOKIE_SAMESITE="Strict")
    cookie = shop.client.post("/cart/apple", base_url="https://shop.test").headers["Set-Cookie"]
    assert cookie.startswith("__Host-shop=")
    assert cookie.split("; ", 1)[1] == "Secure; HttpOnly; Path=/; SameSite=Strict"
    for setting in ({"SESSION_COOKIE_DOMAIN": "shop.test"}, {"SESSION_COOKIE_PATH": "/shop"}):
        app = Flask("wrong")
        app.config.update(SESSION_COOKIE_NAME="__Host-shop", **setting)
        with pytest.raises(BadDeclaration, match="__Host- cookie"):
            KeysteadSessions(app, "memory://")


def test_responses_with_a_session_cookie_are_not_stored_by_proxies() -> None:
    assert Shop().client.post("/cart/apple").headers["Cache-Control"] == "no-store"


def test_an_application_without_a_store_is_told_how_to_set_one() -> None:
    with pytest.raises(BadDeclaration, match="KEYSTEAD_STORE"):
        KeysteadSessions(Flask("shop"))
    extension = KeysteadSessions()
    app = Flask("shop")
    app.config["KEYSTEAD_STORE"] = "memory://"
    extension.init_app(app)
    assert app.session_interface is extension
    with app.app_context():
        assert extension.list_sessions("nobody") == []


# --- views -----------------------------------------------------------------------------------------------------


def test_a_fourth_request_in_a_minute_is_refused_with_the_time_to_wait() -> None:
    shop = Shop()

    @shop.app.get("/search")
    @rate_limit(ShopKeys(shop.relay).searches)
    async def search() -> str:
        return "found"

    @shop.app.errorhandler(429)
    def too_many(error: Any) -> tuple[str, int]:
        return f"wait {error.retry_after} s", 429

    answers = [shop.client.get("/search") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].text == "wait 60 s"
    other = shop.client.get("/search", environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert other.status_code == 200


def test_concurrent_misses_run_a_view_once_and_private_pages_are_not_stored() -> None:
    shop, calls = Shop(), []

    def page(name: str, response: Any) -> None:
        @shop.app.get(f"/{name}", endpoint=name)
        @cached_view(ShopKeys(shop.relay).page)
        def view() -> Any:
            calls.append(name)
            return response()

    release = threading.Event()

    def slow() -> Response:
        release.wait(60)
        return Response(b"\xff\x00", content_type="image/png", headers={"X-Shop": "1"})

    def greet() -> str:
        return f"hello {session.get('name')}"

    def fail() -> str:
        raise LookupError("the view fails")

    page("slow", slow)
    page("greet", greet)
    page("private", lambda: Response("mine", headers={"Cache-Control": "private"}))
    page("missing", lambda: ("not here", 404))
    page("failing", fail)
    with ThreadPoolExecutor(8) as pool:
        pages = [pool.submit(shop.app.test_client().get, "/slow") for _ in range(8)]
        release.set()
        found = {(one.result().data, one.result().headers["X-Shop"], one.result().content_type) for one in pages}
    assert found == {(b"\xff\x00", "1", "image/png")}
    assert calls == ["slow"]
    assert shop.client.get("/slow?size=2").data == b"\xff\x00"
    assert calls == ["slow", "slow"]
    for name in ("greet", "private", "missing"):
        shop.client.get(f"/{name}"), shop.client.get(f"/{name}")
        assert calls.count(name) == 2, name
    for _ in range(2):
        with pytest.raises(LookupError, match="the view fails"):
            shop.client.get("/failing")


def test_cached_pages_are_never_served_across_hosts_users_or_what_they_vary_by() -> None:
    shop, calls = Shop(), []
    page = ShopKeys(shop.relay).page

    @shop.app.get("/<path:name>")
    @cached_view(page, vary=["X-Tenant"])
    def view(name: str) -> Response:
        calls.append(name)
        user, tenant = flask_request.headers.get("Authorization"), flask_request.headers.get("X-Tenant")
        vary = flask_request.args.get("vary", "X-Tenant")
        return Response(f"{flask_request.base_url} {user} {tenant} {len(calls)}", headers={"Vary": vary})

    def read(path: str = "/a", base: str = "http://a.test", environ: Any = None, **headers: str) -> str:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return shop.client.get(path, base_url=base, headers=given, environ_overrides=environ or {}).text

    assert read(Authorization="Bearer ann") == "http://a.test/a Bearer ann None 1"
    assert [read(), read()] == ["http://a.test/a None None 2"] * 2
    assert read(Authorization="Bearer bob") == "http://a.test/a Bearer bob None 3"
    assert read(environ={"REMOTE_USER": "ann"}).endswith(" 4")
    assert read(base="http://b.test") == "http://b.test/a None None 5"
    assert read(base="https://a.test") == "https://a.test/a None None 6"
    assert read(X_Tenant="x") == "http://a.test/a None x 7"
    assert read("/a%2520b").endswith(" 8")
    assert read("/a%20b").endswith(" 9")
    for other in ("Accept", "*", "Cookie", "X-Tenant, Accept"):
        read(f"/v?vary={other}")
        ran = len(calls)
        read(f"/v?vary={other}")
        assert len(calls) == ran + 1, other
    with pytest.raises(BadDeclaration, match="not for everybody"):
        cached_view(page, vary=["Cookie"])


def test_an_expired_page_is_returned_at_once_while_the_view_runs_in_another_thread() -> None:
    clock = TravellingClock()
    shop, calls, is_done = Shop(clock.store()), [], threading.Event()

    @shop.app.get("/news")
    @cached_view(ShopKeys(shop.relay, now_ms=clock).kept)
    def news() -> str:
        calls.append(flask_request.args["topic"])  # the request is there in the other thread, too
        if len(calls) == 2:
            is_done.set()
        return f"news {len(calls)}"

    def read() -> str:
        return shop.client.get("/news?topic=tea").text

    assert [read(), read()] == ["news 1", "news 1"]
    clock.travel("10m")
    assert read() == "news 1", "the stale copy"
    assert is_done.wait(60)
    wait_until(lambda: read() == "news 2", "the new page is stored")
    assert calls == ["tea", "tea"]


# --- two requests at once --------------------------------------------------------------------------------------


@pytest.mark.everyday("rotate-logout")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("work", WORK)
def test_in_every_order_of_two_requests_an_ended_session_is_not_revived(work: str, end: str) -> None:
    assert check_pairing(FlaskSite, work, end) >= 3


def test_in_every_order_two_requests_that_change_different_keys_both_survive() -> None:
    assert check_lost_updates(FlaskSite) >= 3


def test_a_second_tab_does_not_replace_the_cookie_of_a_sign_in() -> None:
    assert check_tabs_at_sign_in(FlaskSite) >= 3


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_in_every_order_the_same_holds_on_other_stores_and_over_http(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    make = functools.partial(FlaskSite, url)
    assert min(check_pairing(make, work, end, FEWER) for work in WORK for end in ENDS) >= 3
    assert min(check_lost_updates(make, FEWER), check_tabs_at_sign_in(make, FEWER)) >= 3
    assert check_over_http(lambda http: FlaskSite(url, http)) >= 15


@pytest.mark.matrix
def test_ten_thousand_visits_of_bots_leave_no_key(redis_server: servers.Server) -> None:
    redis_server.ask("FLUSHALL")
    assert check_bots(functools.partial(FlaskSite, redis_server.url)) == 0


@pytest.mark.matrix
@on_urls(*EVERY)
def test_a_cart_filled_in_two_tabs_at_once_survives_sign_in(urls: dict[str, str], tmp_path: Path) -> None:
    url = urls["default"]
    make = functools.partial(FlaskSite, f"sqlite:///{tmp_path}" if url.startswith("sqlite") else url)
    assert check_cart(make) == ["apple", "first", "pear"]


# --- gunicorn --------------------------------------------------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_sessions_survive_killed_workers_and_lose_nothing_that_was_answered(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Four preloaded workers with eight threads each; three times one is killed; four browsers use two tabs each."""
    url = f"sqlite:///{tmp_path}/baskets.db" if kind == "sqlite" else request.getfixturevalue("redis_server").url
    answered: dict[str, set[str]] = {}
    workers: set[int] = set()
    mutex, kills = threading.Lock(), [60, 140, 220]

    def use(port: int, user: str, tab: int, cookie: str) -> None:
        for number in range(40):
            name = f"{tab}-{number}"
            try:
                reply = httpx2.post(f"http://127.0.0.1:{port}/put/{name}", cookies={"session": cookie}, timeout=60)
            except httpx2.HTTPError:  # its worker was killed
                continue
            assert reply.status_code == 200
            with mutex:
                answered[user].add(name)
                workers.add(int(reply.text))
                is_due = bool(kills) and sum(map(len, answered.values())) >= kills[0]
                if is_due:
                    kills.pop(0)
            if is_due:
                os.kill(int(reply.text), signal.SIGKILL)

    with (
        gunicorn("tests.integrations.flask_baskets:app", tmp_path, BASKETS_STORE=url) as port,
        ThreadPoolExecutor(8) as tabs,
    ):
        cookies = {}
        for user in ("ann", "bob", "eve", "joe"):
            reply = httpx2.post(f"http://127.0.0.1:{port}/sign-in/{user}", timeout=60)
            cookies[user], answered[user] = reply.cookies["session"], set()
        done = [tabs.submit(use, port, user, tab, cookies[user]) for user in cookies for tab in (1, 2)]
        for one in done:
            one.result()
        for user, cookie in cookies.items():
            basket = httpx2.get(f"http://127.0.0.1:{port}/", cookies={"session": cookie}, timeout=60).json()
            assert basket.pop("_user_id") == user
            assert answered[user] <= basket.keys()
            assert set(basket.values()) == {user}, "no session got the data of another"
    assert kills == []
    assert len(workers) >= 4
