"""The store remembers the location of its files, and refuses any other."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import Store
from keystead.kits.sharing import Wanted
from keystead.kits.sharing.service import FilesElsewhere
from keystead.kits.sharing.service.place import MARKER
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CONTENT,
    RING_TEXT,
    Clock,
    Kept,
    Running,
    Visitor,
    body_of,
    fetched,
    ok,
    refused,
    running,
    service_on,
)
from tests.serving import environment, keystead_command, keystead_serving


@everywhere
async def test_a_process_in_another_folder_refuses_to_treat_files_as_deleted(
    store: Store, folder: Path, clock: Clock
) -> None:
    here, elsewhere = service_on(store, folder, clock), service_on(store, folder.with_name("elsewhere"), clock)
    made = await here.upload(body_of(CONTENT), None, Wanted(), who="", where="")
    clock.move("8d")
    before = await Kept(store).all_keys()
    for trying in (elsewhere.place.open(), elsewhere.clean_up.run(), elsewhere.place.claim()):
        with pytest.raises(FilesElsewhere, match=r"not in .*elsewhere but in .*files; start .* sharing.files"):
            await trying
    assert await Kept(store).all_keys() == before
    assert (await here.clean_up.run()).deleted == 1
    assert made.path is not None


async def test_a_file_missing_at_a_wrong_location_is_not_reported_as_gone(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    away = site.folder.with_name("unmounted")
    os.rename(site.folder, away)
    site.folder.mkdir()  # as where a disk is mounted that is not there
    assert refused(await visitor.resolve(uploaded["shortToken"])) == (503, "FILES_UNAVAILABLE")
    site.clock.move("8d")
    assert (await visitor.clean_up()).status_code == 503
    site.folder.rmdir()
    os.rename(away, site.folder)
    assert ok(await visitor.clean_up())["deleted"] == 1


@everywhere
async def test_a_moved_folder_is_recognized(store: Store, folder: Path, clock: Clock) -> None:
    made = await service_on(store, folder, clock).upload(body_of(CONTENT), None, Wanted(), who="", where="")
    moved = folder.with_name("moved")
    os.rename(folder, moved)
    there = service_on(store, moved, clock)
    await there.place.open()
    assert await fetched(there, made.short_token) == CONTENT


@everywhere
async def test_concurrent_first_uploads_in_two_locations_succeed_in_one(
    store: Store, folder: Path, clock: Clock
) -> None:
    services = [service_on(store, folder.with_name(f"place-{number % 2}"), clock) for number in range(50)]
    claims = await asyncio.gather(*(one.place.claim() for one in services), return_exceptions=True)
    refusals = [isinstance(claim, FilesElsewhere) for claim in claims]
    assert refusals in ([False, True] * 25, [True, False] * 25)


@everywhere
async def test_a_store_without_a_remembered_location_accepts_the_one_with_its_files(
    store: Store, folder: Path, clock: Clock
) -> None:
    here = service_on(store, folder, clock)
    await here.upload(body_of(CONTENT), None, Wanted(), who="", where="")
    await Kept(store).ask("DEL", "receive:files")
    (folder / MARKER).unlink()
    elsewhere = service_on(store, folder.with_name("elsewhere"), clock)
    with pytest.raises(FilesElsewhere, match="none of the 1 files that this store knows is in"):
        await elsewhere.place.open()
    again = service_on(store, folder, clock)
    await again.place.open()
    assert (folder / MARKER).exists()
    with pytest.raises(FilesElsewhere, match=" but in "):
        await elsewhere.place.open()


async def test_files_moved_is_needed_once(folder: Path, clock: Clock, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/links.db"
    async with running(url, folder, clock=clock) as site:
        uploaded = await site.visitor().upload()
    new = tmp_path / "new"
    os.rename(folder, new)
    (new / MARKER).unlink()
    with pytest.raises(FilesElsewhere):
        async with running(url, new, clock=clock):
            pass
    said: list[dict[str, Any]] = [{"files_moved": True}, {}]
    for more in said:
        async with running(url, new, clock=clock, **more) as site:
            assert (await site.visitor().download(uploaded["shortToken"])).content == CONTENT


async def test_a_store_without_files_remembers_no_location(folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/links.db"
    for place in (folder, tmp_path / "other"):
        async with running(url, place) as site:
            ok(await site.visitor().post("/api/receive/token", {"url": "https://blob.vercel-storage.com/x"}))
            assert "receive:files" not in await site.all_keys()


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
def test_a_command_in_another_folder_reports_the_location_of_the_files(store_url: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    seal = {"KEYSTEAD_SEAL_KEYS": RING_TEXT}
    with keystead_serving(first, store_url, "--kits", "sharing", **seal) as server:
        uploaded = ok(httpx2.post(f"{server.url}/api/receive/upload?name=a.txt", content=CONTENT))
        command = keystead_command("jobs", "run", "sharing.clean-up", "--store", store_url, "--kits", "sharing")
        ran = subprocess.run(command, cwd=second, env=environment(seal), capture_output=True, text=True)
        assert ran.returncode != 0
        assert f"the files of this store are not in {second}" in ran.stderr.replace("\n", " ")
        assert "Traceback" not in ran.stderr
        assert list(second.iterdir()) == []  # no folder is made that looks like the right one
        resolved = ok(httpx2.get(f"{server.url}/api/receive/resolve?t={uploaded['shortToken']}"))
        assert httpx2.get(resolved["url"]).content == CONTENT
        assert server.stop() == 0
