"""Commands that clients of Upstash send, and that are another command of the store language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from keystead.errors import WrongArity

Arguments: TypeAlias = Sequence[Any]


class Alias(NamedTuple):
    """`command` rewrites the arguments; `reply` converts the reply, if it differs. `least` and `most` arguments."""

    least: int
    most: int
    command: Callable[[Arguments], Sequence[Any]]
    reply: Callable[[Any], Any] | None = None

    def rewrite(self, name: str, arguments: Arguments) -> Sequence[Any]:
        """The command to run. Raises WrongArity."""
        if not self.least <= len(arguments) <= self.most:
            raise WrongArity("wrong number of arguments", name)
        return self.command(arguments)


def _seconds(ms: int) -> int:
    return ms if ms < 0 else (ms + 500) // 1000  # as Redis rounds TTL


def _scores(name: str, is_reversed: bool) -> Alias:
    """ZRANGEBYSCORE and ZREVRANGEBYSCORE."""
    options = ("BYSCORE", "REV") if is_reversed else ("BYSCORE",)
    return Alias(3, 7, lambda given: ("ZRANGE", *given[:3], *options, *given[3:]))


_MANY: Final = 1 << 30

ALIASES: Final[dict[str, Alias]] = {
    "INCR": Alias(1, 1, lambda given: ("INCRBY", given[0], 1)),
    "DECR": Alias(1, 1, lambda given: ("DECRBY", given[0], 1)),
    "SETEX": Alias(3, 3, lambda given: ("SET", given[0], given[2], "EX", given[1])),
    "PSETEX": Alias(3, 3, lambda given: ("SET", given[0], given[2], "PX", given[1])),
    "SETNX": Alias(2, 2, lambda given: ("SET", *given, "NX"), lambda reply: int(reply is not None)),
    "GETSET": Alias(2, 2, lambda given: ("SET", *given, "GET")),
    "TTL": Alias(1, 1, lambda given: ("PTTL", *given), _seconds),
    "EXPIRETIME": Alias(1, 1, lambda given: ("PEXPIRETIME", *given), _seconds),
    "UNLINK": Alias(1, _MANY, lambda given: ("DEL", *given)),
    "TOUCH": Alias(1, _MANY, lambda given: ("EXISTS", *given)),
    "HMSET": Alias(3, _MANY, lambda given: ("HSET", *given), lambda reply: b"OK"),
    "ZINCRBY": Alias(3, 3, lambda given: ("ZADD", given[0], "INCR", *given[1:])),
    "ZREVRANGE": Alias(3, 4, lambda given: ("ZRANGE", *given[:3], "REV", *given[3:])),
    "ZRANGEBYSCORE": _scores("ZRANGEBYSCORE", False),
    "ZREVRANGEBYSCORE": _scores("ZREVRANGEBYSCORE", True),
}
