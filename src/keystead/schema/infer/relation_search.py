"""Find relations: sets whose members name other keys, and values that hold the id of another key.

A relation that is declared has consequences: `keystead doctor --fix` deletes what leads nowhere. So one is drafted only
if every sample confirms it, and there are several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from keystead.errors import BadKey, WrongKind
from keystead.schema.infer.draft import DraftFamily, DraftRelation, is_field_name
from keystead.schema.infer.evidence import Evidence, Watched
from keystead.schema.pace import replies_of
from keystead.schema.pattern import Pattern
from keystead.schema.relation import VALUE, Link, Source
from keystead.stores import Command, Store

_FEWEST: Final = 3
_FEWEST_OWNED: Final = 10
_MOST: Final = 40  # samples that are looked up
_ID_LENGTH: Final = 6  # shorter ids and numbers match by chance
_NUMBERS: Final = ("int", "date", "month")


class _Found(NamedTuple):
    relation: DraftRelation
    family: str


async def find_relations(store: Store, families: Sequence[DraftFamily], evidence: Mapping[str, Evidence]) -> None:
    """Add the relations of these families to them. What cannot be declared becomes a line of evidence."""
    records = [_Record(one, evidence[one.name]) for one in families if one.kind in ("Value", "Hash", "Counter")]
    targets = [one for one in records if len(one.pattern.names) == 1]
    for family in families:
        if family.kind in ("Set", "SortedSet"):
            await _listed_in(store, family, evidence[family.name], targets)
    for record in records:
        if record.family.kind != "Counter":
            await _leads_to(store, record, targets)
    for family in families:
        await _holds_keys(store, family, evidence[family.name], records)
        await _owned_by(store, family, evidence[family.name], records)


class _Record:
    """A family whose keys may be named by others."""

    def __init__(self, family: DraftFamily, evidence: Evidence) -> None:
        self.family = family
        self.evidence = evidence
        self.pattern = Pattern(family.pattern, tag=family.tag)
        self.tagged = family.tag is not None

    def key_of(self, id: str) -> str | None:
        """The key with this id; None if it cannot be one."""
        [name] = self.pattern.names
        before, after = self.pattern.literals[0][0], self.pattern.literals[1]
        key = f"{before}{{{id}}}{after}" if self.tagged else f"{before}{id}{after}"
        return key if self._id_in(key, name) is not None else None

    def id_in(self, key: str) -> Any:
        return self._id_in(key, self.pattern.names[0])

    def _id_in(self, key: str, name: str) -> Any:
        values = self.pattern.parse(key, tagged=self.tagged)
        return None if values is None else values[name]

    def is_named(self, field: str | None) -> bool:
        """Whether a field has the name of its placeholder."""
        return field is not None and _named_alike(field, self.pattern.names[0])

    def are_own(self, ids: Sequence[str]) -> bool:
        """Whether these, one of each key that was read, are the ids in these keys: a record that holds its own id."""
        if len(self.pattern.names) != 1:
            return False
        return all(str(self.id_in(seen.key)) == id for seen, id in zip(self.evidence.watched, ids, strict=False))

    @property
    def has_numbers(self) -> bool:
        return self.pattern.types[self.pattern.names[0]].name in _NUMBERS


async def _listed_in(store: Store, index: DraftFamily, evidence: Evidence, targets: Sequence[_Record]) -> None:
    entries = [(one, entry) for one in evidence.watched for entry in one.entries][:_MOST]
    pattern = Pattern(index.pattern, tag=index.tag)
    for record in targets:
        if record.family.kind == "Counter" or (record.has_numbers and not _alike(index.name, record.family.name)):
            continue
        named = [(seen, key) for seen, entry in entries if (key := record.key_of(entry)) is not None]
        if len(named) < _FEWEST or len(named) < len(entries) or not await _exist(store, [key for _, key in named]):
            continue
        where = _origins(pattern, index, record)
        if where is None or not await _all_listed(store, index, record, where):
            index.evidence = (*index.evidence, f"its members name keys of {record.family.name}")
            continue
        link = Link(index.name, where, member=record.pattern.names[0])
        record.family.relations = (*record.family.relations, DraftRelation("listed_in", link))
        return


def _origins(pattern: Pattern, index: DraftFamily, record: _Record) -> dict[str, Source] | None:
    """Where the placeholders of an index come from: fields of its records; None if that is not clear."""
    rows = [one.value for one in record.evidence.watched if isinstance(one.value, dict)]
    where: dict[str, Source] = {}
    for name in pattern.names:
        fields = [field for field in (rows[0] if rows else {}) if _named_alike(field, name) and is_field_name(field)]
        if len(fields) != 1 or any(fields[0] not in row for row in rows):
            return None
        where[name] = fields[0]
    return where


async def _all_listed(store: Store, index: DraftFamily, record: _Record, where: Mapping[str, Source]) -> bool:
    """Whether every record that was read is in its index."""
    pattern = Pattern(index.pattern, tag=index.tag)
    commands: list[Command] = []
    for seen in record.evidence.watched[:_MOST]:
        try:
            values = {name: _as_placeholder(pattern, name, seen.value[str(origin)]) for name, origin in where.items()}
            key = pattern.render(values, tagged=index.tag is not None)
        except (BadKey, TypeError, KeyError, ValueError):
            return False
        command = "SISMEMBER" if index.kind == "Set" else "ZSCORE"
        commands.append((command, key, str(record.id_in(seen.key))))
    replies = await replies_of(store, commands)
    return len(commands) >= _FEWEST and all(one not in (None, 0) and not isinstance(one, WrongKind) for one in replies)


def _as_placeholder(pattern: Pattern, name: str, value: Any) -> Any:
    if pattern.types[name].name == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise ValueError("not a number")
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


async def _leads_to(store: Store, record: _Record, targets: Sequence[_Record]) -> None:
    for source, ids in _ids_in(record.evidence.watched):
        if record.are_own(ids):
            continue
        # `userId` names a `user:{user_id}` rather than a `user:account:by-user-id:{user_id}`.
        for target in sorted(targets, key=lambda one: (not one.is_named(source), len(one.family.pattern))):
            if target is record or not _may_name(source, ids, target):
                continue
            keys = [key for one in ids if (key := target.key_of(one)) is not None]
            if len(keys) < max(_FEWEST, len(ids)) or not await _exist(store, keys):
                continue
            where: dict[str, Source] = {target.pattern.names[0]: VALUE if source is None else source}
            link = Link(target.family.name, where)
            record.family.relations = (*record.family.relations, DraftRelation("leads_to", link))
            break


def _may_name(field: str | None, ids: Sequence[str], target: _Record) -> bool:
    """Whether it is no accident if keys with these ids exist: numbers and short ids need a field of that name."""
    if target.is_named(field):
        return len(set(ids)) >= _FEWEST
    return not target.has_numbers and min(map(len, ids)) >= _ID_LENGTH


async def _holds_keys(store: Store, family: DraftFamily, evidence: Evidence, records: Sequence[_Record]) -> None:
    """Whole keys as values or entries, which no relation can declare."""
    texts = [text for one in evidence.watched for text in (*one.entries, one.value) if isinstance(text, str)][:_MOST]
    if len(set(texts)) < _FEWEST:
        return
    for record in records:
        are_keys = all(record.pattern.parse(text, tagged=record.tagged) is not None for text in texts)
        if are_keys and await _exist(store, texts):
            what = {"Set": "members", "SortedSet": "members", "Value": "values"}.get(family.kind, "items")
            family.evidence = (*family.evidence, f"its {what} are whole keys of {record.family.name}")
            return


async def _owned_by(store: Store, family: DraftFamily, evidence: Evidence, records: Sequence[_Record]) -> None:
    """`user:{id}` owns `user:{id}:settings`, if each of those that were read has its owner."""
    owners = [one for one in records if _is_below(family, one)]
    if not owners or family.kind == "Channel" or len(evidence.watched) < _FEWEST_OWNED:
        return
    owner = max(owners, key=lambda one: len(one.family.pattern))
    pattern = Pattern(family.pattern, tag=family.tag)
    keys = []
    for one in evidence.watched:
        values = pattern.parse(one.key, tagged=family.tag is not None)
        if values is not None:
            keys.append(owner.pattern.render(values, tagged=owner.tagged))
    if await _exist(store, keys):
        relation = DraftRelation("owns", Link(family.name, {}))
        owner.family.relations = (*owner.family.relations, relation)


def _is_below(family: DraftFamily, owner: _Record) -> bool:
    """Whether its pattern is that of the owner and a literal, so that each owner has one key of it."""
    before, _, rest = family.pattern.partition(owner.family.pattern)
    return (
        bool(owner.pattern.names)
        and not before
        and rest[:1] in (":", "/")
        and not set(rest) & set("{}")
        and (family.tag is None) is (owner.family.tag is None)
    )


def _ids_in(watched: Sequence[Watched]) -> Iterator[tuple[str | None, list[str]]]:
    """The texts that may be ids: the values themselves (None), or those of one field of all of them."""
    values = [one.value for one in watched][:_MOST]
    if len(values) >= _FEWEST and all(isinstance(one, str) and one for one in values):
        yield None, values
    elif len(values) >= _FEWEST and all(isinstance(one, dict) for one in values):
        for name in filter(is_field_name, values[0]):
            ids = [one.get(name) for one in values]
            if all(type(one) is str and one for one in ids) or all(type(one) is int for one in ids):
                yield name, list(map(str, ids))


async def _exist(store: Store, keys: Sequence[str]) -> bool:
    replies = await replies_of(store, [("EXISTS", key) for key in keys[:_MOST]])
    return all(one == 1 for one in replies)


def _alike(one: str, other: str) -> bool:
    first, second = ({word.removesuffix("s") for word in name.split("_")} for name in (one, other))
    return bool(first & second)


def _named_alike(field: str, placeholder: str) -> bool:
    """`uid` or `userId` for `user_id`."""
    plain, wanted = (text.replace("_", "").lower() for text in (field, placeholder))
    return plain == wanted or plain in (wanted.removesuffix("id"), f"{wanted[:1]}id") or wanted == f"{plain}id"
