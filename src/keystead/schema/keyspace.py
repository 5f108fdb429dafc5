"""A keyspace: a class whose attributes are families. One key document, bound to stores by role."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from difflib import get_close_matches
from typing import Any, ClassVar, Final, Literal, TypeVar, overload

from keystead.errors import BadArgument, BadDeclaration, DoesNotFit
from keystead.schema import operation_batch
from keystead.schema.compiled_procedure import CompiledProcedure
from keystead.schema.family import Bound, Family
from keystead.schema.operation import Operation
from keystead.schema.operation_batch import Done
from keystead.schema.procedure import Procedure
from keystead.schema.procedure_plan import ProcedurePlan
from keystead.schema.relation import resolve, resolve_subject
from keystead.schema.seal import KeyRing
from keystead.schema.store_fit import misfits
from keystead.schema.times import now_ms
from keystead.schema.unreadable import remember
from keystead.stores import Store

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


NAMING: Final = "domain:entity:scope"


class Keyspace:
    """A key document. Declare families as attributes, then bind it to a store: `keys = AppKeys(store)`.

    Stores are given by role: `AppKeys(store, durable=other, cache=third)`. The first is the role `default`, and every
    other role falls back to it. `seal` has the keys of sealed fields, and is required if there are any
    (`needs_seal=False`: for a tool that does not open them); `now_ms` is a clock for tests. Raises DoesNotFit for a
    family whose store does not have the guarantees it needs.
    """

    families: ClassVar[dict[str, Family[Any]]] = {}
    procedures: ClassVar[dict[str, Procedure[Any, Any, Any]]] = {}
    _plans: ClassVar[dict[Procedure[Any, Any, Any], ProcedurePlan | str]] = {}
    naming: ClassVar[Literal["domain:entity:scope"] | None] = None  # the naming rule that `keystead check` enforces
    source: ClassVar[str] = ""  # the source document, for the key document
    changes: ClassVar[tuple[str, ...]] = ()  # changes from the source document as a whole, and why
    part_keyspaces: ClassVar[tuple[type[Keyspace], ...]] = ()
    """The keyspaces of the parts that its program uses, such as OutboxKeys: commands for this keyspace also cover
    those."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(vars(cls).get("families"), Family):
            _check_name(cls, "families")
        if cls.naming not in (None, NAMING):
            raise BadDeclaration(f"{cls.__name__}: naming must be {NAMING!r}, or left out, not {cls.naming!r}")
        if not _are_keyspaces(cls.part_keyspaces):
            raise BadDeclaration(f"{cls.__name__}: part_keyspaces must be a tuple of keyspaces, such as (OutboxKeys,)")
        cls.families, cls.procedures, cls._plans = {}, {}, {}
        _add_companions(cls)
        for base in reversed(cls.__mro__):
            for name, family in vars(base).items():
                if isinstance(family, Family):
                    for full_name, one in _with_companions(name, family):
                        _check_name(cls, full_name)
                        cls.families[full_name] = one
                        if one.keyspace is None:
                            one.keyspace = cls
                elif isinstance(family, Procedure):
                    _check_name(cls, name)
                    cls.procedures[name] = family
        _resolve(cls)

    def __init__(
        self,
        default: Store | None = None,
        /,
        *,
        seal: KeyRing | None = None,
        needs_seal: bool = True,
        now_ms: Callable[[], int] = now_ms,
        **roles: Store,
    ) -> None:
        _check_arguments(type(self), default, seal, roles)
        self.ring = seal
        self.now_ms = now_ms
        self.roles: dict[str, Store] = {**({"default": default} if default is not None else {}), **roles}
        self._bound: dict[Family[Any], Bound[Any]] = {}
        self._compiled: dict[Procedure[Any, Any, Any], CompiledProcedure[Any] | None] = {}
        refused = []
        for name, family in self.families.items():
            store = self.store_of(family.role)
            refused += [f"{family.place} does not fit {store.url}: {why}" for why in misfits(family, store.guarantees)]
            if needs_seal and family.needs_ring and seal is None:
                refused.append(f"{family.place} has sealed fields: pass seal=KeyRing({{'2026': ...}})")
            bound: Bound[Any] = Bound(family, self, store)
            self._bound[family] = bound
            # An instance attribute shadows the family of the class, and is found faster.
            self.__dict__[name] = bound
        refused += _split_indexes(self)
        if refused:
            raise DoesNotFit("\n".join(refused))
        remember(self)

    def store_of(self, role: str) -> Store:
        """The store of a role, or the default."""
        store = self.roles.get(role, self.roles.get("default"))
        if store is None:
            raise DoesNotFit(
                f"{type(self).__name__}: the role {role!r} has no store; "
                f"write {type(self).__name__}(store) or {role}=store"
            )
        return store

    @property
    def stores(self) -> list[Store]:
        """The stores in use, each once."""
        return list({id(bound.store): bound.store for bound in self._bound.values()}.values())

    def bound(self, family: Family[Any]) -> Bound[Any]:
        """A family of this keyspace in its store."""
        return self._bound[family]

    def bounds(self) -> Iterable[Bound[Any]]:
        return self._bound.values()

    @overload
    async def run(self, a: Operation[A], /) -> tuple[A]: ...
    @overload
    async def run(self, a: Operation[A], b: Operation[B], /) -> tuple[A, B]: ...
    @overload
    async def run(self, a: Operation[A], b: Operation[B], c: Operation[C], /) -> tuple[A, B, C]: ...
    @overload
    async def run(self, a: Operation[A], b: Operation[B], c: Operation[C], d: Operation[D], /) -> tuple[A, B, C, D]: ...
    @overload
    async def run(
        self, a: Operation[A], b: Operation[B], c: Operation[C], d: Operation[D], e: Operation[E], /
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    async def run(self, *operations: Operation[Any]) -> tuple[Any, ...]: ...
    def run(self, *operations: Operation[Any]) -> Coroutine[Any, Any, tuple[Any, ...]]:
        """Several operations in one round trip (per store); their results in order. Not atomic as a whole.

        All are tried. Then the first error is raised; its `results` holds the results of the others.
        """
        return operation_batch.run(operations)

    async def run_each(self, *operations: Operation[Any]) -> list[Any]:
        """As `run`, with the error in place of the result of each that failed.

        Raises StoreUnavailable. Unreadable content is not logged here: the caller may handle the error.
        """
        return await operation_batch.run_each(operations)

    @overload
    async def atomically(self, a: Operation[A], /) -> Done[tuple[A]]: ...
    @overload
    async def atomically(self, a: Operation[A], b: Operation[B], /) -> Done[tuple[A, B]]: ...
    @overload
    async def atomically(self, a: Operation[A], b: Operation[B], c: Operation[C], /) -> Done[tuple[A, B, C]]: ...
    @overload
    async def atomically(
        self, a: Operation[A], b: Operation[B], c: Operation[C], d: Operation[D], /
    ) -> Done[tuple[A, B, C, D]]: ...
    @overload
    async def atomically(self, *operations: Operation[Any]) -> Done[tuple[Any, ...]]: ...
    def atomically(self, *operations: Operation[Any]) -> Coroutine[Any, Any, Any]:
        """Several operations as one atomic step, in one round trip: all of them take effect, or none does.

        An operation marked `.required()` stops the batch if its reply is nil or 0, and so does one that cannot do its
        own work: a `compare_and_set` that finds another value, an `update` of a missing record. The result is truthy or
        falsy; `values` has the results.
        """
        return operation_batch.atomically(operations)


def with_parts(keyspaces: Iterable[type[Keyspace]]) -> list[type[Keyspace]]:
    """These keyspaces and those of their parts, each once."""
    found: dict[type[Keyspace], None] = {}
    waiting = list(keyspaces)
    while waiting:
        one = waiting.pop(0)
        if one not in found:
            found[one] = None
            waiting += one.part_keyspaces
    return list(found)


def _are_keyspaces(parts: Any) -> bool:
    return isinstance(parts, tuple) and all(isinstance(one, type) and issubclass(one, Keyspace) for one in parts)


def _check_arguments(cls: type[Keyspace], default: Any, seal: Any, roles: dict[str, Any]) -> None:
    for role, store in {"default": default, **roles}.items():
        if store is not None and not isinstance(store, Store):
            raise BadArgument(
                f"{cls.__name__}: the role {role!r} takes a store, as in `async with connect(url) as store:`, "
                f"not {type(store).__name__}"
            )
    if seal is not None and not isinstance(seal, KeyRing):
        raise BadArgument(f"{cls.__name__}: seal takes a KeyRing, not {type(seal).__name__}")
    known = {"default", *(family.role for family in cls.families.values())}
    for role in roles.keys() - known:  # other keyspaces may have it, but a misspelt role is an error
        near = get_close_matches(role, known, 1)
        if near and near[0] not in roles:
            raise DoesNotFit(f"{cls.__name__} has no family of role {role!r}; did you mean {near[0]!r}?")


def _with_companions(name: str, family: Family[Any]) -> Iterable[tuple[str, Family[Any]]]:
    """A family and those that it brings along, and theirs, each with its name in the keyspace."""
    yield name, family
    for suffix, one in family.companions.items():
        yield from _with_companions(f"{name}_{suffix}", one)


def _add_companions(cls: type[Keyspace]) -> None:
    """Make the families that others bring along attributes of the class, as if they were declared in it."""
    declared = [(name, family) for name, family in vars(cls).items() if isinstance(family, Family)]
    for name, family in declared:
        for full_name, one in list(_with_companions(name, family))[1:]:
            if full_name in vars(cls):
                raise BadDeclaration(
                    f"{cls.__name__}.{full_name}: {name} is a {type(family).__name__}, which brings a family of this "
                    "name along; remove this declaration, or rename it"
                )
            setattr(cls, full_name, one)
            one.__set_name__(cls, full_name)


def _check_name(cls: type[Keyspace], name: str) -> None:
    if hasattr(Keyspace, name) or name in ("ring", "now_ms", "roles"):
        raise BadDeclaration(f"{cls.__name__}.{name}: every keyspace has an attribute of this name; choose another")


def _resolve(cls: type[Keyspace]) -> None:
    """Resolve the names in relations, now that all families are declared."""
    for family in cls.families.values():
        if family.keyspace is not cls:
            _refuse_replaced(cls, family)
            continue
        family.listed_in = tuple(resolve("listed_in", family, one, cls.families) for one in family.links["listed_in"])
        family.owns = tuple(resolve("owns", family, one, cls.families) for one in family.links["owns"])
        family.leads_to = tuple(resolve("leads_to", family, one, cls.families) for one in family.links["leads_to"])
        if family.member_text is not None:
            family.subject = resolve_subject(family, family.member_text)
    for family in cls.families.values():
        if family.keyspace is cls:
            for relation in family.listed_in:
                relation.target.lists += (relation,)
            for relation in family.owns:
                relation.target.owned_by += (relation,)
    _refuse_shared_indexes(cls)
    _refuse_cycles(cls)


def _refuse_replaced(cls: type[Keyspace], family: Family[Any]) -> None:
    """A family of a base class refers to that class's families; a keyspace that replaces one must declare both."""
    for relation in (*family.listed_in, *family.owns, *family.leads_to):
        if relation.target not in cls.families.values():
            raise BadDeclaration(
                f"{cls.__name__} replaces {relation.target.name}, which {family.place} refers to; declare that one "
                "here, too",
                "dangling-relation",
            )


def _refuse_shared_indexes(cls: type[Keyspace]) -> None:
    """The entries of an index name records of one family; with two, an entry would be ambiguous."""
    for family in cls.families.values():
        listed = {relation.source.name for relation in family.lists}
        if len(listed) > 1:
            raise BadDeclaration(
                f"{family.place} lists {' and '.join(sorted(listed))}; give each a separate index, because an entry "
                "does not tell which of them it names",
                "dangling-relation",
            )


def _refuse_cycles(cls: type[Keyspace]) -> None:
    """A family that owns itself through others could never be deleted."""

    def walk(family: Family[Any], path: tuple[Family[Any], ...]) -> None:
        if family in path:
            cycle = " owns ".join(one.name for one in (*path[path.index(family) :], family))
            raise BadDeclaration(f"{cls.__name__}: {cycle}; a family cannot own itself", "circular-relation")
        for relation in family.owns:
            walk(relation.target, (*path, family))

    for family in cls.families.values():
        walk(family, ())


def _split_indexes(keys: Keyspace) -> Iterable[str]:
    for bound in keys.bounds():
        for relation in bound.family.listed_in:
            if keys.bound(relation.target).store is not bound.store:
                yield (
                    f"{bound.family.place} is listed in {relation.target.name}, which is in another store; "
                    "a record and its index need the same role, because they are written in one atomic step"
                )
