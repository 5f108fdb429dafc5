"""Commands in examples: `SET key value EX 600`, `ZADD …`, `redis.setex("key", 60, value)`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from keystead.schema.infer.document.document_blocks import Line
from keystead.schema.infer.draft import Kind

_KINDS: Final[dict[str, Kind | None]] = {
    **dict.fromkeys(("SET", "SETEX", "PSETEX", "SETNX", "GETDEL", "GETEX", "APPEND", "GETSET"), "Value"),
    **dict.fromkeys(("INCR", "INCRBY", "DECR", "DECRBY"), "Counter"),
    **dict.fromkeys(("HSET", "HMSET", "HSETNX", "HGET", "HGETALL", "HDEL", "HINCRBY", "HMGET", "HEXISTS"), "Hash"),
    **dict.fromkeys(("SADD", "SREM", "SMEMBERS", "SISMEMBER", "SCARD", "SPOP"), "Set"),
    **dict.fromkeys(
        ("ZADD", "ZREM", "ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "ZSCORE", "ZINCRBY", "ZCARD", "ZPOPMIN", "ZRANK"),
        "SortedSet",
    ),
    **dict.fromkeys(("LPUSH", "RPUSH", "LPOP", "RPOP", "LRANGE", "LTRIM", "LLEN", "BLPOP", "BRPOP", "LREM"), "List"),
    **dict.fromkeys(("XADD", "XRANGE", "XREAD", "XTRIM", "XLEN"), "Log"),
    **dict.fromkeys(("PUBLISH", "SUBSCRIBE"), "Channel"),
    **dict.fromkeys(("GET", "DEL", "EXISTS", "TTL", "PTTL", "PERSIST", "UNLINK", "EXPIRE", "PEXPIRE"), None),
}  # fmt: skip
WRITES: Final = frozenset(
    {"SET", "SETEX", "PSETEX", "SETNX", "INCR", "INCRBY", "DECR", "DECRBY", "HSET", "HMSET", "HINCRBY", "SADD", "ZADD"}
    | {"ZINCRBY", "LPUSH", "RPUSH", "XADD", "PUBLISH", "SUBSCRIBE", "APPEND", "HSETNX"}
)
_PROMPT: Final = re.compile(r"^\s*(?:[\w.:\[\]-]*>\s+|\$\s*)?(?:(?:redis|valkey)-cli\s+(?:-\S+(?:\s+\d+)?\s+)*)?")
_COMMAND: Final = re.compile(r"([A-Z]{3,16})\s+(\S.*)", re.DOTALL)
_CALL: Final = re.compile(
    r"\.\s*([a-z]{3,16}|[a-z]+[A-Z]?[a-z]*)\(\s*f?([\"'`])(?P<key>.+?)\2\s*(?P<rest>[^)]*)\)?", re.DOTALL
)
_OPTION: Final = re.compile(r"\b(EX|PX)[\"']?\s*[:=,\s]\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WrittenCommand:
    """kind    None: the command is of any kind
    fields   those of a hash, and their examples
    payload  a value or a message
    """

    line: int
    name: str
    key: str
    kind: Kind | None
    ttl_ms: int | None = None
    fields: dict[str, str] = field(default_factory=dict)
    payload: str = ""


def commands_in(lines: Sequence[Line]) -> Iterator[WrittenCommand]:
    """The commands of a block of code, each on the line where it begins."""
    at = 0
    while at < len(lines):
        number, text, at = _whole(lines, at)
        yield from command_of(number, text)


def command_of(number: int, text: str) -> Iterator[WrittenCommand]:
    """The command that a text is, or the calls of a client in it."""
    match = _COMMAND.fullmatch(_PROMPT.sub("", text.strip().strip("`"), count=1))
    if match is not None and match[1] in _KINDS:
        found = _command(number, match[1], _words(match[2]))
        if found is not None:
            yield found
        return
    for call in _CALL.finditer(text):
        name = call[1].upper()
        if name in _KINDS:
            yield WrittenCommand(number, name, call["key"], _KINDS[name], _call_ttl_ms(name, call["rest"]))


def _whole(lines: Sequence[Line], at: int) -> tuple[int, str, int]:
    """A command with the lines that continue it: behind a backslash, or inside a quotation."""
    number, text = lines[at]
    at += 1
    while at < len(lines) and (text.rstrip().endswith("\\") or (_starts_command(text) and text.count("'") % 2)):
        text = text.rstrip().removesuffix("\\") + "\n" + lines[at].text
        at += 1
    return number, text, at


def _starts_command(text: str) -> bool:
    match = _COMMAND.match(_PROMPT.sub("", text.strip(), count=1))
    return match is not None and match[1] in _KINDS


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _command(number: int, name: str, words: list[str]) -> WrittenCommand | None:
    if not words:
        return None
    key, rest = words[0], words[1:]
    ttl_ms = None
    if name in ("SETEX", "EXPIRE", "PSETEX", "PEXPIRE") and rest and rest[0].isdigit():
        ttl_ms = int(rest[0]) * (1 if name.startswith("P") else 1_000)
    elif name == "SET" and (option := _OPTION.search(" ".join(rest[1:]))):
        ttl_ms = int(option[2]) * (1_000 if option[1].upper() == "EX" else 1)
    fields = dict(zip(rest[::2], rest[1::2], strict=False)) if name in ("HSET", "HMSET") else {}
    payload = rest[-1] if name in ("PUBLISH", "LPUSH", "RPUSH") and rest else ""
    if name in ("SET", "SETNX") and rest:
        payload = rest[0]
    elif name in ("SETEX", "PSETEX") and len(rest) > 1:
        payload = rest[1]
    return WrittenCommand(number, name, key, _KINDS[name], ttl_ms, fields, payload)


def _call_ttl_ms(name: str, rest: str) -> int | None:
    first = re.match(r"\s*,\s*(\d+)", rest)
    if name in ("SETEX", "EXPIRE", "PSETEX", "PEXPIRE") and first is not None:
        return int(first[1]) * (1 if name.startswith("P") else 1_000)
    option = _OPTION.search(rest)
    return None if option is None else int(option[2]) * (1_000 if option[1].upper() == "EX" else 1)
