"""The backup file: a magic line, then blocks, each with a checksum over its content and all blocks before it.

    magic    b"keystead backup 2\\n"
    block    its type (1 byte: H, K, L or F), the length of its content (4 bytes, little-endian), a checksum of 16
             bytes, and the content, compressed with zlib
    H        the header, JSON: first, and once
    K        keys: records, one after the other, of at most 2 MiB
    L        a long key: one record, of at most 1 GiB
    F        the footer, JSON: last, and once; the number of keys

The checksum is BLAKE2b over the checksum of the previous block (for the first: the magic line), the type and the stored
content. So the last one identifies the whole file. Checksums detect every accidental change. They are not a signature:
an attacker who can write the file can recompute them.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from keystead.stores.backup.encoding import LARGEST_BYTES, decode, encode
from keystead.stores.transfer.records import KINDS, Record
from keystead.stores.transfer.transfer_errors import BackupDamaged, BackupError, BackupInTheWay, NoBackup

MAGIC: Final = b"keystead backup 2\n"
BLOCK_BYTES: Final = 1 << 20  # uncompressed; a block ends with the first record that reaches it
# Measured on sessions: level 1 leaves 29 % at 120 MB/s, level 6 leaves 27 % at 50, lzma 26 % at 17.
_LEVEL: Final = 1

_FRAME: Final = struct.Struct("<cI16s")
_HEADER, _KEYS, _LONG, _FOOTER = b"H", b"K", b"L", b"F"
_LARGEST: Final = {_HEADER: 64 << 10, _KEYS: 2 * BLOCK_BYTES, _LONG: LARGEST_BYTES, _FOOTER: 64 << 10}


@dataclass(frozen=True, slots=True)
class Header:
    """The origin of a backup. `store` is its URL without secrets."""

    made_at: str
    keystead: str
    store: str
    match: str


@dataclass(slots=True)
class Counts:
    """The contents of a backup, counted."""

    keys: int = 0
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def add(self, record: Record) -> None:
        self.keys += 1
        self.kinds[record.kind] += 1


# --- writing -----------------------------------------------------------------------------------------------


class PartFile:
    """An unfinished backup, `FILE.part`. One process at a time writes it."""

    def __init__(self, path: Path, stream: BinaryIO, header: Header) -> None:
        self.path = path
        self.header = header
        self.counts = Counts()
        self._stream = stream
        self._blocks = _Blocks(stream, part_of(path))
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @classmethod
    def create(cls, path: Path, header: Header, *, overwrite: bool) -> Self:
        """Start a backup, readable by its owner only.

        An existing part file is truncated, never unlinked: the lock is on the file, not on its name. A process that
        still writes would continue in the unlinked file, and later rename ours.
        """
        part = part_of(path)
        try:
            stream = _open_private(part, os.O_CREAT | (0 if overwrite else os.O_EXCL))
        except FileExistsError:
            raise BackupInTheWay(
                f"{part} exists: a backup was started. Add --resume to continue it, or --overwrite to start over"
            ) from None
        except FileNotFoundError:
            raise BackupError(f"cannot write {part}: there is no folder {part.parent}") from None
        made = cls(path, stream, header)
        try:
            with made._explain_errors():
                stream.truncate(0)
                stream.write(MAGIC)
                made._blocks.write(_HEADER, _to_json(header))
                stream.flush()
        except BackupError:
            made.close()
            raise
        return made

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Continue an interrupted backup. Read `saved_keys` to the end before more is written.

        Raises NoBackup if there is none.
        """
        part = part_of(path)
        try:
            stream = _open_private(part)
        except FileNotFoundError:
            raise NoBackup(f"there is no {part} to continue; leave --resume out to start a backup") from None
        try:
            blocks = _Blocks(stream, part)
            made = cls(path, stream, blocks.read_header())
            made._blocks = blocks
        except BackupDamaged:
            stream.close()
            raise NoBackup(f"{part} was interrupted before anything was saved; add --overwrite to start over") from None
        except BaseException:
            stream.close()
            raise
        return made

    def saved_keys(self) -> Iterator[list[bytes]]:
        """The keys of each complete block. Afterwards everything behind the last one is cut off, including a footer
        (if only the rename was missing).
        """
        end, checksum = self._stream.tell(), self._blocks.checksum
        with suppress(BackupDamaged):
            for records in self._blocks.records():
                for record in records:
                    self.counts.add(record)
                end, checksum = self._stream.tell(), self._blocks.checksum
                yield [record.key for record in records]
        self._stream.seek(end)
        self._stream.truncate()
        self._blocks.checksum = checksum

    def add(self, record: Record) -> bool:
        """Add a record; returns whether it is time to `flush`. Raises KeyTooLarge."""
        data = encode(record)
        self._pending.append(data)
        self._pending_bytes += len(data)
        self.counts.add(record)
        return self._pending_bytes >= BLOCK_BYTES

    def flush(self) -> None:
        """Write what was added; may run in any thread. Raises BackupError if the disk refuses it."""
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        small = b"".join([data for data in pending if len(data) <= BLOCK_BYTES])
        with self._explain_errors():
            if small:
                self._blocks.write(_KEYS, small)
            for data in pending:
                if len(data) > BLOCK_BYTES:
                    self._blocks.write(_LONG, data)
            self._stream.flush()

    def finish(self, *, overwrite: bool) -> int:
        """Write the footer, sync the file to disk and rename it; returns its size."""
        with self._explain_errors():
            self._blocks.write(_FOOTER, _to_json(self.counts))
            self._stream.flush()
            os.fsync(self._stream.fileno())
            size = self._stream.tell()
            refuse_existing(self.path, overwrite=overwrite)
            if not _has_name(self._stream, part_of(self.path)):
                raise BackupError(f"{part_of(self.path)} was removed or replaced while it was written; start over")
            part_of(self.path).replace(self.path)
            _sync_folder(self.path.parent)
        return size

    def close(self) -> None:
        with suppress(OSError):  # write errors were already reported
            self._stream.close()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BackupError(f"cannot write {part_of(self.path)}: {error.strerror or error}") from None


def part_of(path: Path) -> Path:
    """The name of an unfinished backup."""
    return path.with_name(path.name + ".part")


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise BackupInTheWay if the file exists and may not be overwritten."""
    if path.is_dir():
        raise BackupInTheWay(f"{path} is a folder; name a file in it")
    if path.exists() and not overwrite:
        raise BackupInTheWay(f"{path} already exists; add --overwrite to replace it, or name another file")


def _open_private(part: Path, how: int = 0) -> BinaryIO:
    """Open or create a file, readable by its owner only. Raises FileExistsError, FileNotFoundError or BackupError."""
    flags = os.O_RDWR | how | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        stream = os.fdopen(os.open(part, flags, 0o600), "r+b")
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        raise BackupError(f"cannot write {part}: {error.strerror or error}") from None
    try:
        _lock(stream, part)
    except BaseException:
        stream.close()
        raise
    return stream


def _lock(stream: BinaryIO, part: Path) -> None:
    """Lock the file while it is open. Raises BackupInTheWay if another process or user may have it open."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        return
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BackupInTheWay(f"another process is writing {part}; wait for it, or name another file") from None
    if not _has_name(stream, part):  # the process that held the lock has finished this backup
        raise BackupInTheWay(f"another process has just finished {part}; check its backup, then try again")
    found = os.fstat(stream.fileno())
    if found.st_uid != os.geteuid() or found.st_nlink != 1:  # its creator could read everything that is written
        raise BackupInTheWay(f"{part} is also accessible to other users; remove it, or name another file")
    os.fchmod(stream.fileno(), 0o600)


def _has_name(stream: BinaryIO, part: Path) -> bool:
    """Whether this is still the name of the open file."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), part.lstat())
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the rename survives a crash. Not possible, and not needed, on Windows."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading -----------------------------------------------------------------------------------------------


class BackupFile:
    """A finished backup, opened for reading. Every block is verified on each read."""

    def __init__(self, path: Path) -> None:
        """Raises NoBackup if it cannot be opened, or has no valid header."""
        self.path = path
        self.digest = ""  # identifies this backup; known after all blocks were read
        try:
            self._stream: BinaryIO = path.open("rb")
        except OSError as error:
            begun = f"; {part_of(path)} was started but not finished" if part_of(path).exists() else ""
            raise NoBackup(f"cannot read {path}: {error.strerror or error}{begun}") from None
        try:
            if not self._stream.seekable():
                raise NoBackup(f"{path} can be read only once, but a backup is read twice; save it as a file first")
            self.header = _Blocks(self._stream, path).read_header()
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def stamp(self) -> tuple[int, int]:
        """Size and modification time: they differ if another backup has replaced the file."""
        found = os.fstat(self._stream.fileno())
        return found.st_size, found.st_mtime_ns

    def blocks(self) -> Iterator[list[Record]]:
        """The records, block by block. Raises BackupDamaged at the first block that was altered.

        Only after the last block is it known that the file is complete: read all blocks before you act on any.
        """
        self._stream.seek(0)
        blocks = _Blocks(self._stream, self.path)
        blocks.read_header()
        counts = Counts()
        for records in blocks.records():
            for record in records:
                counts.add(record)
            yield records
        if blocks.footer != asdict(counts):
            raise blocks.damage_error("its contents do not match its footer")
        self.digest = blocks.checksum.hex()


class _Blocks:
    """Reads or writes blocks in order. Nothing it reads is trusted."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream = stream
        self._path = path
        self.checksum = MAGIC  # of the last block
        self.footer: dict[str, Any] | None = None

    def write(self, what: bytes, content: bytes) -> None:
        stored = zlib.compress(content, _LEVEL)
        self._update(what, stored)
        self._stream.write(_FRAME.pack(what, len(stored), self.checksum))
        self._stream.write(stored)

    def read_header(self) -> Header:
        """The magic line and the first block. Raises NoBackup or BackupDamaged."""
        magic = self._stream.read(len(MAGIC))
        if magic != MAGIC:
            if magic and MAGIC.startswith(magic):
                raise self.damage_error("it is cut off in its first line")
            if magic.startswith(MAGIC[:-2]):
                raise NoBackup(f"{self._path} is a backup of another format; use the version of Keystead that wrote it")
            raise NoBackup(f"{self._path} is not a Keystead backup")
        what, content = self._read()
        try:
            header = Header(**(_from_json(content) or {})) if what == _HEADER else None
        except TypeError:
            header = None
        if header is None or not all(isinstance(text, str) for text in asdict(header).values()):
            raise self.damage_error("its header is invalid")
        return header

    def records(self) -> Iterator[list[Record]]:
        """The records of each block that has any. Ends with the footer."""
        while True:
            what, content = self._read()
            if what == _FOOTER:
                self.footer = _from_json(content)
                if self._stream.read(1):
                    raise self.damage_error("there is data after its end")
                return
            if what == _HEADER:
                raise self.damage_error("its blocks are out of order")
            try:
                records = decode(content, is_one=what == _LONG)
            except BackupDamaged as error:
                raise self.damage_error(str(error)) from None
            yield records

    def _read(self) -> tuple[bytes, bytes]:
        frame = self._stream.read(_FRAME.size)
        left = os.fstat(self._stream.fileno()).st_size - self._stream.tell()
        what, length, checksum = _FRAME.unpack(frame) if len(frame) == _FRAME.size else (b"", left + 1, b"")
        if length > left:
            raise self.damage_error("it is truncated: its end is missing")
        stored = self._stream.read(length)
        self._update(what, stored)
        if self.checksum != checksum or what not in _LARGEST:
            raise self.damage_error("a block was altered")
        # Decompress at most as much as such a block may contain.
        stream = zlib.decompressobj()
        try:
            content = stream.decompress(stored, _LARGEST[what] + 1)
        except zlib.error:
            raise self.damage_error("a block is invalid") from None
        if len(content) > _LARGEST[what]:
            raise self.damage_error("a block is too large")
        if not stream.eof or stream.unused_data:
            raise self.damage_error("a block is invalid")
        return what, content

    def _update(self, what: bytes, stored: bytes) -> None:
        digest = blake2b(self.checksum + what, digest_size=16)
        digest.update(stored)
        self.checksum = digest.digest()

    def damage_error(self, why: str) -> BackupDamaged:
        return BackupDamaged(f"{self._path} is damaged: {why}")


def _to_json(data: Header | Counts) -> bytes:
    return json.dumps(asdict(data), ensure_ascii=False).encode()


def _from_json(text: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None
