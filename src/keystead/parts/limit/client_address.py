"""Which addresses count as one client: an IPv4 address, an IPv6 /64."""

from __future__ import annotations

from hashlib import sha256
from ipaddress import IPv6Address, IPv6Network


def client_of(address: str) -> str:
    """A client id for keys: the beginning of a digest of the network of an address."""
    return sha256(network_of(address).encode()).hexdigest()[:16]


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network of an IPv6 address, which one household has.

    An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is that IPv4 address. Any other text is returned unchanged, as one
    client.
    """
    if ":" not in address:  # most are IPv4, and an exception is slower than all else here
        return address
    try:
        read = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(read.ipv4_mapped or IPv6Network((read, 64), strict=False).network_address)
