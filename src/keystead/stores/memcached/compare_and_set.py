"""Compare-and-set on one server, with concurrent callers combined into rounds.

A round reads the keys that its commands need (one round trip), runs the commands, and writes each changed key only if
it has not changed since (another round trip). After a lost race, the commands of that key run again in the next round.
Callers of one process never race each other: their commands on one key are one change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeAlias

from keystead.errors import CommandError, KeysteadError, StoreClosed, StoreError, StoreFull, StoreUnavailable
from keystead.stores.command_options import SetOptions
from keystead.stores.commands import Call, Reply
from keystead.stores.memcached.item_format import MARK, cleared_at_s, pack_item, unpack_item
from keystead.stores.memcached.memcached_connection import MetaReply
from keystead.stores.memcached.memcached_link import MemcachedLink
from keystead.stores.sql.interpreter import Interpreter
from keystead.stores.sql.key_commands import OF_ANY_KIND
from keystead.stores.sql.string_commands import HANDLERS as OF_STRINGS
from keystead.stores.sql.string_slot import Item, Slot
from keystead.stores.store_contract import Outcome, Planned

HANDLERS = {**OF_STRINGS, **OF_ANY_KIND}

Replies: TypeAlias = list[Reply] | Outcome


@dataclass(eq=False, slots=True)
class Part:
    """The work of one caller on one key: independent calls, or the steps of `atomically`."""

    name: bytes  # of the key on the server
    work: list[Call] | list[Planned]
    deadline: float  # on the clock of the event loop
    future: asyncio.Future[Replies]
    sent: bool = False  # whether it may have been written

    @property
    def reads_only(self) -> bool:
        return not any(call.spec.writes for call in self.calls)

    @property
    def calls(self) -> list[Call]:
        return [each if isinstance(each, Call) else each.call for each in self.work]

    def overwrites(self, largest: int) -> bool:
        """Whether the current value makes no difference: the work starts with an unconditional SET that cannot fail."""
        first = self.work[0]
        if not isinstance(first, Call) or first.spec.name != "SET" or len(first.args[1]) > largest:
            return False
        options: SetOptions = first.options
        return not (options.only_if or options.get or options.keep_ttl)

    def run(self, interpreter: Interpreter[Slot]) -> Replies | CommandError:
        steps = [each for each in self.work if isinstance(each, Planned)]
        if not steps:
            return interpreter.replies(self.calls)
        try:
            return interpreter.atomically(steps)
        except CommandError as error:
            return error

    def fail(self, error: KeysteadError) -> None:
        """End with a copy of the error, since `run` attaches the replies of its caller to it."""
        if not self.future.done():
            self.future.set_exception(copy(error).with_traceback(None))

    def end(self, result: Replies | CommandError) -> None:
        if isinstance(result, CommandError):
            self.fail(result)
        elif not self.future.done():
            self.future.set_result(result)


@dataclass(eq=False, slots=True)
class _Change:
    """The combined change of all parts of one key."""

    parts: list[Part]
    unconditional: bool  # whether the key is written without compare-and-set
    request: bytes
    results: list[Replies | CommandError]


class CompareAndSetQueue:
    def __init__(self, link: MemcachedLink, clock: Callable[[], int]) -> None:
        self._link = link
        self._clock = clock
        self._waiting: list[Part] = []
        self._running: asyncio.Task[None] | None = None

    async def read_one(self, name: bytes, calls: list[Call], deadline: float) -> list[Reply]:
        """The replies of calls that only read this key. Raises StoreUnavailable."""
        [answer] = await self._link.ask([_read_request(name)], deadline, writes=False)
        try:
            slot, _ = self._slot(answer)
        except StoreError as error:
            return _errors_for(calls, error)
        return self._interpreter(slot).replies(calls)

    async def read(self, parts: Sequence[Part], deadline: float) -> None:
        """Serve parts that only read, outside of rounds. Raises StoreUnavailable."""
        answers = await self._link.ask([_read_request(part.name) for part in parts], deadline, writes=False)
        for part, answer in zip(parts, answers, strict=True):
            try:
                slot, _ = self._slot(answer)
            except StoreError as error:
                part.end(_fail_calls(part, error))
            else:
                part.end(part.run(self._interpreter(slot)))

    def submit(self, part: Part) -> None:
        """Add it to the next round; its future gets the replies, or the error."""
        self._waiting.append(part)
        if self._running is None or self._running.done():
            # It starts one turn later, so that all tasks that are ready now share a round.
            self._running = asyncio.create_task(self._rounds())

    async def close(self) -> None:
        if self._running is not None:
            await asyncio.wait({self._running})

    async def _rounds(self) -> None:
        while self._waiting:
            parts, self._waiting = self._waiting, []
            parts = [part for part in parts if not part.future.done()]
            try:
                again = await self._round(parts) if parts else []
            except (StoreUnavailable, StoreClosed) as error:
                for part in parts:
                    part.fail(error)
                again = []
            self._waiting = again + self._waiting

    async def _round(self, parts: list[Part]) -> list[Part]:
        """Run these; return those that lost a race for their key."""
        by_name: dict[bytes, list[Part]] = {}
        for part in parts:
            by_name.setdefault(part.name, []).append(part)
        largest = self._link.value_max_bytes
        looked = [name for name, wanted in by_name.items() if not wanted[0].overwrites(largest)]
        until = max(part.deadline for part in parts)
        answers = await self._link.ask([_read_request(name) for name in looked], until, writes=False) if looked else []
        found = dict(zip(looked, answers, strict=True))
        changes: list[_Change] = []
        again: list[Part] = []
        for name, wanted in by_name.items():
            # A caller that timed out during the read was told "not sent", which has to stay true.
            waiting = [part for part in wanted if not part.future.done()]
            if name not in found and waiting != wanted:
                again += waiting  # the SET that made the read unnecessary may be cancelled
            elif waiting and (change := self._change(name, waiting, found.get(name))) is not None:
                changes.append(change)
        if not changes:
            return again
        for change in changes:
            for part in change.parts:
                part.sent = True
        outcomes = await self._link.ask([change.request for change in changes], until, writes=True)
        for change, answer in zip(changes, outcomes, strict=True):
            again += _settle(change, answer)
        return again

    def _change(self, name: bytes, parts: list[Part], answer: MetaReply | None) -> _Change | None:
        """Run the parts of a key; None: nothing has to be written, and they have their replies."""
        cas: int | None = None
        try:
            slot, cas = (Slot(None, self._link.value_max_bytes), None) if answer is None else self._slot(answer)
        except StoreError as error:
            for part in parts:
                part.end(_fail_calls(part, error))
            return None
        interpreter = self._interpreter(slot)
        before = _unexpired(slot.item, self._clock())
        results = [part.run(interpreter) for part in parts]
        after = _unexpired(slot.item, self._clock())
        if answer is not None and after == before:
            for part, result in zip(parts, results, strict=True):
                part.end(result)
            return None
        if after is None:
            request = b"md %b%b\r\n" % (name, b"" if cas is None else b" C%d" % cas)
        else:
            data = pack_item(after)
            only = b"" if answer is None else b" ME" if cas is None else b" C%d" % cas
            head = b"ms %b %d F%d T%d%b\r\n" % (name, len(data), MARK, cleared_at_s(after.expires_at), only)
            request = b"%b%b\r\n" % (head, data)
        return _Change(parts, answer is None, request, results)

    def _slot(self, answer: MetaReply) -> tuple[Slot, int | None]:
        """The value that a read found, and its CAS token. Raises StoreError."""
        if answer.code == b"EN":
            return Slot(None, self._link.value_max_bytes), None
        if answer.code != b"VA":
            raise _refusal(answer)
        return Slot(unpack_item(answer.data, answer.number(b"f")), self._link.value_max_bytes), answer.number(b"c")

    def _interpreter(self, slot: Slot) -> Interpreter[Slot]:
        return Interpreter(slot, self._clock, HANDLERS)


def _read_request(name: bytes) -> bytes:
    return b"mg %b v f c\r\n" % name


def _unexpired(item: Item | None, now_ms: int) -> Item | None:
    """The item, or None if it has expired."""
    return None if item is None or (item.expires_at is not None and item.expires_at <= now_ms) else item


def _settle(change: _Change, answer: MetaReply) -> list[Part]:
    """Report the outcome to the parts; returns those that have to run again."""
    if answer.code == b"HD" or (answer.code == b"NF" and change.unconditional):  # NF: nothing to delete
        for part, result in zip(change.parts, change.results, strict=True):
            part.end(result)
        return []
    if answer.code not in (b"EX", b"NS", b"NF"):
        for part in change.parts:
            part.end(_fail_calls(part, _refusal(answer)))
        return []
    for part in change.parts:
        part.sent = False  # lost the race: nothing was written
    return change.parts


def _fail_calls(part: Part, error: StoreError) -> Replies | CommandError:
    """The replies of a part that could not run."""
    if isinstance(part.work[0], Planned):
        part.fail(error)
        return Outcome([])
    return _errors_for(part.calls, error)


def _errors_for(calls: list[Call], error: StoreError) -> list[Reply]:
    failed: list[Reply] = []
    for call in calls:
        each = type(error)(str(error))
        failed.append(call.blame(each) if isinstance(each, CommandError) else each)
    return failed


def _refusal(answer: MetaReply) -> StoreError:
    words = b" ".join((answer.code, *answer.words)).decode("utf-8", "replace")
    if b"memory" in answer.words:
        return StoreFull(f"the server is out of memory ({words}); give it more with -m, or let it evict")
    return StoreUnavailable(f"the server is unavailable: {words}")
