"""Findings of the doctor: examine on demand or by the schedule, and repair within the limits of `doctor --fix`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from keystead.catalogue import message
from keystead.console.console_keys import ConsoleKeys, Examination, FoundDefect, Removal
from keystead.console.console_tasks import TaskStopped
from keystead.console.key_visibility import hides_keys, hides_members, shown_key
from keystead.errors import WrongSealKey
from keystead.schema import Keyspace
from keystead.schema.doctor import Progress, Report, examine, repair
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import name_of
from keystead.schema.finding import CODES
from keystead.schema.times import moment

FindKey = Callable[[str], tuple[Bound[Any], str] | None]

_DELETE: Final = message("delete")
_LIST: Final = message("add to the index; delete if the index admits its records")
_SET_ASIDE: Final = message("set aside for 30 days")

# What a repair does, by code, as a message of the console. Other codes are not repaired here.
REPAIRS: Final = {
    "orphan": _DELETE,
    "dead-entry": message("remove from the index"),
    "not-listed": _LIST,
    "wrong-score": message("write the score of the record"),
    "no-deadline": message("set the declared deadline"),
    "late-deadline": message("set the declared deadline"),
    "early-deadline": message("set the declared deadline"),
    "unexpected-deadline": message("remove the deadline"),
    "wrong-kind": _SET_ASIDE,
    "unreadable": _SET_ASIDE,
    "too-long": message("drop the oldest entries of logs"),
    "leads-nowhere": _DELETE,
    "old-seal": message("seal with the current key"),
    "old-version": message("write in the current version"),
}
_EXAMPLES: Final = 20
_DAY: Final = timedelta(days=1)
_KEPT: Final = 60
_WORD: Final = re.compile(r"\S+")


class ConsoleFindings:
    """known   keyspaces whose keys are not unknown, although they are not examined"""

    def __init__(
        self, keys: ConsoleKeys, keyspaces: Sequence[Keyspace], known: Collection[type[Keyspace]], find_key: FindKey
    ) -> None:
        self._keys = keys
        self._keyspaces = [one for one in keyspaces if all(store.guarantees.scans for store in one.stores)]
        self._known = known
        self._find_key = find_key

    async def latest(self) -> tuple[Examination | None, Examination | None]:
        """The last examination, and what there was yesterday: the last one before that is a day old, or the oldest."""
        found = [entry.item for entry in await self._keys.examinations().see_latest(_KEPT) if entry.item is not None]
        if not found:
            return None, None
        last, *others = found
        yesterday = moment(self._keys.now_ms()) - _DAY
        older = next((one for one in others if one.at <= yesterday), others[-1] if others else None)
        return last, older

    async def examine(self, who: str, report: Callable[[Progress], None]) -> Report:
        """Run the doctor, read-only, and record the result."""
        found = await examine(self._keyspaces, known=self._known, on_progress=report, examples=_EXAMPLES)
        await self._record(found, who)
        return found

    async def repair(
        self,
        code: str,
        key: str | None,
        confirmed: Sequence[Removal],
        who: str,
        report: Callable[[Progress], None],
    ) -> Report:
        """Repair the findings of a code, or that of one key, after a new examination.

        More than 1 % of a family is set aside or deleted only as far as `confirmed`. Raises TaskStopped if there is
        more to remove now, and WrongSealKey if the seal keys are wrong; then nothing was repaired.
        """
        families = self._families_of(key)
        plan = await examine(
            self._keyspaces, families=families, known=self._known, on_progress=report, examples=_EXAMPLES
        )
        if plan.locked:
            raise WrongSealKey(plan.locked)
        if key is None and not _covers(confirmed, removals_of(plan, code)):
            raise TaskStopped("changed")
        done = await repair(
            self._keyspaces,
            plan=plan,
            set_aside="all" if confirmed or key is not None else "few",
            codes={code},
            keys=None if key is None else {key},
            families=families,
            known=self._known,
            on_progress=report,
            examples=_EXAMPLES,
        )
        if key is None:
            # Once more, so that what is shown next is what is left.
            await self.examine(who, lambda now: report(replace(now, findings=done.findings, fixed=done.repaired)))
        elif done.repaired:
            await self._strike_out(code, key)
        return done

    async def _strike_out(self, code: str, key: str) -> None:
        """Record the last examination again, without this finding."""
        last, _ = await self.latest()
        found = (
            None if last is None else next((one for one in last.examples if (one.code, one.key) == (code, key)), None)
        )
        if last is None or found is None:
            return
        counts = {name: dict(families) for name, families in last.counts.items()}
        counts[code][found.family] -= 1
        left = {name: {family: n for family, n in some.items() if n > 0} for name, some in counts.items()}
        examples = [one for one in last.examples if one is not found]
        changed = {"counts": {name: some for name, some in left.items() if some}, "examples": examples}
        await self._keys.examinations().append(last.model_copy(update=changed))

    def _families_of(self, key: str | None) -> set[Family[Any]] | None:
        found = None if key is None else self._find_key(key)
        return None if found is None else {found[0].family}

    async def _record(self, found: Report, who: str) -> None:
        examination = Examination(
            at=moment(self._keys.now_ms()),
            who=who,
            examined=found.examined,
            counts={code: dict(families) for code, families in found.counts.items()},
            astray=found.astray,
            removals=removals_of(found, None),
            examples=[self._shown(one) for one in found.found if one.finding.code != "unknown-key"],
        )
        await self._keys.examinations().append(examination)

    def _shown(self, one: Any) -> FoundDefect:
        """A finding, with credentials masked. Its sentence may name further keys."""
        finding = one.finding
        known = self._find_key(finding.key or "")
        if known is None:
            return FoundDefect(
                code=finding.code, family=finding.family or "", where="…", sentence=_general(finding.code)
            )
        bound, key = known
        hidden = hides_keys(bound.family)
        return FoundDefect(
            code=finding.code,
            family=finding.family or "",
            where=shown_key(bound, key),
            key=None if hidden else key,
            sentence=_general(finding.code) if hides_members(bound.family) else self._masked(finding.sentence),
        )

    def _masked(self, sentence: str) -> str:
        def mask(found: re.Match[str]) -> str:
            word = found[0].rstrip(",;:")
            known = self._find_key(word)
            return found[0] if known is None else shown_key(*known) + found[0][len(word) :]

        return _WORD.sub(mask, sentence)


def removals_of(found: Report, code: str | None) -> list[Removal]:
    """The removals to confirm: of all codes, or those of the families in which this code was found."""
    families = None if code is None else found.counts.get(code, {})
    return [
        Removal(family=one.family, count=one.count, total=one.total, repair=one.repair)
        for one in found.excess(unknown=False)
        if families is None or one.family in families
    ]


def removals_for(examination: Examination, code: str) -> list[Removal]:
    """The removals that the repair of this code may make, as far as it was examined."""
    if REPAIRS.get(code) not in (_DELETE, _SET_ASIDE, _LIST):
        return []
    families: Mapping[str, int] = examination.counts.get(code, {})
    return [one for one in examination.removals if one.family in families]


def _covers(confirmed: Sequence[Removal], needed: Sequence[Removal]) -> bool:
    """Whether no more is to be removed than was confirmed."""
    allowed = {(one.family, one.repair): one.count for one in confirmed}
    return not confirmed or all(one.count <= allowed.get((one.family, one.repair), 0) for one in needed)


def _general(code: str) -> str:
    return CODES[code].title


def family_names(keyspaces: Sequence[Keyspace]) -> dict[str, Bound[Any]]:
    """The families by the names that reports use."""
    return {name_of(bound.family): bound for keys in keyspaces for bound in keys.bounds()}
