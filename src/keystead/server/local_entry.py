"""Whether the person who runs a development server sends a request, from a browser on the same machine.

It replaces the link that the server prints. Each rule shuts out somebody:

- Development on loopback, by a direct connection: other machines, and reverse proxies and tunnels, which add headers.
- The process at the other end of the connection runs under the account of the server: other users of this machine.
  Linux tells; on other systems the answer is no.
- The header `Host` is that of this server: pages that point a name of their own to this machine (DNS rebinding).
- A write names this origin (`names_origin`): pages of other sites, and of other ports of this machine.

A raw tunnel that this user opens, such as `ssh -R`, passes: to forward the port is to share the server.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from keystead.catalogue import message

HINT: Final = message("You run this server on this machine, so you need no link. You may read, and change single keys.")
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"
_ADDED_BY_PROXIES: Final = frozenset(
    {"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "cf-connecting-ip"}
)


def is_own_browser(connection: HTTPConnection) -> bool:
    """Whether the account that runs this server sends the request, directly and to its own address."""
    state: Any = connection.app.state
    settings = state.settings
    if not settings.development or not settings.is_local or _ADDED_BY_PROXIES & {*connection.headers}:
        return False
    if connection.headers.getlist("host") != [urlsplit(state.site.public_url).netloc]:
        return False
    client = connection.client
    return client is not None and _account_of(client.host, int(client.port), settings.port) == os.geteuid()


def names_origin(connection: HTTPConnection) -> bool:
    """Whether the header `Origin` names this server. Browsers send it with each form post."""
    return connection.headers.getlist("origin") == [connection.app.state.site.public_url]


def _account_of(host: str, port: int, server_port: int) -> int | None:
    """The account of the process that holds the other end of a connection to this server; None if it is unknown."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    address = (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
    if not address.is_loopback or not hasattr(os, "geteuid"):
        return None
    return next((owner for owner in _owners(address, port, server_port)), None)


def _owners(address: IPv4Address | IPv6Address, port: int, server_port: int) -> Iterator[int]:
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, _, _, _, account, _, inode, *_ = line.split()
            # A socket without an inode has been closed: it belongs to nobody, and is listed as root's.
            if state != _ESTABLISHED or inode == "0" or _endpoint(local) != (address, port):
                continue
            to, to_port = _endpoint(remote)
            if to.is_loopback and to_port == server_port:
                yield int(account)


def _endpoint(text: str) -> tuple[IPv4Address | IPv6Address, int]:
    """An address as the kernel lists it: words in the byte order of the machine."""
    words, _, port = text.partition(":")
    packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    address = ip_address(packed)
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address, int(port, 16)
