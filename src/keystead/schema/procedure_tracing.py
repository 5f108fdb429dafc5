"""Procedure tracing: symbolic execution of a procedure, with symbols for its arguments.

The body only creates operations. Run with a keyspace that records them, it reveals which keys it touches, which steps
are guards, and which keys share a hash tag. Both branches of a condition are taken, and an optional argument is traced
with and without a value. A procedure that cannot be traced is reported, and still runs.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from keystead.schema.family import Family
from keystead.schema.procedure import Procedure
from keystead.schema.procedure_plan import hints_of
from keystead.schema.steps import Steps

if TYPE_CHECKING:
    from keystead.schema.keyspace import Keyspace

# The verbs that change nothing. `use` touches and `live` prunes, but their purpose is to read.
READS: Final = frozenset(
    [
        "absent",
        "as_seen",
        "at_least",
        "at_most",
        "between",
        "between_at_most",
        "clock",
        "count",
        "count_between",
        "entries",
        "exists",
        "field",
        "field_at_most",
        "fields",
        "get",
        "has",
        "highest",
        "holds",
        "items",
        "latest",
        "left_ms",
        "live",
        "lowest",
        "members",
        "newest",
        "pages",
        "plan_delete",
        "rank",
        "rank_from_top",
        "remaining",
        "score",
        "score_at_most",
        "score_is",
        "see",
        "see_latest",
        "see_lowest",
        "subscribe",
        "use",
    ]
)
# Verbs that are guards by themselves, without `required` or `otherwise`.
GUARDS: Final = frozenset(
    {
        *("at_most", "at_least", "score_at_most", "score_is", "field_at_most", "between_at_most", "holds", "absent"),
        *("compare_and_set", "replace_seen", "update"),
    }
)

_PATHS_MOST: Final = 64


@dataclass(frozen=True)
class TracedStep:
    """One operation of a procedure.

    family    of the key that it touches
    verb      what it does there
    guard     the reason that the caller gets if it stops the procedure; None: it is not a guard
    slot      what a cluster chooses its slot by: the hash tag of the key, or the whole key
    always    whether every call does it
    """

    family: Family[Any]
    verb: str
    guard: str | None
    slot: str
    always: bool = True

    @property
    def writes(self) -> bool:
        return self.verb not in READS


@dataclass(frozen=True)
class Traced:
    """The trace of a procedure. `problem`: why it could not be traced; then `steps` is empty."""

    steps: tuple[TracedStep, ...] = ()
    groups: int = 1
    problem: str = ""

    @property
    def one_slot(self) -> bool:
        """Whether its keys are in one slot of a cluster, as far as is known."""
        return self.groups == 1

    @property
    def families(self) -> dict[Family[Any], bool]:
        """The families that it touches, and whether it writes to them."""
        found: dict[Family[Any], bool] = {}
        for step in self.steps:
            found[step.family] = found.get(step.family, False) or step.writes
        return found


def traced(keyspace: type[Keyspace], procedure: Procedure[Any, Any, Any]) -> Traced:
    """What this procedure of a keyspace does."""
    paths: list[list[TracedStep]] = []
    try:
        for arguments in _argument_sets(procedure.function):
            for steps in _trace_paths(keyspace, procedure, arguments):
                paths.append(steps)
                if len(paths) > _PATHS_MOST:
                    return Traced(problem="it decides too much by its arguments")
    except Exception as error:  # anything that symbols cannot do
        return Traced(problem=f"what it does depends on its arguments ({type(error).__name__})")
    merged: dict[tuple[Any, ...], list[TracedStep]] = {}
    for steps in paths:
        for step in dict.fromkeys(steps):
            merged.setdefault((step.family, step.verb, step.guard, step.slot), []).append(step)
    order = sorted(merged, key=lambda one: max(_place(steps, one) for steps in paths))
    found = tuple(replace(merged[one][0], always=len(merged[one]) == len(paths)) for one in order)
    return Traced(found, max((_groups(steps) for steps in paths), default=1))


def _place(steps: list[TracedStep], one: tuple[Any, ...]) -> int:
    return next((at for at, s in enumerate(steps) if (s.family, s.verb, s.guard, s.slot) == one), -1)


def _groups(steps: list[TracedStep]) -> int:
    """The number of round trips in a cluster: adjacent steps of one slot share one."""
    slots = [step.slot for step in steps]
    return sum(1 for at, slot in enumerate(slots) if at == 0 or slot != slots[at - 1])


def _trace_paths(
    keyspace: type[Keyspace], procedure: Procedure[Any, Any, Any], arguments: dict[str, Any]
) -> Iterator[list[TracedStep]]:
    """The steps of each path through the body, with both branches of each condition."""
    waiting: list[list[bool]] = [[]]
    while waiting:
        way = _Path(waiting.pop())
        given = {name: None if value is None else _Symbol(f"{{{name}}}", way) for name, value in arguments.items()}
        made = procedure.function(_keyspace(keyspace, way), **given)
        if not isinstance(made, Steps):
            raise TypeError("it returns no Steps")
        waiting += way.others
        yield [one.step for one in made.operations]  # type: ignore[attr-defined]


def _argument_sets(function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """The arguments, all given; then each one that may be None, left out."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    hints = hints_of(function)
    names = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    yield dict.fromkeys(names, ...)
    for name in names:
        if _may_be_none(hints.get(name)):
            yield dict.fromkeys(names, ...) | {name: None}


def _may_be_none(hint: Any) -> bool:
    if isinstance(hint, str):
        return "None" in hint
    return typing.get_origin(hint) in (typing.Union, types.UnionType) and type(None) in typing.get_args(hint)


@dataclass
class _Path:
    """A path through the body: the outcomes of its conditions, and the alternatives not taken yet."""

    decided: list[bool]
    taken: list[bool] = field(default_factory=list)
    others: list[list[bool]] = field(default_factory=list)

    def decide(self) -> bool:
        at = len(self.taken)
        if at >= len(self.decided):
            self.others.append([*self.taken, False])
            if at > _PATHS_MOST:
                raise RecursionError("it never ends")
        decision = self.decided[at] if at < len(self.decided) else True
        self.taken.append(decision)
        return decision


class _Symbol:
    """Represents an argument, or a value derived from one. It is named as in a key pattern."""

    def __init__(self, name: str, way: _Path) -> None:
        self._name = name
        self._way = way

    def _derive(self, name: str) -> _Symbol:
        return _Symbol(name, self._way)

    def __getattr__(self, name: str) -> _Symbol:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._derive(f"{self._name.rstrip('}')}.{name}}}")

    def __call__(self, *args: Any, **values: Any) -> _Symbol:
        return self._derive(self._name)

    def __getitem__(self, place: Any) -> _Symbol:
        return self._derive(f"{self._name.rstrip('}')}[{place}]}}")

    def __iter__(self) -> Iterator[_Symbol]:
        if self._way.decide():
            yield self._derive(f"{self._name.rstrip('}')}[]}}")

    def __len__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return self._way.decide()

    def __repr__(self) -> str:
        return self._name

    def __format__(self, how: str) -> str:
        return self._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Symbol) and other._name == self._name) or self._way.decide()

    def __ne__(self, other: object) -> bool:
        return not self == other


def _calculation(self: _Symbol, *others: Any) -> _Symbol:
    return self._derive(self._name)


def _comparison(self: _Symbol, other: Any) -> bool:
    return self._way.decide()


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "truediv", "mod", "or", "and", "neg"):
    setattr(_Symbol, f"__{_name}__", _calculation)
for _name in ("lt", "le", "gt", "ge", "contains"):
    setattr(_Symbol, f"__{_name}__", _comparison)


def _keyspace(keyspace: type[Keyspace], way: _Path) -> Any:
    """A keyspace of that class whose families only record operations."""
    made = object.__new__(keyspace)
    vars(made).update({name: _TracedFamily(family, way) for name, family in keyspace.families.items()})
    vars(made)["now_ms"] = lambda: _Symbol("{now}", way)
    return made


class _TracedFamily:
    def __init__(self, family: Family[Any], way: _Path) -> None:
        self.family = family
        self._way = way

    def __call__(self, *values: Any, **named: Any) -> _TracedKey:
        pattern = self.family.pattern
        given = dict(zip(pattern.names, values, strict=False)) | named
        unknown = set(named) - set(pattern.names)
        if unknown or len(values) > len(pattern.names):
            raise TypeError(f"{self.family.place} takes {', '.join(pattern.names)}")
        tag = pattern.tag
        slot = f"tag {given.get(tag)}" if tag is not None else f"{self.family.place} {sorted(map(str, given.items()))}"
        return _TracedKey(self.family, slot, self._way)

    def now_ms(self) -> _Symbol:
        return _Symbol("{now}", self._way)


class _TracedKey:
    def __init__(self, family: Family[Any], slot: str, way: _Path) -> None:
        self._family = family
        self._slot = slot
        self._way = way
        self.key = family.pattern.display

    @property
    def alone(self) -> _TracedKey:
        return self

    def lasting(self, ms: Any) -> _TracedKey:
        return self

    def __getattr__(self, verb: str) -> Callable[..., _TracedOperation]:
        if not hasattr(self._family.verbs, verb):
            raise AttributeError(f"{self._family.kind_name} has no verb {verb!r}")
        guard = self._family.name if verb in GUARDS else None
        step = TracedStep(self._family, verb, guard, self._slot)
        return lambda *args, **values: _TracedOperation(step)


class _TracedOperation:
    def __init__(self, step: TracedStep, inner: _TracedOperation | None = None) -> None:
        self.step = step
        self.inner = inner

    def required(self) -> _TracedOperation:
        return self.otherwise(self.step.family.name)

    def otherwise(self, reason: str) -> _TracedOperation:
        step = self.step
        return _TracedOperation(TracedStep(step.family, step.verb, str(reason), step.slot), self)

    def if_readable(self) -> _TracedOperation:
        return self

    def or_error(self) -> _TracedOperation:
        return self

    def afterwards(self, work: Any) -> _TracedOperation:
        return self
