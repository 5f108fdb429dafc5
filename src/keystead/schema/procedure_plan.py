"""The plan of a procedure: its steps, and how each word of them is made from the arguments of a call.

The body of a procedure is run with marks in place of its arguments. The marks show where each argument ends up in the
steps: in a key, in a stored value, or as a number. What the body calls besides the verbs of its families, such as a
model or a clock, is not called then, but with each call of the procedure.

This is only valid for a body without decisions, so a body with anything but calls, attributes and constants is not
compiled. It is also run twice, with other marks and at another time, and both runs must have the same steps: a step
that depends on anything else differs.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from keystead.schema.codec import Codec
from keystead.schema.codec.plain import PLAIN
from keystead.schema.family import Bound, Family
from keystead.schema.key import Named
from keystead.schema.kinds.value import Seen
from keystead.schema.lifetime import EndOfDay, Spread, Until
from keystead.schema.operation import Compound, Guarded, NearOperation, Operation
from keystead.schema.prepared_steps import StepTemplate
from keystead.schema.step_recipes import (
    LARGEST,
    Constant,
    Container,
    Deferred,
    Expression,
    KeyRecipe,
    LifetimeRecipe,
    Lookup,
    NumberRecipe,
    Path,
    Recipe,
    StoredRecipe,
    ValueRecipe,
    is_constant,
)
from keystead.schema.steps import Steps
from keystead.stores import AtMost, Guarantees, MoreThan, StoreMs, store_ms

if TYPE_CHECKING:
    from keystead.schema.keyspace import Keyspace
    from keystead.schema.procedure import Procedure

# What the body of a procedure without decisions consists of.
_PLAIN_CODE: Final = re.compile(
    r"RESUME|NOP|CACHE|PRECALL|PUSH_NULL|KW_NAMES|COPY|SWAP|POP_TOP|EXTENDED_ARG|RETURN_VALUE|RETURN_CONST"
    r"|(LOAD|STORE)_FAST\w*|LOAD_(CONST|SMALL_INT|GLOBAL|ATTR|METHOD)\w*|CALL\w*"
    r"|BUILD_(TUPLE|LIST|MAP|CONST_KEY_MAP)|LIST_(EXTEND|TO_TUPLE)|DICT_(MERGE|UPDATE)|UNPACK_SEQUENCE"
)
_CONSTANTS: Final = (str, bytes, int, float, bool, type(None))
_FUNCTIONS: Final = (Steps, Seen, store_ms)
_OPERATIONS: Final = (Operation, NearOperation, Compound)
PLAIN_CODECS: Final = tuple(make for _, make in PLAIN)
# The commands with an amount, and where it is; the scores of ZADD are at several positions.
_AMOUNTS: Final = {"INCRBY": (2,), "ZINCRBY": (2,), "HINCRBY": (3,), "SET": (2,), "ZADD": range(2, 10_000)}


class NotCompiledError(Exception):
    """Why a procedure is not compiled."""


@dataclass(frozen=True)
class ProcedurePlan:
    """The steps of a procedure of a keyspace, and how each argument of them is made."""

    steps: Steps[Any]
    parts: list[list[Any]]
    templates: list[StepTemplate]
    recipes: list[Recipe]
    deferred: list[Lookup | Deferred]
    constants: dict[str, Any]  # global names, which may be reassigned
    parameters: tuple[inspect.Parameter, ...]


def plan_procedure(keyspace: type[Keyspace], procedure: Procedure[Any, Any, Any]) -> ProcedurePlan | str:
    """The plan of a procedure; or why its steps are planned at each call. Found out once."""
    plans = keyspace._plans
    if procedure not in plans:
        try:
            plans[procedure] = _plan(keyspace, procedure)
        except NotCompiledError as reason:
            plans[procedure] = str(reason)
        except Exception as error:  # anything that cannot be done with marks
            plans[procedure] = f"it needs the values of its arguments ({type(error).__name__})"
    return plans[procedure]


def why_not_compiled(keyspace: type[Keyspace], procedure: Procedure[Any, Any, Any]) -> str:
    """Why the steps of a procedure are planned at each call; empty: they are compiled."""
    plan = plan_procedure(keyspace, procedure)
    return plan if isinstance(plan, str) else ""


def _plan(keyspace: type[Keyspace], procedure: Procedure[Any, Any, Any]) -> ProcedurePlan:
    function: Any = procedure.function
    if not isinstance(function, FunctionType):
        raise NotCompiledError("it is not a plain function")
    constants, lookups = _global_names(function)
    parameters = tuple(inspect.signature(function).parameters.values())[1:]
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        raise NotCompiledError("it takes any number of arguments")
    one, other = (_Trace(keyspace, function, parameters, lookups, number) for number in range(2))
    if (one.templates, one.recipes, one.deferred) != (other.templates, other.recipes, other.deferred):
        raise NotCompiledError("its steps contain something that is computed from its arguments, or from the time")
    return ProcedurePlan(one.steps, one.parts, one.templates, one.recipes, one.deferred, constants, parameters)


def _global_names(function: FunctionType) -> tuple[dict[str, Any], list[str]]:
    """The constants that a body uses, and its other global names. Raises NotCompiledError if it decides or computes."""
    code: CodeType = function.__code__
    if code.co_freevars:
        raise NotCompiledError(f"it uses {code.co_freevars[0]} of the function around it")
    constants: dict[str, Any] = {}
    others: dict[str, None] = {}
    line = code.co_firstlineno
    for one in dis.get_instructions(code):
        line = one.starts_line if type(one.starts_line) is int else getattr(one, "line_number", None) or line
        if not _PLAIN_CODE.fullmatch(one.opname):
            raise NotCompiledError(f"line {line} does more than create operations")
        if one.opname == "LOAD_GLOBAL":
            name = str(one.argval)
            value = function.__globals__.get(name, NotImplemented)
            if type(value) in _CONSTANTS:
                constants[name] = value
            elif not any(value is one for one in _FUNCTIONS):
                others[name] = None
    return constants, list(others)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, resolved if possible."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that only a type checker knows
        return dict(function.__annotations__)


def _options_of(hint: Any) -> list[Any]:
    """The alternatives of an annotation. A call with another one than the first that is known is not compiled."""
    if isinstance(hint, str):
        return [one.strip() for one in hint.split("|")]
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return list(typing.get_args(hint)) if is_union else [hint]


class _Symbol:
    """A value that is only known in a call. It can be passed on, called, and asked for attributes.

    Its own attributes begin with two underscores: all other names are those of the value.
    """

    __slots__ = ("__path__", "__trace__")

    def __init__(self, trace: _Trace, path: Path) -> None:
        self.__trace__ = trace
        self.__path__ = path

    def __getattr__(self, name: str) -> _Symbol:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Symbol(self.__trace__, (*self.__path__, name))

    def __call__(self, *args: Any, **values: Any) -> _Symbol:
        express = self.__trace__.express
        return self.__trace__.defer(Deferred(self.__path__, express(args), express(values)))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        if sys._getframe(1).f_code is self.__trace__.code:  # verbs may use it as a key, but the body would find nothing
            raise NotCompiledError("it looks its arguments up")
        return id(self)


def _refuse_use(self: _Symbol, *others: Any) -> NoReturn:
    raise NotCompiledError("its steps depend on the values of its arguments")


for _name in ("bool", "eq", "lt", "le", "gt", "ge", "iter", "len", "getitem", "contains", "str", "format"):
    setattr(_Symbol, f"__{_name}__", _refuse_use)


class _StoredMark(bytes):
    """The mark of a stored value. It can only be passed on."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            raise NotCompiledError("it looks into a stored value")
        return super().__getattribute__(name)


class _Trace:
    """One run of the body, with marks in place of its arguments."""

    def __init__(
        self,
        keyspace: type[Keyspace],
        function: FunctionType,
        parameters: Sequence[inspect.Parameter],
        lookups: Sequence[str],
        number: int,
    ) -> None:
        self.code = function.__code__
        self._text = f"keystead mark {number} of"
        self._now_ms = 31_415_926_535_897 + number * 10**13
        self._numbers: dict[int, NumberRecipe] = {}
        self._samples: dict[Path, int] = {}
        self._longest_ms: dict[int, int] = {}  # of each sample that is a TTL
        self.marks: dict[str | bytes, int] = {}
        self.recipes: list[Recipe] = []
        self.deferred: list[Lookup | Deferred] = []
        self._first_deferred = len(parameters) + 1
        self._seen: list[tuple[Seen[Any], Path]] = []
        hints = hints_of(function)
        samples = {one.name: self._sample(at, hints.get(one.name)) for at, one in enumerate(parameters)}
        bounds = {name: _MarkedBound(self, family) for name, family in keyspace.families.items()}
        owner = _Owner(_Symbol(self, (len(parameters),)), bounds)
        names = {name: self.defer(Lookup(name)) for name in lookups}
        body = FunctionType(function.__code__, function.__globals__ | names)
        steps = body(owner, **samples)
        if type(steps) is not Steps or not steps.operations:
            raise NotCompiledError("it returns no Steps")
        self.steps: Steps[Any] = steps
        self.parts = [self._steps_of(one) for one in steps.operations]
        self.templates = [
            StepTemplate.of(step, partial(self._place, one.bound.family))
            for one, part in zip(steps.operations, self.parts, strict=True)
            for step in part
        ]

    def now_ms(self) -> int:
        return self._now_ms

    def _sample(self, at: int, hint: Any) -> Any:
        options = _options_of(hint)
        if int in options or "int" in options:
            self._samples[at,] = sample = self._now_ms + 3 * at + 2
            self._numbers |= {sample: NumberRecipe((at,)), -sample: NumberRecipe((at,), -1)}
            self._numbers[sample - 1] = NumberRecipe((at,), 1, -1)
        if any(one is Seen or typing.get_origin(one) is Seen or str(one).startswith("Seen") for one in options):
            stored = _StoredMark(self._mark(StoredRecipe((at,))).encode())
            seen: Seen[Any] = Seen(_Symbol(self, (at, "value")), stored)
            self._seen.append((seen, (at,)))
            return seen
        return _Symbol(self, (at,))

    def sample_of(self, value: Any) -> Any:
        """A number in place of an argument that is one, for a verb. The body never gets it."""
        return self._samples.get(value.__path__, value) if type(value) is _Symbol else value

    def lasting(self, key: Any, ms: Any) -> Any:
        """The key with a TTL that is only known in a call, where it is checked."""
        sample, longest_ms = self.sample_of(ms), key.bound.family.lifetime.longest_ms
        if sample is ms:
            return key.lasting(ms)
        self._longest_ms[sample] = min(longest_ms or LARGEST, self._longest_ms.get(sample, LARGEST))
        return type(key)(key.bound.lasting(sample), key.key)

    def defer(self, work: Lookup | Deferred) -> _Symbol:
        self.deferred.append(work)
        return _Symbol(self, (self._first_deferred + len(self.deferred) - 1,))

    def _mark(self, recipe: Recipe) -> str:
        """A text that stands for what this recipe makes."""
        if recipe not in self.recipes:
            self.recipes.append(recipe)
        place = self.recipes.index(recipe)
        mark = f"\x00{self._text} {place}\x00"
        self.marks[mark] = self.marks[mark.encode()] = place
        return mark

    def express(self, value: Any) -> Expression:
        """How a value is made in a call. Raises NotCompiledError for a key or an operation."""
        if type(value) is _Symbol:
            return value.__path__
        if type(value) is int and value in self._samples.values():
            return self._numbers[value].path
        if type(value) in (list, tuple):
            return Container(type(value), tuple(map(self.express, value)))
        if type(value) is dict:
            return Container(dict, tuple(map(self.express, value.items())))
        for seen, path in self._seen:
            if value is seen:
                return path
        if type(value) not in (*_CONSTANTS, StoreMs):
            raise NotCompiledError("it passes a key, an operation or the like to another function")
        return Constant(value, type(value))

    def key(self, family: Family[Any], values: Sequence[Any]) -> str:
        return self._mark(KeyRecipe(family.name, tuple(map(self.express, values))))

    def encode(self, codec: Codec[Any], value: Any, key: str, name: str) -> bytes:
        made = self.express(value)
        if is_constant(made):
            return codec.encode(value, key, None, name)
        plain = type(codec) in PLAIN_CODECS
        return self._mark(ValueRecipe(type(codec) if plain else codec, made, "" if plain else name)).encode()

    def _steps_of(self, operation: Operation[Any]) -> list[Any]:
        family = operation.bound.family
        kind = type(operation.inner) if type(operation) is Guarded else type(operation)
        if kind not in _OPERATIONS or operation.follow is not None or self._is_in(operation.finish):
            raise NotCompiledError(f"{family.name} needs more than its own key, or keeps what cannot be read")
        if family.needs_ring:
            raise NotCompiledError(f"{family.name} is sealed with its key")
        if any(not type(codec.original).__module__.startswith("keystead.") for codec in family.codecs.values()):
            raise NotCompiledError(f"{family.name} has a codec of another package")
        return operation.in_batch()

    def _is_in(self, finish: Any) -> bool:
        """Whether an argument is part of the function that reads a reply."""
        if isinstance(finish, _Symbol | partial) or (type(finish) is int and finish in self._numbers):
            return True
        if isinstance(finish, tuple | list):
            return any(map(self._is_in, finish))
        return any(self._is_in(cell.cell_contents) for cell in getattr(finish, "__closure__", None) or ())

    def _place(self, family: Family[Any], kind: type[Any] | None, words: Sequence[Any], at: int) -> int | None:
        word = words[at]
        if type(word) is _Symbol:
            raise NotCompiledError("its steps depend on the values of its arguments")
        if type(word) is not int:
            return self.marks.get(word) if isinstance(word, str | bytes) else None
        recipe = self._numbers.get(word)
        if recipe is None and isinstance(family.lifetime, EndOfDay | Spread) and _is_lifetime(words, at):
            return self._lifetime_place(family.lifetime)
        if recipe is None:
            return None
        if not _fits(recipe, kind, words, at):
            before = words[0] if at == 2 else words[at - 1]
            if before in ("PXAT", "PEXPIREAT") and isinstance(family.lifetime, Until):
                recipe = recipe._replace(until=family.lifetime)
            elif before in ("PX", "PEXPIRE") and word in self._longest_ms:
                recipe = recipe._replace(most=self._longest_ms[word])
            else:
                raise NotCompiledError("a number is not an amount, a limit, a lifetime or a deadline")
        self._mark(recipe)
        return self.recipes.index(recipe)

    def _lifetime_place(self, lifetime: EndOfDay | Spread) -> int:
        recipe = LifetimeRecipe(lifetime, len(self.recipes) if isinstance(lifetime, Spread) else 0)
        self._mark(recipe)
        return self.recipes.index(recipe)


def _is_lifetime(words: Sequence[Any], at: int) -> bool:
    """Whether this word is the deadline or the TTL that the lifetime of the family gives the key."""
    if words[0] in ("PEXPIRE", "PEXPIREAT"):
        return at == 2 and tuple(words[3:]) == ("NX",)
    return words[0] == "SET" and words[at - 1] in ("PX", "PXAT")


def _fits(recipe: NumberRecipe, kind: type[Any] | None, words: Sequence[Any], at: int) -> bool:
    """Whether any positive number can be at this position of a step: in an amount, or as a limit."""
    if kind is AtMost or kind is MoreThan:
        return at == len(words) - 1 and recipe.sign == 1
    return at in _AMOUNTS.get(words[0], ()) and recipe.offset == 0


class _Owner:
    """The keyspace as the body sees it: with marked families."""

    def __init__(self, symbol: _Symbol, bounds: dict[str, _MarkedBound]) -> None:
        self._symbol = symbol
        vars(self).update(bounds)

    def __getattr__(self, name: str) -> _Symbol:
        return getattr(self._symbol, name)  # type: ignore[no-any-return]


class _MarkedBound(Bound[Any]):
    """A family whose keys and stored values are marks."""

    __slots__ = ("_trace",)

    def __init__(self, trace: _Trace, family: Family[Any]) -> None:
        store = SimpleNamespace(guarantees=Guarantees())
        keyspace = SimpleNamespace(ring=None, now_ms=trace.now_ms)
        super().__init__(family, keyspace, store)  # type: ignore[arg-type]
        self._trace = trace
        marked = object.__new__(type(family))
        vars(marked).update({name: self._with_marks(one) for name, one in vars(family).items()})
        self.family = marked

    def _with_marks(self, attribute: Any) -> Any:
        if isinstance(attribute, Codec):
            return _MarkedCodec(self._trace, attribute)
        if isinstance(attribute, dict) and attribute and all(isinstance(one, Codec) for one in attribute.values()):
            return {name: _MarkedCodec(self._trace, codec) for name, codec in attribute.items()}
        return attribute

    def __call__(self, *args: Any, **values: Any) -> Any:
        pattern = self.family.pattern
        key = self._make(self, self._trace.key(self.family, pattern.arrange(args, values)))
        return _MarkedKey(self._trace, key)

    def _of(self, **changed: Any) -> Bound[Any]:
        made: Any = super()._of(**changed)
        made._trace = self._trace
        return made  # type: ignore[no-any-return]

    def parse(self, key: str | bytes) -> NoReturn:
        raise NotCompiledError(f"{self.family.name} is listed in an index, or owns keys: they depend on its values")

    def get_all(self, *keys: Any) -> Operation[list[Any]]:
        return super().get_all(*[vars(one)["_own"] for one in keys])


class _MarkedKey:
    """A key as the body sees it: nothing but its verbs."""

    def __init__(self, trace: _Trace, key: Any) -> None:
        self._trace = trace
        self._own = key

    def lasting(self, ms: Any) -> Any:
        return _MarkedKey(self._trace, self._trace.lasting(self._own, ms))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._own, name)
        if callable(found):
            return partial(self._call, found)
        return self._marked(found)

    def _call(self, verb: Callable[..., Any], *args: Any, **values: Any) -> Any:
        sample_of = self._trace.sample_of
        return self._marked(verb(*map(sample_of, args), **{name: sample_of(one) for name, one in values.items()}))

    def _marked(self, result: Any) -> Any:
        if isinstance(result, Named):
            return _MarkedKey(self._trace, result)
        if not isinstance(result, Operation):
            raise NotCompiledError("it uses the name or the values of a key")
        return result


class _MarkedCodec:
    """A codec whose stored values are marks. It decodes as the original one."""

    def __init__(self, trace: _Trace, codec: Codec[Any]) -> None:
        self._trace = trace
        self.original = codec
        self.decode = codec.decode

    def encode(self, value: Any, key: str, ring: Any = None, name: str = "") -> bytes:
        return self._trace.encode(self.original, value, key, name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)
