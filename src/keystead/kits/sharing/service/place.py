"""The location of a store's files. The store remembers it, and any other location is refused."""

from __future__ import annotations

import logging
import math
import secrets
from pathlib import Path
from typing import Final

from keystead.errors import BadUrl, KeysteadError, Unreadable, WrongKind
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import FilesPlace
from keystead.kits.sharing.service.settings import SharingSettings
from keystead.parts.blobs import BlobGone, Blobs, open_blobs
from keystead.parts.digest import same

_log = logging.getLogger("keystead.sharing")

UPLOADS: Final = "receive"  # the folder of uploads
MARKER: Final = "keystead-files"
_MARKER_MAX_BYTES: Final = 200
_CHECKED_MAX: Final = 50  # files that the store knows


def is_uploaded(path: str) -> bool:
    """Whether the file of this path was uploaded here. Such paths are random and never reused."""
    return path.partition("/")[0] == UPLOADS


class FilesElsewhere(KeysteadError):
    """The files of this store are not at the location that the setting `files` names. Nothing was changed.

    Start the process in the same folder as the others, or set `files` to their location.
    """

    code = "files-elsewhere"


async def place_of(keys: SharingKeys, settings: SharingSettings) -> Blobs:
    """The location that the settings name. If the store remembers a location, a missing folder is not created.

    Raises FilesElsewhere.
    """
    remembered = await keys.files().get().if_readable()
    if remembered is None or settings.files_moved:
        return open_blobs(settings.files)
    try:
        return open_blobs(settings.files, make=False)
    except BadUrl:
        raise _elsewhere(_absolute(settings.files), remembered) from None


def _absolute(folder: str) -> Path:
    return Path(folder.removeprefix("file://")).absolute()


def _elsewhere(here: object, remembered: FilesPlace) -> FilesElsewhere:
    return FilesElsewhere(
        f"the files of this store are not in {here} but in {remembered.place}; start this process in the same folder "
        "as the others, or set sharing.files (if all files were moved here, start once with "
        "sharing.files_moved = true)"
    )


class Place:
    """The location of the files, identified by a marker file whose content the store also has.

    So a folder that was moved, or that two servers mount under two names, is still recognized; an empty or unmounted
    one is not.
    """

    def __init__(self, keys: SharingKeys, blobs: Blobs, *, moved: bool = False) -> None:
        self._keys = keys
        self._blobs = blobs
        self._moved = moved
        self._is_claimed = False

    async def open(self) -> None:
        """Check the location at startup. Raises FilesElsewhere, or BlobUnavailable if it cannot be reached.

        If the store remembers no location yet but knows files, at least one of them must be here.
        """
        if self._moved:
            await self._move()
        elif await self._keys.files().get().if_readable() is not None:
            await self.check()
        elif await self._knows_files():
            await self.claim()

    async def check(self) -> None:
        """Raises FilesElsewhere if the store's files are at another location. Passes if the store has no files yet."""
        remembered = await self._keys.files().get().if_readable()
        if remembered is None:
            return
        marker = await self._read_marker()
        if marker is None or not same(marker, remembered.marker):
            raise _elsewhere(self._blobs.url, remembered)

    async def claim(self) -> None:
        """Remember this location before the first file is stored. Of two concurrent claims, one wins.

        Raises FilesElsewhere if the store remembers another location.
        """
        if self._is_claimed:
            return
        if not self._blobs.outlives_the_process:
            await self.check()  # files at another location would look deleted from here
        elif await self._keys.files().get().if_readable() is None:
            # Write the marker first: after a crash in between, the next process reuses it.
            marker = await self._mark()
            await self._keys.files().add(FilesPlace(marker=marker, place=self._blobs.url))
            await self.check()
        else:
            await self.check()
        self._is_claimed = True

    async def _move(self) -> None:
        marker = await self._mark()
        await self._keys.files().set(FilesPlace(marker=marker, place=self._blobs.url))
        _log.warning("the files of this store are now in %s; remove the setting files_moved", self._blobs.url)

    async def _mark(self) -> str:
        """The marker of this location. Creates it if there is none; one of several concurrent calls does."""
        await self._blobs.add(MARKER, secrets.token_urlsafe(32).encode())
        marker = await self._read_marker()
        if marker is None:
            raise FilesElsewhere(f"{self._blobs.url}: the file {MARKER} is damaged; delete it")
        return marker

    async def _read_marker(self) -> str | None:
        found = b""
        try:
            async for piece in self._blobs.read(MARKER, 0, _MARKER_MAX_BYTES):
                found += piece
        except BlobGone:
            return None
        text = found.decode("ascii", "replace").strip()
        return text or None

    async def _knows_files(self) -> bool:
        """Whether the store knows files and at least one is here. Raises FilesElsewhere if none of them is."""
        known = 0
        try:
            ids = [id for id, _ in await self._keys.index().between(-math.inf, math.inf, limit=_CHECKED_MAX)]
        except (Unreadable, WrongKind):  # the clean-up and the doctor report it
            return False
        for id in ids:
            meta = await self._keys.meta(id).get().if_readable()
            if meta is None or meta.upload is not None or not is_uploaded(meta.path):
                continue
            known += 1
            if await self._blobs.size(meta.path) is not None:
                return True
        if known:
            raise FilesElsewhere(
                f"none of the {known} files that this store knows is in {self._blobs.url}; start this process in the "
                "same folder as before, or set sharing.files (if they are really gone, start once with "
                "sharing.files_moved = true)"
            )
        return False
