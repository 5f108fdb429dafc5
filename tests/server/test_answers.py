"""Common to all responses: the shape of errors, HEAD and OPTIONS, health of kit routes, limits, request ids."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import httpx2
import pytest
from fastapi import FastAPI, Request
from pydantic import AfterValidator, BaseModel

from keystead.http.accept import prefers_html
from keystead.http.refusals import CODE_ALIAS, Refusal
from keystead.server.error_responses import add_error_responses
from tests.server.conftest import notes_serving
from tests.serving import Keystead

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def ask(server: Keystead, method: str, path: str, **options: object) -> httpx2.Response:
    return httpx2.request(method, f"{server.url}{path}", timeout=300, **options)  # type: ignore[arg-type]


def error(answer: httpx2.Response) -> tuple[int, str]:
    body = answer.json()
    assert body["ok"] is False
    assert body.keys() >= {"ok", "error", "code"}
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["vary"] == "accept"
    return answer.status_code, body["code"]


def raw_answer(server: Keystead, request: bytes) -> bytes:
    """The response to these bytes, until the server closes or it is complete."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as raw:
        raw.sendall(request)
        return raw.makefile("rb").read()


# --- the shape of errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"),
    [
        ("GET", "/no/such/path", {}, 404, "NOT_FOUND"),
        ("GET", "/static/none.css", {}, 404, "NOT_FOUND"),
        ("GET", "/healthz/", {}, 404, "NOT_FOUND"),
        ("PUT", "/api/notes", {}, 405, "METHOD_NOT_ALLOWED"),
        ("FROB", "/api/notes", {}, 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/api/notes", {"json": {}}, 400, "BAD_REQUEST"),
        ("POST", "/api/notes", {"content": b"{", "headers": {"content-type": "application/json"}}, 400, "BAD_REQUEST"),
        (
            "POST",
            "/api/notes",
            {"content": b"\xff", "headers": {"content-type": "application/json"}},
            400,
            "BAD_REQUEST",
        ),
        ("GET", "/api/notes/fail", {}, 500, "INTERNAL"),
        ("GET", "/api/notes/refuse", {}, 409, "NOTE_LOCKED"),
        ("GET", "/api/notes/by-id/none", {}, 404, "NOT_FOUND"),
    ],
)
def test_all_errors_have_one_shape(
    notes: Keystead, method: str, path: str, options: dict[str, object], status: int, code: str
) -> None:
    assert error(ask(notes, method, path, **options)) == (status, code)


def test_a_refusal_can_add_fields_but_not_replace_the_standard_ones(notes: Keystead) -> None:
    answer = ask(notes, "GET", "/api/notes/refuse")
    assert answer.json() == {"ok": False, "error": "The note is locked.", "code": "NOTE_LOCKED", "until": 5}
    assert answer.headers["x-lock"] == "1"


def test_a_wrong_field_is_named_without_repeating_the_input(notes: Keystead) -> None:
    answer = ask(notes, "POST", "/api/notes", json={"id": "", "text": {"card": "4111-1111"}})
    assert answer.json()["error"] == (
        "id in the body should have at least 1 character; text in the body should be a valid string"
    )
    assert "4111" not in answer.text


def test_an_internal_error_shows_only_the_request_id(notes: Keystead) -> None:
    answer = ask(notes, "GET", "/api/notes/fail?secret=of-a-query")
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert "Traceback" not in answer.text
    assert "secret" not in answer.text


def test_a_browser_gets_a_page_for_any_error(notes: Keystead) -> None:
    answer = ask(notes, "GET", "/api/notes/refuse", headers={"accept": BROWSER})
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "The note is locked." in answer.text
    assert all(one in answer.text for one in ("409", "NOTE_LOCKED", answer.headers["x-request-id"]))
    assert 'href="/">Back to the start page</a>' in answer.text


def test_the_path_is_not_repeated_on_a_page(notes: Keystead) -> None:
    answer = ask(notes, "GET", "/call-this-number-now", headers={"accept": BROWSER})
    assert "call-this-number" not in answer.text


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("", False),
        ("*/*", False),
        (BROWSER, True),
        ("text/html", True),
        ("TEXT/HTML", True),
        ("text/html, application/json", False),
        ("text/html;q=0.5, application/json;q=0.4", True),
        ("application/json, text/html;q=0.9", False),
        ("text/html;q=0, */*", False),
        ("text/html;q=0.5, */*", False),
        ("text/html, */*", True),
        ("text/html;q=x", False),
        ("application/problem+json, text/html;q=0.3", False),
        (",;,text/html ; q=1.0;x=y", True),
    ],
)
def test_html_is_sent_only_if_preferred_to_json(accept: str, html: bool) -> None:
    assert prefers_html(accept) is html


def test_the_openapi_document_has_the_shape_of_errors_and_no_other(notes: Keystead) -> None:
    document = ask(notes, "GET", "/openapi.json").json()
    add = document["paths"]["/api/notes"]["post"]["responses"]
    shape = {"$ref": "#/components/schemas/ErrorAnswer"}
    assert add.keys() == {"200", "default"}
    assert add["default"]["content"]["application/json"]["schema"] == shape
    assert document["components"]["schemas"]["ErrorAnswer"]["required"] == ["error", "code"]
    assert not [name for name in document["components"]["schemas"] if "Validation" in name]


# --- HEAD and OPTIONS ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/readyz",
        "/docs",
        "/keys",
        "/keys/notes",
        "/reference",
        "/openapi.json",
        "/api/notes/site",
        "/static/pages.css",
        "/none",
    ],
)
def test_head_is_get_without_the_body(notes: Keystead, path: str) -> None:
    head, get = ask(notes, "HEAD", path), ask(notes, "GET", path)
    assert (head.status_code, head.headers["content-type"]) == (get.status_code, get.headers["content-type"])
    assert head.content == b""
    assert get.content != b""


def test_options_lists_the_methods_of_all_routes(notes: Keystead) -> None:
    answer = ask(notes, "OPTIONS", "/api/notes/by-id/x")
    assert answer.status_code == 204
    assert answer.headers["allow"] == "GET, HEAD, DELETE, OPTIONS"
    assert ask(notes, "POST", "/api/notes/by-id/x").headers["allow"] == "GET, HEAD, DELETE, OPTIONS"
    assert ask(notes, "OPTIONS", "/none").status_code == 404


# --- health of the routes of kits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["health", "health=1", "health=", "x=y&health=no"])
@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/api/notes", "/api/notes"),  # takes POST only
        ("/api/notes/slow", "/api/notes/slow"),
        ("/api/notes/fail", "/api/notes/fail"),
        ("/api/notes/by-id/secret-id", "/api/notes/by-id/{id}"),
    ],
)
def test_every_kit_route_has_a_health_response(notes: Keystead, path: str, template: str, query: str) -> None:
    answer = ask(notes, "GET", f"{path}?{query}")
    assert answer.status_code == 200
    assert answer.json() == {"ok": True, "route": template}


def test_only_get_with_that_parameter_is_a_health_check(notes: Keystead) -> None:
    assert error(ask(notes, "POST", "/api/notes?health=1", json={})) == (400, "BAD_REQUEST")
    assert error(ask(notes, "GET", "/api/notes?healthy=1")) == (405, "METHOD_NOT_ALLOWED")
    assert error(ask(notes, "GET", "/api/none?health=1")) == (404, "NOT_FOUND")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    """A server with a small body limit."""
    with notes_serving(tmp_path_factory.mktemp("tight"), None, KEYSTEAD_MAX_BODY="10kB") as running:
        yield running


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    """A server with a short request timeout, for tests of that only: on a busy machine everything is slow."""
    with notes_serving(tmp_path_factory.mktemp("impatient"), None, KEYSTEAD_REQUEST_TIMEOUT="300ms") as running:
        yield running


def chunked(size: int) -> Iterator[bytes]:
    for _ in range(size // 1000):
        yield b"x" * 1000


def test_a_body_up_to_the_limit_is_accepted(tight: Keystead) -> None:
    assert ask(tight, "POST", "/api/notes/raw", content=b"x" * 10_000).text == "10000"
    assert ask(tight, "POST", "/api/notes/raw", content=chunked(10_000)).text == "10000"


def test_a_body_beyond_the_limit_is_refused_with_and_without_content_length(tight: Keystead) -> None:
    stated = ask(tight, "POST", "/api/notes/raw", content=b"x" * 10_001)
    unstated = ask(tight, "POST", "/api/notes/raw", content=chunked(50_000))
    as_json = ask(tight, "POST", "/api/notes", content=chunked(50_000), headers={"content-type": "application/json"})
    for answer in (stated, unstated, as_json):
        assert error(answer) == (413, "TOO_LARGE")
        assert answer.json()["error"] == "The request body is too large; at most 10,000 bytes are accepted."


def test_a_too_large_content_length_is_refused_before_the_body_is_sent(tight: Keystead) -> None:
    request = b"POST /api/notes/raw HTTP/1.1\r\nHost: here\r\nContent-Length: 99999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", tight.port), timeout=300) as raw:
        raw.sendall(request)
        assert raw.makefile("rb").readline().split()[1] == b"413"


def test_a_slow_request_times_out(impatient: Keystead) -> None:
    assert error(ask(impatient, "GET", "/api/notes/slow")) == (504, "TIMEOUT")


def test_a_body_that_never_arrives_times_out(impatient: Keystead) -> None:
    request = b"POST /api/notes/raw HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf"
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=300) as raw:
        raw.sendall(request)
        assert raw.makefile("rb").readline().split()[1] == b"504"


def test_streams_and_routes_that_lift_it_have_no_time_limit(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, KEYSTEAD_REQUEST_TIMEOUT="1s") as server:
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(ask(server, "GET", "/api/notes/patient")))
        waiting.start()
        with httpx2.stream("GET", f"{server.url}/api/notes/events", timeout=300) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "data: one"
            # One that is held to the limit is given up now, while the other two go on.
            assert error(ask(server, "GET", "/api/notes/slow")) == (504, "TIMEOUT")
            ask(server, "POST", "/api/notes/release")
            assert [line for line in lines if line] == ["data: two"]
        waiting.join(300)
        assert [answer.json() for answer in answers] == [{"ok": True}]


# --- request ids -----------------------------------------------------------------------------------------------------


def test_a_valid_request_id_is_kept_and_others_are_replaced(notes: Keystead) -> None:
    assert ask(notes, "GET", "/none", headers={"x-request-id": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    first = ask(notes, "GET", "/none").headers["x-request-id"]
    assert first != ask(notes, "GET", "/none").headers["x-request-id"]
    for bad in ("a b", "x" * 65, "a;b", "-a", "<b>"):
        given = ask(notes, "GET", "/none", headers={"x-request-id": bad}).headers["x-request-id"]
        assert given != bad
        assert given.isalnum()
    assert b"forged" not in raw_answer(
        notes, b"GET /none HTTP/1.1\r\nHost: here\r\nX-Request-Id: a\tforged\r\nConnection: close\r\n\r\n"
    )


# --- proxies ---------------------------------------------------------------------------------------------------------


def client_and_scheme(server: Keystead, **headers: str) -> tuple[str, str]:
    own = ask(
        server, "GET", "/api/notes/site", headers={name.replace("_", "-"): text for name, text in headers.items()}
    )
    return own.json()["client"], own.json()["scheme"]


def test_forwarded_headers_are_ignored_without_forwarded_allow(notes: Keystead) -> None:
    assert client_and_scheme(notes, x_forwarded_for="1.2.3.4", x_forwarded_proto="https") == ("127.0.0.1", "http")


def test_a_trusted_proxy_is_believed_but_not_addresses_forged_by_the_client(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, KEYSTEAD_FORWARDED_ALLOW="127.0.0.1,10.0.0.0/8") as server:
        assert client_and_scheme(server, x_forwarded_for="1.2.3.4", x_forwarded_proto="https") == ("1.2.3.4", "https")
        assert client_and_scheme(server, x_forwarded_for="6.6.6.6, 1.2.3.4, 10.1.1.1") == ("1.2.3.4", "http")
        assert client_and_scheme(server, x_forwarded_for="[2001:db8::1]:443") == ("2001:db8::1", "http")
        assert client_and_scheme(server, x_forwarded_for="nonsense", x_forwarded_proto="gopher") == (
            "127.0.0.1",
            "http",
        )
        assert client_and_scheme(server, x_forwarded_for="nonsense, 10.0.0.2") == ("10.0.0.2", "http")


class _Sent(BaseModel):
    days: list[Annotated[int, AfterValidator(lambda given: given)] | Annotated[str, AfterValidator(str.strip)]] | None


async def test_a_wrong_field_is_named_without_library_internals() -> None:
    app = FastAPI()
    add_error_responses(app)

    @app.post("/sent")
    async def sent(body: _Sent) -> None:
        """Takes days."""

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as http:
        odd: tuple[object, ...] = ({"days": [[]]}, {"days": [{}]}, {"days": 7}, {})
        for wrong in odd:
            told = await http.post("/sent", json=wrong)
            assert told.json()["code"] == "BAD_REQUEST"
            assert "days" in told.json()["error"]
            assert not [one for one in ("function-", "[", "(", "lambda") if one in told.json()["error"]], told.text


async def test_a_refusal_of_a_kit_sets_retry_after_and_the_code_alias() -> None:
    app = FastAPI()
    add_error_responses(app)

    @app.get("/refused/{code}")
    async def refused(code: str, request: Request) -> None:
        request.scope[CODE_ALIAS] = "error_code"
        raise Refusal(503, code, "Not now.")

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as http:
        own = await http.get("/refused/NOT_CONFIGURED")
        assert own.json() == {
            "ok": False,
            "error": "Not now.",
            "code": "NOT_CONFIGURED",
            "error_code": "NOT_CONFIGURED",
        }
        assert "retry-after" not in own.headers
        assert (await http.get("/refused/STORE_UNAVAILABLE")).headers["retry-after"] == "1"
