"""A truncated or altered backup file is refused before anything is written, and a hostile one does no harm."""

import asyncio
import errno
import json
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead import Store, connect
from keystead.stores.backup import (
    BackupDamaged,
    BackupError,
    BackupFile,
    BackupInTheWay,
    NoBackup,
    backup,
    compare,
    encoding,
    part_of,
    restore,
)
from keystead.stores.backup import file as file_module
from keystead.stores.backup.encoding import decode, encode
from keystead.stores.transfer.records import KINDS, Record
from keystead.stores.transfer.seen_keys import SeenKeys
from tests.stores.backup.contents import contents, now_ms, some_of_everything

FRAME = struct.Struct("<cI16s")
HEADER = {"made_at": "2026-11-16T00:00:00+00:00", "keystead": "0.1.0", "store": "memory://", "match": "*"}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with connect("memory://") as opened:
        yield opened


async def restored(store: Store, path: Path) -> None:
    with BackupFile(path) as file:
        await restore(store, file)


async def test_any_flipped_byte_is_refused_and_nothing_is_written(store: Store, tmp_path: Path) -> None:
    async with connect("memory://") as source:
        await source.run(some_of_everything(await now_ms(source) + 10_000_000))
        await backup(source, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    path = tmp_path / "altered"
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (0x01 if place % 2 else 0xFF)]) + whole[place + 1 :])
        with pytest.raises(BackupError) as caught:
            await restored(store, path)
        assert isinstance(caught.value, BackupDamaged | NoBackup), place
        assert str(path) in str(caught.value)
    assert await contents(store) == {}
    path.write_bytes(whole)
    await restored(store, path)  # the original is accepted


async def test_a_truncated_file_is_refused(store: Store, tmp_path: Path) -> None:
    async with connect("memory://") as source:
        await source.run(some_of_everything(await now_ms(source) + 10_000_000))
        await backup(source, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    path = tmp_path / "cut"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(NoBackup if length == 0 else BackupDamaged) as caught:
            await restored(store, path)
        assert length < len(file_module.MAGIC) or "is truncated: its end is missing" in str(caught.value)
    path.write_bytes(whole + b"\0")
    with pytest.raises(BackupDamaged, match="there is data after its end"):
        await restored(store, path)
    assert await contents(store) == {}


async def test_blocks_that_change_places_or_are_left_out_are_noticed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "BLOCK_BYTES", 64)
    async with connect("memory://") as source:
        await source.run([("SET", f"key:{number}", "x" * 40) for number in range(20)])
        await backup(source, tmp_path / "whole")
    magic, *blocks = split((tmp_path / "whole").read_bytes())
    assert len(blocks) > 10
    path = tmp_path / "altered"
    for wrong in (
        [*blocks[:3], *blocks[4:]],
        [*blocks[:3], blocks[4], blocks[3], *blocks[5:]],
        [*blocks[:3], *blocks[2:]],
    ):
        path.write_bytes(b"".join([magic, *wrong]))
        with pytest.raises(BackupDamaged, match="was altered"):
            await restored(store, path)
    assert await contents(store) == {}


def split(data: bytes) -> list[bytes]:
    """The magic line, and each block."""
    at = len(file_module.MAGIC)
    parts = [data[:at]]
    while at < len(data):
        end = at + FRAME.size + FRAME.unpack_from(data, at)[1]
        parts.append(data[at:end])
        at = end
    return parts


# --- hostile files with valid checksums ---------------------------------------------------------------------


def forged(*blocks: tuple[bytes, bytes], cut: int = 0) -> bytes:
    """A file with valid checksums; `cut` bytes are missing from the compressed content of the last block."""
    data = checksum = file_module.MAGIC
    for what, content in blocks:
        stored = zlib.compress(content)
        stored = stored[: len(stored) - cut] if content is blocks[-1][1] else stored
        checksum = blake2b(checksum + what + stored, digest_size=16).digest()
        data += FRAME.pack(what, len(stored), checksum) + stored
    return data


def footer(keys: int = 0) -> bytes:
    return json.dumps({"keys": keys, "kinds": dict.fromkeys(KINDS, 0)}).encode()


HEADER_BLOCK = (b"H", json.dumps(HEADER).encode())
RECORD = encode(Record(b"key", "string", None, [b"value"]))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a Keystead backup"),
        (b"SQLite format 3\0" + b"\0" * 100, "is not a Keystead backup"),
        (b"keystead backup 1\n" + b"\0" * 100, "another format; use the version of Keystead that wrote it"),
        (b"keystead backup 3\n" + b"\0" * 100, "another format; use the version of Keystead that wrote it"),
        (forged((b"H", b"[" * 50_000)), "its header is invalid"),
        (forged((b"H", json.dumps({**HEADER, "more": 1}).encode())), "its header is invalid"),
        (forged((b"H", json.dumps({**HEADER, "store": 1}).encode())), "its header is invalid"),
        (forged((b"K", RECORD)), "its header is invalid"),
        (forged(HEADER_BLOCK, HEADER_BLOCK, (b"F", footer())), "its blocks are out of order"),
        (forged(HEADER_BLOCK, (b"Z", b""), (b"F", footer())), "was altered"),
        (forged(HEADER_BLOCK, (b"L", RECORD + RECORD), (b"F", footer())), "it contains an invalid record"),
        (forged(HEADER_BLOCK, (b"K", RECORD), (b"F", footer(1))), "its contents do not match its footer"),
        (forged(HEADER_BLOCK, (b"K", RECORD), (b"F", b"{}")), "its contents do not match its footer"),
        (forged(HEADER_BLOCK, (b"K", RECORD), (b"F", b"\xff")), "its contents do not match its footer"),
        (forged(HEADER_BLOCK, (b"K", b"x")), "it contains an invalid record"),
        (forged(HEADER_BLOCK, (b"K", bytes(1 << 24))), "a block is too large"),
        (forged(HEADER_BLOCK, (b"K", RECORD), cut=1), "a block is invalid"),
        (forged(HEADER_BLOCK, (b"K", RECORD), cut=20), "a block is invalid"),
        (forged(HEADER_BLOCK, (b"F", b" " * (1 << 20))), "a block is too large"),
    ],
)
async def test_a_forged_file_is_a_one_line_error(store: Store, tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "forged"
    path.write_bytes(data)
    with pytest.raises(BackupError) as caught:
        await restored(store, path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert await contents(store) == {}


def record_of(kind: int, at_ms: int, lengths: list[int], data: bytes, count: int | None = None) -> bytes:
    counted = len(lengths) - 1 if count is None else count
    return struct.pack("<BqI", kind, at_ms, counted) + struct.pack(f"<{len(lengths)}I", *lengths) + data


@pytest.mark.parametrize(
    "data",
    [
        record_of(0, -1, [3, 5], b"keyvalu"),  # shorter than declared
        record_of(0, -1, [3, 2**32 - 1], b"keyv"),
        record_of(0, -2, [1, 1], b"kv"),  # an invalid deadline
        record_of(0, -1, [1, 1], b"kv", count=2),
        record_of(1, -1, [1], b"k", count=2**32 - 1),  # too many parts
        record_of(1, -1, [1, 2**32 - 1, 2**32 - 1], b"kf"),
        record_of(1, -1, [1, 1], b"kf"),  # a field without a value
        record_of(2, -1, [1], b"k"),  # a set without members
        record_of(2, -5, [1, 1], b"km"),
        record_of(3, -1, [1, 3, 1], b"knanm"),
        record_of(3, -1, [1, 0, 1], b"km"),
        record_of(5, -1, [1, 3, 1], b"k1-12"),  # an entry without fields
        record_of(5, -1, [1, 3, 1, 1, 1], b"k0-02fv"),
        record_of(5, -1, [1, 3, 1, 1, 1], b"k1-13fv"),
        record_of(5, -1, [1, 3, 2, 1, 1], b"k1-1-2fv"),
        record_of(5, -1, [1, 3, 1, 1, 1, 3, 1, 1, 1], b"k2-12fv1-12fv"),  # ids that do not grow
        record_of(6, -1, [1, 1], b"km"),  # no such kind
        record_of(255, -1, [1, 1], b"km"),
    ],
)
def test_an_invalid_record_is_refused(data: bytes) -> None:
    with pytest.raises(BackupDamaged):
        decode(data)


@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.tuples(st.integers(0, 6), st.binary(max_size=60)).map(lambda one: bytes([one[0]]) + b"\xff" * 8 + one[1]),
    )
)
def test_random_bytes_are_records_or_refused(data: bytes) -> None:
    try:
        found = decode(data)
    except BackupDamaged:
        return
    assert b"".join(map(encode, found)) == data


@pytest.mark.matrix
def test_a_decompression_bomb_takes_no_more_memory_than_a_block(tmp_path: Path) -> None:
    """A decompression bomb, as a block and as a long key, read by a process with little memory."""
    path = tmp_path / "bomb"
    huge = (b"K", bytes(512 << 20))
    many_parts = (b"L", record_of(2, -1, [1], b"", count=20_000_000) + bytes(80 << 20))
    for block in (huge, many_parts):
        path.write_bytes(forged(HEADER_BLOCK, block))
        done = subprocess.run(
            [sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, timeout=300, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)),
        )  # fmt: skip
        assert done.stdout == "damaged\n", done.stderr


_READ = """
import sys
from pathlib import Path
from keystead.stores.backup import BackupDamaged, BackupFile
try:
    with BackupFile(Path(sys.argv[1])) as file:
        for block in file.blocks():
            pass
except BackupDamaged:
    print("damaged")
"""


# --- the file itself ----------------------------------------------------------------------------------------


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


async def test_only_its_owner_can_read_it_all_the_time(store: Store, tmp_path: Path) -> None:
    modes: set[int] = set()
    await store.run([("SET", f"key:{number}", "x") for number in range(2000)])

    def look(_: object) -> None:
        modes.update(modes_in(tmp_path).values())

    before = os.umask(0)
    try:
        await backup(store, tmp_path / "backup", on_progress=look)
    finally:
        os.umask(before)
    assert modes == {0o600}
    assert modes_in(tmp_path) == {"backup": 0o600}


async def test_an_existing_file_is_not_overwritten_without_overwrite(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_text("something else")
    with pytest.raises(BackupInTheWay, match="--overwrite"):
        await backup(store, path)
    assert path.read_text() == "something else"
    await backup(store, path, overwrite=True)
    with BackupFile(path) as file:
        assert (await compare(store, file)).keys == 0


async def test_two_concurrent_backups_into_one_file_are_refused(store: Store, tmp_path: Path) -> None:
    await store.run([("SET", f"key:{number}", "x") for number in range(5000)])
    refused: list[str] = []

    async with connect("memory://") as second:
        await second.run([("SET", "key", "x")])

        begun = asyncio.Event()

        async def other(resume: bool) -> None:
            try:
                await backup(second, tmp_path / "backup", resume=resume)
            except BackupInTheWay as error:
                refused.append(str(error))

        running = asyncio.create_task(backup(store, tmp_path / "backup", on_progress=lambda _: begun.set()))
        await begun.wait()
        await other(resume=False)
        await other(resume=True)
        saved = await running
    assert saved.keys == 5000
    assert ["--resume" in refused[0], "another process" in refused[1]] == [True, True]


async def test_of_two_concurrent_overwrites_of_one_file_the_second_is_refused(store: Store, tmp_path: Path) -> None:
    await store.run([("SET", f"key:{number}", os.urandom(500)) for number in range(3000)])
    path = tmp_path / "backup"
    await backup(store, path)
    begun = asyncio.Event()
    running = asyncio.create_task(backup(store, path, overwrite=True, on_progress=lambda _: begun.set()))
    await begun.wait()
    with pytest.raises(BackupInTheWay, match="another process is writing"):
        await backup(store, path, overwrite=True)
    saved = await running
    assert saved.size_bytes == path.stat().st_size
    with BackupFile(path) as file:
        assert (await compare(store, file)).equal == 3000


async def test_a_file_that_was_replaced_while_it_was_written_does_not_get_the_name(
    store: Store, tmp_path: Path
) -> None:
    await store.run([("SET", "key", "x")])
    part = part_of(tmp_path / "backup")

    def replace(_: object) -> None:
        part.unlink()
        part.write_text("another's")

    with pytest.raises(BackupError, match="was removed or replaced"):
        await backup(store, tmp_path / "backup", on_progress=replace)
    assert modes_in(tmp_path).keys() == {"backup.part"}


async def test_a_file_that_others_may_have_open_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    part_of(tmp_path / "backup").hardlink_to(tmp_path / "precious")
    with pytest.raises(BackupInTheWay, match="also accessible to other users"):
        await backup(store, tmp_path / "backup", overwrite=True)
    assert (tmp_path / "precious").read_text() == "mine"


async def test_a_part_file_is_overwritten_and_stays_private(store: Store, tmp_path: Path) -> None:
    part = part_of(tmp_path / "backup")
    part.write_bytes(b"x" * 10_000)
    part.chmod(0o644)
    saved = await backup(store, tmp_path / "backup", overwrite=True)
    assert saved.size_bytes == (tmp_path / "backup").stat().st_size < 1_000
    assert modes_in(tmp_path) == {"backup": 0o600}


async def test_a_key_that_is_too_large_is_left_out_and_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "LARGEST_BYTES", 1000)
    await store.run([("SET", "small", "x"), ("SADD", "many small", *range(20))])
    saved = await backup(store, tmp_path / "backup")
    assert (saved.keys, saved.left_out.count) == (1, 1)
    assert "many small holds" in saved.left_out.examples[0]


async def test_a_full_disk_for_the_set_of_seen_keys_is_a_one_line_error() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with SeenKeys(cache_kib=64) as seen:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            with pytest.raises(BackupError, match="temporary files"):
                seen.add(b"%0100d" % number for number in range(50_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)


def test_a_pipe_is_refused_as_a_backup_with_a_one_line_error() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(NoBackup, match="save it as a file first"):
            BackupFile(Path(f"/dev/fd/{reader}"))
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("name", ["folder", "begun"])
async def test_a_folder_of_the_same_name_is_reported_before_anything_is_read(
    store: Store, tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    part_of(tmp_path / "begun").mkdir()

    def never(_: object) -> None:
        raise AssertionError("it began")

    await store.run([("SET", "key", "x")])
    with pytest.raises(BackupError, match=f"{name}.* (is a folder|Is a directory)"):
        await backup(store, tmp_path / name, overwrite=True, on_progress=never)


@pytest.mark.parametrize("name", ["no/such/folder/backup", "folder"])
async def test_an_unwritable_location_is_a_one_line_error(store: Store, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(BackupError, match=name):
        await backup(store, tmp_path / name)


async def test_a_full_disk_is_reported_and_leaves_no_file_that_looks_complete(store: Store, tmp_path: Path) -> None:
    await store.run([("SET", f"key:{number}", os.urandom(1000)) for number in range(5000)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(BackupError, match="cannot write"):
            await backup(store, tmp_path / "backup")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert modes_in(tmp_path).keys() == {"backup.part"}
    saved = await backup(store, tmp_path / "backup", resume=True)
    assert saved.keys == 5000
    assert 0 < saved.kept < 5000


async def test_a_disk_that_is_full_for_the_last_keys_only_makes_no_backup_without_them(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.run([("SET", "key", "x")])
    write = file_module._Blocks.write
    refused: list[bytes] = []

    def full_once(self: file_module._Blocks, what: bytes, content: bytes) -> None:
        if what == b"K" and not refused:
            refused.append(content)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, what, content)

    monkeypatch.setattr(file_module._Blocks, "write", full_once)
    with pytest.raises(BackupError, match="No space left"):
        await backup(store, tmp_path / "backup")
    assert modes_in(tmp_path).keys() == {"backup.part"}
    assert (await backup(store, tmp_path / "backup", resume=True)).keys == 1
