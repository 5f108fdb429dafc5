"""Steps: what one call of a procedure does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar, cast, overload

from keystead.errors import BadArgument
from keystead.schema.operation import Operation, use_all

R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


class Steps(Generic[R_co]):
    """What one call of a procedure does: these operations, in this order.

    An operation with `otherwise("a reason")` is a guard: if it finds or does nothing, no step takes effect, and the
    caller gets the reason. An operation that cannot do its own work, such as a `compare_and_set` that finds another
    value, also stops the procedure.
    """

    __slots__ = ("_given", "operations", "undoing")

    def __init__(self: Steps[None], *operations: Operation[Any]) -> None:
        use_all(operations)
        self.operations = operations
        self.undoing: tuple[tuple[Operation[Any] | None, Operation[Any]], ...] = ()
        self._given: Operation[Any] | tuple[Operation[Any], ...] | None = None

    @overload
    def giving(self, a: Operation[A], /) -> Steps[A]: ...
    @overload
    def giving(self, a: Operation[A], b: Operation[B], /) -> Steps[tuple[A, B]]: ...
    @overload
    def giving(self, a: Operation[A], b: Operation[B], c: Operation[C], /) -> Steps[tuple[A, B, C]]: ...
    @overload
    def giving(self, *operations: Operation[Any]) -> Steps[tuple[Any, ...]]: ...
    def giving(self, *operations: Operation[Any]) -> Steps[Any]:
        """The same steps, with the result of this operation (one of them) as the value of the procedure."""
        given = tuple(self._step_of(one) for one in operations)
        self._given = given[0] if len(given) == 1 else given
        return cast("Steps[Any]", self)

    def giving_each(self, operations: Sequence[Operation[A]]) -> Steps[tuple[A, ...]]:
        """As `giving`; the value is always a tuple, even of one result."""
        self._given = tuple(self._step_of(one) for one in operations)
        return cast("Steps[tuple[A, ...]]", self)

    def _step_of(self, operation: Operation[Any]) -> Operation[Any]:
        """The step that is this operation, or that wraps it as a guard."""
        for one in self.operations:
            if one is operation or one.inner is operation:
                return one
        operation.pending = ""
        raise BadArgument("what a procedure gives or undoes is one of its steps: put the operation in both")

    def undone_by(self, *operations: Operation[Any], of: Operation[Any] | None = None) -> Self:
        """Compensating operations for an ordered procedure that a guard stops after earlier steps took effect.

        With `of`, which must be one of the steps, they run only if that step took effect. They never run if all steps
        are one atomic step: then there is nothing to undo.
        """
        use_all(operations)
        step = None if of is None else self._step_of(of)
        self.undoing += tuple((step, one) for one in operations)
        return self

    def value_of(self, results: dict[Operation[Any], Any]) -> Any:
        given = self._given
        if given is None:
            return None
        return results[given] if isinstance(given, Operation) else tuple(results[one] for one in given)

    @property
    def given(self) -> Operation[Any] | tuple[Operation[Any], ...] | None:
        """The operations whose results are the value."""
        return self._given

    def wants(self, operation: Operation[Any]) -> bool:
        given = self._given
        return operation is given or (type(given) is tuple and operation in given)
