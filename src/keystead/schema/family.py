"""A family: one row of a key document, declared once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    Required,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from keystead.errors import BadCall, BadDeclaration, BadKey, KeyTooLong, printable
from keystead.schema.codec import Codec
from keystead.schema.lifetime import Lifetime, Sliding, Until, duration_ms
from keystead.schema.operation import Operation
from keystead.schema.pattern import Pattern
from keystead.schema.relation import Link, Relation, Source, Subject, as_links
from keystead.stores import Command, Guarantees, Store

if TYPE_CHECKING:
    from keystead.schema.key import Named
    from keystead.schema.keyspace import Keyspace
    from keystead.schema.seal import KeyRing

K = TypeVar("K", bound="Named")
Related: TypeAlias = "Family[Any] | Link | str | Sequence[Family[Any] | Link | str] | None"


_NOT_GIVEN: Any = object()


class Options(TypedDict, total=False):
    """The options of every family.

    lifetime    how long its keys live: after, sliding, until, end_of_day or never
    doc         one sentence for the key document
    role        the store of the keyspace it is in: `default`, `durable`, `cache` or a custom name
    listed_in   the index (a Set or SortedSet) that lists each key; it is written in the same atomic step
    owns        families whose keys are deleted with it
    leads_to    the family that its value names: a mapping, such as from an address to an id
    member_of   the subject it belongs to, `"user:{uid}"`, for `keystead erase user:42`
    tag         the placeholder that is its hash tag in a cluster
    near        how far behind the store reads may be, as in `"1s"`: they may answer from a copy in this process
    used_by     the routes or programs that use it, for the key document
    changed     how it differs from the document it comes from, and why
    naming_exempt  why its keys need not follow the naming rule of the keyspace
    """

    lifetime: Required[Lifetime]
    doc: str
    role: str
    listed_in: Related
    owns: Related
    leads_to: Related
    member_of: str | None
    tag: str | None
    near: str | timedelta | None
    used_by: Sequence[str]
    changed: str
    naming_exempt: str


class Family(Generic[K]):
    """The base class of families. A family belongs to one keyspace, as an attribute of its class."""

    kind: ClassVar[str]  # the reply of TYPE for its keys; "channel" has none
    kind_name: ClassVar[str]
    verbs: ClassVar[type[Any]]  # the class of its keys
    listable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        for name in dir(getattr(cls, "verbs", None)):
            if not hasattr(Bound, name):
                setattr(Bound, name, _VerbOfKey(name))

    def further_misfits(self, guarantees: Guarantees) -> Iterator[str]:
        """Why a store with these guarantees cannot hold it, besides the common reasons of `misfits`."""
        yield from ()

    def __init__(self, pattern: str, **options: Unpack[Options]) -> None:
        given: Any = options
        unknown = sorted(options.keys() - Options.__annotations__.keys())
        if unknown:
            near = get_close_matches(unknown[0], Options.__annotations__, 1)
            advice = f"did you mean {near[0]}?" if near else f"the options are {', '.join(Options.__annotations__)}"
            raise BadDeclaration(f"{pattern}: a family has no option {unknown[0]!r}; {advice}")
        lifetime, role = given.get("lifetime"), given.get("role", "default")
        listed_in = given.get("listed_in")
        if not isinstance(pattern, str):
            raise BadDeclaration(
                f"a pattern must be text, such as 'user:{{uid}}', not {type(pattern).__name__}", "bad-pattern"
            )
        if not isinstance(lifetime, Lifetime):
            what = "its lifetime is not stated" if lifetime is None else f"{lifetime!r} is not a lifetime"
            raise BadDeclaration(
                f'{pattern}: {what}; write lifetime=after("30d"), sliding(...), until(...), end_of_day(...) '
                'or never("why")',
                "no-lifetime",
            )
        if not isinstance(role, str) or not role.isidentifier():
            raise BadDeclaration(f"{pattern}: a role must be a name such as durable, not {role!r}", "bad-role")
        if listed_in is not None and not self.listable:
            raise BadDeclaration(
                f"{pattern}: only a Value or a Hash can be listed in an index, not a {self.kind_name}",
                "dangling-relation",
            )
        self.pattern = Pattern(pattern, tag=given.get("tag"))
        self.lifetime: Lifetime = lifetime
        self.has_moment = isinstance(lifetime, Until)
        self.doc = " ".join(given.get("doc", "").split())
        self.role: str = role
        self.near_ms = 0 if given.get("near") is None else duration_ms(given["near"], f"{pattern}: near")
        used_by = given.get("used_by", ())
        self.used_by: tuple[str, ...] = (used_by,) if isinstance(used_by, str) else tuple(used_by)
        self.changed = " ".join(given.get("changed", "").split())
        self.naming_exempt = _check_exemption(pattern, given.get("naming_exempt"))
        self.name = ""
        self.keyspace: type[Keyspace] | None = None
        self.links = {kind: as_links(given.get(kind)) for kind in ("listed_in", "owns", "leads_to")}
        self.member_text: str | None = given.get("member_of")
        # Set when the keyspace class is created, because relations may name families that are declared further down.
        self.listed_in: tuple[Relation, ...] = ()
        self.owns: tuple[Relation, ...] = ()
        self.leads_to: tuple[Relation, ...] = ()
        self.lists: tuple[Relation, ...] = ()  # the reverse of listed_in
        self.owned_by: tuple[Relation, ...] = ()  # the reverse of owns
        self.subject: Subject | None = None
        self.companions: dict[str, Family[Any]] = {}
        """Families that a part needs beside this one, by suffix: the keyspace that declares `report` also gets
        `report_mark`."""

    def by(
        self,
        *,
        member: str | None = None,
        score: str | None = None,
        admits: bool = False,
        optional: bool = False,
        **where: Source,
    ) -> Link:
        """This family as the target of a relation, with the origins of its placeholders.

        `owns=token.by(short="short_token")`: the placeholder `short` is the field `short_token` of the owner's value.
        For an index, `member` is the placeholder that is listed, `score` the field that it is sorted by. `admits` is
        for a Set that decides which records are valid: only `add` and `set` list a record, later writes never do.
        So removing an entry, or deleting the whole index, invalidates the records permanently.

        `optional` is for `owns`: such a key may exist without an owner. It is deleted with its owner if it has one,
        and is not an orphan if it has none.
        """
        return Link(self, where, member, score, admits, optional)

    def __call__(self, *args: Any, **values: Any) -> NoReturn:
        name = self.name or "family"
        raise BadCall(f"{self.place} is a declaration; bind its keyspace first: keys = Keys(store); keys.{name}(...)")

    def __set_name__(self, owner: type, name: str) -> None:
        if self.name and self.name != name:
            raise BadDeclaration(f"{self.pattern.text} is declared as {self.name} and as {name}; give it one name")
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: Keyspace, owner: type) -> Bound[K]: ...
    def __get__(self, instance: Keyspace | None, owner: type) -> Self | Bound[K]:
        return self if instance is None else instance.bound(self)

    @property
    def place(self) -> str:
        """Where it is declared, for people."""
        where = f"{self.keyspace.__name__}.{self.name}" if self.keyspace else self.name
        return f"{where} ({self.pattern.text})" if where else self.pattern.text

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        """The codecs of a key of this family: of its value, member, field and so on."""
        return {}

    @property
    def field_names(self) -> frozenset[str]:
        """The fields of its value, if its value is a model."""
        return frozenset()

    def read_command(self, key: str) -> Command:
        """The command that reads the whole value of a key, for families that have one value."""
        raise NotImplementedError(f"a {self.kind_name} has no single value")

    def value_of(self, raw: Any, key: str, ring: KeyRing | None) -> Any:
        """The value in the reply of `read_command`; None: there is no such key. Raises Unreadable."""
        raise NotImplementedError(f"a {self.kind_name} has no single value")

    def stored_name(self, field: str) -> str:
        """The name under which a field of the value is stored."""
        return field

    @property
    def needs_ring(self) -> bool:
        return any(codec.sealed for codec in self.codecs.values())

    @property
    def value_shape(self) -> str:
        """For the key document."""
        return "; ".join(codec.describe() for codec in self.codecs.values())

    @property
    def has_relations(self) -> bool:
        return bool(self.listed_in or self.owns)

    @property
    def takes_deadline(self) -> bool:
        """Whether each write must pass the deadline, because no field of the value holds it."""
        return isinstance(self.lifetime, Until) and self.lifetime.field not in self.field_names

    def __repr__(self) -> str:
        return f"<{self.kind_name} {self.place}>"


def _check_exemption(pattern: str, exempt: Any) -> str:
    """Why a family is exempt from the naming rule; empty: it is not."""
    if exempt is None:
        return ""
    reason = " ".join(exempt.split()) if isinstance(exempt, str) else ""
    if not any(character.isalpha() for character in reason):
        raise BadDeclaration(
            f"{pattern}: an exemption from the naming rule needs a reason in words, as in "
            "naming_exempt='other programs read this key', not "
            f"{exempt!r}"
        )
    return reason


class _VerbOfKey:
    """An attribute of `Bound` for each verb of its keys: a clear error if the call was forgotten.

    `Bound.__getattr__` would do the same for any name, and slow down every access to a family.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, bound: Bound[Any] | None, owner: type) -> NoReturn:
        family = bound.family.name if bound is not None else "family"
        raise AttributeError(f"{family} has no {self.name!r}; call it first: write keys.{family}(...).{self.name}")


class Bound(Generic[K]):
    """A family in the store of its role. Call it with the values of the placeholders: `keys.token(short="x")`."""

    __slots__ = (
        "_alone",
        "_make",
        "_render",
        "_single",
        "_surely_short",
        "family",
        "keyspace",
        "now_ms",
        "ring",
        "store",
        "tagged",
    )

    def __init__(self, family: Family[K], keyspace: Keyspace, store: Store) -> None:
        # Any: each kind of key knows the class of its family; one type parameter cannot express both.
        self.family: Any = family
        self.keyspace = keyspace
        self.store = store
        self.ring: KeyRing | None = keyspace.ring
        self.now_ms: Callable[[], int] = keyspace.now_ms
        self.tagged = store.guarantees.atomic == "one slot" and family.pattern.tag is not None
        self._render = family.pattern.renderer(tagged=self.tagged)
        self._single = family.pattern.single(tagged=self.tagged)
        self._make: Callable[[Bound[K], str], K] = family.verbs
        self._alone: Bound[K] | None = None
        # A character has at most four bytes, so most keys are short enough without being encoded.
        longest = store.guarantees.key_max_bytes
        self._surely_short = sys.maxsize if longest is None else longest // 4

    def __call__(self, value: Any = _NOT_GIVEN, /, *args: Any, **values: Any) -> K:
        """The key with these values. Raises BadKey if one is missing or does not fit. Nothing is sent."""
        if args or values or value is _NOT_GIVEN or self._single is None:
            key = self._render(*(() if value is _NOT_GIVEN else (value, *args)), **values)
        else:
            before, write, end = self._single  # the usual call, inlined
            key = before + write(value) + end
        if len(key) > self._surely_short:
            self._refuse_too_long(key)
        return self._make(self, key)

    def render(self, *values: Any) -> str:
        """The key of these values, in the order of the pattern, as text. Raises BadKey as a call does."""
        key: str = self._render(*values)
        if len(key) > self._surely_short:
            self._refuse_too_long(key)
        return key

    def _refuse_too_long(self, key: str) -> None:
        longest = self.store.guarantees.key_max_bytes
        if longest is not None and len(key.encode()) > longest:
            raise KeyTooLong(
                f"{printable(key)} has {len(key.encode())} bytes, but keys of {self.store.url} have at most "
                f"{longest}; declare that long segments are hashed, as in {{name<=120}}"
            )

    def key(self, key: str) -> K:
        """The key of this name. Raises BadKey if it is not a key of this family."""
        if self.parse(str(key)) is None:
            raise BadKey(f"{printable(str(key))} is not a key of {self.family.place}")
        return self._make(self, key)

    def parse(self, key: str | bytes) -> dict[str, Any] | None:
        """The placeholder values of a key; None if it is not a key of this family."""
        found: dict[str, Any] | None = self.family.pattern.parse(key, tagged=self.tagged)
        return found

    @property
    def expression(self) -> str:
        """The regular expression of its keys: see `Pattern.expression`."""
        found: str = self.family.pattern.expression(tagged=self.tagged)
        return found

    def glob(self, values: Mapping[str, Any] | None = None) -> str:
        """A glob that matches the keys with these values, and possibly others: parse the matches."""
        found: str = self.family.pattern.glob(values, tagged=self.tagged)
        return found

    async def scan(self, page: int = 500, /, **values: Any) -> AsyncIterator[K]:
        """Every key of this family, or those with these values, while the store keeps serving other callers.

        A key that is created or deleted meanwhile may or may not be among them, and one may occur twice. `page` is the
        approximate number of keys per request; it is positional, because a placeholder may have that name.
        """
        # Compared as rendered: a UUID may be given as text, and a key contains only the digest of a long text.
        wanted = {name: self._render_value(name, value) for name, value in values.items()}
        async for keys in self.store.scan(self.glob(values), kind=self.family.kind, page=page):
            for raw in keys:
                found = self.parse(raw)
                if found is not None and all(
                    self._render_value(name, found[name]) == text for name, text in wanted.items()
                ):
                    yield self._make(self, raw.decode())

    def _render_value(self, name: str, value: Any) -> str | None:
        text: str | None = None if value is None else self.family.pattern.render_one(name, value)
        return text

    @property
    def alone(self) -> Bound[K]:
        """The same family without its relations."""
        if self._alone is None:
            self._alone = self._of(listed_in=(), owns=())
        return self._alone

    def lasting(self, ms: int) -> Bound[K]:
        """The same family with a TTL of `ms` after each write."""
        return self._of(lifetime=Sliding(ms, ms), has_moment=False)

    def holding(self, codec: Codec[Any], lifetime: Lifetime | None = None) -> Bound[K]:
        """The same keys in the same store, with another codec and lifetime.

        For a part that stores its own data in place of a value.
        """
        return self._of(codec=codec, lifetime=self.family.lifetime if lifetime is None else lifetime)

    def _of(self, **changed: Any) -> Bound[K]:
        """The same keys in the same store, of a family with these changes."""
        family = object.__new__(type(self.family))  # `copy` takes ten times as long
        vars(family).update(vars(self.family), **changed)
        made: Bound[K] = object.__new__(type(self))
        for name in Bound.__slots__:
            setattr(made, name, getattr(self, name))
        made.family, made._alone = family, None
        return made

    def get_all(self, *keys: Any) -> Operation[list[Any]]:
        """The values of several keys in one command; None for each missing one. For Value and Counter.

        Each is given like the arguments of the family: a value, or a tuple if the pattern has several. A key of another
        family of the same store can be among them.
        """
        found: list[Any] = [
            self(*one) if isinstance(one, tuple) else one if hasattr(one, "bound") else self(one) for one in keys
        ]

        def values(replies: list[Any]) -> list[Any]:
            pairs = zip(found, replies[0], strict=True)
            return [one.bound.family.value_of(raw, one.key, one.bound.ring) for one, raw in pairs]

        return Operation(self, "get_all", [("MGET", *[one.key for one in found])], values)

    def companion(self, suffix: str) -> Bound[Any] | None:
        """The family of this keyspace that was declared along with this one; None: there is none of this suffix."""
        found = self.family.companions.get(suffix)
        return None if found is None else self.keyspace.bound(found)

    def related(self, family: Family[Any]) -> Bound[Any]:
        """Another family of the same keyspace, bound as this one is."""
        return self.keyspace.bound(family)

    def __repr__(self) -> str:
        return f"<{self.family.kind_name} {self.family.place} in {self.store.url}>"
