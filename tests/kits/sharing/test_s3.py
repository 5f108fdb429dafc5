"""Files on a real S3 server: the same guarantees as with a folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keystead.kits.sharing.service.place import MARKER
from tests.kits.sharing.visiting import Running, no_pause, ok, refused, running
from tests.real_servers import s3_server
from tests.servers import S3Server

__all__ = ["s3_server"]

LARGE = bytes(range(256)) * 24_000  # in more than one part


@pytest.fixture
async def site(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    s3_server.empty()
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    async with running("memory://", tmp_path, files=f"{s3_server.url}&timeout=2s") as opened:
        yield opened


async def test_files_in_s3_are_stored_downloaded_and_deleted_with_their_links(
    site: Running, s3_server: S3Server
) -> None:
    visitor = site.visitor()
    ended, expired = await visitor.upload(LARGE, name="large.bin"), await visitor.upload(b"small", name="small.txt")
    names = s3_server.names() - {MARKER}
    assert {name.rpartition("/")[2] for name in names} == {"large.bin", "small.txt"}
    assert (await visitor.download(ended["shortToken"])).content == LARGE
    part = await visitor.download(ended["shortToken"], range="bytes=6000000-6000009")
    assert (part.status_code, part.content) == (206, LARGE[6_000_000:6_000_010])
    assert (await visitor.download(expired["shortToken"])).content == b"small"

    ok(await visitor.end(token=ended["token"]))
    assert len(s3_server.names() - {MARKER}) == 1
    site.clock.move("8d")
    assert ok(await visitor.clean_up())["deleted"] == 1
    assert s3_server.names() == {MARKER}
    assert s3_server.unfinished() == 0


async def test_an_s3_outage_is_reported_and_loses_no_record(
    site: Running, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.sharing.clean_up, "_pause", no_pause)
    visitor = site.visitor()
    uploaded = await visitor.upload(b"small")
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    s3_server.pause()
    try:
        answer = await visitor.http.get(url)
        assert refused(answer) == (503, "FILES_UNAVAILABLE")
        assert s3_server.secret_access_key not in answer.text
    finally:
        s3_server.resume()
    assert (await visitor.http.get(url)).content == b"small"
    ok(await visitor.end(token=uploaded["token"]))
    assert s3_server.names() == {MARKER}
