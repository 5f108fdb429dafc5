"""The doctor's report: progress and findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from keystead.errors import printable
from keystead.schema.chunked_reading import NotOpened
from keystead.schema.family import Family
from keystead.schema.family_lookup import name_of
from keystead.schema.finding import CODES, Finding
from keystead.schema.key_shapes import ShapeCounts

# A scan of Redis may return a key twice. This many findings are remembered, as one hash each, to be counted once.
_REMEMBERED: Final = 100_000
FEW: Final = 100  # one in this many may be quarantined or deleted without confirmation
_NOT_BY_CHANCE: Final = 10  # if all keys, and more than this, miss their owner or target, that family is elsewhere


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an examination. `total` is the number of keys in the stores; None: only some are examined."""

    examined: int
    total: int | None
    findings: int
    fixed: int


@dataclass(frozen=True, slots=True)
class Found:
    """A finding, whether it was repaired, and if not, why not."""

    finding: Finding
    fixed: bool = False
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**self.finding.as_json(), "fixed": self.fixed, "note": self.note}


@dataclass(frozen=True, slots=True)
class Excess:
    """A removal so large that an operator must confirm it: `count` of `total` keys or entries of a family.

    The empty name means keys of no family; `total` then counts all keys of the stores.
    """

    family: str
    count: int
    total: int
    what: Literal["key", "entry"]
    repair: Literal["set aside", "delete"] = "set aside"


@dataclass(slots=True)
class Report:
    """All counts, and the first findings of each code. Its size does not depend on that of the stores."""

    examples: int = 20
    examined: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many findings there are, by code and family; a key of no family counts under the empty name."""
    fixed: dict[str, int] = field(default_factory=dict)
    """How many of them were repaired, by code."""
    found: list[Found] = field(default_factory=list)
    """The first `examples` findings of each code."""
    not_read: dict[str, int] = field(default_factory=dict)
    """How many keys were too large to be read in one step, by family."""
    sealed: dict[str, int] = field(default_factory=dict)
    """How many values stayed sealed, for lack of a key ring, by family: their relations were not followed."""
    others: dict[str, int] = field(default_factory=dict)
    """How many keys belong to known keyspaces that were not examined, by keyspace."""
    unknown: ShapeCounts = field(default_factory=ShapeCounts)
    """The keys of no family, by shape."""
    keys: dict[str, int] = field(default_factory=dict)
    """How many keys were examined, by family."""
    entries: dict[str, int] = field(default_factory=dict)
    """How many entries of sets, lists, logs and so on were read, by family."""
    aside: dict[str, int] = field(default_factory=dict)
    """How many keys a repair sets aside, or has set aside, by family; keys of no family under the empty name."""
    entries_aside: dict[str, int] = field(default_factory=dict)
    """The same for single entries."""
    deleted: dict[str, int] = field(default_factory=dict)
    """How many keys a repair deletes, or would delete, by family."""
    intact: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many keys have their owner (`orphan`), or lead to an existing key (`leads-nowhere`), by family."""
    opened: dict[str, int] = field(default_factory=dict)
    """How many sealed values were opened, by family."""
    unopened: dict[str, int] = field(default_factory=dict)
    """How many sealed values did not open, although there is a key ring, by family."""
    _seen: set[int] = field(default_factory=set)

    @property
    def findings(self) -> int:
        return sum(self.count(code) for code in self.counts)

    @property
    def repaired(self) -> int:
        return sum(self.fixed.values())

    @property
    def left(self) -> int:
        """How many findings are left."""
        return self.findings - self.repaired

    def count(self, code: str) -> int:
        return sum(self.counts.get(code, {}).values())

    @property
    def locked(self) -> dict[str, int]:
        """The families without a single sealed value that opens, and their number of values. Then the key is wrong."""
        return {family: count for family, count in self.unopened.items() if not self.opened.get(family)}

    @property
    def astray(self) -> dict[str, str]:
        """The families without a single key whose owner, or target, exists; and the code of that finding.

        Then the store or the pattern of the other family is wrong. None of their keys is deleted.
        """
        return {
            family: code
            for code, there in self.intact.items()
            for family, count in self.counts.get(code, {}).items()
            if count > _NOT_BY_CHANCE and not there.get(family)
        }

    def excess(self, *, unknown: bool) -> list[Excess]:
        """The removals to confirm before a repair: families that would lose more than 1 % to quarantine or deletion.

        `unknown`: keys of no family are set aside, too; they count as a share of all keys of the stores.
        """
        found = [Excess(family, count, self.keys.get(family, 0), "key") for family, count in self.aside.items()]
        found += [Excess(name, count, self.entries.get(name, 0), "entry") for name, count in self.entries_aside.items()]
        astray = self.astray
        found += [
            Excess(name, count, self.keys.get(name, 0), "key", "delete")
            for name, count in self.deleted.items()
            if name not in astray
        ]
        if unknown and (count := self.count("unknown-key")):
            found.append(Excess("", count, self.examined, "key"))
        return [one for one in found if one.count * FEW > one.total]

    def is_new(self, code: str, place: object) -> bool:
        """Whether this was not counted yet."""
        mark = hash((code, place))
        if mark in self._seen:
            return False
        if len(self._seen) < _REMEMBERED:
            self._seen.add(mark)
        return True

    def add(
        self, code: str, key: str | bytes, family: Family[Any] | None, sentence: str, fixed: bool, note: str = ""
    ) -> None:
        name = name_of(family) if family is not None else ""
        by_family = self.counts.setdefault(code, {})
        if self.count(code) < self.examples:
            finding = Finding(code, printable(key), sentence, CODES[code].remedy, name or None, printable(key))
            self.found.append(Found(finding, fixed, note))
        add_count(by_family, name)
        if fixed:
            add_count(self.fixed, code)

    def count_unopened(self, problem: str, family: str) -> None:
        if isinstance(problem, NotOpened):
            add_count(self.unopened, family)

    def as_json(self) -> dict[str, Any]:
        return {
            "examined": self.examined,
            "findings": self.findings,
            "fixed": self.repaired,
            "left": self.left,
            "codes": {
                code: {"count": self.count(code), "fixed": self.fixed.get(code, 0), "families": families}
                for code, families in self.counts.items()
            },
            "not_read": self.not_read,
            "sealed": self.sealed,
            "others": self.others,
            "unknown": self.unknown.as_json(),
            "examples": [found.as_json() for found in self.found],
        }


def tally(counts: dict[str, int], family: Family[Any], number: int = 1) -> None:
    add_count(counts, name_of(family), number)


def add_count(counts: dict[str, int], name: str, number: int = 1) -> None:
    counts[name] = counts.get(name, 0) + number
