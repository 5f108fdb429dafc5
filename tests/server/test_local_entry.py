"""Who may open the console without a link: the account that runs the server, from a browser on the same machine."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import Keystead, keystead_serving, program

ENTRY = "/console/enter/here"
HTML = "accept: text/html"
NOBODY = 65_534


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("entry"), "memory://", "--kits", "console") as running:
        yield running


def curl(server: Keystead, path: str, *arguments: str, account: int | None = None) -> str:
    """The response of the server, with its head, to a process of this account or another."""
    command = [program("curl"), "-si", "--noproxy", "*", "-H", HTML, *arguments, f"{server.url}{path}"]
    return subprocess.run(command, user=account, capture_output=True, check=True, text=True, timeout=120).stdout


def enter(server: Keystead, *headers: str, account: int | None = None) -> str:
    return curl(server, ENTRY, "-d", "", *(part for one in headers for part in ("-H", one)), account=account)


def is_in(answer: str) -> bool:
    assert re.match(r"HTTP/1.1 (303|403) ", answer), answer
    has_session = "set-cookie: console=" in answer.lower()
    assert has_session == answer.startswith("HTTP/1.1 303 ")
    return has_session


def test_whoever_runs_the_server_needs_no_link(server: Keystead) -> None:
    assert ENTRY in curl(server, "/")
    assert ENTRY in curl(server, "/console")
    assert is_in(enter(server, f"origin: {server.url}"))


def test_a_page_of_another_site_or_port_does_not_open_the_console(server: Keystead) -> None:
    token = "t" * 43
    for headers in (
        ["origin: https://example.com"],
        ["origin: null"],
        [f"origin: http://127.0.0.1:{server.port + 1}"],
        [],
        # A page on another port shares the cookies of this host, and so the token.
        [f"cookie: csrf={token}", f"x-csrf-token: {token}"],
        [f"cookie: csrf={token}", f"x-csrf-token: {token}", f"referer: {server.url}/"],
    ):
        assert not is_in(enter(server, *headers)), headers


def test_a_name_that_was_pointed_to_this_machine_does_not_open_the_console(server: Keystead) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", f"localhost:{server.port}"):
        assert not is_in(enter(server, f"host: {host}", f"origin: {server.url}"))
        assert ENTRY not in curl(server, "/", "-H", f"host: {host}")


@pytest.mark.parametrize("header", ["x-forwarded-for: 127.0.0.1", "forwarded: for=127.0.0.1", "via: 1.1 proxy"])
def test_a_proxy_or_tunnel_does_not_open_the_console(server: Keystead, header: str) -> None:
    assert not is_in(enter(server, f"origin: {server.url}", header))
    assert ENTRY not in curl(server, "/console", "-H", header)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may run a process as another user")
def test_another_user_of_this_machine_does_not_open_the_console(server: Keystead) -> None:
    assert not is_in(enter(server, f"origin: {server.url}", account=NOBODY))
    assert ENTRY not in curl(server, "/", account=NOBODY)


def test_a_server_in_production_has_no_such_entry(tmp_path: Path) -> None:
    settings = {
        "KEYSTEAD_MODE": "production",
        "KEYSTEAD_SEAL_KEYS": "k1:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s",
        "KEYSTEAD_CONSOLE__ON": "true",
        "KEYSTEAD_PUBLIC_URL": "https://shop.example",
    }
    with keystead_serving(tmp_path, f"sqlite:///{tmp_path}/p.db", "--kits", "console", **settings) as server:
        assert not is_in(enter(server, "host: shop.example", "origin: https://shop.example"))
        assert ENTRY not in curl(server, "/console", "-H", "host: shop.example")
