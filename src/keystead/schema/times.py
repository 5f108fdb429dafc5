"""Times and large integers as other programs write them in JSON.

Times are aware datetimes in Python, and are read in UTC. Stored times have whole milliseconds (or seconds), rounded
down, so that a deadline is never later than given. In Python a model also accepts the JSON form, as web frameworks pass
it; a naive datetime is refused everywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from keystead.errors import BadValue

__all__ = ["BigInt", "EpochMs", "EpochSeconds", "IsoSeconds", "IsoTime", "deadline_ms", "moment", "now_ms"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SECOND = timedelta(seconds=1)
_UNITS = {"ms": _MILLISECOND, "s": _SECOND}
_ISO = re.compile(r"[0-9W-]+[T ][0-9:.,]+(?:Z|[+-][0-9:]+)")

TIME_ERROR = "keystead_time"  # types of the validation errors below, whose messages never contain the value
INTEGER_ERROR = "keystead_integer"


def now_ms() -> int:
    """The time of this machine's clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def moment(ms: int) -> datetime:
    """The time at this many milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=ms)


def deadline_ms(value: datetime | int, unit: Literal["ms", "s"] = "ms") -> int:
    """A deadline in milliseconds since 1970. `unit` is that of an integer.

    Raises `BadValue` for a naive datetime, a bool, a float and anything else: deadlines are never guessed.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise BadValue("a deadline needs a time zone; write datetime.now(UTC) instead of datetime.now()")
        return (value - _EPOCH) // _MILLISECOND
    if type(value) is not int:
        raise BadValue(f"a deadline must be an aware datetime or an integer in {unit}, not {type(value).__name__}")
    return value * (_UNITS[unit] // _MILLISECOND)


class _Stored:
    """A type with different forms in Python and JSON.

    Strict validation accepts only the form of its side; lax validation in Python accepts both.
    """

    def __init__(
        self,
        check: Callable[[Any], Any],
        read: Callable[[Any], Any],
        write: Callable[[Any], str] | Callable[[Any], int],
        written: CoreSchema,
        json_schema: JsonSchemaValue,
        also_read: JsonSchemaValue | None = None,
    ) -> None:
        self._check = check
        self._read = read
        self._write = write
        self._written = written
        self._json_schema = json_schema
        self._also_read = also_read

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def lax(value: Any) -> Any:
            return self._check(value) if isinstance(value, source) else self._read(value)

        function = core_schema.no_info_plain_validator_function
        return core_schema.json_or_python_schema(
            json_schema=function(self._read),
            python_schema=core_schema.lax_or_strict_schema(function(lax), function(self._check)),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: self._write(self._check(value)), return_schema=self._written, when_used="json"
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if handler.mode == "validation" and self._also_read:
            return {"anyOf": [dict(self._json_schema), dict(self._also_read)]}
        return dict(self._json_schema)

    def __repr__(self) -> str:
        return f"stored as {self._json_schema['format']}"


def _time_error(sentence: str) -> PydanticCustomError:
    return PydanticCustomError(TIME_ERROR, "{sentence}", {"sentence": sentence})


def _check_aware(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _time_error("should be a datetime")
    if value.utcoffset() is None:
        raise _time_error("should be a datetime with a time zone")
    return value


def _since_epoch(unit: timedelta, name: str) -> tuple[Callable[[Any], datetime], Callable[[datetime], int]]:
    def read(value: Any) -> datetime:
        if type(value) is not int:
            raise _time_error(f"should be an integer: {name} since 1970")
        try:
            return _EPOCH + unit * value
        except OverflowError:
            pass
        raise _time_error("should be a time between the years 1 and 9999")

    def write(value: datetime) -> int:
        return (value - _EPOCH) // unit

    return read, write


def _read_iso(value: Any) -> datetime:
    # fromisoformat alone would accept any character between the date and the time.
    if isinstance(value, str) and _ISO.fullmatch(value.upper()):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise _time_error("should be a time such as 2024-12-31T15:00:00.000Z, with its offset")


def _write_iso(timespec: Literal["milliseconds", "seconds"]) -> Callable[[datetime], str]:
    def write(value: datetime) -> str:
        return value.astimezone(UTC).isoformat(timespec=timespec).removesuffix("+00:00") + "Z"

    return write


def _check_integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise PydanticCustomError(INTEGER_ERROR, "should be an integer")


def _read_digits(value: Any) -> int:
    if not isinstance(value, str):
        return _check_integer(value)
    try:
        number = int(value)
        if str(number) == value:
            return number
    except ValueError:
        pass
    raise PydanticCustomError(INTEGER_ERROR, "should be an integer, or a text of its digits")


EpochMs = Annotated[
    datetime,
    _Stored(
        _check_aware,
        *_since_epoch(_MILLISECOND, "milliseconds"),
        core_schema.int_schema(),
        {"type": "integer", "format": "epoch-ms", "description": "milliseconds since 1970-01-01T00:00:00Z"},
    ),
]
"""An aware datetime, stored as integer milliseconds since 1970: JavaScript's `Date.now()`."""

EpochSeconds = Annotated[
    datetime,
    _Stored(
        _check_aware,
        *_since_epoch(_SECOND, "seconds"),
        core_schema.int_schema(),
        {"type": "integer", "format": "epoch-s", "description": "seconds since 1970-01-01T00:00:00Z"},
    ),
]
"""An aware datetime, stored as integer seconds since 1970: the times of JWTs and of OAuth."""

IsoTime = Annotated[
    datetime,
    _Stored(
        _check_aware,
        _read_iso,
        _write_iso("milliseconds"),
        core_schema.str_schema(),
        {"type": "string", "format": "date-time"},
    ),
]
"""An aware datetime, stored as JavaScript's `toISOString()` writes it; any ISO 8601 time with an offset is read."""

IsoSeconds = Annotated[
    datetime,
    _Stored(
        _check_aware,
        _read_iso,
        _write_iso("seconds"),
        core_schema.str_schema(),
        {"type": "string", "format": "date-time"},
    ),
]
"""An aware datetime, stored in whole seconds: `2026-02-23T10:00:00Z`; any ISO 8601 time with an offset is read."""

BigInt = Annotated[
    int,
    _Stored(
        _check_integer,
        _read_digits,
        str,
        core_schema.str_schema(),
        {"type": "string", "format": "big-integer", "pattern": "^(0|-?[1-9][0-9]*)$"},
        also_read={"type": "integer"},
    ),
]
"""An integer, stored as a text of digits, since JavaScript is not exact beyond 2^53. A JSON integer is read too."""
