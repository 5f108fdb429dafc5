"""The storage quota for uploads, in total and per owner."""

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
OWNER_FULL: Final = "owner quota exceeded"
ALL_FULL: Final = "total quota exceeded"


class Quota:
    """Counts the bytes of uploads in the same step that creates or deletes their records: neither a race nor a crash
    exceeds the quota. In a cluster each counter is a separate step, before a record is created and after it is deleted;
    a crash between them counts too much, never too little.
    """

    def __init__(self, keys: SharingKeys, settings: SharingSettings) -> None:
        self._keys = keys
        self._total_max = settings.quota_bytes
        self._owner_max = settings.quota_per_user_bytes

    def owner(self, who: str, where: str) -> str | None:
        """The owner whose quota an upload is charged to; None for holders of the issue key: only the total quota."""
        if who == "visitor":
            return f"address:{client_of(where)}"
        return who if ":" in who else None

    async def used(self, owner: str) -> int:
        return max(0, await self._keys.stored(owner).get())

    def reserve(self, owner: str | None, size: int) -> list[tuple[Operation[Any], ...]]:
        """The operations that count an upload and stop its step if the quota is exceeded, each with its undo."""
        steps: list[tuple[Operation[Any], ...]] = []
        for name, limit in self._limits(owner):
            counter = self._keys.stored(name)
            if limit:
                reason = ALL_FULL if name == ALL else OWNER_FULL
                steps.append((counter.at_most(max(-1, limit - size)).otherwise(reason),))
            steps.append((counter.increment(size), counter.decrement(size)))
        return steps

    def release(self, owner: str | None, size: int) -> list[Operation[Any]]:
        """The operations that release these bytes."""
        return [self._keys.stored(name).decrement(size) for name, _ in self._limits(owner)] if size else []

    async def renew(self, meta: EdgeMeta) -> None:
        """Extend the lifetime of the counters of an extended file."""
        for name, _ in self._limits(meta.charged_to):
            await self._keys.stored(name).touch()

    async def refusal(self, reason: str, owner: str | None, size: int) -> SharingRefused:
        if reason == ALL_FULL or owner is None:
            sentence = "there is not enough storage for this file; try again when other files have expired"
            return SharingRefused("STORAGE_FULL", sentence)
        used, quota = await self.used(owner), self._owner_max
        sentence = (
            f"you are using {size_in_words(used)} of {size_in_words(quota)}, and this file has {size_in_words(size)}; "
            "end a link that you no longer need, or wait until one expires"
        )
        return SharingRefused("QUOTA_EXCEEDED", sentence, used=used, quota=quota)

    def _limits(self, owner: str | None) -> list[tuple[str, int]]:
        own = [] if owner is None else [(owner, self._owner_max)]
        return [*own, (ALL, self._total_max)]
