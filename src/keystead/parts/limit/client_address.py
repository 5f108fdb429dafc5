"""Who counts as one client."""

from __future__ import annotations

from hashlib import sha256
from ipaddress import IPv6Address, IPv6Network


def client_of(address: str) -> str:
    """Who asks, as a key may name them: the beginning of a digest of their network."""
    return sha256(network_of(address).encode()).hexdigest()[:16]


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, and in IPv6 the network of 64 bits that one household has.

    An IPv4 address that is written as IPv6 (`::ffff:192.0.2.1`) is that IPv4 address. What is no address stays as it
    is: it is one client, too.
    """
    if ":" not in address:  # most are; to be told by an error takes longer than all else here
        return address
    try:
        read = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(read.ipv4_mapped or IPv6Network((read, 64), strict=False).network_address)
