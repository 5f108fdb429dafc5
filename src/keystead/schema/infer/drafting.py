"""Draft a keyspace from a live store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.errors import BadDeclaration
from keystead.schema.infer.draft import TAKEN, Confidence, DraftFamily, DraftKeyspace, class_name, identifier
from keystead.schema.infer.evidence import Evidence
from keystead.schema.infer.lifetime_guess import guess_lifetime
from keystead.schema.infer.masking import masked_keys
from keystead.schema.infer.relation_search import find_relations
from keystead.schema.infer.shape_pattern import NotDrafted, literal_words, pattern_of
from keystead.schema.infer.siblings import join_siblings
from keystead.schema.infer.soundness import sound
from keystead.schema.infer.store_scan import Scanned, ScanProgress, scan_store
from keystead.schema.infer.stored_types import kind_of, time_fields, value_type
from keystead.schema.infer.value_profile import ModelNames
from keystead.schema.key_forms import is_word, narrowest
from keystead.schema.key_shapes import Shape, Variable
from keystead.schema.pattern import Pattern
from keystead.stores import Store

_SURE: Final = 20  # keys
_LIKELY: Final = 3
_ENUM: Final = 6


@dataclass(slots=True)
class Inferred:
    """A drafted keyspace, and how many keys it was drafted from."""

    draft: DraftKeyspace
    examined: int
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Some keys of each family, to compare it with others. They may contain secrets: never print them. A family that
    was drafted from a document has none."""
    has_slots: bool = False
    """Whether the store is a cluster, whose families need hash tags."""


async def infer(
    store: Store,
    *,
    name: str = "AppKeys",
    every_key: bool = False,
    skip: Callable[[bytes], bool] | None = None,
    between: Callable[[], Awaitable[None]] | None = None,
    on_progress: Callable[[ScanProgress], None] | None = None,
) -> Inferred:
    """Draft a keyspace from the keys of a store, without blocking it or changing anything; see `scan_store`."""
    scanned = await scan_store(store, every_key=every_key, skip=skip, between=between, on_progress=on_progress)
    for root in scanned.shapes.roots.values():
        join_siblings(root)
    has_slots = store.guarantees.atomic == "one slot"
    drafter = _Drafter(name, has_slots=has_slots)
    for shape in sorted(scanned.shapes.shapes(), key=lambda shape: shape.text):
        drafter.add(shape)
    await find_relations(store, drafter.families, drafter.evidence)
    draft = sound(drafter.finish(scanned))
    kept = {family.name for family in draft.families}
    examples = {one: [seen.key for seen in drafter.evidence[one].watched] for one in kept}
    return Inferred(draft, scanned.examined, examples, has_slots)


class _Drafter:
    """Turns shapes into drafted families, one after the other."""

    def __init__(self, name: str, has_slots: bool) -> None:
        self.name = name
        self.families: list[DraftFamily] = []
        self.evidence: dict[str, Evidence] = {}
        self._has_slots = has_slots
        self._models = ModelNames({name})
        self._notes: list[str] = []

    def add(self, shape: Shape[Evidence]) -> None:
        evidence = shape.leaf
        if not evidence.read:
            return
        try:
            pattern, variables = self._pattern(shape)
        except (BadDeclaration, NotDrafted) as error:
            self._notes.append(f"not drafted: {_keys(evidence.count)} like {shape.text}: {error}")
            return
        kind = kind_of(evidence)
        if kind == "Log" and evidence.foreign_entries:
            streams = "1 stream" if evidence.count == 1 else f"{evidence.count:,} streams"
            self._notes.append(f"not drafted: {streams} like {shape.text}: a Log has one field, data, in each entry")
            return
        name = self._name(kind, pattern)
        value = value_type(evidence, kind, class_name(name), self._models)
        lifetime, why = guess_lifetime(evidence, time_fields(value, self._models))
        confidence = _confidence(shape, pattern.text, evidence)
        self.evidence[name] = evidence
        lines = [f"{_keys(evidence.count)}, {evidence.read:,} read; {why}", *_kinds_line(evidence)]
        if variables:
            lines += [f"such as {masked_keys(shape)}", *_enumerations(pattern, variables, evidence.count)]
        doc = f"TODO: {kind} drafted from {_keys(evidence.count)}."
        self.families.append(
            DraftFamily(name, pattern.text, kind, value, lifetime, doc, tuple(lines), confidence, tag=pattern.tag)
        )

    def _name(self, kind: str, pattern: Pattern) -> str:
        """`stat_failed` for `stat:failed`, and `stat_failed_by_date` for `stat:failed:{date}` beside it."""
        taken = TAKEN | self.evidence.keys()
        literals = "_".join(literal_words(pattern.text)) or kind
        if pattern.names and (literals == kind or identifier(literals, frozenset()) in taken):
            literals = f"{literals}_by_{list(pattern.names)[-1]}"
        return identifier(literals, taken)

    def _pattern(self, shape: Shape[Evidence]) -> tuple[Pattern, list[Variable]]:
        """The pattern of a shape, checked against keys that were read."""
        pattern, variables = pattern_of(shape, self._has_slots)
        if any(pattern.parse(one.key, tagged=pattern.tag is not None) is None for one in shape.leaf.watched):
            raise NotDrafted("no pattern reads these keys back")
        return pattern, variables

    def finish(self, scanned: Scanned) -> DraftKeyspace:
        notes = [
            f"Drafted by `keystead infer` from {scanned.examined:,} keys. Read every line before you rely on it:",
            "names, docs and lifetimes are guesses from what was in the store at that moment.",
        ]
        if scanned.without_shape:
            self._notes.append(
                f"not drafted: {scanned.without_shape:,} keys that are not text, long, or have many segments"
            )
        return DraftKeyspace(
            self.name,
            "Keys that were found in a live store.",
            self.families,
            self._models.models,
            (*notes, *self._notes),
        )


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count:,} keys"


def _confidence(shape: Shape[Any], pattern: str, evidence: Evidence) -> Confidence:
    """Sure: many keys of one kind with a word in them, typed ids and readable values that agree on their lifetime."""
    has_word = any(len(word) > 2 for word in literal_words(pattern))
    typed = all(narrowest(one.types) not in ("text", None) for node in shape.path for one in node.variables)
    agreed = min(evidence.expiring, evidence.read - evidence.expiring) * 50 <= evidence.read
    is_readable = "_Bytes" not in evidence.profile.kinds | evidence.entries.kinds
    is_one_kind = len(evidence.kinds) == 1
    if not (has_word and is_one_kind):
        return "guess"
    if evidence.read >= _SURE and typed and agreed and is_readable:
        return "sure"
    return "likely" if evidence.read >= _LIKELY else "guess"


def _kinds_line(evidence: Evidence) -> list[str]:
    if len(evidence.kinds) == 1:
        return []
    counts = ", ".join(f"{count} {kind}" for kind, count in evidence.kinds.most_common())
    return [f"several kinds in one place: {counts}; the most frequent was taken"]


def _enumerations(pattern: Pattern, variables: Sequence[Variable], keys: int) -> list[str]:
    """Placeholders with few different words: an enumeration of the program."""
    lines = []
    for name, variable in zip(pattern.names, variables, strict=True):
        seen = variable.examples
        if 1 < len(seen) <= min(_ENUM, keys // _LIKELY) and all(map(is_word, seen)):
            lines.append(f"{name} is one of {', '.join(sorted(seen))}")
    return lines
