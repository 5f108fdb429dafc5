"""Which addresses count as one client: an IPv4 address, an IPv6 /64."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, IPv6Network


@lru_cache(maxsize=4096)  # a request asks several times, and most clients come again soon
def client_of(address: str) -> str:
    """A client id for keys: a prefix of the digest of the client's network."""
    return sha256(network_of(address).encode()).hexdigest()[:16]


def network_of(address: str) -> str:
    """The network that counts as one client: an IPv4 address, or an IPv6 /64, which one household has.

    An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is that IPv4 address. Any other text is one
    client, and is returned unchanged.
    """
    if ":" not in address:  # most are IPv4, and an exception is slower than all else here
        return address
    try:
        read = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(read.ipv4_mapped or IPv6Network((read, 64), strict=False).network_address)
