"""Follow-up: each suspicion is confirmed, reported, and repaired on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from keystead.errors import BadValue, CommandError
from keystead.schema.doctor.removal_limits import RemovalLimits, quarantined_unit
from keystead.schema.doctor.report import Progress, Report, tally
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.family import Family

_TOGETHER: Final = 16  # suspicions that are followed up concurrently
_ATTEMPTS: Final = 3


class FollowUp:
    """Turns suspicions into findings of `report`. Without `limits` nothing is repaired."""

    def __init__(
        self,
        report: Report,
        limits: RemovalLimits | None,
        led_to: Collection[Family[Any]],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.report = report
        self.limits = limits
        self.total: int | None = None
        self.needs_another_pass = False  # a key was deleted after mappings to it were examined
        self._led_to = led_to
        self._on_progress = on_progress

    def report_progress(self) -> None:
        if self._on_progress is not None:
            report = self.report
            self._on_progress(Progress(report.examined, self.total, report.findings, report.repaired))

    async def follow(self, by_key: Sequence[list[Suspicion]]) -> int:
        """Confirm, report and repair the suspicions of each key. Returns how many were repaired."""
        repaired = 0
        for start in range(0, len(by_key), _TOGETHER):
            some = by_key[start : start + _TOGETHER]
            repaired += sum(await asyncio.gather(*map(self._follow_key, some)))
            self.report_progress()
        return repaired

    async def _follow_key(self, suspicions: list[Suspicion]) -> int:
        repaired = 0
        # A repair that removes the key comes first: then nothing else is wrong with it.
        for suspicion in sorted(suspicions, key=lambda one: not one.removes):
            if await self._follow_one(suspicion):
                repaired += 1
                if suspicion.removes:
                    self.needs_another_pass = self.needs_another_pass or suspicion.family in self._led_to
                    break
        return repaired

    async def _follow_one(self, suspicion: Suspicion) -> bool:
        """Returns whether it was confirmed and repaired."""
        if not await suspicion.confirm():
            return False
        is_new = self.report.is_new(suspicion.code, suspicion.place)
        self._count_removal(suspicion, is_new)
        fixed = False
        if self.limits is not None and self.limits.covers(suspicion):
            refusal = self.limits.refusal(suspicion)
            suspicion.note = refusal or suspicion.note
            outcome = False if refusal else await _repair(suspicion)
            if outcome is None:
                return False  # it was repaired meanwhile
            fixed = outcome
        if is_new:
            look = suspicion.look
            self.report.add(suspicion.code, look.key, suspicion.family, suspicion.sentence, fixed, suspicion.note)
        return fixed

    def _count_removal(self, suspicion: Suspicion, is_new: bool) -> None:
        if is_new and suspicion.sets_aside:
            counts = self.report.aside if quarantined_unit(suspicion) == "key" else self.report.entries_aside
            tally(counts, suspicion.family, suspicion.size)
        # Several codes may delete the same key; it is counted once.
        if suspicion.deletes and self.report.is_new("deleted", (id(suspicion.look.store), suspicion.look.key)):
            tally(self.report.deleted, suspicion.family)


async def _repair(suspicion: Suspicion) -> bool | None:
    """Whether it was repaired; None: it is not so any more."""
    for _ in range(_ATTEMPTS):
        try:
            if await suspicion.fix():
                return True
        except (BadValue, CommandError) as error:  # a related key cannot be determined, or the step is too large
            suspicion.note = str(error)
        if suspicion.note:
            return False
        if not await suspicion.confirm():
            return None
    return False
