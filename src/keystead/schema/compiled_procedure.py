"""Compiled procedures: a call renders the keys, encodes the arguments and reads the replies.

A procedure without a plan (see `procedure_plan`), and a call with unusual arguments, run as usual: the body creates the
operations of the call, and raises the error if an argument is wrong.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from keystead.schema.family import Bound
from keystead.schema.kinds.value import Seen
from keystead.schema.operation import Operation
from keystead.schema.operation_batch import Done
from keystead.schema.prepared_steps import PreparedRun
from keystead.schema.procedure_plan import PLAIN_CODECS, NotCompiledError, plan_procedure
from keystead.schema.slots import one_step
from keystead.schema.step_recipes import (
    Constant,
    Container,
    Deferred,
    Expression,
    KeyRecipe,
    LifetimeRecipe,
    Lookup,
    NumberRecipe,
    Recipe,
    StoredRecipe,
    ValueRecipe,
    is_constant,
)
from keystead.schema.steps import Steps

if TYPE_CHECKING:
    from keystead.schema.keyspace import Keyspace
    from keystead.schema.procedure import Procedure

R = TypeVar("R")


class CompiledProcedure(Generic[R]):
    """A procedure that is compiled for one keyspace in its store. Raises NotCompiledError if it is not possible."""

    def __init__(self, keys: Keyspace, procedure: Procedure[Any, Any, R]) -> None:
        plan = plan_procedure(type(keys), procedure)
        if isinstance(plan, str):
            raise NotCompiledError(plan)
        bounds = [getattr(keys, one.bound.family.name) for one in plan.steps.operations]
        store = bounds[0].store
        if any(one.store is not store for one in bounds) or store.guarantees.atomic not in ("any keys", "one slot"):
            raise NotCompiledError("its keys are not in one store that changes them in one step")
        self._keys = keys
        self._function = procedure.function
        self._store = store if store.guarantees.atomic == "one slot" else None
        self._globals, self._constants = self._function.__globals__, list(plan.constants.items())
        self._names = [one.name for one in plan.parameters]
        self._positional = sum(one.kind is not one.KEYWORD_ONLY for one in plan.parameters)
        self._defaults = {one.name: one.default for one in plan.parameters if one.default is not one.empty}
        self._deferred = [_deferred(self._function, one) for one in plan.deferred]
        self._makers = [_maker(keys, recipe) for recipe in plan.recipes]
        self._key_places = [
            at
            for at, one in enumerate(plan.recipes)
            if isinstance(one, KeyRecipe) and keys.families[one.family].kind != "channel"
        ]
        numbers = [at for at, one in enumerate(plan.recipes) if isinstance(one, NumberRecipe | LifetimeRecipe)]
        self._run: PreparedRun[R] = PreparedRun(
            store, plan.steps, plan.parts, plan.templates, len(plan.recipes), numbers, self._remake, procedure.place
        )

    def start(self, args: tuple[Any, ...], values: dict[str, Any]) -> Coroutine[Any, Any, Done[R]] | None:
        """A call with these arguments; None: the body has to decide about it, or to raise the error."""
        try:
            if values or len(args) != self._positional or len(args) != len(self._names):
                args = self._arrange(args, values)
            known: Sequence[Any] = args
            if self._deferred:
                known = [*args, self._keys]
                for work in self._deferred:
                    known.append(work(known))
            made = [make(known) for make in self._makers]
        except Exception:
            return None
        for name, value in self._constants:
            if self._globals.get(name) is not value:
                return None
        if self._store is not None and not one_step(self._store, *[made[at].decode() for at in self._key_places]):
            return None
        return self._run(made, args)

    def _arrange(self, args: tuple[Any, ...], values: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments of a call in order. Raises NotCompiledError if some are missing or wrong."""
        given = dict(zip(self._names, args, strict=False)) | values
        every = self._defaults | given
        if (
            len(args) > self._positional
            or len(given) != len(args) + len(values)  # one was given twice
            or every.keys() != set(self._names)
        ):
            raise NotCompiledError
        return tuple(every[name] for name in self._names)

    def _remake(self, args: tuple[Any, ...]) -> Sequence[Operation[Any]]:
        named = dict(zip(self._names, args, strict=True))
        steps: Steps[Any] = self._function(self._keys, **named)
        return steps.operations


Maker = Callable[[Sequence[Any]], Any]  # takes the values that are known in a call


def _maker(keys: Keyspace, recipe: Recipe) -> Maker:
    """A function that makes an argument of the steps. Any error: the body decides."""
    if isinstance(recipe, KeyRecipe):
        return _key_maker(getattr(keys, recipe.family), recipe.operands)
    if isinstance(recipe, ValueRecipe):
        codec = recipe.codec() if recipe.codec in PLAIN_CODECS else recipe.codec
        # Verbs treat None, a Seen and store_ms() differently from values. A codec refuses them, so the body decides.
        read, encode, name = _reader(recipe.value), codec.encode, recipe.name
        return lambda known: encode(read(known), "", None, name)
    if isinstance(recipe, StoredRecipe):
        return partial(_stored, _reader(recipe.path))
    now_ms = next(iter(keys.bounds())).now_ms
    if isinstance(recipe, LifetimeRecipe):
        on_create = recipe.lifetime.on_create
        return lambda known: b"%d" % int(on_create(now_ms(), None)[1])
    return partial(_number, _reader(recipe.path), recipe, now_ms)


def _key_maker(bound: Bound[Any], operands: Sequence[Expression]) -> Maker:
    render = bound.render
    readers = [_reader(one) for one in operands]
    if all(map(is_constant, operands)):
        key = render(*[read(()) for read in readers]).encode()
        return lambda known: key
    if len(operands) == 1:
        read = readers[0]
        return lambda known: render(read(known)).encode()
    return lambda known: render(*[read(known) for read in readers]).encode()


def _reader(value: Expression) -> Maker:
    if isinstance(value, Constant):
        return lambda known: value.value
    if isinstance(value, Container):
        kind, readers = value.type, [_reader(one) for one in value.items]
        return lambda known: kind([read(known) for read in readers])
    first = itemgetter(value[0])
    if len(value) == 1:
        return first
    rest = attrgetter(".".join(value[1:]))
    return lambda known: rest(first(known))


def _deferred(function: Any, work: Lookup | Deferred) -> Maker:
    if isinstance(work, Lookup):
        name, own = work.name, function.__globals__
        return lambda known: own[name] if name in own else getattr(builtins, name)
    called, args, values = map(_reader, work)
    return lambda known: called(known)(*args(known), **values(known))


def _stored(read: Maker, known: Sequence[Any]) -> bytes:
    seen = read(known)
    if type(seen) is not Seen or type(seen.stored) is not bytes:
        raise NotCompiledError
    return seen.stored


def _number(read: Maker, recipe: NumberRecipe, now_ms: Callable[[], int], known: Sequence[Any]) -> bytes:
    number = read(known)
    if type(number) is not int or not 0 < number <= recipe.most:
        raise NotCompiledError
    if recipe.until is not None:
        recipe.until.on_create(now_ms(), number)  # or raises
    return b"%d" % (number * recipe.sign + recipe.offset)


def compile_procedure(keys: Keyspace, procedure: Procedure[Any, Any, R]) -> CompiledProcedure[R] | None:
    """Compile a procedure for the store of a keyspace; None: each call creates its operations."""
    try:
        return CompiledProcedure(keys, procedure)
    except Exception:
        return None
