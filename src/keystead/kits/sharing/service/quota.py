"""The storage quota: how many bytes of uploads are kept, of one owner and of all."""

from __future__ import annotations

from typing import Any, Final

from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.models import EdgeMeta
from keystead.kits.sharing.service.outcomes import SharingRefused
from keystead.kits.sharing.service.settings import SharingSettings
from keystead.kits.sharing.words import size_in_words
from keystead.parts.limit import client_of
from keystead.schema import Operation

ALL: Final = "all"
OWNER_FULL: Final = "the owner has no room for it"
ALL_FULL: Final = "there is no room for it"


class Quota:
    """Counts the bytes of uploads, in the step that makes or deletes their records: so neither a race nor a crash lets
    more be kept than the settings allow. In a cluster each counter is a step of its own, before the one that makes a
    record and after the one that deletes it; whoever dies between them leaves too much counted, never too little.
    """

    def __init__(self, keys: SharingKeys, settings: SharingSettings) -> None:
        self._keys = keys
        self._most = settings.quota_bytes
        self._most_of_one = settings.quota_per_user_bytes

    def owner(self, who: str, where: str) -> str | None:
        """Whose quota an upload is charged to; None: only to that of all, as for whoever has the issue key."""
        if who == "visitor":
            return f"address:{client_of(where)}"
        return who if ":" in who else None

    async def used(self, owner: str) -> int:
        return max(0, await self._keys.stored(owner).get())

    def reserve(self, owner: str | None, size: int) -> list[tuple[Operation[Any], ...]]:
        """What counts an upload of so many bytes, and stops the step that it is in where there is no room for it; each
        with what undoes it.
        """
        steps: list[tuple[Operation[Any], ...]] = []
        for name, most in self._counted(owner):
            counter = self._keys.stored(name)
            if most:
                reason = ALL_FULL if name == ALL else OWNER_FULL
                steps.append((counter.at_most(max(-1, most - size)).otherwise(reason),))
            steps.append((counter.increment(size), counter.decrement(size)))
        return steps

    def release(self, owner: str | None, size: int) -> list[Operation[Any]]:
        """What counts so many bytes less."""
        return [self._keys.stored(name).decrement(size) for name, _ in self._counted(owner)] if size else []

    def release_of(self, meta: EdgeMeta) -> list[Operation[Any]]:
        """The same for all that an upload was counted as. Those from before there was a quota were not counted."""
        return self.release(meta.charged_to, meta.size or 0)

    async def renew(self, meta: EdgeMeta) -> None:
        """Keep its counters as long as a file that stays longer."""
        for name, _ in self._counted(meta.charged_to):
            await self._keys.stored(name).touch()

    async def refusal(self, reason: str, owner: str | None, size: int) -> SharingRefused:
        if reason == ALL_FULL or owner is None:
            sentence = "there is no room for this file here just now; try again when other files have expired"
            return SharingRefused("STORAGE_FULL", sentence)
        used, most = await self.used(owner), self._most_of_one
        sentence = (
            f"you have {size_in_words(used)} of {size_in_words(most)} in use, and this file has "
            f"{size_in_words(size)}; end a link that you do not need any more, or wait until one expires"
        )
        return SharingRefused("QUOTA_EXCEEDED", sentence, used=used, quota=most)

    def _counted(self, owner: str | None) -> list[tuple[str, int]]:
        own = [] if owner is None else [(owner, self._most_of_one)]
        return [*own, (ALL, self._most)]
