"""Silent clients: they do not affect others, and are disconnected."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.server.conftest import notes_serving

SILENT = 1_100  # more than Granian takes by itself


@contextmanager
def files_limited_to(number: int) -> Iterator[None]:
    """The soft limit of open files of this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect_to(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=300)


def test_silent_connections_do_not_block_others(tmp_path: Path) -> None:
    with ExitStack() as stack:
        with files_limited_to(512):
            server = stack.enter_context(notes_serving(tmp_path, KEYSTEAD_HEADER_TIMEOUT="1h"))
        stack.enter_context(files_limited_to(SILENT + 512))
        for _ in range(SILENT):
            stack.enter_context(connect_to(server.port))
        assert httpx2.get(f"{server.url}/healthz", timeout=300).status_code == 200


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"", 0),
        (b"GET /healthz HTTP/1.1\r\nHost: here\r\nX-Half", 0),
        (b"PRI * HTTP/2.0\r\n", 0),
        (b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n", 1),
    ],
    ids=["silent", "half a header", "half a preface of HTTP/2", "idle after an answer"],
)
def test_a_connection_without_a_request_is_closed(tmp_path: Path, sent: bytes, answers: int) -> None:
    with (
        notes_serving(tmp_path, None, KEYSTEAD_HEADER_TIMEOUT="300ms") as server,
        connect_to(server.port) as raw,
    ):
        raw.sendall(sent)
        said = raw.makefile("rb").read()  # until it is closed, or the socket's own time is over
    assert said.count(b"HTTP/1.1 200") == answers


def test_sequential_requests_share_a_connection(tmp_path: Path) -> None:
    with notes_serving(tmp_path) as server, connect_to(server.port) as raw, raw.makefile("rb") as answers:
        for _ in range(3):
            raw.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            while answers.readline() != b"\r\n":
                pass


def test_all_addresses_of_ipv6_include_those_of_ipv4(tmp_path: Path) -> None:
    with notes_serving(tmp_path, None, "--host", "::") as server:
        for host in ("127.0.0.1", "[::1]"):
            assert httpx2.get(f"http://{host}:{server.port}/healthz", timeout=300).status_code == 200
