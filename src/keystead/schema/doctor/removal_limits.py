"""Removal limits: how much a repair may quarantine or delete before an operator must confirm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Literal

from keystead.schema.doctor.contents import UnreadableEntries
from keystead.schema.doctor.report import FEW, Report
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.family_lookup import name_of

TOO_MANY: Final = "more than 1 % of them would be set aside, which an operator must confirm"
_TOO_MANY_DELETED: Final = "more than 1 % of them would be deleted, which an operator must confirm"
ASTRAY: Final = {
    "orphan": "no key of this family has its owner, so the store or the pattern of the owners is probably wrong",
    "leads-nowhere": "no key of this family leads to an existing key, so the store or the pattern of the target family "
    "is probably wrong",
}

Removed = Literal["key", "entry", "deleted"]


@dataclass
class RemovalLimits:
    """What may be repaired, and how much was quarantined or deleted per family.

    codes   only findings of these codes are repaired; None: of all
    keys    only findings of these keys are repaired; None: of all
    """

    plan: Report
    unknown: bool
    all: bool
    codes: Collection[str] | None = None
    keys: Collection[str] | None = None
    _done: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._astray = self.plan.astray

    def covers(self, suspicion: Suspicion) -> bool:
        """Whether its repair was asked for. If not, it is only reported."""
        of_code = self.codes is None or suspicion.code in self.codes
        return of_code and (self.keys is None or suspicion.look.key in self.keys)

    def refusal(self, suspicion: Suspicion) -> str:
        """Why it may not be repaired. Empty if it may: then its removals are counted as done."""
        family = name_of(suspicion.family)
        if suspicion.deletes:
            if family in self._astray:
                return ASTRAY[self._astray[family]]
            return "" if self.allow(family, 1, "deleted") else _TOO_MANY_DELETED
        if suspicion.sets_aside and not self.allow(family, suspicion.size, quarantined_unit(suspicion)):
            return TOO_MANY
        return ""

    def allow(self, family: str, count: int, what: Removed) -> bool:
        """Whether `count` more may be quarantined or deleted. If so, they are counted as done."""
        plan = self.plan
        if family:
            planned = {"key": plan.aside, "entry": plan.entries_aside, "deleted": plan.deleted}[what]
            present = plan.entries if what == "entry" else plan.keys
            expected, total = planned.get(family, 0), present.get(family, 0)
        else:
            expected, total = plan.count("unknown-key"), plan.examined
        if self.keys is not None and what != "entry":
            expected = min(expected, len(self.keys))
        done = self._done.get((family, what), 0) + count
        # Keys that appeared after the plan was made may go too, as long as the total stays small.
        if not self.all and (expected * FEW > total or done * FEW > max(total, FEW * expected)):
            return False
        self._done[family, what] = done
        return True


def quarantined_unit(suspicion: Suspicion) -> Literal["key", "entry"]:
    """Whether a repair quarantines the whole key or single entries."""
    return "entry" if isinstance(suspicion, UnreadableEntries) else "key"
