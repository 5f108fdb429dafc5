"""Plain types: no Pydantic, nothing but the bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pydantic.json_schema import JsonSchemaValue

from keystead.schema.codec.codec import Codec
from keystead.schema.codec.numbers import JSON_NUMBER, js_number
from keystead.schema.codec.sentences import (
    NOT_BOOLEAN,
    NOT_INTEGER,
    NOT_NUMBER,
    NOT_TEXT,
    bad_value,
    unreadable,
    wrong_type,
)
from keystead.schema.seal import KeyRing

T = TypeVar("T")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and value is not True and value is not False


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_int(value)


class _Plain(Codec[T]):
    """A codec that is the same for every family."""

    schema: ClassVar[JsonSchemaValue]
    shape: ClassVar[str]

    def json_schema(self) -> dict[str, Any]:
        return dict(self.schema)

    def describe(self) -> str:
        return self.shape


class _Text(_Plain[str]):
    type = str
    schema: ClassVar[JsonSchemaValue] = {"type": "string"}
    shape = "string"

    def encode(self, value: str, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError:
                pass
            raise bad_value(key, name, "contains half of a surrogate pair, which is not Unicode text")
        raise wrong_type(key, name, "str", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
        raise unreadable(key, name, data, NOT_TEXT)


class _Bytes(_Plain[bytes]):
    type = bytes
    schema: ClassVar[JsonSchemaValue] = {"type": "string", "format": "binary"}
    shape = "bytes"

    def encode(self, value: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if isinstance(value, bytes):
            return bytes(value)
        raise wrong_type(key, name, "bytes", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        return data


class _Integer(_Plain[int]):
    type = int
    schema: ClassVar[JsonSchemaValue] = {"type": "integer"}
    shape = "integer"

    def encode(self, value: int, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if _is_int(value):
            try:
                return b"%d" % value
            except ValueError:
                pass
            raise bad_value(key, name, "has more digits than Python can write")
        raise wrong_type(key, name, "int", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> int:
        try:
            number = int(data)
            if b"%d" % number == data:
                return number
        except ValueError:
            pass
        raise unreadable(key, name, data, NOT_INTEGER)

    def _picture(self, data: bytes) -> int:
        return int(data)


class _Number(_Plain[float]):
    type = float
    schema: ClassVar[JsonSchemaValue] = {"type": "number"}
    shape = "number"

    def encode(self, value: float, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if _is_number(value):
            try:
                return js_number(float(value)).encode()
            except (ValueError, OverflowError):
                pass
            raise bad_value(key, name, "is NaN, infinite or too large, which JSON cannot represent")
        raise wrong_type(key, name, "float", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> float:
        if JSON_NUMBER.fullmatch(data):
            number = float(data)
            if math.isfinite(number):
                return number
        raise unreadable(key, name, data, NOT_NUMBER)

    def _picture(self, data: bytes) -> float:
        return float(data)


class _Boolean(_Plain[bool]):
    type = bool
    schema: ClassVar[JsonSchemaValue] = {"type": "boolean"}
    shape = '"true" | "false"'

    def encode(self, value: bool, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        if value is True:
            return b"true"
        if value is False:
            return b"false"
        raise wrong_type(key, name, "bool", value)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> bool:
        if data == b"true":
            return True
        if data == b"false":
            return False
        raise unreadable(key, name, data, NOT_BOOLEAN)

    def _picture(self, data: bytes) -> bool:
        return data == b"true"


# Compared by identity: a subclass, such as an enum of texts, is not plain.
PLAIN: tuple[tuple[Any, Callable[[], Codec[Any]]], ...] = (
    (str, _Text),
    (bytes, _Bytes),
    (int, _Integer),
    (float, _Number),
    (bool, _Boolean),
)
