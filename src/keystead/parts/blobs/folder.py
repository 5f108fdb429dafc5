"""Blobs in a local folder."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from keystead.errors import printable
from keystead.parts.blobs.blob_errors import BlobUnavailable
from keystead.parts.blobs.blob_paths import check_path
from keystead.parts.blobs.blobs import Blobs

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# obstore writes `path` to `path#1` first, or to `path#2` if that exists, and refuses paths that end like this.
_ENDS_AS_STAGED = re.compile(r"#\d+~*$")
_NUMBERS_AT_ONCE = 64  # free numbers in a row that end the search; each concurrent put uses two
_FOLDER_TRIES = 100


class FolderBlobs(Blobs):
    """Blobs in a folder, one file each. When `put` returns, the blob survives a power failure.

    Symbolic links below the folder are not followed: a path with one in it is a BlobUnavailable. The path is checked
    before it is used. A program that can write to the folder could change it in between, but can read every blob
    anyway.
    """

    def __init__(self, folder: Path, timeout_s: float) -> None:
        super().__init__(self._local_store, str(folder), timeout_s)
        self._folder = folder

    def _local_store(self) -> ObjectStore:
        from obstore.store import LocalStore

        return LocalStore(self._folder)

    async def put(self, path: str, stream: AsyncIterable[bytes], *, max_bytes: int) -> int:
        found = await self._look(path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise BlobUnavailable(f"{self.url}: {printable(path)} is a folder: other blobs have paths below it")
        file = self._file(path)
        pinned = asyncio.ensure_future(asyncio.to_thread(self._pin, file))
        try:
            await asyncio.shield(pinned)
            size = await super().put(path, stream, max_bytes=max_bytes)
            await asyncio.to_thread(self._sync, file)
        finally:
            await asyncio.shield(self._unpin(file, pinned))  # also where the put is cancelled
        return size

    async def add(self, path: str, data: bytes) -> bool:
        await self._look(path)
        added = await super().add(path, data)
        if added:
            await asyncio.to_thread(self._sync, self._file(path))
        return added

    async def delete(self, path: str) -> bool:
        deleted = await super().delete(path)
        await asyncio.to_thread(self._tidy, self._file(path))
        return deleted

    def _name(self, path: str) -> str:
        # Paths that end like a staged file, or like one with `~`, get another `~`: so no two names collide.
        return f"{path}~" if _ENDS_AS_STAGED.search(path) else path

    def _file(self, path: str) -> Path:
        return self._folder / self._name(path)

    async def _may_be_there(self, path: str) -> bool:
        found = await self._look(path)
        return found is not None and stat.S_ISREG(found.st_mode)

    async def _look(self, path: str) -> os.stat_result | None:
        return await asyncio.to_thread(self._look_now, check_path(path))

    def _look_now(self, path: str) -> os.stat_result | None:
        """The stat of a path; None: nothing. Raises BlobUnavailable for a symbolic link or a missing folder."""
        try:
            found = os.stat(self._folder)
            here = self._folder
            for name in self._name(path).split("/"):
                here /= name
                try:
                    found = os.lstat(here)
                except (FileNotFoundError, NotADirectoryError):
                    return None
                if stat.S_ISLNK(found.st_mode):
                    raise BlobUnavailable(f"{self.url}: there is a symbolic link in the path {printable(path)}")
        except OSError as error:
            # A missing folder, such as an unmounted disk, must not look like missing blobs.
            raise BlobUnavailable(f"{self.url} cannot be read: {error.strerror}") from None
        return found

    def _pin(self, file: Path) -> Path:
        """Create the folder of a file, and an empty file in it that keeps `delete` from removing the folder before the
        put uses it. Its name is that of an interrupted put: after a crash, `delete` of this path removes it.
        """
        number, folders = 1, self._folders_above(file)
        for _ in range(_FOLDER_TRIES):
            pin = file.with_name(f"{file.name}#{number}")
            try:
                os.close(os.open(pin, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                return pin
            except FileExistsError:
                number += 1
            except FileNotFoundError:
                with suppress(FileNotFoundError):  # a delete removed one that was just made
                    for folder in reversed(folders):
                        with suppress(FileExistsError):
                            folder.mkdir()
            except OSError as error:
                raise BlobUnavailable(f"{self.url} cannot be written to: {error.strerror}") from None
        raise BlobUnavailable(f"{self.url}: the folder of a blob keeps being removed")

    async def _unpin(self, file: Path, pinned: asyncio.Future[Path]) -> None:
        with suppress(BlobUnavailable):
            pin = await pinned
            await asyncio.to_thread(self._remove_pin, file, pin)

    def _remove_pin(self, file: Path, pin: Path) -> None:
        with suppress(OSError):  # then it is a leftover as after a crash
            pin.unlink(missing_ok=True)
        self._remove_empty_folders(file)

    def _sync(self, file: Path) -> None:
        """Flush the file and its folders to disk."""
        try:
            for path in (file, *self._folders_above(file), self._folder):
                opened = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(opened)
                finally:
                    os.close(opened)
        except FileNotFoundError:
            pass  # deleted meanwhile
        except OSError as error:
            raise BlobUnavailable(f"{self.url} cannot be flushed to disk: {error.strerror}") from None

    def _tidy(self, file: Path) -> None:
        """Remove the leftovers of interrupted puts of this file, and empty folders."""
        try:
            number, missing = 1, 0
            # Each put takes the lowest free number. Listing a folder with many files would take too long.
            while missing < _NUMBERS_AT_ONCE:
                staged = file.with_name(f"{file.name}#{number}")
                if os.path.lexists(staged) and not staged.is_dir():  # a folder belongs to blobs with such a path
                    staged.unlink(missing_ok=True)
                    missing = 0
                else:
                    missing += 1
                number += 1
        except OSError as error:
            raise BlobUnavailable(f"{self.url} cannot be cleaned up: {error.strerror}") from None
        self._remove_empty_folders(file)

    def _remove_empty_folders(self, file: Path) -> None:
        with suppress(OSError):  # one that is not empty
            for folder in self._folders_above(file):
                folder.rmdir()

    def _folders_above(self, file: Path) -> list[Path]:
        """From the innermost outwards, without the root folder."""
        return [one for one in file.parents if self._folder in one.parents]
