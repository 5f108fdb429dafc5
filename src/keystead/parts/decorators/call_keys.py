"""From the arguments of a call to the values of a key's placeholders."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from keystead.errors import BadDeclaration

_UNNAMED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CallKeys:
    """Which key a call is about.

    place      the family, for errors
    names      its placeholders
    function   the decorated function: its parameters of those names are their values
    key        takes some of the function's parameters, by name, and returns the value, a tuple in the order of the
               pattern, or a dict
    is_whole   whether every parameter must be part of the key, because the result depends on it
    """

    def __init__(
        self,
        place: str,
        names: Sequence[str],
        function: Callable[..., Any],
        key: Callable[..., Any] | None,
        *,
        is_whole: bool = False,
    ) -> None:
        _check_function(function)
        self._names = tuple(names)
        self._place = place
        self._key = key
        self._signature = inspect.signature(function)
        called = getattr(function, "__qualname__", repr(function))
        parameters = [one for one in self._signature.parameters if one not in ("self", "cls")]
        if key is not None:
            self._wanted = _parameters_of_key(key)
            unknown = [name for name in self._wanted if name not in self._signature.parameters]
            if unknown:
                raise BadDeclaration(f"{place}: key= takes {unknown[0]}, which {called} has no parameter for")
            return
        missing = [name for name in self._names if name not in parameters]
        if missing:
            raise BadDeclaration(
                f"{place}: {called} has no parameter {missing[0]}; add it, or say what it is: key=lambda …: …"
            )
        left_out = [name for name in parameters if name not in self._names]
        if is_whole and left_out:
            raise BadDeclaration(
                f"{place}: {called} has the parameter {left_out[0]}, which is not in the key, so calls that differ in "
                "it would share a result; add it to the pattern, or say what the key is: key=lambda …: …"
            )

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the placeholders. Raises TypeError as a call with these arguments does."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if self._key is None:
            return {name: bound.arguments[name] for name in self._names}
        made = self._key(**{name: bound.arguments[name] for name in self._wanted})
        if not isinstance(made, Mapping):
            values = made if isinstance(made, tuple) else (made,) if self._names else ()
            made = dict(zip(self._names, values, strict=False)) if len(values) == len(self._names) else {}
        if made.keys() != set(self._names):
            raise BadDeclaration(f"{self._place}: key= must return {' and '.join(self._names) or 'an empty tuple'}")
        return dict(made)


def _check_function(function: Any) -> None:
    if not callable(function):
        raise BadDeclaration(f"this decorates a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadDeclaration(f"{function.__qualname__} is a generator, which has no single result to keep or refuse")


def _parameters_of_key(key: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(key).parameters.values()
    if any(one.kind in _UNNAMED for one in parameters):
        raise BadDeclaration("key= names the parameters that it takes, as in key=lambda request: request.client.host")
    return [one.name for one in parameters]
