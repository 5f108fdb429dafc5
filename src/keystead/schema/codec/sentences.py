"""Error messages for refused values and declarations. They never contain the value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import core_schema

from keystead.errors import BadDeclaration, BadValue, Unreadable, printable
from keystead.schema.seal import SEAL_ERROR, UNOPENED_ERROR
from keystead.schema.times import INTEGER_ERROR, TIME_ERROR

Refusal = Callable[[str, str], BadDeclaration]
"""Builds a declaration error from what is wrong and what to write instead."""

NOT_TEXT = "is not UTF-8 text"
NOT_INTEGER = "is not an integer in plain digits"
NOT_NUMBER = "is not a JSON number"
NOT_BOOLEAN = "is neither true nor false"
NO_RING = "has sealed fields, but there are no keys for them; give seal=KeyRing(...)"
STORABLE = "write str, bytes, int, float, bool, a Pydantic model, a dataclass, or a list or dict of those"

_OWN_ERRORS = frozenset({SEAL_ERROR, UNOPENED_ERROR, TIME_ERROR, INTEGER_ERROR})
_PYDANTIC_ERRORS = frozenset(get_args(core_schema.ErrorType))
# Pydantic errors whose message quotes the value, or a message of the user's validator.
_SAFE_MESSAGES = {
    "assertion_error": "was refused by its own validator",
    "bytes_invalid_encoding": "is not in the declared encoding",
    "get_attribute_error": "could not be read",
    "iteration_error": "could not be read",
    "mapping_type": "is not a mapping",
    "union_tag_invalid": "matches no declared choice",
    "uuid_parsing": "is not a UUID",
    "value_error": "was refused by its own validator",
}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One problem of a value: its path, its type, and a message without the value."""

    path: tuple[str | int, ...]
    type: str
    sentence: str


def problems_of(error: ValidationError) -> list[Problem]:
    """The problems that Pydantic found, in its order."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [Problem(problem["loc"], problem["type"], _sentence(problem["type"], problem["msg"])) for problem in found]


def _sentence(kind: str, message: str) -> str:
    if kind in _SAFE_MESSAGES:
        return _SAFE_MESSAGES[kind]
    # A custom error type may have any message, even one with the value.
    return message if kind in _PYDANTIC_ERRORS or kind in _OWN_ERRORS else "was refused by its own validator"


def _subject(name: str) -> str:
    return f"field {printable(name)}" if name else "the value"


def bad_value(key: str, name: str, reason: str) -> BadValue:
    """Why a value cannot be written. `name` is that of a hash field, or empty."""
    return BadValue(f"{printable(key)}: {_subject(name)} {reason}")


def wrong_type(key: str, name: str, wanted: str, value: object) -> BadValue:
    """The error for a value of another type. It names only the type."""
    return bad_value(key, name, f"must be {wanted}, not {type(value).__name__}")


def unreadable(key: str, name: str, data: bytes, reason: str, *, unopened: bool = False) -> Unreadable:
    """Why stored data cannot be read. `data` is attached to the error, not part of its message."""
    error = Unreadable(f"{_subject(name)} {reason}", key, data)
    error.unopened = unopened
    return error


def bad_version(what: str, advice: str) -> BadDeclaration:
    """Why versions are inconsistent, or do not fit their type."""
    return BadDeclaration(f"{what}; {advice}", "bad-version")


def bad_type(place: str, type_: Any, what: str, advice: str) -> BadDeclaration:
    """Why a type cannot be stored. `place` is prepended to the message."""
    name = getattr(type_, "__name__", None) if isinstance(type_, type) else None
    return BadDeclaration(f"{place}{name or type_} cannot be stored: {what}; {advice}", "bad-value-type")
