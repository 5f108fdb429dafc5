"""Types whose JSON is one text, number or boolean: stored as the text between the quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from keystead.schema.codec.blueprint import Blueprint
from keystead.schema.codec.modelled import Modelled
from keystead.schema.codec.numbers import JSON_NUMBER, js_number
from keystead.schema.codec.sentences import NOT_BOOLEAN, NOT_INTEGER, NOT_NUMBER, NOT_TEXT, bad_value, unreadable
from keystead.schema.seal import KeyRing

T = TypeVar("T")


class _Form:
    """The stored form of a kind of JSON scalar, without quotes."""

    def __init__(self, write: Callable[[Any], bytes], as_json: Callable[[bytes], bytes | None], reason: str) -> None:
        self.write = write
        self.as_json = as_json
        self.reason = reason


def text_as_json(data: bytes) -> bytes | None:
    """Stored text as a JSON string; None if it is not UTF-8."""
    try:
        return to_json(data.decode())
    except UnicodeDecodeError:
        return None


FORMS = {
    "string": _Form(lambda value: str(value).encode(), text_as_json, NOT_TEXT),
    "integer": _Form(
        lambda value: b"%d" % value,
        lambda data: data if re.fullmatch(rb"0|-?[1-9][0-9]*", data) else None,
        NOT_INTEGER,
    ),
    "number": _Form(
        lambda value: js_number(float(value)).encode(),
        lambda data: data if JSON_NUMBER.fullmatch(data) else None,
        NOT_NUMBER,
    ),
    "boolean": _Form(
        lambda value: b"true" if value else b"false",
        lambda data: data if data in (b"true", b"false") else None,
        NOT_BOOLEAN,
    ),
}


class Scalar(Modelled[T]):
    """A type whose JSON is one text, number or boolean: datetime, UUID, Enum, Literal, a constrained str or int."""

    def __init__(self, blueprint: Blueprint, form: _Form) -> None:
        super().__init__(blueprint)
        self._form = form
        self._to_python = blueprint.adapter.serializer.to_python

    def encode(self, value: T, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        try:
            checked = self._check(value, strict=True)
            return self._form.write(self._to_python(checked, mode="json", warnings="error"))
        except Exception as error:
            reason = self._blueprint.why_not(error, value)
        raise bad_value(key, name, reason)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> T:
        json_text = self._form.as_json(data)
        if json_text is None:
            raise unreadable(key, name, data, self._form.reason)
        return self._read(json_text, None, key, name, data)

    def _picture(self, data: bytes) -> Any:
        return from_json(self._form.as_json(data) or b"null")
