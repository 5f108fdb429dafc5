"""Compiled procedures: the steps are planned once, and a call renders keys, encodes arguments and reads the replies.

The body of a procedure is run with marks in place of its arguments. The marks show where each argument ends up in the
steps: in a key, in a stored value, or as a number. This is only valid for a body without decisions, so a body with
anything but calls, attributes and constants is not compiled. It is also run twice, with other marks and at another
time, and both runs must have the same steps: a step that depends on anything else differs.

A procedure that is not compiled, and a call with unusual arguments, run as usual: the body creates the operations of
the call, and raises the error if an argument is wrong.
"""

from __future__ import annotations

import dis
import inspect
import re
import typing
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from types import CodeType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, NoReturn, TypeVar

from keystead.schema.codec import Codec
from keystead.schema.codec.plain import PLAIN
from keystead.schema.family import Bound, Family
from keystead.schema.kinds.value import Seen
from keystead.schema.lifetime import Spread, Until
from keystead.schema.operation import Compound, Guarded, NearOperation, Operation
from keystead.schema.operation_batch import Done
from keystead.schema.prepared_steps import PreparedRun, StepTemplate
from keystead.schema.slots import one_step
from keystead.schema.steps import Steps
from keystead.stores import AtMost, Guarantees, MoreThan, StoreMs, store_ms

if TYPE_CHECKING:
    from keystead.schema.keyspace import Keyspace
    from keystead.schema.procedure import Procedure

R = TypeVar("R")

# What the body of a procedure without decisions consists of.
_PLAIN_CODE: Final = re.compile(
    r"RESUME|NOP|CACHE|PRECALL|PUSH_NULL|KW_NAMES|COPY|SWAP|POP_TOP|EXTENDED_ARG|RETURN_VALUE|RETURN_CONST"
    r"|(LOAD|STORE)_FAST\w*|LOAD_(CONST|SMALL_INT|GLOBAL|ATTR|METHOD)\w*|CALL\w*"
    r"|BUILD_(TUPLE|LIST|MAP|CONST_KEY_MAP)|LIST_(EXTEND|TO_TUPLE)|DICT_(MERGE|UPDATE)|UNPACK_SEQUENCE"
)
_CONSTANTS: Final = (str, bytes, int, float, bool, type(None))
_FUNCTIONS: Final = (Steps, Seen, store_ms)
_OPERATIONS: Final = (Operation, NearOperation, Compound)
_PLAIN_CODECS: Final = tuple(make for _, make in PLAIN)
_SPECIAL: Final = (type(None), Seen, StoreMs)  # verbs treat these differently from values
_LARGEST: Final = 10**14  # smaller numbers are valid wherever a number is
# The commands with an amount, and where it is; the scores of ZADD are at several positions.
_AMOUNTS: Final = {"INCRBY": (2,), "ZINCRBY": (2,), "HINCRBY": (3,), "SET": (2,), "ZADD": range(2, 10_000)}

Path = tuple[Any, ...]  # the number of an argument, and the names of attributes


class NotCompiledError(Exception):
    """Why a procedure is not compiled."""


class Constant(NamedTuple):
    """An operand that is the same for each call. The type tells 1 from True."""

    value: Any
    type: type[Any]


class KeyRecipe(NamedTuple):
    family: str
    operands: tuple[Path | Constant, ...]


class ValueRecipe(NamedTuple):
    codec: Any  # a codec, or the class of a plain one
    path: Path
    name: str


class StoredRecipe(NamedTuple):
    """The stored form in a `Seen`."""

    path: Path


class NumberRecipe(NamedTuple):
    """A whole number, times `sign` and plus `offset`: verbs subtract, and turn "at least 3" into "more than 2".

    `until`: it is a deadline of this lifetime.
    """

    path: Path
    sign: int = 1
    offset: int = 0
    until: Until | None = None


Recipe = KeyRecipe | ValueRecipe | StoredRecipe | NumberRecipe


@dataclass(frozen=True)
class ProcedurePlan:
    """The steps of a procedure of a keyspace, and how each argument of them is made."""

    steps: Steps[Any]
    parts: list[list[Any]]
    templates: list[StepTemplate]
    recipes: list[Recipe]
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
    constants = _constants(function)
    parameters = tuple(inspect.signature(function).parameters.values())[1:]
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
        raise NotCompiledError("it takes any number of arguments")
    first, second = (_Trace(keyspace, function, parameters, number) for number in range(2))
    if (first.templates, first.recipes) != (second.templates, second.recipes):
        raise NotCompiledError("its steps contain something that is computed from its arguments, or from the time")
    return ProcedurePlan(first.steps, first.parts, first.templates, first.recipes, constants, parameters)


def _constants(function: FunctionType) -> dict[str, Any]:
    """The global constants that a body uses. Raises NotCompiledError if it makes decisions or calls other functions."""
    code: CodeType = function.__code__
    if code.co_freevars:
        raise NotCompiledError(f"it uses {code.co_freevars[0]} of the function around it")
    found: dict[str, Any] = {}
    line = code.co_firstlineno
    for one in dis.get_instructions(code):
        line = one.starts_line if type(one.starts_line) is int else getattr(one, "line_number", None) or line
        if not _PLAIN_CODE.fullmatch(one.opname):
            raise NotCompiledError(f"line {line} does more than create operations")
        if one.opname == "LOAD_GLOBAL":
            name = str(one.argval)
            value = function.__globals__.get(name, NotImplemented)
            if type(value) in _CONSTANTS:
                found[name] = value
            elif not any(value is one for one in _FUNCTIONS):
                raise NotCompiledError(f"line {line} uses {name}")
    return found


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, resolved if possible."""
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that only a type checker knows
        return dict(function.__annotations__)


class _Symbol:
    """An argument, or an attribute of one. Nothing else can be done with it than to pass it on."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getattr__(self, name: str) -> _Symbol:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Symbol((*self.path, name))

    def __hash__(self) -> int:
        return id(self)


def _refuse_use(self: _Symbol, *others: Any) -> NoReturn:
    raise NotCompiledError("its steps depend on the values of its arguments")


for _name in ("bool", "eq", "lt", "le", "gt", "ge", "iter", "len", "call", "getitem", "contains", "str", "format"):
    setattr(_Symbol, f"__{_name}__", _refuse_use)


class _Trace:
    """One run of the body, with marks in place of its arguments."""

    def __init__(
        self,
        keyspace: type[Keyspace],
        function: Callable[..., Any],
        parameters: Sequence[inspect.Parameter],
        number: int,
    ) -> None:
        self._text = f"keystead mark {number} of"
        self._now_ms = 31_415_926_535_897 + number * 10**13
        self._numbers: dict[int, NumberRecipe] = {}
        self.marks: dict[str | bytes, int] = {}
        self.recipes: list[Recipe] = []
        hints = hints_of(function)
        samples = {one.name: self._sample(at, hints.get(one.name)) for at, one in enumerate(parameters)}
        bounds = {name: _MarkedBound(self, family) for name, family in keyspace.families.items()}
        steps = function(_Owner(keyspace.__name__, bounds), **samples)
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
        if hint is int or hint == "int":
            sample = self._now_ms + 3 * at + 2
            self._numbers |= {sample: NumberRecipe((at,)), -sample: NumberRecipe((at,), -1)}
            self._numbers[sample - 1] = NumberRecipe((at,), 1, -1)
            return sample
        is_seen = re.fullmatch(r"Seen(\[[^|]*\])?", hint) if isinstance(hint, str) else hint is Seen
        if is_seen or typing.get_origin(hint) is Seen:
            return Seen(_Symbol((at, "value")), self._mark(StoredRecipe((at,))).encode())
        return _Symbol((at,))

    def _mark(self, recipe: Recipe) -> str:
        """A text that stands for what this recipe makes."""
        if recipe not in self.recipes:
            self.recipes.append(recipe)
        place = self.recipes.index(recipe)
        mark = f"\x00{self._text} {place}\x00"
        self.marks[mark] = self.marks[mark.encode()] = place
        return mark

    def _operand(self, value: Any) -> Path | None:
        """The argument that this value stands for; None: it is a constant."""
        if type(value) is _Symbol:
            return value.path
        number = self._numbers.get(value) if type(value) is int else None
        return None if number is None else number.path

    def key(self, family: Family[Any], values: Sequence[Any]) -> str:
        operands = [self._operand(value) or Constant(value, type(value)) for value in values]
        return self._mark(KeyRecipe(family.name, tuple(operands)))

    def encode(self, codec: Codec[Any], value: Any, key: str, name: str) -> bytes:
        path = self._operand(value)
        if path is None:
            return codec.encode(value, key, None, name)
        plain = type(codec) in _PLAIN_CODECS
        return self._mark(ValueRecipe(type(codec) if plain else codec, path, "" if plain else name)).encode()

    def _steps_of(self, operation: Operation[Any]) -> list[Any]:
        family = operation.bound.family
        kind = type(operation.inner) if type(operation) is Guarded else type(operation)
        if kind not in _OPERATIONS or operation.follow is not None or self._is_in(operation.finish):
            raise NotCompiledError(f"{family.name} needs more than its own key, or keeps what cannot be read")
        if family.needs_ring:
            raise NotCompiledError(f"{family.name} is sealed with its key")
        if isinstance(family.lifetime, Spread):
            raise NotCompiledError(f"the lifetime of {family.name} is random")
        if any(not type(codec.original).__module__.startswith("keystead.") for codec in family.codecs.values()):
            raise NotCompiledError(f"{family.name} has a codec of another package")
        return operation.in_batch()

    def _is_in(self, finish: Any) -> bool:
        """Whether an argument is part of the function that reads a reply."""
        if isinstance(finish, _Symbol | partial) or self._operand(finish) is not None:
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
        if recipe is None:
            return None
        if not _fits(recipe, kind, words, at):
            is_deadline = words[at - 1] == "PXAT" or (words[0] == "PEXPIREAT" and at == 2)
            if not is_deadline or not isinstance(family.lifetime, Until):
                raise NotCompiledError("a number is used in another way than as an amount, a limit or a deadline")
            recipe = recipe._replace(until=family.lifetime)
        self._mark(recipe)
        return self.recipes.index(recipe)


def _fits(recipe: NumberRecipe, kind: type[Any] | None, words: Sequence[Any], at: int) -> bool:
    """Whether any positive number can be at this position of a step: in an amount, or as a limit."""
    if kind is AtMost or kind is MoreThan:
        return at == len(words) - 1 and recipe.sign == 1
    return at in _AMOUNTS.get(words[0], ()) and recipe.offset == 0


class _Owner:
    """The keyspace as the body sees it: nothing but its families."""

    def __init__(self, name: str, bounds: dict[str, _MarkedBound]) -> None:
        self._name = name
        vars(self).update(bounds)

    def __getattr__(self, name: str) -> NoReturn:
        raise NotCompiledError(f"it uses {self._name}.{name}, which is not a family")


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
        return self._make(self, self._trace.key(self.family, pattern.arrange(args, values)))


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
        self._makers = [_maker(keys, recipe) for recipe in plan.recipes]
        self._key_places = [
            at
            for at, one in enumerate(plan.recipes)
            if isinstance(one, KeyRecipe) and keys.families[one.family].kind != "channel"
        ]
        numbers = [at for at, one in enumerate(plan.recipes) if isinstance(one, NumberRecipe)]
        self._run: PreparedRun[R] = PreparedRun(
            store, plan.steps, plan.parts, plan.templates, len(plan.recipes), numbers, self._remake, procedure.place
        )

    def start(self, args: tuple[Any, ...], values: dict[str, Any]) -> Coroutine[Any, Any, Done[R]] | None:
        """A call with these arguments; None: the body has to decide about it, or to raise the error."""
        try:
            if values or len(args) != self._positional or len(args) != len(self._names):
                args = self._arrange(args, values)
            made = [make(args) for make in self._makers]
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


def _maker(keys: Keyspace, recipe: Recipe) -> Callable[[tuple[Any, ...]], bytes]:
    """A function that makes an argument of the steps from the arguments of a call. Any error: the body decides."""
    if isinstance(recipe, KeyRecipe):
        return _key_maker(getattr(keys, recipe.family), recipe.operands)
    read = _reader(recipe.path)
    if isinstance(recipe, ValueRecipe):
        codec = recipe.codec() if recipe.codec in _PLAIN_CODECS else recipe.codec
        return partial(_encode, read, codec.encode, recipe.name)
    if isinstance(recipe, StoredRecipe):
        return partial(_stored, read)
    return partial(_number, read, recipe, next(iter(keys.bounds())).now_ms)


def _key_maker(bound: Bound[Any], operands: Sequence[Path | Constant]) -> Callable[[tuple[Any, ...]], bytes]:
    render = bound.render
    if all(isinstance(one, Constant) for one in operands):
        key = render(*[_reader(one)(()) for one in operands]).encode()
        return lambda args: key
    if len(operands) == 1:
        read = _reader(operands[0])
        return lambda args: render(read(args)).encode()
    readers = [_reader(one) for one in operands]
    return lambda args: render(*[read(args) for read in readers]).encode()


def _reader(operand: Path | Constant) -> Callable[[tuple[Any, ...]], Any]:
    if isinstance(operand, Constant):
        return lambda args: operand.value
    first = itemgetter(operand[0])
    if len(operand) == 1:
        return first
    rest = attrgetter(".".join(operand[1:]))
    return lambda args: rest(first(args))


def _encode(read: Callable[[Any], Any], encode: Callable[..., bytes], name: str, args: tuple[Any, ...]) -> bytes:
    value = read(args)
    if isinstance(value, _SPECIAL):
        raise NotCompiledError
    return encode(value, "", None, name)


def _stored(read: Callable[[Any], Any], args: tuple[Any, ...]) -> bytes:
    seen = read(args)
    if type(seen) is not Seen or type(seen.stored) is not bytes:
        raise NotCompiledError
    return seen.stored


def _number(
    read: Callable[[Any], Any], recipe: NumberRecipe, now_ms: Callable[[], int], args: tuple[Any, ...]
) -> bytes:
    number = read(args)
    if type(number) is not int or not 0 < number < _LARGEST:
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
