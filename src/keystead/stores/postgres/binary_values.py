"""PostgreSQL's binary format, without parsing or escaping of text."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

_HEAD = struct.Struct("!iiiii")
_INT = struct.Struct("!q")
_SIZED_INT = struct.Struct("!iq")
_FLOAT = struct.Struct("!d")
_SIZED_FLOAT = struct.Struct("!id")
_NULL = b"\xff\xff\xff\xff"

BOOL, BYTEA, INT8, INT4, TEXT, FLOAT8 = 16, 17, 20, 23, 25, 701


class _Array:
    """Values of one type, possibly NULL, in binary format."""

    __slots__ = ("encoded",)
    element = 0

    def __init__(self, values: Iterable[Any]) -> None:
        packed = [_NULL if value is None else self.pack(value) for value in values]
        self.encoded = _HEAD.pack(1, 1, self.element, len(packed), 1) + b"".join(packed)

    @staticmethod
    def pack(value: Any) -> bytes:
        raise NotImplementedError


class Bytes(_Array):
    __slots__ = ()
    element = BYTEA

    @staticmethod
    def pack(value: bytes) -> bytes:
        return len(value).to_bytes(4, "big") + value


class Ints(_Array):
    __slots__ = ()
    element = INT8

    @staticmethod
    def pack(value: int) -> bytes:
        return _SIZED_INT.pack(8, value)


class Floats(_Array):
    __slots__ = ()
    element = FLOAT8

    @staticmethod
    def pack(value: float) -> bytes:
        return _SIZED_FLOAT.pack(8, value)


def encode_parameter(value: Any) -> bytes | None:
    """A parameter in binary format. The statements are written so that the server infers exactly these types."""
    match value:
        case bytes() | None:
            return value
        case int():
            return _INT.pack(value)
        case float():
            return _FLOAT.pack(value)
        case str():
            return value.encode()
        case _Array():
            return value.encoded
    raise TypeError(f"not a parameter of a statement: {type(value).__name__}")


def _bytes(received: bytes) -> bytes:
    return received


def _int(received: bytes) -> int:
    return int.from_bytes(received, "big", signed=True)


def _float(received: bytes) -> float:
    number: float = _FLOAT.unpack(received)[0]
    return number


def _bool(received: bytes) -> bool:
    return received != b"\x00"


_RECEIVED: dict[int, Callable[[bytes], Any]] = {
    BYTEA: _bytes,
    INT8: _int,
    INT4: _int,
    FLOAT8: _float,
    TEXT: bytes.decode,
    BOOL: _bool,
}


def decoder_of(oid: int) -> Callable[[bytes], Any]:
    """The decoder for a column of this type; for types that are not used here, raw bytes."""
    return _RECEIVED.get(oid, _bytes)
