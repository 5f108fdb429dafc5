"""Packed: several values in one text, by a pattern. For members and fields such as `WORK_REQUEST:101`."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from keystead.errors import BadDeclaration, BadKey, BadValue, Unreadable
from keystead.schema.codec import Codec
from keystead.schema.pattern import Pattern
from keystead.schema.seal import KeyRing

T = TypeVar("T")


class _Packed(Codec[T]):
    def __init__(self, type_: type[T], pattern: Pattern) -> None:
        self.type = type_
        self.pattern = pattern
        self._render = pattern.renderer()

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if type(value) is not self.type:
            raise BadValue(f"{key}: this must be a {self.type.__name__}, not {type(value).__name__}")
        try:
            return self._render(**{name: getattr(value, name) for name in self.pattern.names}).encode()
        except BadKey as error:
            raise BadValue(f"{key}: {error}") from None

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        values = self.pattern.parse(data)
        if values is None:
            raise Unreadable(f"an entry does not match {self.pattern.text}", key, data)
        made: T = self.type(**values)
        return made

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "title": self.type.__name__, "description": f"written as {self.pattern.display}"}

    def describe(self) -> str:
        return f"`{self.pattern.display}`"


def packed(type_: type[T], pattern: str) -> Codec[T]:
    """A codec that writes a NamedTuple or a dataclass as one text: `packed(Deadline, "{ref_type}:{ref_id:int}")`.

    The pattern names each field once, with the types and the escaping of key patterns, so that it parses back
    for any values. A field may be None if it is in the optional tail: `"{key}[_{page}]"`. Raises BadDeclaration if the
    pattern does not name the fields.
    """
    made = Pattern(pattern)
    fields = _field_names(type_)
    if set(fields) != set(made.names):
        raise BadDeclaration(
            f"packed({getattr(type_, '__name__', type_)}, {pattern!r}): the pattern must name each field once; "
            f"the fields are {', '.join(fields) or 'none: write a NamedTuple or a dataclass'}",
            "bad-pattern",
        )
    return _Packed(type_, made)


def _field_names(type_: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(type_):
        return tuple(field.name for field in dataclasses.fields(type_))
    return tuple(getattr(type_, "_fields", ()))
