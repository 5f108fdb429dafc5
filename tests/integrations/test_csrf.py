"""CSRF protection of the middleware."""

import json
import secrets
import sys
from collections.abc import Iterable
from typing import Any

import pytest

import keystead
from keystead.http.csrf_field import MESSAGES_MAX
from keystead.integrations.asgi import SessionMiddleware
from tests.integrations.serving import Browser, Served
from tests.serving import wait_until

FORGED = {
    "ok": False,
    "error": "The CSRF token is missing or invalid; reload the page.",
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


def test_an_invalid_csrf_cookie_is_replaced(browser: Browser) -> None:
    browser.cookies["__Host-csrf"] = "x"
    assert len(browser.get("/csrf").json()["token"]) == 43


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_valid_header_passes(browser: Browser, token: str, method: str) -> None:
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
def test_a_valid_field_passes_and_the_body_arrives_whole(browser: Browser, token: str, kind: str, given: str) -> None:
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


def test_a_large_upload_passes_if_the_field_comes_first(browser: Browser, token: str) -> None:
    body = multipart("csrf", token, size=3_000_000)
    answer = browser.send("POST", "/echo", {"content-type": "multipart/form-data; boundary=edge"}, content=body)
    assert answer.content == body


def test_a_body_too_large_to_search_is_refused_with_advice(browser: Browser, token: str) -> None:
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
def test_a_body_without_the_field_is_refused(browser: Browser, token: str, content_type: str, body: bytes) -> None:
    answer = browser.send("POST", "/echo", {"content-type": content_type}, content=body)
    assert (answer.status_code, answer.json()) == (403, FORGED)


def test_a_header_without_the_cookie_is_refused(browser: Browser) -> None:
    answer = browser.send("POST", "/login", {"x-csrf-token": OTHER_TOKEN}, json={"user": "ann"})
    assert (answer.status_code, answer.json()) == (403, FORGED)
    assert answer.headers["cache-control"] == "no-store"


def test_a_wrong_header_is_refused_even_with_a_valid_field(browser: Browser, token: str) -> None:
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
        ({"referer": "http://["}, 403),  # which urlsplit does not even read
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "origin": "https://evil.example"}, 403),
        ({}, 200),
    ],
)
def test_cross_site_requests_are_refused_even_with_a_token(
    browser: Browser, served: Served, token: str, headers: dict[str, str], status: int
) -> None:
    host = f"127.0.0.1:{served.port}"
    own = {name: value.replace("OWNHOST", host).replace("OWN", served.origin) for name, value in headers.items()}
    assert browser.send("POST", "/echo", {"x-csrf-token": token, **own}, content=b"").status_code == status


def test_safe_methods_and_exempt_paths_need_no_token(browser: Browser) -> None:
    assert browser.send("GET", "/me", {"origin": "https://evil.example"}).status_code == 200
    assert browser.send("POST", "/hook/github", {"origin": "https://evil.example"}).status_code == 200


def test_a_refused_request_is_a_security_event(browser: Browser, served: Served) -> None:
    before = served.said.count("keystead.security WARNING a request was refused")
    browser.send("POST", "/echo")
    wait_until(lambda: served.said.count("keystead.security WARNING a request was refused") > before, "it is logged")


def test_a_cookie_with_a_similar_name_is_not_the_token(browser: Browser) -> None:
    for odd in ("\xa0", "\x85"):
        planted = f"{odd}__Host-csrf={OTHER_TOKEN}".encode("latin-1")
        headers = {"cookie": planted, "x-csrf-token": OTHER_TOKEN}
        answer = browser.send("POST", "/echo", headers, content=b"")  # type: ignore[arg-type]
        assert (answer.status_code, answer.json()) == (403, FORGED)


# --- what a stranger can make us do: the cookie and the field are of their own making -------------------------


class Sent:
    """A request whose body arrives in these messages, and what the application received."""

    def __init__(self, messages: Iterable[dict[str, Any]], content_type: str = FORM) -> None:
        self.received: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        self._messages = iter(messages)
        headers = [(b"cookie", f"__Host-csrf={OTHER_TOKEN}".encode()), (b"content-type", content_type.encode())]
        self._scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}

    async def through(self) -> "Sent":
        async def receive() -> Any:
            return next(self._messages)

        async def send(message: Any) -> None:
            self.answers.append(message)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            more = True
            while more:
                self.received.append(await receive())
                more = self.received[-1].get("more_body", False)
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async with keystead.connect("memory://") as store:
            await SessionMiddleware(app, store=store)(self._scope, receive, send)
        return self

    @property
    def status(self) -> int:
        status: int = self.answers[0]["status"]
        return status


def arriving(body: bytes, step: int = 1 << 16) -> list[dict[str, Any]]:
    starts = range(0, len(body), step)
    return [{"type": "http.request", "body": body[at : at + step], "more_body": at + step < len(body)} for at in starts]


async def test_a_body_in_many_pieces_is_passed_on_as_one() -> None:
    body = f"csrf={OTHER_TOKEN}&rest={'x' * 5000}".encode()
    sent = await Sent(arriving(body, 1)).through()
    assert sent.received == [{"type": "http.request", "body": body, "more_body": False}]


async def test_a_body_longer_than_the_searched_part_arrives_whole() -> None:
    body = f"csrf={OTHER_TOKEN}&rest={'x' * 3_000_000}".encode()
    sent = await Sent(arriving(body)).through()
    assert b"".join(message["body"] for message in sent.received) == body
    assert len(sent.received[0]["body"]) < 1_200_000


async def test_an_endless_chunked_body_is_not_read_forever() -> None:
    taken = 0

    def empty() -> Any:
        nonlocal taken
        while True:
            taken += 1
            assert taken <= MESSAGES_MAX
            yield {"type": "http.request", "body": b"", "more_body": True}

    assert (await Sent(empty()).through()).status == 403


async def test_a_disconnect_within_a_body_reaches_the_application() -> None:
    gone = {"type": "http.disconnect"}
    begun = {"type": "http.request", "body": f"csrf={OTHER_TOKEN}&a".encode(), "more_body": True}
    sent = await Sent([begun, gone]).through()
    assert sent.received == [begun, gone]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (FORM, b"a&" * 500_000),
        (FORM, b"%ff=%ff&" * 120_000),
        (FORM, b"csrf=" + b"%41" * 300_000),
        ("multipart/form-data; boundary=x", b"--x\r\n" * 200_000),
        ("multipart/form-data; boundary=x", b"--x\r\na: name=b\r\n\r\n\r\n" * 40_000),
        ("application/json", b"[" + b"[]," * 300_000 + b"1]"),
    ],
    ids=["fields", "escapes", "one value", "edges", "parts", "json"],
)
async def test_a_large_form_without_the_token_is_cheap(content_type: str, body: bytes) -> None:
    sent = Sent(arriving(body), content_type)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        await sent.through()
    finally:
        sys.setprofile(None)
    assert sent.status == 403
    assert calls < 100_000  # there are several hundred thousand fields


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("csrf=TOKEN", 200),
        ("a=csrf=x&csrf=TOKEN&b", 200),
        ("csrf=ENCODED", 200),
        ("csrf=x&csrf=TOKEN", 403),
        ("xcsrf=TOKEN", 403),
        ("a=csrf=TOKEN", 403),
        ("csrf=TOKENx", 403),
        ("csrf=TOKEN;", 403),
        ("csrf", 403),
        ("csrf=", 403),
        ("&", 403),
    ],
)
async def test_the_first_csrf_field_of_a_form_counts(body: str, status: int) -> None:
    encoded = "".join(f"%{ord(letter):02x}" for letter in OTHER_TOKEN)
    written = body.replace("TOKEN", OTHER_TOKEN).replace("ENCODED", encoded)
    assert (await Sent(arriving(written.encode())).through()).status == status


async def test_an_incomplete_field_is_not_accepted() -> None:
    body = f"a={'x' * (1 << 20)}&csrf={OTHER_TOKEN}".encode()
    cut = [{"type": "http.request", "body": body, "more_body": True}]
    sent = await Sent(cut).through()
    assert sent.status == 403
