"""The body limit by Content-Length, in any notation."""

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from keystead.server.request_layer import RequestLayer, RequestLimits


async def status_of(length: bytes, path: str = "/") -> int:
    """The response to a request with this Content-Length and no body."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"content-length", length)],
        "query_string": b"",
        "state": {},
        "app": FastAPI(),
    }
    await RequestLayer(app, RequestLimits(30, 100, {"/Large": 200}))(scope, receive, send)
    status: int = sent[0]["status"]
    return status


@pytest.mark.parametrize(
    ("length", "status"),
    [(b"100", 200), (b"101", 413), (b"9" * 19, 413), (b"9" * 5000, 413), (b"\xb2", 200), (b"x", 200), (b"", 200)],
    ids=lambda given: str(given)[:12],
)
async def test_content_length_is_parsed_as_digits_only(length: bytes, status: int) -> None:
    assert await status_of(length) == status


@pytest.mark.parametrize("path", ["/Large", "/large", "/LARGE"])
async def test_a_larger_body_limit_of_a_path_ignores_case(path: str) -> None:
    assert [await status_of(length, path) for length in (b"200", b"201")] == [200, 413]
    assert await status_of(b"101", f"{path}r") == 413
