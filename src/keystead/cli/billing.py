"""What a long command costs on a store that bills what it does, such as Upstash: one sentence before the work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Final, Literal, NamedTuple, TypeAlias

import typer

from keystead.catalogue import message
from keystead.cli.terminal_language import plural, say
from keystead.schema import Keyspace
from keystead.stores import Store
from keystead.stores.transfer.reader import count_keys

_Step: TypeAlias = Literal[
    "read", "compare what was read", "write", "compare what was written", "look up", "compare", "examine"
]


class _Cost(NamedTuple):
    """What one step of a job takes: billed for each key, the keys in one request, and the requests beside these."""

    billed: Mapping[str, float]
    keys_per_request: int
    more_requests: int = 0


_Work: TypeAlias = list[tuple[_Step, int]]  # each step, with its number of keys

# Measured: tests/cli/test_billed.py compares them with what a server counts. Scripts read and write many keys at a
# time, but the commands in them are billed, too: to read a key takes its kind, size, deadline and value.
_COMMANDS: Final[dict[_Step, _Cost]] = {
    "read": _Cost({message("commands"): 4}, 100, 4),
    "compare what was read": _Cost({"commands": 4}, 200, 3),
    "write": _Cost({"commands": 3}, 90, 10),
    "compare what was written": _Cost({"commands": 4}, 500, 6),
    "look up": _Cost({"commands": 1}, 100, 10),
    "compare": _Cost({"commands": 3}, 500, 1),
    "examine": _Cost({"commands": 2}, 110, 9),
}
# Cloudflare KV: keys are listed in pages, read in bulk, and written if they differ from what a read shows.
_LISTS: Final = 0.003
_OPERATIONS: Final[dict[_Step, _Cost]] = {
    "read": _Cost({message("reads"): 1, message("lists"): _LISTS}, 66, 3),
    "compare what was read": _Cost({"reads": 1}, 85, 2),
    "write": _Cost({"reads": 2, message("writes"): 1}, 38, 8),
    "compare what was written": _Cost({"reads": 1}, 130, 5),
    "look up": _Cost({"reads": 1}, 85, 5),
    "compare": _Cost({}, 1_000_000),
    "examine": _Cost({"reads": 1, "lists": _LISTS}, 66, 8),
}


_READ: Final = message(
    "{url} bills what it does: to read {keys} takes {about} {billed}, in about {requests} requests{more}"
)
_WRITE: Final = message(
    "{url} bills what it does: to write {keys} takes {about} {billed}, in about {requests} requests{more}"
)
_LOOK_UP: Final = message(
    "{url} bills what it does: to look up {keys} takes {about} {billed}, in about {requests} requests{more}"
)
_EXAMINE: Final = message(
    "{url} bills what it does: to examine {keys} takes {about} {billed}, in about {requests} requests{more}"
)
_ABOUT: Final = message("about")
_AT_MOST: Final = message("at most")


def _announce(store: Store, text: str, count: int | None, work: _Work, more: str = "", about: str = _ABOUT) -> None:
    if count is None:
        return
    costs = _COMMANDS if store.guarantees.updates else _OPERATIONS
    billed: dict[str, float] = {}
    requests = 0
    for step, keys in work:
        cost = costs[step]
        for unit, per_key in cost.billed.items():
            billed[unit] = billed.get(unit, 0) + per_key * keys
        requests += keys // cost.keys_per_request + cost.more_requests
    typer.echo(
        say(
            text,
            url=store.url,
            keys=plural("{count} key", "{count} keys", count),
            about=say(about),
            billed=" + ".join(f"{ceil(number):,} {say(unit)}" for unit, number in billed.items()),
            requests=f"{requests:,}",
            more=more,
        ),
        err=True,
    )


async def announce_reading(store: Store, *, part: bool = False) -> None:
    """For a job that reads all keys once, or only a part of them."""
    if store.guarantees.billed:
        count = await count_keys(store)
        _announce(store, _READ, count, [("read", count or 0)], about=_AT_MOST if part else _ABOUT)


def announce_writing(store: Store, keys: int) -> None:
    """For a job that writes this many keys."""
    if store.guarantees.billed:
        _announce(store, _WRITE, keys, [("write", keys)])


async def announce_copy(source: Store, target: Store, *, match: str, verified: bool, follows: bool) -> None:
    """For a copy of the matching keys of one store into another."""
    if not (source.guarantees.billed or target.guarantees.billed):
        return
    count = await count_keys(source)
    keys, about = count or 0, _ABOUT if match == "*" else _AT_MOST
    if source.guarantees.billed:
        again = say("; --follow reads them all again and again, with pauses of at most 10 seconds") if follows else ""
        work: _Work = [("read", keys), ("compare what was read", keys)]
        _announce(source, _READ, count, work[: 1 + verified], again, about)
    if target.guarantees.billed:
        changes = say("; --follow writes what changes, too") if follows else ""
        work = [("write", keys), ("compare what was written", keys)]
        _announce(target, _WRITE, count, work[: 1 + verified], changes, about)


async def announce_survey(source: Store, target: Store, *, match: str) -> None:
    """For a dry run of a copy, which reads both stores."""
    if not (source.guarantees.billed or target.guarantees.billed):
        return
    count = await count_keys(source)
    keys, about = count or 0, _ABOUT if match == "*" else _AT_MOST
    if source.guarantees.billed:
        _announce(source, _READ, count, [("read", keys)], about=about)
    if target.guarantees.billed:
        there = await count_keys(target) or 0
        _announce(target, _LOOK_UP, count, [("look up", keys), ("compare", min(keys, there))], about=about)


async def announce_examination(keyspaces: Iterable[Keyspace], *, repairs: bool) -> None:
    for store in {id(store): store for keys in keyspaces for store in keys.stores}.values():
        if store.guarantees.billed:
            count = await count_keys(store)
            work: _Work = [("examine", (count or 0) * (1 + repairs))]
            _announce(store, _EXAMINE, count, work, say("; each finding takes about three more") if count else "")
