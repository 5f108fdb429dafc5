"""Draft a keyspace from a hand-written key document. What is not understood is reported by line, not guessed."""
# ruff: noqa: RUF001 - punctuation of these languages

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final, NamedTuple

from keystead.schema.infer.document.document_blocks import blocks_of, plain
from keystead.schema.infer.document.document_rows import DocumentRows, Row, rows_by_shape
from keystead.schema.infer.document.document_vocabulary import kind_in
from keystead.schema.infer.document.key_templates import expand_templates
from keystead.schema.infer.document.written_commands import WRITES
from keystead.schema.infer.document.written_keys import WrittenKey, generalized, looks_like_key
from keystead.schema.infer.document.written_lifetimes import read_lifetime, unstated
from keystead.schema.infer.document.written_values import WrittenValues, json_value, shape_in, type_of_fields
from keystead.schema.infer.draft import (
    TAKEN,
    Confidence,
    DraftFamily,
    DraftKeyspace,
    DraftModel,
    Kind,
    class_name,
    identifier,
)
from keystead.schema.infer.soundness import sound
from keystead.schema.infer.value_profile import ModelNames
from keystead.schema.key_forms import is_word
from keystead.schema.lifetime import After, Lifetime, Until
from keystead.schema.pattern import Pattern

_RANKS: Final = {"table": 0, "block": 1, "list": 2, "command": 3, "example": 4}
_MOST_PROBLEMS: Final = 60
_NARROWER: Final = ("token", "alnum", "int")  # types to try where two patterns overlap, the widest first
_BOOL: Final = re.compile(r"\bbool(ean)?\b|['\"`]true['\"`].*['\"`]false['\"`]|真偽|불리언", re.IGNORECASE)
_JSON: Final = re.compile(r"\bjson\b|\bobject\b|オブジェクト|객체", re.IGNORECASE)
_NAMES: Final = re.compile(r"[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)+", re.ASCII)  # the fields of a hash
_UUID: Final = re.compile(r"uuid", re.IGNORECASE)
_DOC_CHARACTERS: Final = 200


@dataclass(slots=True)
class DocumentDraft:
    """A drafted keyspace. `problems` are what was not understood: lines, and a sentence for each."""

    draft: DraftKeyspace
    problems: list[tuple[int, str]] = field(default_factory=list)


def draft_document(text: str, *, name: str = "AppKeys", title: str = "the document") -> DocumentDraft:
    """Draft a keyspace from a key document: Markdown or plain text, in English, Japanese or Korean."""
    models = ModelNames({name})
    document = DocumentRows(WrittenValues(models))
    document.read(blocks_of(text))
    drafter = _Drafter(document, models, title)
    drafter.add_all()
    problems = sorted(dict.fromkeys(drafter.problems))
    notes = [
        f"Drafted by `keystead infer --document` from {title}. Read every line before you rely on it:",
        "what the document does not say is TODO, and it may differ from what the store holds.",
        *(f"line {line}: {problem}" for line, problem in problems[:_MOST_PROBLEMS]),
    ]
    if len(problems) > _MOST_PROBLEMS:
        notes.append(f"and {len(problems) - _MOST_PROBLEMS} more lines")
    used = _used(models, drafter.families)
    draft = sound(DraftKeyspace(name, f"Keys that {title} describes.", drafter.families, used, tuple(notes)))
    problems += [(0, note) for note in draft.notes[len(notes) :]]
    return DocumentDraft(draft, problems)


def _used(models: ModelNames, families: Iterable[DraftFamily]) -> list[DraftModel]:
    """The models that a family needs, directly or not."""
    wanted = {word for family in families for word in re.findall(r"\w+", family.value)}
    for model in reversed(models.models):
        if model.name in wanted:
            wanted |= {word for one in model.fields for word in re.findall(r"\w+", one.type)}
    return [model for model in models.models if model.name in wanted]


class _Facts(NamedTuple):
    """All rows of one key, the most telling first."""

    rows: list[Row]

    @property
    def key(self) -> WrittenKey:
        return self.rows[0].key

    @property
    def line(self) -> int:
        return min(row.line for row in self.rows)

    @property
    def is_declared(self) -> bool:
        return self.rows[0].source != "command"


class _Drafter:
    def __init__(self, document: DocumentRows, models: ModelNames, title: str) -> None:
        self.problems = list(document.problems)
        self.families: list[DraftFamily] = []
        self._document = document
        self._models = models
        self._title = title

    def add_all(self) -> None:
        facts = self._facts()
        for one, pattern in zip(facts, self._narrowed(facts), strict=True):
            self._add(one, pattern)
        self._report_mentions(facts)

    def _facts(self) -> list[_Facts]:
        rows = []
        for row in expand_templates(self._document.rows):
            if row.key.rule:
                self.problems.append((row.line, f"a rule for names rather than a key: {row.key.text}"))
            else:
                rows.append(row)
        declared = [row for row in rows if row.source != "command" and not self._is_example(row, rows)]
        others = [row for row in rows if row.source == "command" or self._is_example(row, rows)]
        # Those that write come first: what else is said of their keys belongs to them.
        others.sort(key=lambda row: row.command is None or row.command.name not in WRITES)
        patterns = {row.key.shape: row.key for row in declared}
        for row in others:
            known = _pattern_of(row.key, patterns.values())
            if known is not None:
                declared.append(_as_example(row, known))
            elif row.command is not None and row.command.name in WRITES:
                key = (generalized(row.key.text) if row.key.concrete else None) or row.key
                patterns[key.shape] = key
                declared.append(replace(row, key=key))
        found = [_Facts(sorted(rows, key=lambda row: _RANKS[row.source])) for rows in rows_by_shape(declared)]
        return sorted(found, key=lambda one: one.line)

    def _is_example(self, row: Row, rows: Sequence[Row]) -> bool:
        """Whether a key without placeholders is an example of another row's pattern."""
        if not row.key.concrete:
            return False
        if _pattern_of(row.key, [one.key for one in rows if not one.key.concrete]) is None:
            return False
        return not all(is_word(segment) for segment in row.key.text.split(":")) or ":" not in row.key.text

    # --- one family ----------------------------------------------------------------------------------------

    def _add(self, facts: _Facts, pattern: str) -> None:
        kind, kind_is_stated = self._kind(facts)
        name = identifier("_".join(facts.key.literals) or f"{kind}_by_{facts.key.names[0]}", self._taken())
        value = self._value(facts, kind, class_name(name))
        lifetime, lifetime_is_stated = self._lifetime(facts, value)
        if kind == "Channel":
            confidence: Confidence = "sure"
        elif facts.is_declared and kind_is_stated and lifetime_is_stated:
            confidence = "sure"
        else:
            confidence = "likely" if facts.is_declared and (kind_is_stated or lifetime_is_stated) else "guess"
        doc = next((text for row in facts.rows if (text := plain(row.doc) or row.heading)), "")
        self.families.append(
            DraftFamily(
                name, pattern, kind, value,
                None if kind == "Channel" else lifetime,
                " ".join(doc.split())[:_DOC_CHARACTERS] or f"TODO: {kind} from {self._title}.",
                tuple(self._evidence(facts)),
                confidence,
                score=_score(facts) if kind == "SortedSet" else "",
            )
        )  # fmt: skip

    def _taken(self) -> frozenset[str] | set[str]:
        return TAKEN | {family.name for family in self.families}

    def _evidence(self, facts: _Facts) -> list[str]:
        lines = ", ".join(str(line) for line in sorted({row.line for row in facts.rows})[:8])
        said = [f"{'line' if lines.isdigit() else 'lines'} {lines}: {facts.rows[0].note or facts.key.text}"]
        lifetime = next((row.lifetime for row in facts.rows if row.lifetime), "")
        return [*said, *([f"lifetime: {plain(lifetime)}"] if lifetime else [])]

    def _kind(self, facts: _Facts) -> tuple[Kind, bool]:
        writes = [row for row in facts.rows if row.command is not None and row.command.name in WRITES]
        for rows in ([row for row in facts.rows if row.source != "command"], writes, facts.rows):
            kind = next((row.kind for row in rows if row.kind is not None), None)
            if kind is not None:
                return kind, True
        if any(row.example is not None or self._document.values.named_in(row.value) for row in facts.rows):
            return "Value", True
        for row in facts.rows:
            kind = kind_in(f"{row.doc} {row.value}", prose=True)
            if kind is not None:
                return kind, True
        self.problems.append((facts.line, f"the kind of {facts.key.text} is not stated; a Value was assumed"))
        return "Value", False

    def _lifetime(self, facts: _Facts, value: str) -> tuple[Lifetime, bool]:
        fields = next((tuple(one.name for one in m.fields) for m in self._models.models if m.name == value), ())
        for row in facts.rows:
            if row.lifetime:
                found = read_lifetime(row.lifetime, fields)
                if isinstance(found, Until) and fields and found.field not in fields:
                    problem = f"{facts.key.text} has no field for its deadline; {found.field} was assumed"
                    self.problems.append((row.line, problem))
                if found is not None:
                    return found, True
                problem = f"the lifetime of {facts.key.text} is not understood: {plain(row.lifetime)[:60]}"
                self.problems.append((row.line, problem))
        ttl_ms = next((row.ttl_ms for row in facts.rows if row.ttl_ms), None)
        if ttl_ms is not None:
            return After(ttl_ms), True
        return unstated(), False

    # --- values --------------------------------------------------------------------------------------------

    def _value(self, facts: _Facts, kind: Kind, hint: str) -> str:
        if kind == "Counter":
            return ""
        if kind in ("Set", "SortedSet"):
            return "str"
        item = f"{hint}Item" if kind in ("List", "Log", "Channel") else hint
        found = self._model(facts, kind, item)
        if found is not None:
            return found
        text = " ".join(row.value for row in facts.rows)
        if kind == "Hash":
            return "dict[str, str]"
        if kind == "Value" and _BOOL.search(text):
            return "bool"
        return "dict[str, Any]" if _JSON.search(text) else "str"

    def _model(self, facts: _Facts, kind: Kind, hint: str) -> str | None:
        """The type that the document shows: by name, as a shape, as an example, or in commands; None: it shows none."""
        found = next((type_ for row in facts.rows if (type_ := self._model_of_row(row, hint)) is not None), None)
        if found is not None:
            return found
        if kind == "Hash":
            names = _fields_of(facts)
            return type_of_fields(names, hint, self._models) if names else None
        payloads = (json_value(row.command.payload) for row in facts.rows if row.command is not None)
        payload = next((one for one in payloads if one is not None), None)
        return None if payload is None else self._document.values.type_of_example(payload, hint)

    def _model_of_row(self, row: Row, hint: str) -> str | None:
        values = self._document.values
        named = values.named_in(row.value)
        if named is not None:
            return values.model_of(named)
        shape = shape_in(row.value)
        if shape is not None:
            return values.type_of_shape(shape, hint)
        return None if row.example is None else values.type_of_example(row.example, hint)

    # --- patterns ------------------------------------------------------------------------------------------

    def _narrowed(self, facts: Sequence[_Facts]) -> list[str]:
        """The patterns, with narrower placeholders where the document names a type, or two of them would overlap."""
        found = []
        for one in facts:
            is_uuid = len(one.key.names) == 1 and any(_UUID.search(row.note) for row in one.rows)
            found.append(_with_type(one.key.pattern, "uuid") if is_uuid else one.key.pattern)
        patterns = [Pattern(one) for one in found]
        for at, other in combinations(range(len(found)), 2):
            if patterns[at].overlap(patterns[other]) is None:
                continue
            for place, by in ((at, other), (other, at)):
                pattern = _disjoint(found[place], found[by])
                if pattern is not None:
                    said = f"{found[place]} overlaps {found[by]}, so {pattern} was written; check the ids"
                    self.problems.append((facts[place].line, said))
                    found[place], patterns[place] = pattern, Pattern(pattern)
                    break
        return found

    def _report_mentions(self, facts: Sequence[_Facts]) -> None:
        known = [one.key for one in facts]
        words = {word for key in known for word in key.literals}
        seen: set[str] = set()
        for line, key in self._document.mentions:
            is_known = key.shape in {one.shape for one in known} or _pattern_of(key, known) is not None
            is_template = any(row.key.shape == key.shape for row in self._document.rows)
            if is_known or is_template or key.shape in seen or "*" in key.text or key.rule:
                continue
            if looks_like_key(key.text) and words & set(key.literals):
                seen.add(key.shape)
                self.problems.append((line, f"mentions {key.text}, which no table, block or list describes"))


def _fields_of(facts: _Facts) -> list[str]:
    """The fields of a hash: those that its value lists, and those that commands write."""
    lists = [match[0].split(",") for row in facts.rows if (match := _NAMES.search(plain(row.value)))]
    lists += [list(row.command.fields) for row in facts.rows if row.command is not None]
    names = (name.strip() for some in lists for name in some)
    return list(dict.fromkeys(name for name in names if name.isidentifier()))


def _as_example(row: Row, key: WrittenKey) -> Row:
    """What a row about one key says of all keys of its pattern: the values of a table are those of this key."""
    if row.source == "command":
        return replace(row, key=key)
    found = replace(row, key=key, source="example", doc="")
    if row.source == "table":
        found.kind, found.value = None, ""
    return found


def _disjoint(pattern: str, other: str) -> str | None:
    """The pattern with the widest type of one placeholder that keeps it apart from another one; None: no type does."""
    places = [match.span() for match in re.finditer(r"\{\w+\}", pattern)]
    typed = (
        f"{pattern[:start]}{_with_type(pattern[start:end], type_)}{pattern[end:]}"
        for type_ in _NARROWER
        for start, end in places
    )
    return next((one for one in typed if Pattern(one).overlap(Pattern(other)) is None), None)


def _with_type(pattern: str, type_: str) -> str:
    return re.sub(r"\{(\w+)\}", rf"{{\1:{type_}}}", pattern)


def _pattern_of(key: WrittenKey, known: Iterable[WrittenKey]) -> WrittenKey | None:
    """The known key that this one is an example of: the same with other names, or the most literal that can be it."""
    best: WrittenKey | None = None
    for one in known:
        if one.shape == key.shape:
            return one
        if one.concrete or (best is not None and len("".join(one.literals)) <= len("".join(best.literals))):
            continue
        expression = "[^:]+".join(re.escape(piece) for piece in re.split(r"\{[^{}]*\}", one.pattern))
        if re.fullmatch(expression, key.shape):
            best = one
    return best


def _score(facts: _Facts) -> str:
    text = " ".join(f"{row.value} {row.doc}" for row in facts.rows)
    match = re.search(r"(?:score|スコア|점수|スコアー)\s*[=:：は]\s*([^,、。)）]{2,60})", plain(text), re.IGNORECASE)
    return match[1].strip() if match is not None else "TODO"
