"""Client addresses behind proxies: only trusted hops are believed."""

from typing import Any

import pytest

from keystead.server.trusted_proxies import TrustedProxies

PROXY, CLIENT = "10.0.0.1", "203.0.113.9"


def client_and_scheme(
    peer: str | None, *headers: tuple[str, str], allow: tuple[str, ...] = ("10.0.0.0/8", "fd00::/8")
) -> Any:
    """The client and the scheme that the application sees."""
    scope: dict[str, Any] = {
        "type": "http",
        "scheme": "http",
        "client": None if peer is None else (peer, 5),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    TrustedProxies(allow).apply(scope)
    return (scope["client"] and scope["client"][0]), scope["scheme"]


@pytest.mark.parametrize(
    ("told", "who"),
    [
        (CLIENT, CLIENT),
        (f"198.51.100.1, {CLIENT}", CLIENT),  # what stands before is the client's own words
        (f"10.9.9.9, {CLIENT}", CLIENT),  # who says it is a proxy is none
        (f"{CLIENT}, 10.0.0.7, 10.0.0.8", CLIENT),
        (f"{CLIENT}:4711", CLIENT),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:203.0.113.9", CLIENT),
        (f"  {CLIENT} ", CLIENT),
        ("10.0.0.7", "10.0.0.7"),  # a client in the network of the proxies
        (f"{CLIENT}, unknown, 10.0.0.7", "10.0.0.7"),  # nothing before something unreadable is believed
        (f"{CLIENT}, unknown", PROXY),
        ("", PROXY),
        ("for=203.0.113.9", PROXY),
        (f"{CLIENT},", PROXY),
        ("999.1.1.1", PROXY),
    ],
)
def test_a_trusted_proxy_sets_the_client_address(told: str, who: str) -> None:
    assert client_and_scheme(PROXY, ("x-forwarded-for", told)) == (who, "http")


def test_several_header_lines_are_one_list() -> None:
    lines = (("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", f"{CLIENT}, 10.0.0.9"))
    assert client_and_scheme(PROXY, *lines)[0] == CLIENT


def test_untrusted_proxies_are_ignored() -> None:
    told = (("x-forwarded-for", CLIENT), ("x-forwarded-proto", "https"), ("forwarded", f"for={CLIENT}"))
    for peer in ("198.51.100.7", "11.0.0.1", "2001:db8::1", "", None):
        assert client_and_scheme(peer, *told) == (peer, "http")
    assert client_and_scheme(PROXY, *told, allow=()) == (PROXY, "http")
    assert client_and_scheme("::ffff:10.0.0.1", *told) == (CLIENT, "https")
    assert client_and_scheme("fd00::1", *told) == (CLIENT, "https")


def test_the_scheme_comes_from_the_last_hop() -> None:
    for values, scheme in (
        (("https",), "https"),
        (("HTTPS",), "https"),
        (("http, https",), "https"),
        (("https", "http"), "http"),  # the client sent a line of its own, and the proxy added one
        (("ftp",), "http"),
        (("",), "http"),
    ):
        lines = [("x-forwarded-proto", value) for value in values]
        assert client_and_scheme(PROXY, *lines) == (PROXY, scheme)
