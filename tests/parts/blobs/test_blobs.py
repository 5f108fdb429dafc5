"""Blobs in every kind of storage."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from keystead.errors import BadArgument
from keystead.parts.blobs import BadBlobPath, BlobGone, Blobs, BlobTooLarge
from tests.parts.blobs.streams import LARGE, MIB, many, put, stream, whole

ODD_PATHS = [
    "a b#1?.zip",
    "invoice#1",
    "invoice#1~",
    "2026/ä/日本語.pdf",
    "e\u0301.txt",
    "a+b&c=d;e,f@g:h!$'()[]{}<>|*^`~\"",
    "100%.txt",
    "a%2Bb%20c",
    "..hidden",
    "dots...",
    "...",
    " ",
    "-",
    "con",
]

HOSTILE_PATHS = [
    "",
    "/",
    "/etc/passwd",
    "..",
    ".",
    "../up",
    "a/../../up",
    "a/./b",
    "a//b",
    "a/",
    "a\\..\\b",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "\ud800",
    "%2e%2e/up",
    "%2E%2e",
    "a/%252e%252e/up",
    "a%2fb",
    "a%5cb",
    "a%00b",
    "x" * 241,
    "ü" * 121,
    "/".join(["x" * 100] * 10),
]


@pytest.mark.parametrize("size", [0, 1, 5 * MIB - 1, 5 * MIB, 5 * MIB + 1, LARGE])
async def test_a_put_blob_is_read_unchanged(blobs: Blobs, size: int) -> None:
    pieces = many(size)
    assert await put(blobs, "a/b", *pieces) == size
    assert await blobs.size("a/b") == size
    assert await whole(blobs, "a/b") == b"".join(pieces)


async def test_a_large_blob_is_read_in_pieces(blobs: Blobs) -> None:
    await put(blobs, "large", *many(LARGE))
    pieces = [len(piece) async for piece in blobs.read("large")]
    assert len(pieces) > 1
    assert max(pieces) <= MIB // 4
    assert sum(pieces) == LARGE


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [(0, None, "0123456789"), (3, None, "3456789"), (3, 5, "34"), (0, 1, "0"), (8, 99, "89"), (10, None, ""),
     (99, None, ""), (99, 120, ""), (3, 3, ""), (5, 3, "")],
)  # fmt: skip
async def test_a_range_is_read_as_python_slices_it(blobs: Blobs, start: int, end: int | None, read: str) -> None:
    await put(blobs, "ten", b"0123456789")
    assert await whole(blobs, "ten", start, end) == read.encode()


async def test_a_range_of_an_empty_blob_is_empty(blobs: Blobs) -> None:
    await put(blobs, "empty")
    assert await whole(blobs, "empty", 0, 5) == b""


async def test_a_range_counts_from_the_beginning(blobs: Blobs) -> None:
    with pytest.raises(BadArgument):
        await whole(blobs, "ten", -1)
    with pytest.raises(BadArgument):
        await whole(blobs, "ten", 0, -1)


async def test_missing_blobs_are_reported(blobs: Blobs) -> None:
    assert await blobs.size("nothing") is None
    for start, end in ((0, None), (3, None), (0, 4), (2, 2)):
        with pytest.raises(BlobGone, match="there is no blob nothing"):
            await whole(blobs, "nothing", start, end)


async def test_deleting_a_missing_blob_succeeds(blobs: Blobs) -> None:
    await put(blobs, "a/b", b"1")
    assert await blobs.delete("a/b") is True
    assert await blobs.delete("a/b") is False
    assert await blobs.size("a/b") is None
    assert await blobs.delete("never/there") is False


async def test_add_never_overwrites_a_blob(blobs: Blobs) -> None:
    assert await blobs.add("marker", b"first") is True
    assert await blobs.add("marker", b"second") is False
    assert await whole(blobs, "marker") == b"first"
    await put(blobs, "put", b"1")
    assert await blobs.add("put", b"2") is False
    assert await whole(blobs, "put") == b"1"
    for path in ("../marker", "/marker"):
        with pytest.raises(BadBlobPath):
            await blobs.add(path, b"x")


async def test_of_concurrent_adds_one_succeeds(blobs: Blobs) -> None:
    added = await asyncio.gather(*(blobs.add("marker", b"%d" % number) for number in range(50)))
    assert sum(added) == 1
    assert await whole(blobs, "marker") == b"%d" % added.index(True)


async def test_a_second_put_replaces_the_first(blobs: Blobs) -> None:
    await put(blobs, "a", b"first and long")
    await put(blobs, "a", b"second")
    assert await whole(blobs, "a") == b"second"


@pytest.mark.parametrize("sent", [11, LARGE])
async def test_a_stream_that_is_too_long_leaves_nothing(blobs: Blobs, sent: int) -> None:
    with pytest.raises(BlobTooLarge, match="larger than the"):
        await blobs.put("a", stream(*many(sent)), max_bytes=sent - 1)
    assert await blobs.size("a") is None
    assert await blobs.put("a", stream(*many(sent)), max_bytes=sent) == sent


async def test_an_endless_stream_is_left_at_the_limit(blobs: Blobs) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += MIB
            yield bytes(MIB)

    with pytest.raises(BlobTooLarge):
        await blobs.put("a", endless(), max_bytes=11 * MIB)
    assert sent == 12 * MIB


@pytest.mark.parametrize("sent", [3, LARGE])
async def test_a_failing_stream_raises_its_error_and_keeps_the_previous_blob(blobs: Blobs, sent: int) -> None:
    await put(blobs, "a", b"before")

    async def broken() -> AsyncIterator[bytes]:
        for piece in many(sent):
            yield piece
        raise ZeroDivisionError("of the stream")

    with pytest.raises(ZeroDivisionError, match="of the stream"):
        await blobs.put("a", broken(), max_bytes=100 * MIB)
    assert await whole(blobs, "a") == b"before"


@pytest.mark.parametrize("sent", [3, LARGE])
async def test_nothing_is_visible_before_the_whole_is_there(blobs: Blobs, sent: int) -> None:
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def stopping() -> AsyncIterator[bytes]:
        for piece in many(sent):
            yield piece
        waits.set()
        await goes_on.wait()
        yield b"end"

    putting = asyncio.create_task(blobs.put("a", stopping(), max_bytes=100 * MIB))
    await waits.wait()
    assert await blobs.size("a") is None
    with pytest.raises(BlobGone):
        await whole(blobs, "a")
    goes_on.set()
    assert await putting == sent + 3
    assert await blobs.size("a") == sent + 3


async def test_of_puts_at_the_same_moment_one_wins_and_is_whole(blobs: Blobs) -> None:
    contents = [b"".join(many(LARGE - number, str(number).encode())) for number in range(4)]

    async def by_pieces(content: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(content), MIB):
            yield content[at : at + MIB]
            await asyncio.sleep(0)

    sizes = await asyncio.gather(*(blobs.put("a", by_pieces(one), max_bytes=100 * MIB) for one in contents))
    assert sizes == [len(one) for one in contents]
    assert await whole(blobs, "a") in contents
    assert await blobs.delete("a")


async def test_odd_paths_stay_themselves_and_apart(blobs: Blobs) -> None:
    for path in ODD_PATHS:
        await put(blobs, path, path.encode())
    assert [await whole(blobs, path) for path in ODD_PATHS] == [path.encode() for path in ODD_PATHS]
    for path in ODD_PATHS:
        assert await blobs.delete(path), path
    assert [path for path in ODD_PATHS if await blobs.size(path) is not None] == []


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
async def test_a_hostile_path_is_refused_by_every_verb_before_the_stream_is_read(blobs: Blobs, path: str) -> None:
    read = []

    async def unread() -> AsyncIterator[bytes]:
        read.append(path)
        yield b""

    with pytest.raises(BadBlobPath) as refused:
        await blobs.put(path, unread(), max_bytes=10)
    assert read == []
    assert str(refused.value).isprintable()
    for verb in (blobs.size, blobs.delete, lambda one: whole(blobs, one)):
        with pytest.raises(BadBlobPath):
            await verb(path)


async def test_a_path_is_text(blobs: Blobs) -> None:
    with pytest.raises(BadBlobPath, match="not bytes"):
        await blobs.size(b"a")  # type: ignore[arg-type]


async def test_the_longest_path_works(blobs: Blobs) -> None:
    longest = "/".join(["x" * 240, "ü" * 120, "y" * 240])
    await put(blobs, longest, b"1")
    assert await blobs.size(longest) == 1
    assert await blobs.delete(longest)


async def test_many_keys_are_deleted_in_batches(blobs: Blobs) -> None:
    paths = [f"many/{number}" for number in range(100)]
    await asyncio.gather(*(put(blobs, path, b"1") for path in paths))
    assert await asyncio.gather(*map(blobs.delete, [*paths, "many/none"])) == [True] * 100 + [False]
    assert [path for path in paths if await blobs.size(path) is not None] == []


async def test_a_put_that_is_cancelled_leaves_nothing(blobs: Blobs) -> None:
    waits = asyncio.Event()

    async def stopping() -> AsyncIterator[bytes]:
        for piece in many(LARGE):
            yield piece
        waits.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(blobs.put("a", stopping(), max_bytes=100 * MIB))
    await waits.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await blobs.size("a") is None
