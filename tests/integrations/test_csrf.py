"""Requests that change something must show that a page of this site made them."""

import json
import secrets

import pytest

from tests.integrations.serving import Browser, Served
from tests.serving import wait_until

FORGED = {
    "ok": False,
    "error": "The request does not show that it comes from this site; load the page again.",
    "code": "CSRF",
}
FORM = "application/x-www-form-urlencoded"
OTHER_TOKEN = secrets.token_urlsafe(32)


@pytest.fixture
def token(browser: Browser) -> str:
    return browser.csrf()


def test_the_token_is_in_a_cookie_that_no_script_can_read_and_that_lasts_until_the_browser_closes(
    browser: Browser,
) -> None:
    token = browser.get("/csrf").json()["token"]
    assert browser.set_cookies == [f"__Host-csrf={token}; Path=/; HttpOnly; Secure; SameSite=Lax"]
    assert len(token) == 43
    assert browser.get("/csrf").json()["token"] == token
    assert browser.set_cookies == []


def test_a_cookie_that_is_no_token_is_replaced(browser: Browser) -> None:
    browser.cookies["__Host-csrf"] = "x"
    assert len(browser.get("/csrf").json()["token"]) == 43


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_header_opens(browser: Browser, token: str, method: str) -> None:
    assert browser.send(method, "/echo", {"x-csrf-token": token}, content=b"hello").text == "hello"


def multipart(field: str, value: str, size: int = 10) -> bytes:
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="csrf"\r\n\r\n' + b"x" * 10,
        f'--edge\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}'.encode(),
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="b"\r\n\r\n' + b"y" * size,
    ]
    return b"\r\n".join(parts) + b"\r\n--edge--\r\n"


@pytest.mark.parametrize("given", ["own", "another", "empty"])
@pytest.mark.parametrize("kind", ["json", "form", "multipart"])
def test_the_field_opens_if_it_is_the_token_of_the_cookie_and_the_body_arrives_whole(
    browser: Browser, token: str, kind: str, given: str
) -> None:
    value = {"own": token, "another": OTHER_TOKEN, "empty": ""}[given]
    body, content_type = {
        "json": (json.dumps({"a": "ü", "csrf": value}).encode(), "application/json; charset=utf-8"),
        "form": (f"a=1&csrf={value}&b=%20".encode(), FORM),
        "multipart": (multipart("csrf", value), 'multipart/form-data; boundary="edge"'),
    }[kind]
    answer = browser.send("POST", "/echo", {"content-type": content_type}, content=body)
    if given == "own":
        assert answer.content == body
    else:
        assert (answer.status_code, answer.json()) == (403, FORGED)


def test_an_upload_larger_than_what_is_read_goes_through_when_the_field_comes_first(
    browser: Browser, token: str
) -> None:
    body = multipart("csrf", token, size=3_000_000)
    answer = browser.send("POST", "/echo", {"content-type": "multipart/form-data; boundary=edge"}, content=body)
    assert answer.content == body


def test_a_body_too_large_to_look_into_is_refused_and_says_what_to_do(browser: Browser, token: str) -> None:
    body = json.dumps({"filler": "x" * 3_000_000, "csrf": token}).encode()
    answer = browser.send("POST", "/echo", {"content-type": "application/json"}, content=body)
    assert answer.status_code == 403
    assert "send the token in the header x-csrf-token" in answer.json()["error"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b"[1]"),
        ("application/json", b'{"csrf": 7}'),
        ("application/json", b"[" * 100_000),
        ("application/json", b"\xff\xfe"),
        (FORM, b"\xff=%ff&&&"),
        ("multipart/form-data", b"--"),
        ("multipart/form-data; boundary=edge", b"--edge--"),
        ("text/plain", b"csrf=x"),
        ("", b""),
    ],
)
def test_a_body_without_the_field_is_refused_whatever_is_in_it(
    browser: Browser, token: str, content_type: str, body: bytes
) -> None:
    answer = browser.send("POST", "/echo", {"content-type": content_type}, content=body)
    assert (answer.status_code, answer.json()) == (403, FORGED)


def test_a_header_without_the_cookie_is_refused(browser: Browser) -> None:
    answer = browser.send("POST", "/login", {"x-csrf-token": OTHER_TOKEN}, json={"user": "ann"})
    assert (answer.status_code, answer.json()) == (403, FORGED)
    assert answer.headers["cache-control"] == "no-store"


def test_a_wrong_header_is_not_saved_by_a_right_field(browser: Browser, token: str) -> None:
    answer = browser.send("POST", "/echo", {"x-csrf-token": OTHER_TOKEN}, json={"csrf": token})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "OWN"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://OWNHOST"}, 403),  # the same host without TLS, where anybody may speak for it
        ({"referer": "OWN/page?x=1"}, 200),
        ({"referer": "https://evil.example/"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, 403),
        ({}, 200),
    ],
)
def test_where_the_browser_names_another_site_the_token_does_not_help(
    browser: Browser, served: Served, token: str, headers: dict[str, str], status: int
) -> None:
    host = f"127.0.0.1:{served.port}"
    own = {name: value.replace("OWNHOST", host).replace("OWN", served.origin) for name, value in headers.items()}
    assert browser.send("POST", "/echo", {"x-csrf-token": token, **own}, content=b"").status_code == status


def test_reading_needs_no_token_and_neither_do_exempt_paths(browser: Browser) -> None:
    assert browser.send("GET", "/me", {"origin": "https://evil.example"}).status_code == 200
    assert browser.send("POST", "/hook/github", {"origin": "https://evil.example"}).status_code == 200


def test_a_refused_request_is_a_security_event(browser: Browser, served: Served) -> None:
    before = served.said.count("keystead.security WARNING a request was refused")
    browser.send("POST", "/echo")
    wait_until(lambda: served.said.count("keystead.security WARNING a request was refused") > before, "it is logged")
