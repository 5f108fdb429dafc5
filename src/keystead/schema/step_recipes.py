"""Recipes: how a word of a compiled step is made from the arguments of a call."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from keystead.schema.lifetime import EndOfDay, Spread, Until

LARGEST: Final = 10**14 - 1  # numbers up to this are valid wherever a number is

# The number of a value that is known in a call, and the names of attributes. The values are the arguments, the
# keyspace, and the results of deferred lookups and calls.
Path = tuple[Any, ...]


class Constant(NamedTuple):
    """A value that is the same for each call. The type tells 1 from True."""

    value: Any
    type: type[Any]


class Container(NamedTuple):
    """A list, a tuple, or a dict as pairs."""

    type: type[Any]
    items: tuple[Any, ...]


Expression = Path | Constant | Container


class Lookup(NamedTuple):
    """A global name, looked up with each call."""

    name: str


class Deferred(NamedTuple):
    """A function that is called with each call."""

    function: Path
    args: Container
    values: Container


class KeyRecipe(NamedTuple):
    family: str
    operands: tuple[Expression, ...]


class ValueRecipe(NamedTuple):
    codec: Any  # a codec, or the class of a plain one
    value: Expression
    name: str


class StoredRecipe(NamedTuple):
    """The stored form in a `Seen`."""

    path: Path


class NumberRecipe(NamedTuple):
    """A whole number, times `sign` and plus `offset`: verbs subtract, and turn "at least 3" into "more than 2".

    until   it is a deadline of this lifetime
    most    the highest valid number
    """

    path: Path
    sign: int = 1
    offset: int = 0
    until: Until | None = None
    most: int = LARGEST


class LifetimeRecipe(NamedTuple):
    """The deadline at the end of the day, or a random TTL. `number`: each random one is separate."""

    lifetime: EndOfDay | Spread
    number: int


Recipe = KeyRecipe | ValueRecipe | StoredRecipe | NumberRecipe | LifetimeRecipe


def is_constant(value: Expression) -> bool:
    return isinstance(value, Constant) or (isinstance(value, Container) and all(map(is_constant, value.items)))
