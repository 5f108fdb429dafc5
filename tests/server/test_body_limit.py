"""A body that is too large is refused by its stated length, however that is written."""

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from keystead.server.request_layer import RequestLayer, RequestLimits


async def status_of(length: bytes, path: str = "/") -> int:
    """What is answered to a request that states this length, and has no body."""
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
async def test_a_length_is_read_as_digits_and_nothing_else(length: bytes, status: int) -> None:
    assert await status_of(length) == status


@pytest.mark.parametrize("path", ["/Large", "/large", "/LARGE"])
async def test_a_path_that_takes_larger_bodies_does_so_in_capitals_and_small_letters(path: str) -> None:
    assert [await status_of(length, path) for length in (b"200", b"201")] == [200, 413]
    assert await status_of(b"101", f"{path}r") == 413
