"""The client address and scheme of a request behind a trusted proxy."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope


class TrustedProxies:
    """Trusts `X-Forwarded-For` and `X-Forwarded-Proto` from the allowed addresses and networks only.

    The client is the last address that is not itself an allowed proxy: clients can forge those before it.
    """

    def __init__(self, allow: Sequence[str]) -> None:
        self._allow = [ip_network(one, strict=False) for one in allow]

    def __bool__(self) -> bool:
        return bool(self._allow)

    def apply(self, scope: Scope) -> None:
        """Set `client` and `scheme` of a request that a trusted proxy sent."""
        if not self._is_allowed(_address((scope.get("client") or ("",))[0])):
            return
        headers = Headers(scope=scope)
        # The last value is the proxy's, even if it adds a second header line.
        scheme = ",".join(headers.getlist("x-forwarded-proto")).rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            scope["scheme"] = scheme
        client = self._client(headers.getlist("x-forwarded-for"))
        if client is not None:
            scope["client"] = (str(client), 0)

    def _client(self, headers: Sequence[str]) -> IPv4Address | IPv6Address | None:
        found = None
        for text in reversed(",".join(headers).split(",")):
            address = _address(text.strip())
            if address is None:
                return found  # addresses before an unreadable one cannot be trusted
            found = address
            if not self._is_allowed(address):
                return found
        return found

    def _is_allowed(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in one for one in self._allow)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address, also as `[::1]:443` or `127.0.0.1:443`; None if it is not one."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
