"""Replies of the Upstash REST API: JSON with plain or base64 strings, or RESP2."""

from __future__ import annotations

import json
import math
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from typing import Any, Final

from keystead.errors import (
    BadLifetime,
    BadOption,
    CommandError,
    CrossSlot,
    EngineError,
    KeysteadError,
    NotANumber,
    StoredNotANumber,
    StoreUnavailable,
    UnknownCommand,
    WriteRefused,
    WrongArity,
    WrongKind,
)

_LARGEST_PLAIN: Final = 1e17  # Redis writes whole scores up to this without an exponent
_OK: Final = b"OK"
# In the words of Redis, by which clients tell them apart.
_NUMBER_ERRORS: Final = {
    "the result would not fit 64 bits": "increment or decrement would overflow",
    "the resulting score is not a number": "resulting score is not a number (NaN)",
}


class RespError(Exception):
    """An error reply, in the words of Redis or Upstash: `WRONGTYPE Operation against …`."""


def unavailable(name: str) -> RespError:
    """The error of a command that is not served, as clients of Upstash know it."""
    return RespError(f"ERR Command is not available: '{name[:60]}'. See `keystead guide gateway` for details")


# --- values ------------------------------------------------------------------------------------------------------


def flatten(reply: Any) -> Any:
    """A reply in the shape of RESP2: bytes, int, None, or a list of these. Maps and scored members are flat lists."""
    kind = type(reply)
    if kind is bytes or kind is int or reply is None:
        return reply
    if kind is list or kind is tuple:
        return list(_flat_items(reply))
    if kind is dict:
        return [flatten(one) for pair in reply.items() for one in pair]
    if kind is set or kind is frozenset:
        return sorted(reply)
    if kind is float:
        return format_score(reply)
    if kind is bool:
        return int(reply)
    return str(reply).encode()


def _flat_items(items: Iterable[Any]) -> Iterable[Any]:
    for item in items:
        kind = type(item)
        if kind is bytes or kind is int or item is None:
            yield item
        elif kind is list and len(item) == 2 and type(item[1]) is float:  # a member and its score
            yield item[0]
            yield format_score(item[1])
        else:
            yield flatten(item)


def format_score(score: float) -> bytes:
    """A score as Redis 7.2 writes it: the shortest text, whole numbers without a point."""
    if math.isinf(score):
        return b"inf" if score > 0 else b"-inf"
    if score.is_integer() and abs(score) < _LARGEST_PLAIN:
        return b"%d" % score
    return repr(score).encode()


# --- JSON --------------------------------------------------------------------------------------------------------


def json_result(reply: Any, base64: bool) -> dict[str, Any]:
    """One reply or error as its JSON object."""
    if isinstance(reply, Exception):
        return {"error": error_text(reply)}
    flat = flatten(reply)
    if base64:
        # Clients do not decode OK. Inside of lists they decode everything.
        return {"result": "OK" if flat == _OK else _base64(flat)}
    return {"result": _text(flat)}


def json_body(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _text(flat: Any) -> Any:
    if type(flat) is bytes:
        return flat.decode("utf-8", "replace")
    return [_text(one) for one in flat] if type(flat) is list else flat


def _base64(flat: Any) -> Any:
    if type(flat) is bytes:
        return b2a_base64(flat, newline=False).decode("ascii")
    return [_base64(one) for one in flat] if type(flat) is list else flat


# --- RESP2 -------------------------------------------------------------------------------------------------------


def resp2_body(replies: Sequence[Any]) -> bytes:
    """The replies as a Redis server would send them."""
    parts: list[bytes] = []
    for reply in replies:
        if isinstance(reply, Exception):
            parts.append(b"-%s\r\n" % error_text(reply).encode())
        else:
            flat = flatten(reply)
            parts.append(b"+OK\r\n") if flat == _OK else _write_resp2(flat, parts)
    return b"".join(parts)


def _write_resp2(flat: Any, parts: list[bytes]) -> None:
    if flat is None:
        parts.append(b"$-1\r\n")
    elif type(flat) is int:
        parts.append(b":%d\r\n" % flat)
    elif type(flat) is list:
        parts.append(b"*%d\r\n" % len(flat))
        for one in flat:
            _write_resp2(one, parts)
    else:
        parts.append(b"$%d\r\n%s\r\n" % (len(flat), flat))


# --- errors ------------------------------------------------------------------------------------------------------


def error_text(error: Exception) -> str:
    """The error as Redis words it, so that clients which match on its text work. One line of valid Unicode."""
    text = str(error) if isinstance(error, RespError) else _text_of(error)
    return " ".join(text.split()).encode("utf-8", "replace").decode()


def _text_of(error: Exception) -> str:
    name = error.command.lower() if isinstance(error, CommandError) else ""
    match error:
        case EngineError():
            return error.sentence
        case WriteRefused():
            return f"WRITEREFUSED {error.sentence}"
        case WrongKind():
            return "WRONGTYPE Operation against a key holding the wrong kind of value"
        case UnknownCommand():
            return f"ERR Command is not available: '{error.command}'. {error.sentence}"
        case WrongArity():
            return f"ERR wrong number of arguments for '{name}' command"
        case StoredNotANumber():
            return "ERR value is not an integer or out of range"
        case NotANumber():
            otherwise = f"value is not a valid number or out of range: {error.sentence}"
            return f"ERR {_NUMBER_ERRORS.get(error.sentence, otherwise)}"
        case BadLifetime():
            return f"ERR invalid expire time in '{name}' command: {error.sentence}"
        case BadOption():
            return f"ERR syntax error: {error.sentence}"
        case CrossSlot():
            return f"CROSSSLOT Keys in request don't hash to the same slot: {error.sentence}"
        case CommandError():
            return f"ERR {error.sentence}"
        case StoreUnavailable(outcome="unknown"):
            return "ERR the store did not answer in time; the commands may or may not have taken effect"
        case StoreUnavailable():
            return "ERR the store is unavailable; nothing was written. Try again"
        case KeysteadError():
            return f"ERR the store refused the request ({error.code}); the log of the gateway says why"
    return "ERR internal error; the log of the gateway says why"
