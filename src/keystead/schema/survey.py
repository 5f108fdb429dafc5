"""Survey of the stores by family: number of keys, size, TTLs and samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from keystead.errors import WrongKind, printable
from keystead.schema.chunked_reading import SIZES, entries_of, whole
from keystead.schema.doctor.examination import NOTES_PREFIXES, TOOLS_NOTES
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, KnownKeys, Member, by_store, name_of, total_keys
from keystead.schema.key_shapes import ShapeCounts
from keystead.schema.keyspace import Keyspace
from keystead.schema.pace import Pace
from keystead.schema.paced_scan import paced_scan
from keystead.schema.quarantine import QuarantineKeys, with_quarantine
from keystead.stores import Command

READ: Final = 1_000  # values per family whose exact size is read; beyond them it is estimated from the mean
_PAGE: Final = 200
_ENTRIES: Final = 500  # read per key
_SHOWN_ENTRIES: Final = 5

# TTL buckets: the name of each, and its upper end in milliseconds.
TTL_STEPS: Final = (("<1m", 60_000), ("<1h", 3_600_000), ("<1d", 86_400_000), ("<30d", 2_592_000_000))
TTLS: Final = ("none", *(name for name, _ in TTL_STEPS), "more")


class SurveyProgress(NamedTuple):
    examined: int
    total: int | None  # the number of keys in the stores; None: only some are examined


class Sample(NamedTuple):
    """One key, with sealed fields hidden and only the first entries."""

    key: str
    value: Any
    left_ms: int | None


@dataclass(slots=True)
class FamilySurvey:
    family: Family[Any]
    count: int = 0
    ttls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TTLS, 0))
    samples: list[Sample] = field(default_factory=list)
    key_bytes: int = 0
    read: int = 0
    read_bytes: float = 0
    about: bool = False
    """Whether `bytes` is an estimate."""

    @property
    def bytes(self) -> int:
        """Keys and values as written, without the overhead of the store."""
        mean = self.read_bytes / self.read if self.read else 0
        return self.key_bytes + round(mean * self.count)

    def as_json(self) -> dict[str, Any]:
        return {
            "family": name_of(self.family),
            "pattern": self.family.pattern.display,
            "kind": self.family.kind_name,
            "role": self.family.role,
            "lifetime": self.family.lifetime.describe(),
            "count": self.count,
            "bytes": self.bytes,
            "about": self.about,
            "ttl": self.ttls,
            "samples": [sample._asdict() for sample in self.samples],
        }


@dataclass(slots=True)
class Survey:
    families: list[FamilySurvey]
    unknown: int = 0
    unknown_examples: list[str] = field(default_factory=list)
    unknown_shapes: ShapeCounts = field(default_factory=ShapeCounts)
    others: dict[str, int] = field(default_factory=dict)
    """How many keys belong to known keyspaces that were not surveyed, by keyspace."""
    examined: int = 0
    total: int | None = None
    """The number of keys in the stores; None: only some families were surveyed."""
    is_cut: bool = False
    """Whether `limit_s` ended it early: then the counts are those of a sample of `examined` keys."""

    @property
    def count(self) -> int:
        """How many keys belong to the families."""
        return sum(one.count for one in self.families)

    def as_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "families": [one.as_json() for one in self.families],
            "unknown": {
                "count": self.unknown,
                "examples": self.unknown_examples,
                "shapes": self.unknown_shapes.as_json(),
            },
            "others": self.others,
        }


async def survey(
    keyspaces: Sequence[Keyspace],
    families: Collection[Family[Any]] | None = None,
    samples: int = 3,
    *,
    known: Collection[type[Keyspace]] = (),
    on_progress: Callable[[SurveyProgress], None] | None = None,
    limit_s: float | None = None,
) -> Survey:
    """Scan the stores of these keyspaces and count. Values are read for samples and sizes only; nothing is unsealed.

    Keys of `known` keyspaces are only counted, in `others`: they are not unknown, in any store. With `limit_s` the scan
    of each store ends after about that time, and the result is a sample (`is_cut`).
    A key that is created or deleted meanwhile may or may not be counted, and one may be counted twice on stores that
    move keys during a scan.
    """
    narrowed = families is not None
    places = by_store(keyspaces, families)
    if not narrowed:
        places = with_quarantine(places)
    by_family = {bound.family: FamilySurvey(bound.family) for place in places for bound in place.bounds}
    found = Survey(list(by_family.values()))
    strangers = None if narrowed else _Strangers(found, KnownKeys(known))
    globs = [place.glob(narrowed) for place in places]
    total = await total_keys(places) if all(glob == "*" for glob in globs) else None
    pace, found.total = Pace(_PAGE), total
    report = on_progress or _report_nothing
    for place, glob in zip(places, globs, strict=True):
        async for some in paced_scan(place.store, glob, pace, page=_PAGE, limit_s=limit_s):
            if some is None:
                found.is_cut = True
                continue  # it was the last one
            await _count(place, some, by_family, strangers, samples, pace)
            found.examined += len(some)
            report(SurveyProgress(found.examined, total))
    found.families = [one for one in found.families if one.count or one.family is not _QUARANTINE]
    return found


def _report_nothing(progress: SurveyProgress) -> None:
    pass


async def survey_of(keyspaces: Sequence[Keyspace], keys: Collection[str]) -> Survey:
    """A survey of these keys alone, each of them as a sample. Missing ones are left out."""
    found: list[FamilySurvey] = []
    for place in by_store(keyspaces):
        by_family = {bound.family: FamilySurvey(bound.family) for bound in place.bounds}
        await _count(place, [key.encode() for key in keys], by_family, None, len(keys), Pace(_PAGE))
        found += [one for one in by_family.values() if one.count]
    return Survey(found)


_QUARANTINE: Final = QuarantineKeys.families["quarantine"]
_UNKNOWN_EXAMPLES: Final = 10


class _Strangers:
    """Keys of none of the surveyed families."""

    def __init__(self, found: Survey, known: KnownKeys) -> None:
        self._found = found
        self._known = known

    def add(self, raw: bytes) -> None:
        found = self._found
        keyspace = TOOLS_NOTES if raw.startswith(NOTES_PREFIXES) else self._known.keyspace_of(raw)
        if keyspace is not None:
            found.others[keyspace] = found.others.get(keyspace, 0) + 1
            return
        found.unknown += 1
        found.unknown_shapes.add(raw)
        if len(found.unknown_examples) < _UNKNOWN_EXAMPLES:
            found.unknown_examples.append(printable(raw))


async def _count(
    place: Belonging,
    keys: Sequence[bytes],
    by_family: dict[Family[Any], FamilySurvey],
    strangers: _Strangers | None,
    samples: int,
    pace: Pace,
) -> None:
    members: list[Member] = []
    for raw in keys:
        member = place.of(raw)
        if member is not None:
            members.append(member)
        elif strangers is not None:
            strangers.add(raw)
    left = await pace.run(place.store, [("PTTL", member.key) for member in members], len(members))
    to_read = []
    for member, left_ms in zip(members, left, strict=True):
        if left_ms == -2:
            continue
        one = by_family[member.bound.family]
        one.count += 1
        one.key_bytes += len(member.key.encode())
        one.ttls[_step(left_ms)] += 1
        if one.count <= max(READ, samples):
            to_read.append((member, left_ms, one))
        else:
            one.about = True
    await _read_sizes(place, to_read, samples, pace)


async def _read_sizes(
    place: Belonging, to_read: list[tuple[Member, int, FamilySurvey]], samples: int, pace: Pace
) -> None:
    commands: list[Command] = [(SIZES[member.bound.family.kind], member.key) for member, _, _ in to_read]
    sizes = await pace.run(place.store, commands, len(to_read))
    for (member, left_ms, one), held in zip(to_read, sizes, strict=True):
        bound, key = member.bound, member.key
        is_sampled = len(one.samples) < samples
        if isinstance(held, WrongKind) or held is None:
            value: Any = {"unreadable": "its kind differs from its family"} if held is not None else None
        elif bound.family.kind == "string":
            one.read += 1
            one.read_bytes += len(held)
            value = bound.family.codecs["value"].shown(held, key) if is_sampled else None
        else:
            value = await _read_entries(one, bound, key, held)
            await pace.turn()
        if is_sampled and value is not None:
            one.samples.append(Sample(key, value, left_ms if left_ms >= 0 else None))


async def _read_entries(one: FamilySurvey, bound: Bound[Any], key: str, size: int) -> dict[str, Any]:
    """Add the size of a key with entries to its family. Returns the sample."""
    entries = await some_entries(bound, key, size)
    one.read += 1
    one.read_bytes += size * (_bytes_of(entries) / len(entries) if entries else 0)
    one.about = one.about or size > len(entries)
    return {"entries": size, "first": [shown_entry(bound, key, entry) for entry in entries[:_SHOWN_ENTRIES]]}


async def some_entries(bound: Bound[Any], key: str, size: int) -> list[Any]:
    """The entries of a key: the first of a large one, and none of a large set or hash, which cannot be read in part."""
    kind = bound.family.kind
    if size > _ENTRIES and kind in ("set", "hash"):
        return []
    command: Command = whole(kind, key)
    if size > _ENTRIES:
        command = {
            "zset": ("ZRANGE", key, 0, _ENTRIES - 1, "WITHSCORES"),
            "list": ("LRANGE", key, 0, _ENTRIES - 1),
        }.get(kind, ("XRANGE", key, "-", "+", "COUNT", _ENTRIES))
    try:
        [reply] = await bound.store.run([command])
    except WrongKind:
        return []
    return entries_of(kind, reply)


def _bytes_of(entries: Any) -> int:
    """All bytes in a reply, however deep; a score counts as 8."""
    if isinstance(entries, bytes):
        return len(entries)
    return sum(map(_bytes_of, entries)) if isinstance(entries, list | tuple) else 8


def _step(left_ms: int) -> str:
    if left_ms < 0:
        return "none"
    return next((name for name, end_ms in TTL_STEPS if left_ms < end_ms), "more")


def shown_entry(bound: Bound[Any], key: str, entry: Any) -> Any:
    """One entry, as shown to an operator."""
    family, kind = bound.family, bound.family.kind
    match kind:
        case "hash":
            field, data = entry
            name = field.decode("utf-8", "backslashreplace")
            codec = family.fields.get(name) if family.fields else family.codecs["value"]
            return {name: {"unreadable": "the family has no such field"} if codec is None else codec.shown(data, key)}
        case "zset":
            return {"member": family.member.shown(entry[0], key), "score": entry[1]}
        case "set":
            return family.member.shown(entry, key)
        case "stream":
            fields = list(entry[1])
            item = family.item.shown(fields[1], key) if fields[::2] == [b"data"] else {"unreadable": "other fields"}
            return {"id": entry[0].decode(), "item": item}
        case _:
            return family.item.shown(entry, key)
