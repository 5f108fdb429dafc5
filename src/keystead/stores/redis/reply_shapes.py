"""Converts replies of the server to those of the contract: RESP3 shapes, and typed errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keystead.errors import (
    BadArgument,
    CommandError,
    CrossSlot,
    NotANumber,
    StoredNotANumber,
    StoreError,
    StoreFull,
    WrongKind,
)
from keystead.stores.commands import Call, Reply
from keystead.stores.redis.reply_errors import ReplyError, refusal


def _dict(call: Call, reply: list[bytes]) -> Reply:
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _set(call: Call, reply: list[bytes]) -> Reply:
    return set(reply)


def _float(call: Call, reply: bytes | None) -> Reply:
    return None if reply is None else float(reply)


def _floats(call: Call, reply: list[bytes | None]) -> Reply:
    return [None if score is None else float(score) for score in reply]


def _pairs(reply: list[bytes]) -> list[list[Any]]:
    return [[reply[i], float(reply[i + 1])] for i in range(0, len(reply), 2)]


def _zadd(call: Call, reply: Any) -> Reply:
    return _float(call, reply) if b"INCR" in call.options.flags else reply


def _zrange(call: Call, reply: list[bytes]) -> Reply:
    return _pairs(reply) if call.options.with_scores else reply


def _zpopmin(call: Call, reply: list[bytes]) -> Reply:
    if call.options is not None:
        return _pairs(reply)
    return [reply[0], float(reply[1])] if reply else []


# The connection speaks RESP2, in which replies of scripts and of plain commands look the same. These differ in RESP3.
SHAPES: dict[str, Callable[[Call, Any], Reply]] = {
    "HGETALL": _dict,
    "SMEMBERS": _set,
    "ZSCORE": _float,
    "ZMSCORE": _floats,
    "ZADD": _zadd,
    "ZRANGE": _zrange,
    "ZPOPMIN": _zpopmin,
}

_COMMAND_ERRORS: tuple[tuple[str, Callable[[str], CommandError]], ...] = (
    ("CROSSSLOT", lambda text: CrossSlot("its keys are in different slots of the cluster")),
    ("not an integer", lambda text: StoredNotANumber("the stored value is not an integer of 64 bits")),
    ("not a number to compare", lambda text: StoredNotANumber("the stored value is not a number")),
    ("would overflow", lambda text: NotANumber("the result would not fit 64 bits")),
    ("not a number (NaN)", lambda text: NotANumber("the resulting score is not a number")),
    ("no such key", lambda text: BadArgument("there is no such list")),
    ("index out of range", lambda text: BadArgument("the index is out of range")),
    (
        "equal or smaller",
        lambda text: BadArgument("the id of a new entry must be greater than the last one of the stream"),
    ),
)


def error_of(call: Call, error: ReplyError, address: object) -> StoreError:
    """The error for an error reply to this command."""
    text = str(error)
    if text.startswith("WRONGTYPE"):
        return call.blame(WrongKind(f"the key does not hold a {call.spec.about}"))
    if "ACL failure" in text or "can't run this command" in text:
        return refusal(address, ReplyError(f"NOPERM {text}"))
    if text.startswith("OOM"):
        return StoreFull(f"{address} is out of memory; raise its maxmemory or free some")
    for known, make in _COMMAND_ERRORS:
        if known in text:
            return call.blame(make(text))
    if text.startswith("ERR"):
        return call.blame(BadArgument(text.removeprefix("ERR ")))
    return refusal(address, error)


# The command did not run, and can be retried later or on another node.
TRANSIENT = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY")


def is_transient(reply: Reply) -> bool:
    return type(reply) is ReplyError and str(reply).partition(" ")[0] in TRANSIENT
