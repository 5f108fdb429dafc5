"""The backup file: a magic line, then blocks, each with a checksum over itself and its place.

    magic    b"keystead backup 1\\n"
    block    what it is (1 byte: H, K, L, M or F), the length of its content and its length as it is stored (4 bytes
             each, little-endian), a checksum of 16 bytes, and the content, compressed with zlib
    H        the header, JSON: first, and once
    K        keys: records, one after the other
    L, M     a record that is longer than a block: any number of L, and one M with its end
    F        the footer, JSON: last, and once; it counts the keys and holds a digest of all blocks before it

The checksum is BLAKE2b over the place of the block, what it is, its lengths and what is stored. The digest is BLAKE2b
over all checksums. A file that was cut or altered by accident never passes; it is no seal against whoever can write the
file, who can write all of it anew.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from keystead.stores.backup.errors import BackupDamaged, BackupError, BackupInTheWay, NoBackup
from keystead.stores.backup.records import KINDS, LARGEST_BYTES, Record, decode, encode

MAGIC: Final = b"keystead backup 1\n"
FORMAT: Final = 1
BLOCK_BYTES: Final = 1 << 20  # before it is compressed; a block ends with the first record that reaches it
_LARGEST_BLOCK: Final = 2 * BLOCK_BYTES  # a record longer than BLOCK_BYTES has blocks of its own
_LARGEST_STORED: Final = _LARGEST_BLOCK + (_LARGEST_BLOCK >> 8) + 64  # what cannot be compressed grows a little
_LARGEST_TEXT: Final = 64 << 10  # of header and footer
# Of sessions level 1 leaves 29 % at 120 MB a second, level 6 leaves 27 % at 50, and lzma 26 % at 17.
_LEVEL: Final = 1

_FRAME: Final = struct.Struct("<cII16s")
_HEADER, _KEYS, _LONG, _LONG_END, _FOOTER = b"H", b"K", b"L", b"M", b"F"


@dataclass(frozen=True, slots=True)
class Header:
    """Where a backup comes from. `store` is its URL without secrets."""

    made_at: str
    keystead: str
    store: str
    match: str


@dataclass(slots=True)
class Counts:
    """What stands in a backup."""

    keys: int = 0
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def add(self, record: Record) -> None:
        self.keys += 1
        self.kinds[record.kind] += 1


# --- writing -----------------------------------------------------------------------------------------------


class PartFile:
    """A backup that is being written, under the name `FILE.part`. One process at a time."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.counts = Counts()
        self.blocks = 0
        self._stream = stream
        self._digest = blake2b(digest_size=32)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    @classmethod
    def new(cls, path: Path, header: Header, *, overwrite: bool) -> Self:
        """Begin a backup. Nobody else may read it: it holds all that the store does.

        What an interrupted backup left is emptied, and never unlinked: the lock is on the file, not on its name, so
        one who still writes would go on in a file without a name, and give its own name to ours.
        """
        part = part_of(path)
        try:
            stream = _opened(part, os.O_CREAT | (0 if overwrite else os.O_EXCL))
        except FileExistsError:
            raise BackupInTheWay(
                f"{part} is there: a backup was begun. Add --resume to go on with it, or --overwrite to start anew"
            ) from None
        made = cls(path, stream)
        text = json.dumps({"format": FORMAT, **asdict(header)}, ensure_ascii=False).encode()
        try:
            stream.truncate(0)
            stream.write(MAGIC)
            made._write(_HEADER, text)
            stream.flush()
        except OSError as error:
            made.close()
            raise made._refused(error) from None
        return made

    @classmethod
    def again(cls, path: Path) -> tuple[Self, Header, Iterator[list[Record]]]:
        """Go on with a backup that was begun: what stands in it must be read to its end before more is written.

        What follows the last whole block is cut off. Raises NoBackup where none was begun.
        """
        part = part_of(path)
        try:
            stream = _opened(part)
        except FileNotFoundError:
            raise NoBackup(f"there is no {part} to go on with; leave --resume out to begin a backup") from None
        made = cls(path, stream)
        blocks = _Blocks(stream, part)
        try:
            header = blocks.header()
        except BackupDamaged:
            stream.close()
            raise NoBackup(f"{part} was interrupted before anything was saved; add --overwrite to start anew") from None
        except BaseException:
            stream.close()
            raise
        made.blocks, made._digest = 1, blocks.digest.copy()
        return made, header, made._kept(blocks)

    def _kept(self, blocks: _Blocks) -> Iterator[list[Record]]:
        end = self._stream.tell()
        with suppress(BackupDamaged):
            for records in blocks.records():
                for record in records:
                    self.counts.add(record)
                end, self.blocks, self._digest = self._stream.tell(), blocks.place, blocks.digest.copy()
                yield records
        # All of it was written, and then it was not renamed: the footer goes, and is made again.
        self._stream.seek(end)
        self._stream.truncate()

    def add(self, record: Record) -> bool:
        """Take a record; True: it is time to `flush`. Raises KeyTooLarge."""
        data = encode(record)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self.counts.add(record)
        return self._waiting_bytes >= BLOCK_BYTES

    def taken(self) -> list[bytes]:
        """What was added since the last time, for `flush`."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return waiting

    def flush(self, records: list[bytes]) -> None:
        """Write records, in any thread, but in one at a time. Raises BackupError where the disk does not take it."""
        small = [data for data in records if len(data) <= BLOCK_BYTES]
        try:
            if small:
                self._write_small(small)
            for data in records:
                if len(data) > BLOCK_BYTES:
                    self._write_long(data)
            self._stream.flush()
        except OSError as error:
            raise self._refused(error) from None

    def _write_small(self, records: list[bytes]) -> None:
        block: list[bytes] = []
        size = 0
        for data in records:
            block.append(data)
            size += len(data)
            if size >= BLOCK_BYTES:
                self._write(_KEYS, b"".join(block))
                block, size = [], 0
        if block:
            self._write(_KEYS, b"".join(block))

    def _write_long(self, data: bytes) -> None:
        last = (len(data) - 1) // BLOCK_BYTES * BLOCK_BYTES
        for at in range(0, len(data), BLOCK_BYTES):
            self._write(_LONG_END if at == last else _LONG, data[at : at + BLOCK_BYTES])

    def _write(self, what: bytes, content: bytes) -> None:
        stored = zlib.compress(content, _LEVEL)
        checksum = _checksum(self.blocks, what, len(content), stored)
        self._digest.update(checksum)
        self._stream.write(_FRAME.pack(what, len(content), len(stored), checksum))
        self._stream.write(stored)
        self.blocks += 1

    def finish(self, *, overwrite: bool) -> int:
        """Write the footer and give the file its name, when all of it is on disk; returns its size."""
        try:
            footer = {"keys": self.counts.keys, "kinds": self.counts.kinds, "digest": self._digest.hexdigest()}
            self._write(_FOOTER, json.dumps(footer).encode())
            self._stream.flush()
            os.fsync(self._stream.fileno())
            size = self._stream.tell()
            refuse_existing(self.path, overwrite=overwrite)
            if not _is_named(self._stream, part_of(self.path)):
                raise BackupError(f"{part_of(self.path)} was removed or replaced while it was written; begin anew")
            part_of(self.path).replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise self._refused(error) from None
        return size

    def close(self) -> None:
        with suppress(OSError):  # what could not be written was said where it was
            self._stream.close()

    def _refused(self, error: OSError) -> BackupError:
        return BackupError(f"cannot write {part_of(self.path)}: {error.strerror or error}")


def part_of(path: Path) -> Path:
    """The name of a backup that is not finished."""
    return path.with_name(path.name + ".part")


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raises BackupInTheWay where something of this name is there that may not go."""
    if path.is_dir():
        raise BackupInTheWay(f"{path} is a folder; name a file in it")
    if path.exists() and not overwrite:
        raise BackupInTheWay(f"{path} is there already; add --overwrite to write over it, or name another file")


def _opened(part: Path, how: int = 0) -> BinaryIO:
    """Open or make it for ourselves alone. Raises FileExistsError, FileNotFoundError or BackupError."""
    flags = os.O_RDWR | how | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        stream = os.fdopen(os.open(part, flags, 0o600), "r+b")
    except FileExistsError:
        raise
    except FileNotFoundError:
        if how:
            raise BackupError(f"cannot write {part}: there is no folder {part.parent}") from None
        raise
    except OSError as error:
        raise BackupError(f"cannot write {part}: {error.strerror or error}") from None
    try:
        _claim(stream, part)
    except BaseException:
        stream.close()
        raise
    return stream


def _claim(stream: BinaryIO, part: Path) -> None:
    """Lock it for as long as it is open. Raises BackupInTheWay where it is another's."""
    try:
        import fcntl
    except ImportError:  # Windows, where two who write one backup at once are not kept apart
        return
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BackupInTheWay(f"another process is writing {part}; wait for it, or name another file") from None
    if not _is_named(stream, part):  # who had the lock has finished, and what we hold is its backup
        raise BackupInTheWay(f"another process has just finished {part}; look at what it made, then begin again")
    found = os.fstat(stream.fileno())
    if found.st_uid != os.geteuid() or found.st_nlink != 1:  # whoever laid it there could read all that is written
        raise BackupInTheWay(f"{part} is not a file of yours alone; remove it, or name another file")
    os.fchmod(stream.fileno(), 0o600)


def _is_named(stream: BinaryIO, part: Path) -> bool:
    """Whether this name still stands for the file that is open."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), part.lstat())
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """So that the new name survives a crash of the machine. Windows cannot, and need not."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading -----------------------------------------------------------------------------------------------


class BackupFile:
    """A finished backup, opened to be read. Every block is checked each time it is read."""

    def __init__(self, path: Path) -> None:
        """Raises NoBackup where it cannot be opened, or where its header is not one."""
        self.path = path
        self.digest = ""  # what names this backup, known when all blocks were read
        try:
            self._stream: BinaryIO = path.open("rb")
        except OSError as error:
            begun = f"; {part_of(path)} was begun and not finished" if part_of(path).exists() else ""
            raise NoBackup(f"cannot read {path}: {error.strerror or error}{begun}") from None
        try:
            if not self._stream.seekable():
                raise NoBackup(f"{path} can be read once only, and a backup is read twice; save it as a file first")
            self.header = _Blocks(self._stream, path).header()
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    @property
    def stamp(self) -> tuple[int, int]:
        """Its size and when it was written: with another stamp it is another backup under the same name."""
        found = os.fstat(self._stream.fileno())
        return found.st_size, found.st_mtime_ns

    def blocks(self) -> Iterator[list[Record]]:
        """The records, block by block. Raises BackupDamaged at the first that is not as it was written.

        That the file is whole is known only when the last block was read: so read all of them before you act on any.
        """
        self._stream.seek(0)
        blocks = _Blocks(self._stream, self.path)
        blocks.header()
        counts = Counts()
        for records in blocks.records():
            for record in records:
                counts.add(record)
            yield records
        blocks.check_footer(counts)
        self.digest = blocks.digest.hexdigest()


class _Blocks:
    """Reads one block after the other, and believes nothing."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream = stream
        self._path = path
        self.place = 0
        self.digest = blake2b(digest_size=32)
        self._footer: bytes | None = None

    def header(self) -> Header:
        """The first block. Raises NoBackup or BackupDamaged."""
        magic = self._stream.read(len(MAGIC))
        if magic != MAGIC:
            if magic and MAGIC.startswith(magic):
                raise self._damaged("it ends in its first line")
            name, _, number = magic.rpartition(b" ")
            if name == MAGIC.rpartition(b" ")[0] and number.rstrip(b"\n").isdigit():
                raise NoBackup(f"{self._path} is a backup of another format, made by a later Keystead; use that one")
            raise NoBackup(f"{self._path} is no backup of Keystead")
        what, content = self._next()
        said = _json(content) if what == _HEADER else None
        if said is None:
            raise self._damaged("its header is none")
        if said.pop("format", None) != FORMAT:
            raise NoBackup(f"{self._path} is a backup of another format, made by a later Keystead; use that one")
        try:
            header = Header(**said)
        except TypeError:
            raise self._damaged("its header is none") from None
        if not all(isinstance(text, str) for text in said.values()):
            raise self._damaged("its header is none")
        return header

    def records(self) -> Iterator[list[Record]]:
        """The records of each block that has any; a long one stands alone."""
        try:
            for content in self.contents():
                yield decode(content)
        except BackupDamaged as error:
            raise self._damaged(str(error)) from None

    def contents(self) -> Iterator[bytes]:
        """The content of each block of keys, and of each long record; ends with the footer."""
        pieces: list[bytes] = []
        size = 0
        while True:
            what, content = self._next()
            if what == _FOOTER and not pieces:
                self._footer = content
                if self._stream.read(1):
                    raise self._damaged("something follows its end")
                return
            if what == _KEYS and not pieces:
                yield content
            elif what in (_LONG, _LONG_END):
                pieces.append(content)
                size += len(content)
                if size > LARGEST_BYTES:
                    raise self._damaged("a key in it is larger than any may be")
                if what == _LONG_END:
                    yield b"".join(pieces)
                    pieces, size = [], 0
            else:
                raise self._damaged("its blocks are not in order")

    def check_footer(self, counts: Counts) -> None:
        """After the last block: the footer says of the file what was found in it."""
        said = _json(self._footer or b"")
        found: dict[str, Any] = {"keys": counts.keys, "kinds": counts.kinds, "digest": self.digest.hexdigest()}
        if said != found:
            raise self._damaged("what stands in it is not what its end says")

    def _next(self) -> tuple[bytes, bytes]:
        frame = self._stream.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            raise self._damaged("it was cut short: its end is missing")
        what, length, stored_length, checksum = _FRAME.unpack(frame)
        largest = _LARGEST_TEXT if what in (_HEADER, _FOOTER) else _LARGEST_BLOCK
        if length > largest or stored_length > _LARGEST_STORED:
            raise self._damaged(f"block {self.place + 1} is larger than any may be")
        stored = self._stream.read(stored_length)
        if len(stored) < stored_length:
            raise self._damaged("it was cut short: its end is missing")
        if _checksum(self.place, what, length, stored) != checksum:
            raise self._damaged(f"block {self.place + 1} was altered")
        content = _unpacked(stored, length)
        if content is None:
            raise self._damaged(f"block {self.place + 1} is none")
        if what != _FOOTER:
            self.digest.update(checksum)
        self.place += 1
        return what, content

    def _damaged(self, why: str) -> BackupDamaged:
        return BackupDamaged(why if str(self._path) in why else f"{self._path} is damaged: {why}")


def _checksum(place: int, what: bytes, length: int, stored: bytes) -> bytes:
    digest = blake2b(struct.pack("<QcII", place, what, length, len(stored)), digest_size=16)
    digest.update(stored)
    return digest.digest()


def _unpacked(stored: bytes, length: int) -> bytes | None:
    """What was compressed, if it has this length: never more is unpacked."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(stored, length + 1)
    except zlib.error:
        return None
    return content if len(content) == length and unpacking.eof and not unpacking.unused_data else None


def _json(text: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
