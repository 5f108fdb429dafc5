"""Blob storage on obstore: S3, memory, a folder; streams in and out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from keystead.errors import BadArgument
from keystead.parts.blobs.blob_errors import BlobGone, BlobTooLarge, BlobUnavailable, is_missing_bucket, reason
from keystead.parts.blobs.blob_paths import check_path

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore

T = TypeVar("T")

# S3 needs parts of at least 5 MiB, and takes at most 10,000. A put holds about four parts in memory.
PART_BYTES: Final = 5 * 1024 * 1024
_MOST_PARTS: Final = 10_000
_PARTS_AT_ONCE: Final = 2
_PIECE_BYTES: Final = 256 * 1024


class Blobs:
    """Files by path. Created by `open_blobs`. It need not be closed, and tasks may share it.

    A path is text with slashes, such as `2026/ab12/report.pdf`. A path traversal is a BadBlobPath, before
    anything is touched. Any other failure of the storage is a BlobUnavailable.
    """

    outlives_the_process = True  # False: the blobs are lost with the process

    def __init__(self, open_store: Callable[[], ObjectStore], url: str, timeout_s: float) -> None:
        self._open_store = open_store  # with the first call: until then, a server does not import obstore
        self._timeout_s = timeout_s
        self.url = url  # for people, without credentials

    def __repr__(self) -> str:
        return f"<blobs in {self.url}>"

    @cached_property
    def _store(self) -> ObjectStore:
        return self._open_store()

    async def put(self, path: str, stream: AsyncIterable[bytes], *, max_bytes: int) -> int:
        """Write a stream to a path, replacing any blob there; returns its size.

        The write is atomic: the blob is visible only when it is complete. Of concurrent puts to one path, one wins as a
        whole. If the stream exceeds `max_bytes` (BlobTooLarge) or raises, or the put is cancelled, the previous blob
        stays; a put cancelled at its very end may have taken effect. Leftovers of a killed process are not visible, and
        `delete` removes them (not from S3; see `keystead guide blobs`).
        """
        name = self._name(check_path(path))
        if type(max_bytes) is not int or max_bytes < 0:
            raise BadArgument("max_bytes must be a whole number from 0")
        part_bytes = max(PART_BYTES, -(-max_bytes // _MOST_PARTS))
        async with aclosing(_parts(path, stream, max_bytes, part_bytes)) as parts:
            first = await anext(parts, b"")
            if len(first) == part_bytes:
                return await self._put_parts(name, first, parts, part_bytes)
        await self._await_reply(self._store.put_async(name, first, use_multipart=False))
        return len(first)

    async def add(self, path: str, data: bytes) -> bool:
        """Write a few bytes if there is no blob at this path. False: there is one, and it is not overwritten.

        Of several concurrent calls one gets True; on S3 without conditional writes all of them may, and the last one
        wins.
        """
        name = self._name(check_path(path))
        if await self.size(path) is not None:
            return False
        try:
            await self._await_reply(self._store.put_async(name, data, use_multipart=False, mode="create"))
        except FileExistsError:
            return False
        return True

    async def size(self, path: str) -> int | None:
        """Its size in bytes; None: there is no such blob."""
        name = self._name(check_path(path))
        if not await self._may_be_there(path):
            return None
        with suppress(FileNotFoundError):
            return (await self._await_reply(self._store.head_async(name)))["size"]
        # A HEAD response cannot say that the bucket is missing, so every blob would look gone.
        with suppress(FileNotFoundError):
            return (await self._await_reply(self._store.get_async(name))).meta["size"]
        return None

    async def read(self, path: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Its bytes in pieces of at most 256 KiB, or those from `start` up to `end`; nothing for an empty range.

        Raises BlobGone if there is no such blob, before the first piece. One round trip; with a range two.
        """
        name = self._name(check_path(path))
        if min(start, 0 if end is None else end) < 0:
            raise BadArgument("start and end of a blob are offsets from its beginning, from 0")
        if not await self._may_be_there(path):
            raise BlobGone(path)
        options: GetOptions = {}
        if start or end is not None:
            size = await self.size(path)
            if size is None:
                raise BlobGone(path)
            last = size if end is None else min(size, end)
            if start >= last:
                return
            options = {"range": (start, last)}
        try:
            found = await self._await_reply(self._store.get_async(name, options=options))
        except FileNotFoundError:
            raise BlobGone(path) from None
        pieces = aiter(found.stream(min_chunk_size=_PIECE_BYTES))
        while (piece := await self._await_reply(_next(pieces))) is not None:
            for at in range(0, len(piece), _PIECE_BYTES):
                yield piece[at : at + _PIECE_BYTES]

    async def delete(self, path: str) -> bool:
        """Delete it, and the leftovers of interrupted puts of this path. False: it was already gone, which is success.

        Of several concurrent calls more than one may return True. A concurrent put of this path may fail.
        """
        if await self.size(path) is None:
            return False
        try:
            await self._await_reply(self._store.delete_async(self._name(path)))
        except FileNotFoundError:
            return False
        return True

    def _name(self, path: str) -> str:
        """The name of the blob in the storage."""
        return path

    async def _may_be_there(self, path: str) -> bool:
        """False: there is certainly no such blob."""
        return True

    async def _put_parts(self, name: str, first: bytes, rest: AsyncIterator[bytes], part_bytes: int) -> int:
        """Upload a stream in parts. The stream is read in the caller's task, as its scopes and locks expect."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(1)

        async def queued_parts() -> AsyncIterator[bytes]:
            while part := await queue.get():
                yield part
            if part is None:
                raise _UploadAborted

        upload: asyncio.Future[Any] = asyncio.ensure_future(
            self._store.put_async(
                name,
                queued_parts(),
                chunk_size=part_bytes,
                max_concurrency=_PARTS_AT_ONCE,
                use_multipart=True,
            )
        )
        size, part = 0, first
        try:
            while not upload.done():
                await _put_or_end(queue, part, upload)
                size += len(part)
                if not part:
                    break
                part = await anext(rest, b"")
            await asyncio.wait([upload])
        except BaseException:
            # Only the upload itself removes its parts, and only if its source fails: not if it is cancelled, which
            # would leave the parts in the bucket forever.
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(None)
            upload.add_done_callback(_retrieve_exception)
            await asyncio.wait([upload], timeout=self._timeout_s)
            upload.cancel()
            raise
        await self._await_reply(upload)
        return size

    async def _await_reply(self, request: Awaitable[T]) -> T:
        """Await a reply within the time limit. FileNotFoundError: there is no such blob."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await request
        # `from None`: library errors contain requests.
        except TimeoutError:
            raise BlobUnavailable(f"{self.url} did not respond within {self._timeout_s:g} seconds") from None
        except _errors("PermissionDeniedError", "UnauthenticatedError") as error:
            raise BlobUnavailable(f"{self.url} denies access ({reason(error)}); check the credentials") from None
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise BlobUnavailable(f"{self.url}: there is no such bucket; create it, or use another") from None
            raise FileNotFoundError from None
        except _errors("AlreadyExistsError", "PreconditionError"):
            raise FileExistsError from None
        except _errors("BaseError", also=(OSError, ValueError)) as error:
            raise BlobUnavailable(f"{self.url} failed: {reason(error)}") from None


class MemoryBlobs(Blobs):
    """Blobs in the memory of this process."""

    outlives_the_process = False


def _errors(*names: str, also: Sequence[type[Exception]] = ()) -> tuple[type[Exception], ...]:
    """Exceptions of obstore, by name."""
    import obstore.exceptions

    return (*(getattr(obstore.exceptions, name) for name in names), *also)


class _UploadAborted(Exception):
    """Makes an upload abort and keep nothing."""


def _retrieve_exception(upload: asyncio.Future[Any]) -> None:
    """Retrieve the exception: avoids asyncio's "never retrieved" warning."""
    if not upload.cancelled():
        upload.exception()


async def _next(pieces: AsyncIterator[Any]) -> bytes | None:
    try:
        return bytes(await anext(pieces))
    except StopAsyncIteration:
        return None


async def _put_or_end(queue: asyncio.Queue[bytes | None], part: bytes, upload: asyncio.Future[Any]) -> None:
    """Hand over a part, or return if the upload has ended."""
    putting = asyncio.ensure_future(queue.put(part))
    try:
        await asyncio.wait([putting, upload], return_when=asyncio.FIRST_COMPLETED)
    finally:
        putting.cancel()


async def _parts(
    path: str, stream: AsyncIterable[bytes], max_bytes: int, part_bytes: int
) -> AsyncGenerator[bytes, None]:
    """The stream in parts of one size; only the last one is shorter. Raises BlobTooLarge as early as possible."""
    size, part = 0, bytearray()
    async for piece in stream:
        size += len(piece)
        if size > max_bytes:
            raise BlobTooLarge(path, max_bytes)
        part += piece
        while len(part) >= part_bytes:
            yield bytes(part[:part_bytes])
            del part[:part_bytes]
    if part:
        yield bytes(part)
