"""Addresses and origins, and which of them are loopback."""

from typing import Final
from urllib.parse import urlsplit

from keystead.stores.loopback import is_loopback

_ALL_ADDRESSES: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def reachable(address: str) -> str:
    """An address for clients on this machine, even if the server listens on all interfaces."""
    return _ALL_ADDRESSES.get(address, address)


def origin_of(scheme: str, host: str, port: int | None) -> str:
    """The origin as browsers write it: without the default port, and in Punycode (xn--…)."""
    if not host.isascii():
        host = host.encode("idna").decode()
    name = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}[scheme]
    return f"{scheme}://{name}" if port in (None, usual) else f"{scheme}://{name}:{port}"


def leads_to_loopback(url: str) -> bool:
    """Whether only browsers on this machine can reach this URL."""
    host = urlsplit(url).hostname or ""
    return is_loopback(host) or host.endswith(".localhost")
