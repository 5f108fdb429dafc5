"""The promises of the session middleware, on a real server with SQLite and Redis."""

import re
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.integrations.serving import Browser, Served
from tests.serving import wait_until

SIGNED_OUT = {
    "signed_in": False,
    "user": None,
    "id": None,
    "gone": None,
    "theme": None,
    "language": None,
    "visits": None,
}
ATTRIBUTES = "Path=/; HttpOnly; Secure; SameSite=Lax"


@pytest.fixture
def user() -> str:
    """A new user."""
    return f"ann-{uuid.uuid4()}"


def start_held_request(browser: Browser, doing: Callable[[], Any]) -> tuple[ThreadPoolExecutor, Future[Any]]:
    """Start a request, and return when its handler waits at the gate."""
    pool = ThreadPoolExecutor(1)
    with browser.copy() as watcher:
        future = pool.submit(doing)
        wait_until(lambda: watcher.get("/static/gate").json()["waiting"] > 0, "the request is under way")
    return pool, future


# --- signing in and out ------------------------------------------------------------------------------------


def test_without_a_cookie_the_visitor_is_signed_out_and_no_cookie_is_set(browser: Browser) -> None:
    assert browser.me() == SIGNED_OUT
    assert browser.set_cookies == []


def test_a_login_is_known_to_the_next_request(browser: Browser, user: str) -> None:
    assert browser.login(user)["user"] == user
    found = browser.me()
    assert (found["signed_in"], found["user"], found["theme"]) == (True, user, "light")
    assert browser.set_cookies == []  # a cookie goes out only when the token changes


@pytest.mark.parametrize("apart", ["; ", "\r\ncookie: "], ids=["in one header", "in two headers"])
def test_two_different_session_cookies_count_as_none(browser: Browser, user: str, apart: str) -> None:
    """Browsers send one `__Host-` cookie of a name: two are a sign of an attack, and neither is used."""
    browser.login(user)
    own = f"__Host-sid={browser.token}"
    assert browser.get("/me", cookie=f"{own}; {own}").json()["signed_in"]
    with browser.copy() as other:
        other.cookies.clear()
        other.login(f"{user}-2")
        tossed = f"__Host-sid={other.token}"
        for cookies in ((own, tossed), (tossed, own), (own, "__Host-sid=rubbish"), (own, "__Host-sid=")):
            headers = [("cookie", "; ".join(cookies))] if apart == "; " else [("cookie", one) for one in cookies]
            assert not browser.ask("/me", headers)["signed_in"], cookies
    assert browser.me()["signed_in"]  # neither session was ended by that


def test_the_session_cookie_has_strict_attributes(browser: Browser, user: str) -> None:
    browser.login(user)
    [cookie] = browser.set_cookies
    pattern = r"__Host-sid=([\w-]{43}\.[\w-]+); Max-Age=(\d+); " + ATTRIBUTES
    found = re.fullmatch(pattern, cookie)
    assert found
    assert int(found[2]) == 90 * 86_400  # until the absolute deadline


def test_a_logout_deletes_the_cookie_with_the_same_attributes(browser: Browser, user: str) -> None:
    browser.login(user)
    assert browser.post("/logout").json() == {"ended": True, **SIGNED_OUT}
    assert browser.set_cookies == [f"__Host-sid=; Max-Age=0; {ATTRIBUTES}"]
    assert browser.me() == SIGNED_OUT


def test_a_logged_out_token_is_refused(browser: Browser, user: str) -> None:
    browser.login(user)
    with browser.copy() as thief:
        browser.post("/logout")
        assert thief.me()["signed_in"] is False
        assert thief.post("/update", {"theme": "dark"}, "PATCH").json()["updated"] is False


def test_a_session_ended_elsewhere_has_its_reason(browser: Browser, other: Browser, user: str) -> None:
    first = browser.login(user)["id"]
    other.login(user)
    assert other.post("/end-one", {"id": first}).json() == {"ended": True}
    assert browser.me() == {**SIGNED_OUT, "gone": "revoked"}
    assert other.me()["signed_in"] is True


def test_a_user_ends_all_other_sessions_or_all(browser: Browser, other: Browser, user: str) -> None:
    own = browser.login(user)["id"]
    theirs = other.login(user)["id"]
    assert browser.get("/sessions").json() == {"ids": [theirs, own]}
    assert browser.post("/end-others").json() == {"ended": 1}
    assert (browser.me()["signed_in"], other.me()["signed_in"]) == (True, False)
    other.login(user)
    assert other.post("/end-all").json() == {"ended": 2}
    assert other.token is None
    assert (browser.me()["signed_in"], other.me()["signed_in"]) == (False, False)


def test_sessions_of_other_users_cannot_be_ended(browser: Browser, other: Browser, user: str) -> None:
    theirs = browser.login(user)["id"]
    other.login(f"{user}-else")
    assert other.post("/end-one", {"id": theirs}).json() == {"ended": False}
    assert browser.me()["signed_in"] is True


def test_a_route_that_needs_a_session_answers_401_in_the_shape_of_errors(browser: Browser, user: str) -> None:
    refused = browser.get("/private")
    assert refused.status_code == 401
    assert refused.json() == {"ok": False, "error": "You are not signed in.", "code": "SIGNED_OUT"}
    browser.login(user)
    assert browser.get("/private").json() == {"name": user.title()}


# --- fixation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    ["attackerchosenid", f"{'A' * 43}.YW5u", "", "%00", "." * 50, f"{'A' * 43}.{'A' * 700}", '"quoted"', "é" * 30],
)
def test_a_token_that_was_not_issued_here_is_never_adopted(browser: Browser, served: Served, token: str) -> None:
    browser.cookies["__Host-sid"] = token
    raw = "; ".join(f"{name}={value}" for name, value in browser.cookies.items()).encode()
    answer = browser.send("GET", "/me", headers={"cookie": raw})  # type: ignore[dict-item]
    assert answer.json()["signed_in"] is False
    assert browser.set_cookies == []
    assert answer.headers["cache-control"] == "no-store"


def test_a_login_never_adopts_the_token_of_the_browser(browser: Browser, user: str) -> None:
    browser.cookies["__Host-sid"] = planted = f"{'A' * 43}.YW5u"
    browser.csrf()
    browser.cookies["__Host-sid"] = planted
    browser.login(user)
    assert browser.token not in (None, planted)


def test_a_login_ends_the_current_session_of_the_browser(browser: Browser, user: str) -> None:
    browser.login(user)
    with browser.copy() as planted:
        browser.login(f"{user}-else")
        assert planted.token != browser.token
        assert planted.me()["signed_in"] is False
    assert browser.me()["user"] == f"{user}-else"


def test_a_stored_digest_is_not_a_token(browser: Browser, other: Browser, user: str) -> None:
    found = browser.login(user)
    other.cookies["__Host-sid"] = f"{found['id']}.{(browser.token or '').partition('.')[2]}"
    assert other.me()["signed_in"] is False


def test_an_unknown_token_is_a_security_event_and_no_token_is_ever_logged(
    browser: Browser, served: Served, user: str
) -> None:
    browser.login(user)
    issued = browser.token or "?"
    browser.post("/logout")
    browser.cookies["__Host-sid"] = forged = f"{'F' * 43}.YW5u"
    browser.me()
    wait_until(lambda: "keystead.security WARNING an unknown session token was refused" in served.said, "it is logged")
    assert issued not in served.said
    assert forged not in served.said


def test_rotation_gives_a_new_token_and_the_old_one_works_during_grace(browser: Browser, user: str) -> None:
    browser.login(user)
    with browser.copy() as under_way:
        assert browser.post("/rotate").json()["rotated"] is True
        assert browser.token != under_way.token
        assert (browser.me()["user"], under_way.me()["user"]) == (user, user)
        assert under_way.set_cookies == []
        assert under_way.post("/rotate").status_code == 200
        assert under_way.set_cookies == []  # the old token gets no successor of its own


def test_concurrent_rotations_leave_exactly_one_session(browser: Browser, user: str) -> None:
    browser.login(user)
    browser.csrf()
    tabs = [browser.copy() for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda tab: tab.post("/rotate"), tabs))
    assert [answer.json()["rotated"] for answer in answers] == [True] * 6
    given = {tab.token for tab in tabs if tab.set_cookies}
    assert len(given) == 1
    browser.cookies["__Host-sid"] = given.pop() or ""
    assert len(browser.get("/sessions").json()["ids"]) == 1
    for tab in tabs:
        tab.__exit__()


# --- at the same moment ------------------------------------------------------------------------------------


def test_concurrent_changes_of_different_fields_are_kept(browser: Browser, user: str) -> None:
    browser.login(user)
    with browser.copy() as tab:
        pool, slow = start_held_request(browser, lambda: tab.post("/update", {"theme": "dark", "gated": True}, "PATCH"))
        assert browser.post("/update", {"language": "ja"}, "PATCH").json()["updated"] is True
        browser.get("/static/open-gate")
        assert slow.result().json()["updated"] is True
        pool.shutdown()
    found = browser.me()
    assert (found["theme"], found["language"]) == ("dark", "ja")


def test_no_concurrent_change_of_one_field_is_lost(browser: Browser, user: str) -> None:
    browser.login(user)
    browser.csrf()
    tabs = [browser.copy() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda tab: [tab.post("/count") for _ in range(3)], tabs))
    assert browser.me()["visits"] == 24
    for tab in tabs:
        tab.__exit__()


@pytest.mark.parametrize("way_out", ["/logout", "/end-all"])
@pytest.mark.parametrize(("path", "method"), [("/update", "PATCH"), ("/rotate", "POST")])
def test_a_logout_is_not_undone_by_a_request_in_flight(
    browser: Browser, user: str, path: str, method: str, way_out: str
) -> None:
    browser.login(user)
    with browser.copy() as tab:
        pool, slow = start_held_request(browser, lambda: tab.post(path, {"gated": True}, method))
        token = browser.token or ""
        browser.post(way_out)
        browser.get("/static/open-gate")
        answer = slow.result().json()
        pool.shutdown()
        assert answer["signed_in"] is False
        assert answer.get("updated", answer.get("rotated")) is False
        assert tab.set_cookies == []
    browser.cookies["__Host-sid"] = token
    assert browser.me()["signed_in"] is False
    browser.login(user)
    assert len(browser.get("/sessions").json()["ids"]) == 1


def test_a_late_response_does_not_delete_the_cookie_of_a_newer_login(browser: Browser, user: str) -> None:
    browser.login(user)
    with browser.copy() as tab:
        pool, slow = start_held_request(browser, lambda: tab.post("/update", {"theme": "dark", "gated": True}, "PATCH"))
        browser.login(user)
        browser.get("/static/open-gate")
        assert slow.result().json()["updated"] is False
        pool.shutdown()
        assert tab.set_cookies == []
        assert tab.me()["signed_in"] is False  # one that was sent before the login, and is read after it
        assert tab.set_cookies == []
    assert browser.me()["signed_in"] is True


@pytest.mark.parametrize("token", ["forged", f"{'A' * 43}.YW5u"])
def test_a_logout_deletes_a_dead_cookie(browser: Browser, token: str) -> None:
    browser.csrf()
    browser.cookies["__Host-sid"] = token
    assert browser.post("/logout").json() == {"ended": False, **SIGNED_OUT}
    assert browser.set_cookies == [f"__Host-sid=; Max-Age=0; {ATTRIBUTES}"]


def test_concurrent_logins_of_one_user_respect_the_cap(served: Served, user: str) -> None:
    browsers = [Browser(served) for _ in range(12)]
    for one in browsers:
        one.csrf()
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda one: one.login(user), browsers))
    alive = [one.me() for one in browsers]
    assert sum(found["signed_in"] for found in alive) == 5
    assert {found["gone"] for found in alive if not found["signed_in"]} == {"evicted"}
    for one in browsers:
        one.__exit__()


# --- what caches may keep, and what is left alone ----------------------------------------------------------


def test_a_response_is_not_cacheable_once_the_session_was_read(browser: Browser, user: str) -> None:
    browser.login(user)
    assert browser.get("/me").headers["cache-control"] == "no-store"
    assert "cache-control" not in browser.get("/public").headers
    assert browser.get("/cached").headers["cache-control"] == "private, max-age=5"


def test_a_response_that_sets_a_cookie_is_never_cacheable(browser: Browser) -> None:
    assert browser.get("/cached?csrf").headers.get_list("cache-control") == ["no-store"]
    assert len(browser.set_cookies) == 1


def test_a_streamed_response_that_may_read_the_session_is_not_cacheable(browser: Browser, user: str) -> None:
    assert "cache-control" not in browser.get("/late").headers  # to a browser without cookies it can only be public
    browser.login(user)
    answer = browser.get("/late")
    assert (answer.text, answer.headers["cache-control"]) == (f"hello {user}", "no-store")
    browser.cookies["__Host-sid"] = "forged"
    assert browser.get("/late").headers["cache-control"] == "no-store"
    assert "cache-control" not in browser.get("/not-modified").headers


def test_skipped_paths_have_no_session_and_set_no_cookie(browser: Browser) -> None:
    browser.cookies["__Host-sid"] = "forged"
    assert browser.get("/static/app.js").json() == {"has_session": False}
    assert browser.set_cookies == []


def test_errors_of_the_application_pass_through(browser: Browser, served: Served) -> None:
    answer = browser.get("/boom")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    wait_until(lambda: "ValueError: a fault of the application" in served.said, "the server says what it was")


def test_signing_in_after_the_response_has_begun_is_an_error(browser: Browser) -> None:
    assert browser.get("/streamed").text == "begun start sets a cookie; call it before the response begins"
