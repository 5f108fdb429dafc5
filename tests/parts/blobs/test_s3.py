"""Blobs on a real S3 server: what is stored, and the errors during an outage."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from keystead.parts.blobs import BlobGone, Blobs, BlobTooLarge, BlobUnavailable, open_blobs
from tests import servers
from tests.parts.blobs.killed import put_and_be_killed
from tests.parts.blobs.streams import LARGE, MIB, many, on_server, put, stream, whole
from tests.servers import S3Server


@pytest.fixture
def own_server() -> Iterator[S3Server]:
    """A server that a test may stop."""
    with servers.seaweedfs() as server:
        yield server


async def test_prefixes_isolate_keys(s3_server: S3Server) -> None:
    one, other = on_server(s3_server, "/one"), on_server(s3_server, "/other")
    await put(one, "a", b"1")
    assert await other.size("a") is None
    assert await other.delete("a") is False
    assert "one/a" in s3_server.names()


async def test_credentials_may_come_from_the_environment(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    blobs = open_blobs(s3_server.url)
    await put(blobs, "from-environment", b"1")
    assert await blobs.delete("from-environment")


@pytest.mark.everyday("broken")
@pytest.mark.parametrize("end", ["too long", "broken", "cancelled"])
async def test_a_failed_large_put_removes_its_parts(own_server: S3Server, end: str) -> None:
    blobs = on_server(own_server)
    waits = asyncio.Event()

    async def stopping() -> AsyncIterator[bytes]:
        for piece in many(LARGE):
            yield piece
        await asyncio.to_thread(servers.wait_until, lambda: own_server.unfinished() == 1, "parts are on the server")
        waits.set()
        if end == "too long":
            yield bytes(MIB)
        if end == "broken":
            raise ZeroDivisionError
        await asyncio.Event().wait()

    putting = asyncio.create_task(blobs.put("a", stopping(), max_bytes=LARGE))
    await waits.wait()
    if end == "cancelled":
        putting.cancel()
    with pytest.raises((BlobTooLarge, ZeroDivisionError, asyncio.CancelledError)):
        await putting
    assert own_server.unfinished() == 0
    assert own_server.names() == set()


@pytest.mark.matrix
async def test_a_process_that_is_killed_leaves_nothing_visible(own_server: S3Server) -> None:
    blobs = on_server(own_server)
    put_and_be_killed(own_server.url, "a", lambda: own_server.unfinished() == 1, own_server.environment)
    assert own_server.names() == set()
    assert await blobs.size("a") is None
    assert await blobs.delete("a") is False
    await put(blobs, "a", b"again")
    assert await whole(blobs, "a") == b"again"


@pytest.mark.parametrize(("secret", "bucket", "said"), [
    ("wrong-secret", "blobs", "denies access"),
    (S3Server.secret_access_key, "no-such-bucket", "there is no such bucket"),
])  # fmt: skip
async def test_denied_access_is_reported_and_not_a_missing_blob(
    s3_server: S3Server, secret: str, bucket: str, said: str
) -> None:
    url = s3_server.url.replace("s3://blobs", f"s3://{bucket}")
    blobs = open_blobs(url, access_key_id=s3_server.access_key_id, secret_access_key=secret)
    for verb in (blobs.size, blobs.delete, lambda one: whole(blobs, one), lambda one: put(blobs, one, b"new")):
        with pytest.raises(BlobUnavailable, match=said) as refused:
            await verb("a")
        assert secret not in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.matrix
async def test_a_server_outage_fails_fast_and_recovers(own_server: S3Server) -> None:
    blobs = on_server(own_server)
    await put(blobs, "a", b"1")
    own_server.kill()
    began = time.monotonic()
    for verb in (
        blobs.size,
        blobs.delete,
        lambda one: whole(blobs, one),
        lambda one: put(blobs, one, b"new"),
        lambda one: put(blobs, one, *many(LARGE)),
    ):
        with pytest.raises(BlobUnavailable, match="it is unreachable") as refused:
            await verb("a")
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__
    assert time.monotonic() - began < 15
    own_server.restart()
    assert await whole(blobs, "a") == b"1"


@pytest.mark.matrix
async def test_a_server_that_is_silent_is_not_waited_for(own_server: S3Server) -> None:
    blobs = on_server(own_server, options="&timeout=500ms")
    await put(on_server(own_server), "a", b"1")
    own_server.pause()
    began = time.monotonic()
    for verb in (
        blobs.size,
        blobs.delete,
        lambda one: whole(blobs, one),
        lambda one: put(blobs, one, b"new"),
        lambda one: put(blobs, one, *many(LARGE)),
    ):
        with pytest.raises(BlobUnavailable, match=r"timed out|within 0\.5 seconds"):
            await verb("a")
    assert time.monotonic() - began < 10
    own_server.resume()
    assert await on_server(own_server).size("a") is not None


async def test_a_slow_reader_outlives_the_time_limit_of_an_answer(s3_server: S3Server) -> None:
    blobs = on_server(s3_server, "/slow", "&timeout=1s")
    await put(on_server(s3_server, "/slow"), "a", *many(LARGE))
    pieces = blobs.read("a")
    size, began = len(await anext(pieces)), time.monotonic()
    # The clock of the HTTP client cannot be set, so the test waits for its timeout.
    await asyncio.to_thread(servers.wait_until, lambda: time.monotonic() > began + 1.2, "the time limit is over")
    async for piece in pieces:
        size += len(piece)
    assert size == LARGE


async def test_no_log_and_no_text_of_ours_holds_the_secret(
    s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    blobs = on_server(s3_server, "/quiet")
    with caplog.at_level(logging.DEBUG):
        await put(blobs, "a", b"1")
        await blobs.delete("a")
    assert s3_server.secret_access_key not in caplog.text + repr(blobs) + blobs.url + repr(vars(blobs))
    assert blobs.url == f"s3://blobs/quiet at {s3_server.endpoint}"


async def test_a_blob_deleted_while_it_is_read_is_complete_or_an_error(in_s3: Blobs) -> None:
    await put(in_s3, "a", *many(LARGE))
    size = 0
    try:
        async for piece in in_s3.read("a"):
            if not size:
                await in_s3.delete("a")
            size += len(piece)
    except BlobUnavailable:
        size = LARGE
    assert size == LARGE
    with pytest.raises(BlobGone):
        await whole(in_s3, "a")
    assert await in_s3.put("a", stream(b"1"), max_bytes=1) == 1
