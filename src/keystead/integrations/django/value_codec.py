"""The values of Django's cache as tagged JSON, without pickle.

What JSON has is stored as it is: `{"total": 3}`. Anything else is an object with a tag: `{"$": "set", "v": [1, 2]}`.
Only these types can be written, and reading creates nothing else, so a store that was tampered with runs no code.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from django.http import HttpResponseBase
from django.utils.safestring import SafeString

from keystead.errors import printable
from keystead.integrations.django.response_codec import pack_response, unpack_response
from keystead.schema import Codec, KeyRing
from keystead.schema.codec.sentences import bad_value, unreadable

TAG: Final = "$"
STORABLE: Final = (
    "None, bool, int, float, str, SafeString, bytes, Decimal, UUID, datetime, date, time, timedelta, list, tuple, set, "
    "frozenset, dict and HttpResponse"
)


class _Refused(Exception):
    """Why a value cannot be stored, or stored data is not a value."""


class CachedNone:
    """A cached None. A key that is not there reads as None."""


CACHED_NONE: Final = CachedNone()


class CachedValueCodec(Codec[Any]):
    """Whatever Django may cache, as JSON. Integers are plain digits, so that the store can add to them."""

    type = object

    def encode(self, value: Any, key: str, ring: KeyRing | None = None, name: str = "") -> bytes:
        try:
            packed = pack(value)
            try:
                return _write(packed, ensure_ascii=False).encode()
            except UnicodeEncodeError:  # half of a surrogate pair: JSON can escape it
                return _write(packed, ensure_ascii=True).encode()
        except _Refused as refused:
            reason = str(refused)
        except RecursionError:
            reason = "contains itself, or is nested too deeply"
        except ValueError:
            reason = "has a number with more digits than Python can write"
        raise bad_value(key, name, reason)

    def decode(self, data: bytes, key: str, ring: KeyRing | None = None, name: str = "") -> Any:
        try:
            value = unpack(json.loads(data, parse_constant=_refuse_constant))
            return CACHED_NONE if value is None else value
        except (_Refused, ValueError, TypeError, KeyError, LookupError, ArithmeticError, RecursionError):
            pass  # the reason may quote the value
        raise unreadable(key, name, data, "is not what Django's cache stores: tagged JSON")

    def json_schema(self) -> dict[str, Any]:
        return {}

    def describe(self) -> str:
        return "tagged JSON"


def pack(value: Any) -> Any:
    """The JSON value for this one. Raises _Refused with the end of a sentence."""
    kind = type(value)
    if kind in _AS_IS:
        return value
    packer = _PACKERS.get(kind)
    if packer is not None:
        return packer(value)
    if isinstance(value, HttpResponseBase):
        return _tagged("response", pack_response(value, _refuse))
    raise _Refused(f"has the type {printable(kind.__qualname__)}, which cannot be cached; {_advice(value)}")


def unpack(packed: Any) -> Any:
    """The value of a JSON value. May raise anything for data that `pack` did not make."""
    if type(packed) is list:
        return [unpack(one) for one in packed]
    if type(packed) is not dict:
        return packed
    if TAG not in packed:
        return {name: unpack(one) for name, one in packed.items()}
    return _UNPACKERS[packed[TAG]](packed["v"])


def _refuse(reason: str) -> _Refused:
    return _Refused(reason)


def _advice(value: Any) -> str:
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "cache its primary key, or a dict of its fields"
    if hasattr(value, "query") and hasattr(value, "values"):
        return "cache list(queryset.values(...))"
    if isinstance(value, (str, int, float)) and hasattr(value, "value"):
        return "cache its .value"
    return f"the types are: {STORABLE}"


def _write(packed: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(packed, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"))


def _refuse_constant(text: str) -> Any:
    raise ValueError(text)


def _tagged(tag: str, packed: Any) -> dict[str, Any]:
    return {TAG: tag, "v": packed}


def _float(value: float) -> Any:
    return value if math.isfinite(value) else _tagged("float", repr(value))


def _dict(value: dict[Any, Any]) -> Any:
    if all(type(name) is str for name in value) and TAG not in value:
        return {name: pack(one) for name, one in value.items()}
    return _tagged("dict", [[pack(name), pack(one)] for name, one in value.items()])


def _zone(moment: datetime | time) -> str | None:
    """The name of its time zone; None: it has none, or only an offset."""
    zone = moment.tzinfo
    if zone is None or type(zone) is timezone:
        return None
    if type(zone) is ZoneInfo and zone.key:
        return zone.key
    raise _Refused("has a time zone other than ZoneInfo and datetime.timezone; convert it first")


def _moment(tag: str) -> Callable[[Any], Any]:
    """The packer of a datetime or a time: as ISO text. The name of its zone and its fold are not in that."""

    def packed(moment: datetime | time) -> Any:
        zone = _zone(moment)
        local = moment if zone is None else moment.replace(tzinfo=None)
        return _tagged(tag, [local.isoformat(), zone, moment.fold])

    return packed


def _unpack_moment(kind: type[datetime] | type[time]) -> Callable[[Any], Any]:
    def unpacked(parts: list[Any]) -> Any:
        text, zone, fold = parts
        moment = kind.fromisoformat(text).replace(fold=fold)
        return moment if zone is None else moment.replace(tzinfo=ZoneInfo(zone))

    return unpacked


def _unpack_float(text: str) -> float:
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[text]


def _several(tag: str) -> Callable[[Any], Any]:
    return lambda values: _tagged(tag, [pack(one) for one in values])


def _text(tag: str) -> Callable[[Any], Any]:
    return lambda value: _tagged(tag, str(value))


_AS_IS: Final = frozenset({str, int, bool, type(None)})

# By exact type: a subclass would come back as something else.
_PACKERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    float: _float,
    list: lambda values: [pack(one) for one in values],
    dict: _dict,
    tuple: _several("tuple"),
    set: _several("set"),
    frozenset: _several("frozenset"),
    bytes: lambda value: _tagged("bytes", base64.b64encode(value).decode()),
    SafeString: lambda value: _tagged("safe", value[:]),
    Decimal: _text("decimal"),
    UUID: _text("uuid"),
    datetime: _moment("datetime"),
    time: _moment("time"),
    date: lambda value: _tagged("date", value.isoformat()),
    timedelta: lambda value: _tagged("timedelta", [value.days, value.seconds, value.microseconds]),
}

_UNPACKERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "float": _unpack_float,
    "dict": lambda pairs: {unpack(name): unpack(one) for name, one in pairs},
    "tuple": lambda values: tuple([unpack(one) for one in values]),
    "set": lambda values: {unpack(one) for one in values},
    "frozenset": lambda values: frozenset([unpack(one) for one in values]),
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "safe": SafeString,
    "decimal": Decimal,
    "uuid": UUID,
    "datetime": _unpack_moment(datetime),
    "time": _unpack_moment(time),
    "date": date.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "response": unpack_response,
}
