"""Streams in and out of blobs, for tests."""

from collections.abc import AsyncIterator
from hashlib import sha256

from keystead.parts.blobs import Blobs, open_blobs
from tests.servers import S3Server

MIB = 1024 * 1024
LARGE = 12 * MIB + 7  # more than two parts


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def many(size: int, seed: bytes = b"") -> list[bytes]:
    """Pieces of this many bytes in total; lost or repeated ones are detectable."""
    pieces, left = [], size
    while left:
        piece = sha256(seed + str(left).encode()).digest() * 2048
        pieces.append(piece[:left])
        left -= len(pieces[-1])
    return pieces


async def whole(blobs: Blobs, path: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([piece async for piece in blobs.read(path, start, end)])


async def put(blobs: Blobs, path: str, *pieces: bytes) -> int:
    return await blobs.put(path, stream(*pieces), max_bytes=100 * MIB)


def on_server(server: S3Server, prefix: str = "", options: str = "") -> Blobs:
    place, _, query = server.url.partition("?")
    return open_blobs(
        f"{place}{prefix}?{query}{options}",
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
    )
