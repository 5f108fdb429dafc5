"""Where the files of a store are: the store remembers it, and no other place is taken for it."""

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

UPLOADS: Final = "receive"  # the folder of what is uploaded here
MARKER: Final = "keystead-files"
_MARKER_MAX_BYTES: Final = 200
_LOOKED_AT: Final = 50  # of the files that a store knows


def is_uploaded(path: str) -> bool:
    """Whether the file of this path was uploaded here. Nobody else can have had its path, or will have it."""
    return path.partition("/")[0] == UPLOADS


class FilesElsewhere(KeysteadError):
    """The files of this store are in another place than the setting `files` names. Nothing was touched.

    Start the process where the others were started, or name their place in `files`.
    """

    code = "files-elsewhere"


async def place_of(keys: SharingKeys, settings: SharingSettings) -> Blobs:
    """The place that the settings name. Where the store remembers one, a folder that is missing is not made: it would
    be another. Raises FilesElsewhere.
    """
    kept = await keys.files().get().if_readable()
    if kept is None or settings.files_moved:
        return open_blobs(settings.files)
    try:
        return open_blobs(settings.files, make=False)
    except BadUrl:
        raise _elsewhere(_absolute(settings.files), kept) from None


def _absolute(folder: str) -> Path:
    return Path(folder.removeprefix("file://")).absolute()


def _elsewhere(here: object, kept: FilesPlace) -> FilesElsewhere:
    return FilesElsewhere(
        f"the files of this store are not in {here}, but where they were first kept, in {kept.place}; start this "
        "process in the same folder as the others, or set sharing.files (if all of them are really here now, start "
        "once with sharing.files_moved = true)"
    )


class Place:
    """The place of the files. A file in it, the marker, holds what the store has as well: so a folder that was moved,
    or that two servers reach by two names, is still the same, and one that is empty or not mounted is not.
    """

    def __init__(self, keys: SharingKeys, blobs: Blobs, *, moved: bool = False) -> None:
        self._keys = keys
        self._blobs = blobs
        self._moved = moved
        self._is_claimed = False

    async def open(self) -> None:
        """Check the place when a process starts. Raises FilesElsewhere; BlobUnavailable where it cannot be reached.

        A store from before the place was remembered must know at least one of the files that are there.
        """
        if self._moved:
            await self._move()
        elif await self._keys.files().get().if_readable() is not None:
            await self.check()
        elif await self._knows_files():
            await self.claim()

    async def check(self) -> None:
        """Raises FilesElsewhere where the store's files are elsewhere. One that has no files yet is content."""
        kept = await self._keys.files().get().if_readable()
        if kept is None:
            return
        marker = await self._marker()
        if marker is None or not same(marker, kept.marker):
            raise _elsewhere(self._blobs.url, kept)

    async def claim(self) -> None:
        """Remember this place, before the first file is kept; of two places at the same moment one gets the store.

        Raises FilesElsewhere where the store remembers another.
        """
        if self._is_claimed:
            return
        if not self._blobs.outlives_the_process:
            await self.check()  # the files of another place would look deleted from here
        elif await self._keys.files().get().if_readable() is None:
            # The marker is there first: whoever dies in between leaves one that the next process takes up.
            marker = await self._mark()
            await self._keys.files().add(FilesPlace(marker=marker, place=self._blobs.url))
            await self.check()
        else:
            await self.check()
        self._is_claimed = True

    async def _move(self) -> None:
        marker = await self._mark()
        await self._keys.files().set(FilesPlace(marker=marker, place=self._blobs.url))
        _log.warning("the files of this store are in %s from now on; take files_moved out again", self._blobs.url)

    async def _mark(self) -> str:
        """What the marker of this place holds. It is made where there is none; of several at once one makes it."""
        await self._blobs.add(MARKER, secrets.token_urlsafe(32).encode())
        marker = await self._marker()
        if marker is None:
            raise FilesElsewhere(f"{self._blobs.url}: the file {MARKER} is not what it was made as; delete it")
        return marker

    async def _marker(self) -> str | None:
        found = b""
        try:
            async for piece in self._blobs.read(MARKER, 0, _MARKER_MAX_BYTES):
                found += piece
        except BlobGone:
            return None
        text = found.decode("ascii", "replace").strip()
        return text or None

    async def _knows_files(self) -> bool:
        """Whether the store knows files, of which some are here. Raises FilesElsewhere where none of them is."""
        known = 0
        try:
            ids = [id for id, _ in await self._keys.index().between(-math.inf, math.inf, limit=_LOOKED_AT)]
        except (Unreadable, WrongKind):  # the clean-up and the doctor say so
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
                f"of {known} files that this store knows none is in {self._blobs.url}; start this process in the same "
                "folder as before, or set sharing.files (if they are really gone, start once with "
                "sharing.files_moved = true)"
            )
        return False
