"""An example of a third-party store: strings in a dictionary, in the memory of the process.

It has no atomic steps and no messages: its guarantees omit them, and it refuses them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from keystead import Store
from keystead.errors import BadUrl, CommandError, NotANumber, StoreClosed, UnknownCommand
from keystead.stores import Guarantees, Message, Outcome
from keystead.stores.command_options import ScanOptions
from keystead.stores.commands import INT64_MAX, INT64_MIN, Call, Reply, integer
from keystead.stores.globs import compile_glob
from keystead.stores.store_contract import Planned

DATA: dict[str, dict[bytes, tuple[bytes, int | None]]] = {}  # name of a store -> key -> value and deadline in ms


def dictionary_store(url: str) -> Store:
    """What the entry point names: from `dictionary://name` to a store that is not open yet."""
    name = url.removeprefix("dictionary://")
    if not name.isalnum():
        raise BadUrl("write dictionary://name, with letters and digits only")
    return DictionaryStore(name)


class DictionaryStore(Store):
    def __init__(self, name: str) -> None:
        self.url = f"dictionary://{name}"
        self.guarantees = Guarantees(kinds=frozenset({"string"}), atomic="nothing", durability="memory")
        self._name = name
        self._data: dict[bytes, tuple[bytes, int | None]] | None = None

    async def open(self) -> None:
        self._data = DATA.setdefault(self._name, {})

    async def close(self) -> None:
        self._data = None

    def _replies(self, calls: list[Call]) -> list[Reply]:
        if self._data is None:
            raise StoreClosed(f"{self.url} is not open")
        moment = Moment(self._data)
        return [self._reply(moment, call) for call in calls]

    def _reply(self, moment: Moment, call: Call) -> Reply:
        handler = HANDLERS.get(call.spec.name)
        if handler is None:
            return call.blame(UnknownCommand("a dictionary keeps strings only"))
        try:
            return handler(moment, call)
        except CommandError as error:
            return call.blame(error)

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        raise steps[0].call.blame(UnknownCommand("a dictionary has no atomic steps"))

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        glob = compile_glob(pattern)
        moment = Moment(self._data or {})
        found = [key for key in moment.alive() if glob.fullmatch(key) and kind in (None, "string")]
        for start in range(0, len(found), page):
            yield found[start : start + page]

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        raise UnknownCommand("a dictionary has no messages", "SUBSCRIBE")


class Moment:
    """The dictionary as it is now: what has expired is not there."""

    def __init__(self, data: dict[bytes, tuple[bytes, int | None]]) -> None:
        self.data = data
        self.now_ms = time.time_ns() // 1_000_000

    def get(self, key: bytes) -> tuple[bytes, int | None] | None:
        held = self.data.get(key)
        if held is not None and held[1] is not None and held[1] <= self.now_ms:
            del self.data[key]
            return None
        return held

    def alive(self) -> list[bytes]:
        return [key for key in list(self.data) if self.get(key) is not None]


def _get(moment: Moment, call: Call) -> Reply:
    held = moment.get(call.args[0])
    return None if held is None else held[0]


def _mget(moment: Moment, call: Call) -> Reply:
    return [None if (held := moment.get(key)) is None else held[0] for key in call.args]


def _set(moment: Moment, call: Call) -> Reply:
    key, value = call.args[:2]
    options, held = call.options, moment.get(key)
    allowed = not options.only_if or (options.only_if == b"XX") == (held is not None)
    if allowed:
        deadline = options.deadline.at_ms(moment.now_ms) if options.deadline else None
        moment.data[key] = (value, held[1] if options.keep_ttl and held is not None else deadline)
    if options.get:
        return None if held is None else held[0]
    return b"OK" if allowed else None


def _getdel(moment: Moment, call: Call) -> Reply:
    held = moment.get(call.args[0])
    moment.data.pop(call.args[0], None)
    return None if held is None else held[0]


def _getex(moment: Moment, call: Call) -> Reply:
    key, options = call.args[0], call.options
    held = moment.get(key)
    if held is None:
        return None
    if options.deadline is not None or options.persist:
        moment.data[key] = (held[0], options.deadline.at_ms(moment.now_ms) if options.deadline else None)
    return held[0]


def _add(moment: Moment, call: Call) -> Reply:
    key = call.args[0]
    value, deadline = moment.get(key) or (b"0", None)
    try:
        total = integer(value) + call.options
    except NotANumber:
        raise NotANumber("the stored value is not an integer of 64 bits") from None  # which may be a secret
    if not INT64_MIN <= total <= INT64_MAX:
        raise NotANumber("the result would not fit 64 bits")
    moment.data[key] = (b"%d" % total, deadline)
    return total


def _del(moment: Moment, call: Call) -> Reply:
    there = [key for key in dict.fromkeys(call.args) if moment.get(key) is not None]
    for key in there:
        del moment.data[key]
    return len(there)


def _exists(moment: Moment, call: Call) -> Reply:
    return sum(moment.get(key) is not None for key in call.args)


def _expire(moment: Moment, call: Call) -> Reply:
    key, options = call.args[0], call.options
    held = moment.get(key)
    if held is None:
        return 0
    value, old = held
    new = options.deadline.at_ms(moment.now_ms)
    allowed = {
        b"NX": old is None,
        b"XX": old is not None,
        b"GT": old is not None and new > old,
        b"LT": old is None or new < old,
    }
    if not all(allowed[condition] for condition in options.conditions):
        return 0
    moment.data[key] = (value, new)
    return 1


def _persist(moment: Moment, call: Call) -> Reply:
    held = moment.get(call.args[0])
    if held is None or held[1] is None:
        return 0
    moment.data[call.args[0]] = (held[0], None)
    return 1


def _pexpiretime(moment: Moment, call: Call) -> Reply:
    held = moment.get(call.args[0])
    return -2 if held is None else -1 if held[1] is None else held[1]


def _pttl(moment: Moment, call: Call) -> Reply:
    deadline = _pexpiretime(moment, call)
    return deadline if deadline < 0 else deadline - moment.now_ms


def _type(moment: Moment, call: Call) -> Reply:
    return b"none" if moment.get(call.args[0]) is None else b"string"


def _dbsize(moment: Moment, call: Call) -> Reply:
    return len(moment.alive())


def _scan(moment: Moment, call: Call) -> Reply:
    options: ScanOptions = call.options  # all of them at once: a dictionary is never long
    glob = None if options.match is None else compile_glob(options.match)
    of_kind = options.kind in (None, "string")
    return [b"0", [key for key in moment.alive() if of_kind and (glob is None or glob.fullmatch(key))]]


def _time(moment: Moment, call: Call) -> Reply:
    return [b"%d" % (moment.now_ms // 1000), b"%d" % (moment.now_ms % 1000 * 1000)]


HANDLERS: dict[str, Callable[[Moment, Call], Reply]] = {
    "GET": _get,
    "MGET": _mget,
    "SET": _set,
    "GETDEL": _getdel,
    "GETEX": _getex,
    "INCRBY": _add,
    "DECRBY": _add,
    "DEL": _del,
    "EXISTS": _exists,
    "TYPE": _type,
    "PERSIST": _persist,
    **dict.fromkeys(("EXPIRE", "PEXPIRE", "PEXPIREAT"), _expire),
    "PTTL": _pttl,
    "PEXPIRETIME": _pexpiretime,
    "DBSIZE": _dbsize,
    "SCAN": _scan,
    "TIME": _time,
}
