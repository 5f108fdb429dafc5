"""Relations of a key: the index that lists it, the keys it owns, its subject, and the key its value names.

A relation points from one family to another and states the origin of the other's placeholders: a placeholder of the
same key, a field of its value, or the value itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from keystead.errors import BadDeclaration, BadKey, BadValue

if TYPE_CHECKING:
    from keystead.schema.family import Family


class _Value:
    """The value itself, as in `counter.by(id=VALUE)`."""

    def __repr__(self) -> str:
        return "VALUE"


VALUE: Final = _Value()
Source: TypeAlias = str | _Value


@dataclass(frozen=True)
class Link:
    """The target of a relation: a family (or its name, if it is declared later) and the origin of its key."""

    target: Family[Any] | str
    where: Mapping[str, Source]
    member: str | None = None
    score: str | None = None
    admits: bool = False
    optional: bool = False


def link(
    target: str,
    *,
    member: str | None = None,
    score: str | None = None,
    admits: bool = False,
    optional: bool = False,
    **where: Source,
) -> Link:
    """A relation to a family that is declared later, by its name: `leads_to=link("counter", id=VALUE)`.

    The rest is as in `Family.by`.
    """
    return Link(target, where, member, score, admits, optional)


class Origin(NamedTuple):
    """The origin of one value: a placeholder of the key, a field of the value, or the value itself."""

    kind: Literal["placeholder", "field", "value"]
    name: str


@dataclass(frozen=True)
class Relation:
    """A resolved link.

    `origins` gives the origin of each placeholder of the target; None: unknown, so the relation means every key of the
    target that matches the others.
    """

    kind: Literal["listed_in", "owns", "leads_to"]
    source: Family[Any]
    target: Family[Any]
    origins: Mapping[str, Origin | None]
    member: str = ""  # listed_in: the placeholder of the source whose value is the entry
    score: Origin | None = None  # listed_in a sorted set: the origin of the score; None: the deadline, or now
    admits: bool = False  # listed_in: a record is valid only while it is listed, and only a new one is listed
    optional: bool = False  # owns: a key of the target may exist without an owner, and is not an orphan then

    @property
    def from_key(self) -> bool:
        """Whether the key of the source determines the key of the target."""
        return all(origin is not None and origin.kind == "placeholder" for origin in self.origins.values())

    @property
    def needs_value(self) -> bool:
        return any(origin is not None and origin.kind != "placeholder" for origin in self.origins.values())

    @property
    def scans(self) -> bool:
        return any(origin is None for origin in self.origins.values())

    @property
    def one_slot(self) -> bool:
        """Whether both keys are always in one slot of a cluster: their hash tags are the same."""
        own, other = self.source.pattern.tag, self.target.pattern.tag
        origin = self.origins.get(other) if other else None
        if own is None or other is None or origin is None:
            return False
        alike = self.source.pattern.types[own] is self.target.pattern.types[other]
        return alike and (origin.kind, origin.name) == ("placeholder", own)

    def target_values(self, values: Mapping[str, Any], value: Any) -> dict[str, Any] | None:
        """The known placeholders of the target; None if a field that names it is empty."""
        found: dict[str, Any] = {}
        for name, origin in self.origins.items():
            if origin is None:
                continue
            if origin.kind != "placeholder" and value is None:
                return None
            one = read_origin(origin, values, value)
            if one is None:
                return None
            found[name] = one
        return found

    def source_values(self, target_values: Mapping[str, Any], member: Any = None) -> dict[str, Any] | None:
        """The reverse: the placeholders of the source from those of the target; None if not all are known."""
        found = {
            origin.name: target_values[name]
            for name, origin in self.origins.items()
            if origin is not None and origin.kind == "placeholder"
        }
        if self.member:
            found[self.member] = member
        return found if set(found) == set(self.source.pattern.names) else None


def read_origin(origin: Origin, values: Mapping[str, Any], value: Any) -> Any:
    """The value at an origin, for a key with these placeholder values and this value."""
    match origin.kind:
        case "placeholder":
            return values[origin.name]
        case "field":
            return value.get(origin.name) if isinstance(value, Mapping) else getattr(value, origin.name, None)
        case _:
            return value


@dataclass(frozen=True)
class Subject:
    """The subject of a family, as in `member_of="user:{uid}"`: its kind, and the origin of its id."""

    kind: str
    origin: Origin


def as_links(given: Family[Any] | Link | str | Sequence[Family[Any] | Link | str] | None) -> list[Link]:
    """Normalize a relation: one family or link, or a list of them."""
    if given is None:
        return []
    each = given if isinstance(given, list | tuple) else [given]
    return [one if isinstance(one, Link) else Link(one, {}) for one in each]  # type: ignore[arg-type]


def resolve(
    kind: Literal["listed_in", "owns", "leads_to"],
    source: Family[Any],
    given: Link,
    families: Mapping[str, Family[Any]],
) -> Relation:
    """Resolve a link of `source` among the families of one keyspace. Raises BadDeclaration."""
    target = _target(kind, source, given, families)
    unknown = set(given.where) - set(target.pattern.names)
    if unknown:
        raise _dangling(source, f"{kind} names {min(unknown)!r}, which is not a placeholder of {target.pattern.text}")
    origins = {name: _origin(kind, source, target, name, given.where.get(name)) for name in target.pattern.names}
    for name, origin in origins.items():
        if origin is None and kind != "owns":
            raise _dangling(
                source,
                f"{kind} {target.name} needs {name!r}, which is neither a placeholder nor a field here; "
                f'state its origin: {target.name}.by({name}="...")',
            )
    if origins and not any(origins.values()):
        raise _dangling(
            source,
            f"it would own every key of {target.name}, because nothing here determines {' or '.join(origins)}; state "
            f'the origin: {target.name}.by({next(iter(origins))}="...")',
        )
    _refuse_unfit(kind, source, target, origins)
    if given.admits and kind != "listed_in":
        raise _dangling(source, f"admits is for listed_in, not for {kind}")
    if given.optional and kind != "owns":
        raise _dangling(source, f"optional is for owns, not for {kind}")
    if kind != "listed_in":
        return Relation(kind, source, target, origins, optional=given.optional)
    return _resolve_listing(source, target, given, origins)


def _resolve_listing(
    source: Family[Any], target: Family[Any], given: Link, origins: Mapping[str, Origin | None]
) -> Relation:
    if target.kind not in ("set", "zset"):
        raise _dangling(source, f"an index must be a Set or a SortedSet, but {target.name} is a {target.kind_name}")
    member = given.member or _member(source, target, origins)
    if member not in source.pattern.names:
        raise _dangling(source, f"listed_in names {member!r} as the member, which is not a placeholder of this family")
    score = _origin("listed_in", source, target, given.score, None) if given.score else None
    if given.score and score is None:
        raise _dangling(
            source, f"listed_in takes its score from {given.score!r}, which is neither placeholder nor field"
        )
    _refuse_unfit_member(source, target, member)
    if given.admits and target.kind != "set":
        raise _dangling(source, f"an index that admits must be a Set, but {target.name} is a {target.kind_name}")
    lost = set(source.pattern.names) - {member} - {o.name for o in origins.values() if o and o.kind == "placeholder"}
    if lost:
        raise _dangling(
            source,
            f"an entry of {target.name} does not determine its record: {min(lost)!r} is missing; "
            f"add {{{min(lost)}}} to the pattern of the index",
        )
    return Relation("listed_in", source, target, origins, member, score, given.admits)


def _refuse_unfit(kind: str, source: Family[Any], target: Family[Any], origins: Mapping[str, Origin | None]) -> None:
    """A shared placeholder must be rendered alike in both patterns, or the keys would never match."""
    example = source.pattern.parse(source.pattern.example()) or {}
    for name, origin in origins.items():
        if origin is None or origin.kind != "placeholder":
            continue
        bound, other = source.pattern.bound_of(origin.name), target.pattern.bound_of(name)
        if bound is not None and (bound, source.pattern.types[origin.name]) != (other, target.pattern.types[name]):
            raise _dangling(
                source,
                f"{kind} {target.name}: {origin.name} is hashed here when it is longer than {bound} bytes; "
                "write the same type and bound there",
            )
        if origin.name in example:  # custom types may have an example that is not a value
            try:
                target.pattern.render_one(name, example[origin.name])
            except BadKey as error:
                raise _dangling(source, f"{kind} {target.name} takes {name} from {origin.name}: {error}") from None


def _refuse_unfit_member(source: Family[Any], target: Family[Any], member: str) -> None:
    if source.pattern.bound_of(member) is not None:
        raise _dangling(source, f"{member} may be hashed, so it cannot be an entry of {target.name}")
    example = source.pattern.parse(source.pattern.example()) or {}
    if member in example:
        try:
            target.codecs["member"].encode(example[member], target.pattern.text)
        except BadValue as error:
            raise _dangling(source, f"its {member} is not a member of {target.name}: {error}") from None


def resolve_subject(source: Family[Any], text: str) -> Subject:
    """`user:{uid}`: the kind of the subject, and the placeholder or field of this family with its id."""
    found = re.fullmatch(r"([A-Za-z][\w-]*):\{(\w+)\}", str(text))
    if not found:
        raise _dangling(source, f'write member_of as "user:{{uid}}", not {text!r}')
    origin = _origin("member_of", source, None, found[2], None)
    if origin is None:
        raise _dangling(source, f"member_of names {found[2]!r}, which is neither a placeholder nor a field here")
    return Subject(found[1], origin)


def _target(kind: str, source: Family[Any], given: Link, families: Mapping[str, Family[Any]]) -> Family[Any]:
    target = families.get(given.target) if isinstance(given.target, str) else given.target
    if target is None or target not in families.values():
        name = given.target if isinstance(given.target, str) else given.target.pattern.text
        raise _dangling(source, f"{kind} names {name!r}, which is not a family of this keyspace")
    return target


def _origin(
    kind: str, source: Family[Any], target: Family[Any] | None, name: str, given: Source | None
) -> Origin | None:
    if isinstance(given, _Value):
        return Origin("value", "")
    wanted = given or name
    if wanted in source.pattern.names:
        return Origin("placeholder", wanted)
    if wanted in source.field_names:
        return Origin("field", wanted)
    if given is not None and target is not None:
        raise _dangling(
            source, f"{kind} {target.name} takes {name} from {given!r}, which is neither a placeholder nor a field here"
        )
    return None


def _member(source: Family[Any], target: Family[Any], origins: Mapping[str, Origin | None]) -> str:
    used = {origin.name for origin in origins.values() if origin and origin.kind == "placeholder"}
    left = [name for name in source.pattern.names if name not in used]
    if len(left) != 1:
        raise _dangling(
            source, f'which placeholder is the entry of {target.name}? Write listed_in={target.name}.by(member="...")'
        )
    return left[0]


def _dangling(source: Family[Any], sentence: str) -> BadDeclaration:
    return BadDeclaration(f"{source.place}: {sentence}", "dangling-relation")
