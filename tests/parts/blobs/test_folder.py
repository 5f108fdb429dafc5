"""Blobs in a folder: the files on disk, and what a crash leaves there."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keystead.parts.blobs import BlobGone, BlobUnavailable, open_blobs
from tests.parts.blobs.killed import put_and_be_killed
from tests.parts.blobs.streams import LARGE, MIB, many, put, whole


def on_disk(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def interrupt_a_put(folder: Path, path: str) -> None:
    before = on_disk(folder)
    put_and_be_killed(folder, path, lambda: any((folder / name).stat().st_size for name in on_disk(folder) - before))


def test_the_folder_is_made_for_its_owner_alone(folder: Path) -> None:
    blobs = open_blobs(folder / "deep" / "er")
    assert stat.S_IMODE((folder / "deep" / "er").stat().st_mode) == 0o700
    assert blobs.url == str(folder / "deep" / "er")


async def test_a_folder_that_is_there_keeps_its_rights_and_its_files(folder: Path) -> None:
    os.mkdir(folder, 0o755)
    (folder / "a").write_bytes(b"1")
    blobs = open_blobs(folder)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o755
    assert await whole(blobs, "a") == b"1"


async def test_a_relative_folder_stays_where_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blobs = open_blobs("./files")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await put(blobs, "a", b"1")
    assert on_disk(folder) == {"a"}


async def test_a_blob_is_stored_under_its_path(folder: Path) -> None:
    blobs = open_blobs(f"file://{folder}")
    await put(blobs, "2026/ä b.zip", b"1")
    assert (folder / "2026" / "ä b.zip").read_bytes() == b"1"


async def test_a_process_that_is_killed_leaves_nothing_visible_and_delete_removes_the_rest(folder: Path) -> None:
    blobs = open_blobs(folder)
    interrupt_a_put(folder, "2026/a.zip")
    interrupt_a_put(folder, "2026/a.zip")
    # For each: its partial data, and the empty file that pinned its folder.
    assert on_disk(folder) == {"2026", *(f"2026/a.zip#{number}" for number in range(1, 5))}
    assert await blobs.size("2026/a.zip") is None
    with pytest.raises(BlobGone):
        await whole(blobs, "2026/a.zip")
    assert await blobs.delete("2026/a.zip") is False
    assert on_disk(folder) == set()


@pytest.mark.matrix
async def test_leftovers_of_a_killed_put_do_not_block_the_next(folder: Path) -> None:
    blobs = open_blobs(folder)
    interrupt_a_put(folder, "a")
    await put(blobs, "a", b"again")
    assert await whole(blobs, "a") == b"again"
    assert await blobs.delete("a") is True
    assert on_disk(folder) == set()


async def test_leftovers_after_a_gap_are_removed_too(folder: Path) -> None:
    blobs = open_blobs(folder)
    for name in ("a#2", "a#20", "a#21", "a#50"):
        (folder / name).write_bytes(b"left")
    await blobs.delete("a")
    assert on_disk(folder) == set()


async def test_a_delete_touches_no_other_blob(folder: Path) -> None:
    blobs = open_blobs(folder)
    others = ("a#1", "a#1~", "a#2/b", "ab", "a.zip", "b/a")
    for path in others:
        await put(blobs, path, path.encode())
    (folder / "a#x").write_bytes(b"of somebody else")
    await blobs.delete("a")
    assert [await whole(blobs, path) for path in others] == [path.encode() for path in others]
    assert (folder / "a#x").exists()


async def test_folders_that_are_empty_go_with_their_last_blob(folder: Path) -> None:
    blobs = open_blobs(folder)
    await put(blobs, "a/b/c", b"1")
    await put(blobs, "a/d", b"2")
    await blobs.delete("a/b/c")
    assert on_disk(folder) == {"a", "a/d"}
    await blobs.delete("a/d")
    assert on_disk(folder) == set()
    assert os.listdir(folder) == []


async def test_puts_and_deletes_of_one_folder_do_not_meet(folder: Path) -> None:
    blobs = open_blobs(folder)

    async def comes_and_goes(path: str) -> None:
        for _ in range(20):
            await put(blobs, path, b"1")
            assert await blobs.delete(path)

    await asyncio.gather(*(comes_and_goes(f"a/b/{number}") for number in range(8)))
    await asyncio.gather(*(comes_and_goes(f"a/{number}/b") for number in range(8)))
    assert on_disk(folder) == set()


async def test_a_folder_that_a_put_comes_to_is_not_removed_as_empty(folder: Path) -> None:
    blobs, other = open_blobs(folder), open_blobs(folder)  # as another process has it
    await put(blobs, "a/last", b"1")

    async def slow() -> AsyncIterator[bytes]:
        assert await other.delete("a/last") is True
        assert (folder / "a" / "b").is_dir()
        yield b"2"

    await blobs.put("a/b/c", slow(), max_bytes=10)
    assert on_disk(folder) == {"a", "a/b", "a/b/c"}


async def test_a_put_that_fails_leaves_no_folder(folder: Path) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield b"1"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await open_blobs(folder).put("a/b/c", failing(), max_bytes=10)
    assert on_disk(folder) == set()


@pytest.mark.parametrize("path", ["link", "link/secret", "a/link", "a/link/secret"])
async def test_no_link_leads_out_of_the_folder(folder: Path, tmp_path: Path, path: str) -> None:
    blobs = open_blobs(folder)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (folder / "a").mkdir()
    for link in (folder / "link", folder / "a" / "link"):
        link.symlink_to(outside / "secret" if path.endswith("link") else outside)
    for verb in (blobs.size, blobs.delete, lambda one: whole(blobs, one), lambda one: put(blobs, one, b"new")):
        with pytest.raises(BlobUnavailable, match="symbolic link"):
            await verb(path)
    assert (outside / "secret").read_bytes() == b"secret"
    assert on_disk(outside) == {"secret"}
    assert (folder / path.partition("/secret")[0]).is_symlink()


async def test_a_folder_is_not_a_blob(folder: Path) -> None:
    blobs = open_blobs(folder)
    await put(blobs, "a/b", b"1")
    assert await blobs.size("a") is None
    assert await blobs.delete("a") is False
    with pytest.raises(BlobGone):
        await whole(blobs, "a")
    with pytest.raises(BlobUnavailable, match="is a folder"):
        await put(blobs, "a", b"1")
    assert on_disk(folder) == {"a", "a/b"}


async def test_a_blob_path_cannot_be_a_folder(folder: Path) -> None:
    blobs = open_blobs(folder)
    await put(blobs, "a", b"1")
    assert await blobs.size("a/b") is None
    assert await blobs.delete("a/b") is False
    with pytest.raises(BlobUnavailable, match="Not a directory"):
        await put(blobs, "a/b", b"2")
    assert await whole(blobs, "a") == b"1"


async def test_a_missing_folder_is_an_outage_and_not_missing_blobs(folder: Path) -> None:
    blobs = open_blobs(folder)
    os.rename(folder, f"{folder}-away")
    for verb in (blobs.size, blobs.delete, lambda one: whole(blobs, one), lambda one: put(blobs, one, b"new")):
        with pytest.raises(BlobUnavailable, match="No such file or directory"):
            await verb("a")
    assert os.listdir(folder.parent) == ["files-away"]


async def test_a_put_blob_and_its_folders_are_synced_to_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = open_blobs(folder)
    synced: set[int] = set()
    fsync = os.fsync

    def noted(opened: int) -> None:
        synced.add(os.fstat(opened).st_ino)
        fsync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    await put(blobs, "a/b/c", b"1")
    assert {(folder / path).stat().st_ino for path in ("", "a", "a/b", "a/b/c")} <= synced


async def test_a_put_that_is_cancelled_leaves_no_file(folder: Path) -> None:
    blobs = open_blobs(folder)
    waits = asyncio.Event()

    async def stopping() -> AsyncIterator[bytes]:
        for piece in many(LARGE):
            yield piece
        waits.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(blobs.put("a", stopping(), max_bytes=100 * MIB))
    await waits.wait()
    assert on_disk(folder) == {"a#1", "a#2"}
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert on_disk(folder) == set()


@pytest.mark.matrix
def test_a_full_disk_is_reported_and_leaves_nothing(folder: Path) -> None:
    # A file size limit simulates a full disk: both stop a write in the middle.
    program = (
        "import asyncio, resource, sys\n"
        "from keystead.parts.blobs import BlobUnavailable, open_blobs\n"
        "from tests.parts.blobs.streams import LARGE, MIB, many, put\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, 8 * MIB))\n"
        "try:\n"
        "    asyncio.run(put(open_blobs(sys.argv[1]), 'a', *many(LARGE)))\n"
        "except BlobUnavailable as error:\n"
        "    print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, folder],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.stdout == f"{folder} failed: File too large\n", ended.stderr
    assert on_disk(folder) == set()
