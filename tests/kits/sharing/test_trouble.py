"""Outage of the store or the file storage: the kit reports it quickly and recovers (rule 6)."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from keystead.errors import BadUrl
from keystead.server.settings_errors import WrongSettings
from tests import servers
from tests.kits.sharing.visiting import CONTENT, URL, Running, Visitor, no_pause, ok, refused, running


@pytest.fixture
def own_redis() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture
async def fragile_site(own_redis: servers.Server, folder: Path) -> AsyncIterator[Running]:
    async with running(f"{own_redis.url}?timeout=1s&connect_timeout=1s", folder) as site:
        yield site


async def all_at_once(visitor: Visitor, made: dict[str, str]) -> list[httpx2.Response]:
    return await asyncio.gather(
        visitor.resolve(made["shortToken"]),
        visitor.resolve(made["token"]),
        visitor.http.get("/api/receive/resolve", params={"t": made["token"], "redirect": "1"}),
        visitor.post("/api/receive/resolve", {"t": made["token"]}),
        visitor.get("/api/receive/edge-resolve", key=made["shortToken"]),
        visitor.get("/api/receive/download", ticket="x" * 43),
        visitor.post("/api/receive/token", {"url": URL}),
        visitor.post("/api/receive/edge-resolve", {"pathname": "a/b.zip", "downloadUrl": URL}),
        visitor.try_upload(),
        visitor.end(token=made["token"]),
        visitor.post("/api/receive/status", {"id": made["id"], "ownerKey": made["ownerKey"]}),
        visitor.clean_up(),
    )


@pytest.mark.parametrize("how", ["paused", "killed"])
async def test_a_store_outage_is_reported_and_the_kit_recovers(
    own_redis: servers.Server, fragile_site: Running, how: str
) -> None:
    visitor = fragile_site.visitor()
    uploaded = await visitor.upload()
    if how == "paused":
        own_redis.pause()
    else:
        own_redis.kill()
    try:
        async with asyncio.timeout(60):
            answers = await all_at_once(visitor, uploaded)
            page = await visitor.get("/receive", {"accept": "text/html"}, t=uploaded["shortToken"])
    finally:
        if how == "paused":
            own_redis.resume()
        else:
            own_redis.start()
    for answer in answers:
        assert refused(answer) == (503, "STORE_UNAVAILABLE"), answer.request.url
        assert int(answer.headers["retry-after"]) >= 1
    assert page.status_code == 503
    assert len(fragile_site.files()) == 1

    async with asyncio.timeout(60):
        while (await visitor.get("/api/blob/csrf")).status_code != 200 or (await visitor.clean_up()).status_code != 200:
            pass
    uploaded = await visitor.upload()
    assert (await visitor.download(uploaded["shortToken"])).content == CONTENT


async def test_health_uses_no_store(own_redis: servers.Server, fragile_site: Running) -> None:
    own_redis.kill()
    ok(await fragile_site.visitor().get("/api/cron/receive-cleanup", health=1))


async def test_a_storage_outage_is_reported_and_recovers(site: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.sharing.clean_up, "_pause", no_pause)
    visitor = site.visitor()
    uploaded, ended = await visitor.upload(), await visitor.upload()
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    away = site.folder.with_name("unmounted")
    os.rename(site.folder, away)
    for answer in (await visitor.http.get(url), await visitor.try_upload()):
        assert refused(answer) == (503, "FILES_UNAVAILABLE")
        assert answer.headers["retry-after"] == "5"
        assert str(site.folder) not in answer.text
    ok(await visitor.end(token=ended["token"]))  # which is dead at once, whatever becomes of its file
    assert refused(await visitor.resolve(ended["token"])) == (410, "REVOKED")

    if site.folder.exists():
        site.folder.rmdir()
    os.rename(away, site.folder)
    assert (await visitor.http.get(url)).content == CONTENT
    assert len(site.files()) == 2
    site.clock.move("10m")
    # The file of what was ended, and the record of the upload that came to nothing.
    told = ok(await visitor.clean_up())
    assert (told["deleted"], told["notFound"], told["errors"]) == (2, 1, 0)
    assert len(site.files()) == 1
    assert (await visitor.download(uploaded["shortToken"])).content == CONTENT


async def test_an_unusable_files_location_is_a_startup_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for wrong in (tmp_path / "file", "ftp://files.example", "s3://key:secret@bucket"):
        with pytest.raises((BadUrl, WrongSettings)):
            async with running("memory://", wrong):  # type: ignore[arg-type]
                pass
