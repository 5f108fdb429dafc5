"""The store on Cloudflare Workers KV: whole strings are read, set and deleted, through the REST API."""

from __future__ import annotations

import asyncio
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from keystead.errors import BadArgument, CommandError, StoreError, StoreReadOnly, StoreUnavailable, UnknownCommand
from keystead.stores.cloudflare_kv.cloudflare_settings import CloudflareSettings
from keystead.stores.cloudflare_kv.entry_format import KEY_BYTES, VALUE_BYTES, name_of
from keystead.stores.cloudflare_kv.key_listing import KeyListing
from keystead.stores.cloudflare_kv.rest_api import CloudflareApi, Forbidden
from keystead.stores.cloudflare_kv.shared_requests import KeyWrite, SharedReads, SharedWrites
from keystead.stores.command_options import SetOptions
from keystead.stores.commands import Call, Reply
from keystead.stores.split_by_key import KeyCall, join_replies, split_by_key
from keystead.stores.sql.interpreter import Interpreter
from keystead.stores.sql.key_commands import OF_ANY_KIND
from keystead.stores.sql.string_commands import HANDLERS as OF_STRINGS
from keystead.stores.sql.string_slot import Item, Slot
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Store, WholeKey

# Without INCRBY, GETDEL, EXPIRE and others, which would change what another process wrote since the read.
HANDLERS = {
    name: handler
    for name, handler in {**OF_STRINGS, **OF_ANY_KIND}.items()
    if name in ("GET", "MGET", "SET", "DEL", "EXISTS", "PTTL", "PEXPIRETIME", "TYPE", "TIME")
}
LISTINGS = ("SCAN", "DBSIZE")
GUARANTEES = Guarantees(
    kinds=frozenset({"string"}),
    atomic="nothing",
    updates=False,
    consistency="eventual",
    billed=True,
    key_max_bytes=KEY_BYTES,
    value_max_bytes=VALUE_BYTES,
)


_abandoned: list[CloudflareApi | None] = []  # of stores that were never closed


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class CloudflareKvStore(Store):
    """One namespace of Workers KV.

    A write is visible here at once as a rule, and everywhere within a minute or so; of concurrent writes of a key the
    last one wins. Time is the clock of this process, because the API has none: deadlines are as exact as the clocks of
    the processes that write and read a key agree. `clock`: for tests.
    """

    def __init__(self, settings: CloudflareSettings, *, clock: Callable[[], int] = wall_ms) -> None:
        self.settings = settings
        self.url = settings.url
        self.guarantees = GUARANTEES
        self._clock = clock
        self._api: CloudflareApi | None = None

    @classmethod
    def of(cls, url: str) -> Self:
        return cls(CloudflareSettings.of(url))

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        """`Store.open`: two requests, a list and a delete. Opening an open store does nothing."""
        if self._api is not None:
            return
        self._loop = asyncio.get_running_loop()
        api = CloudflareApi(self.settings)
        try:
            deadline = self._loop.time() + self.settings.timeout
            await api.ask("GET", "/keys", deadline, query={"limit": 10})
            try:
                # Of a key that nobody has: a token that may only read is refused at the start, not at the first write.
                probe = f"keystead:write-check:{secrets.token_hex(8)}"
                await api.ask("POST", "/bulk/delete", deadline, body=[probe], writes=True)
            except Forbidden as error:
                raise StoreReadOnly(str(error)) from None
        except BaseException:
            await api.close()
            raise
        self._api = api
        self._reads = SharedReads(api)
        self._writes = SharedWrites(api, self._clock, self.settings.write_interval)
        self._listing = KeyListing(api, self._clock)

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            await self._writes.close()
            await self._reads.close()
            await api.close()

    def _abandon(self) -> None:
        # Its connections are freed at exit. asyncio would repeat the warning for each of them.
        _abandoned.append(self._api)
        warnings.filterwarnings("ignore", "unclosed transport", ResourceWarning)

    # --- supported verbs -----------------------------------------------------------------------------------

    async def _replies(self, calls: list[Call]) -> list[Reply]:
        """Keys are read and written together, but a listing in between sees the writes before it, and only those."""
        deadline = self._deadline()
        replies: list[Reply] = []
        batch: list[Call] = []
        for call in calls:
            if call.spec.name in LISTINGS:
                replies += await self._run(batch, deadline)
                replies.append(await self._list(call, deadline))
                batch = []
            else:
                batch.append(call)
        return replies + await self._run(batch, deadline)

    async def _run(self, calls: list[Call], deadline: float) -> list[Reply]:
        pieces, wanted = split_by_key(calls, HANDLERS, self._run_keyless, _unsupported)
        names: dict[bytes, str] = {}
        for key, some in wanted.items():
            try:
                names[key] = name_of(key)
            except BadArgument as error:
                for place, at, call in some:
                    pieces[place][at] = call.blame(BadArgument(str(error)))
        read = [key for key in names if not _overwrites(wanted[key][0].call)]
        try:
            found = await self._reads.read([names[key] for key in read], deadline) if read else []
        except StoreError as error:
            # Nothing was written yet, neither here nor by keys that need no read.
            return [_copy_for(call, error) for call in calls]
        items = dict(zip(read, found, strict=True))
        writes: list[tuple[KeyWrite, list[KeyCall]]] = []
        for key, name in names.items():
            some = wanted[key]
            if (write := self._apply(name, some, items.get(key), pieces, deadline)) is not None:
                writes.append((write, some))
        await self._finish(writes, pieces, deadline)
        return [join_replies(call, some) for call, some in zip(calls, pieces, strict=True)]

    def _apply(
        self, name: str, some: list[KeyCall], item: Item | None, pieces: list[list[Reply]], deadline: float
    ) -> KeyWrite | None:
        """Run the calls of one key, and submit what they leave; None: they only read."""
        slot = Slot(item, VALUE_BYTES)
        interpreter = Interpreter(slot, self._clock, HANDLERS)
        is_written = False
        slot.now_ms = self._clock()
        for place, at, call in some:
            refusal = _refuse_condition(call)
            reply = pieces[place][at] = interpreter.reply(call) if refusal is None else refusal
            is_written |= call.spec.writes and not isinstance(reply, CommandError)
        if not is_written:
            return None
        # A key that this reader does not see may exist elsewhere, so a delete is sent in any case.
        return self._writes.submit(name, slot.item if slot.live(b"") else None, deadline)

    async def _finish(
        self, writes: list[tuple[KeyWrite, list[KeyCall]]], pieces: list[list[Reply]], deadline: float
    ) -> None:
        """Wait for the writes; those that fail replace the replies of their calls."""
        waiting = [write.future for write, _ in writes]
        if not waiting:
            return
        try:
            await asyncio.wait(waiting, timeout=max(deadline - self._loop.time(), 0))
            for write, some in writes:
                error = self._error_of(write)
                if error is None:
                    continue
                for place, at, call in some:
                    if call.spec.writes and not isinstance(pieces[place][at], CommandError):
                        pieces[place][at] = _copy_for(call, error)
        finally:
            for future in waiting:  # a write that has not been sent is not sent any more
                future.cancel()

    def _error_of(self, write: KeyWrite) -> StoreError | None:
        if not write.future.done():
            sentence = f"{self.url} did not answer within {self.settings.timeout:g} s"
            return StoreUnavailable(sentence, "unknown" if write.sent else "not-sent")
        error = write.future.exception()
        if error is not None and not isinstance(error, StoreError):
            raise error
        return error

    async def _list(self, call: Call, deadline: float) -> Reply:
        try:
            return await (
                self._listing.count(deadline) if call.spec.name == "DBSIZE" else self._listing.step(call, deadline)
            )
        except StoreError as error:
            return call.blame(error) if isinstance(error, CommandError) else error

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        cursor = ""
        while True:
            found, cursor = await self._listing.page(pattern, kind, page, cursor, self._deadline())
            yield found
            if not cursor:
                return

    # --- whole keys ----------------------------------------------------------------------------------------

    async def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]] | None:
        """`Store.whole_keys`: an entry is one record, so a value is never read without its deadline."""
        self._check_loop()
        items = await self._reads.read([name_of(key) for key in keys], self._deadline()) if keys else []
        now_ms = self._clock()
        found: list[WholeKey] = [
            (key, "string", item.expires_at, [item.value])
            for key, item in zip(keys, items, strict=True)
            if item is not None and (item.expires_at is None or item.expires_at > now_ms)
        ]
        return found, []

    async def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool] | None:
        """`Store.add_whole_keys`, but keys are looked for in one request and written in another."""
        found = await self.whole_keys([key for key, _, _, _ in keys])
        held = {key for key, _, _, _ in found[0]} if found is not None else set()
        await self.run(
            [
                ("SET", key, value, *(() if at_ms is None else ("PXAT", at_ms)))
                for key, _, at_ms, [value] in keys
                if key not in held
            ]
        )
        return [key not in held for key, _, _, _ in keys]

    # --- unsupported verbs ---------------------------------------------------------------------------------

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        self._deadline()  # or it is closed
        raise steps[0].call.blame(
            UnknownCommand("Cloudflare KV has no atomic steps; use another store for this, in a role of its own")
        )

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        raise UnknownCommand("Cloudflare KV has no pub/sub; subscribe on a store that has", "SUBSCRIBE")

    # --- pieces --------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        if self._api is None:
            raise self._closed_error()
        return self._loop.time() + self.settings.timeout

    def _run_keyless(self, call: Call) -> Reply:
        slot = Slot(None, 0)
        slot.now_ms = self._clock()
        return HANDLERS[call.spec.name](slot, call)


def _overwrites(call: Call) -> bool:
    """Whether the stored value makes no difference: it is a SET that cannot fail."""
    return call.spec.name == "SET" and _refuse_condition(call) is None and len(call.args[1]) <= VALUE_BYTES


def _refuse_condition(call: Call) -> CommandError | None:
    """The error of a SET that depends on what the key holds: between the read and the write another may write."""
    if call.spec.name != "SET":
        return None
    options: SetOptions = call.options
    if not (options.only_if or options.get or options.keep_ttl):
        return None
    return call.blame(
        UnknownCommand("Cloudflare KV cannot compare before it writes: SET takes no NX, XX, GET and KEEPTTL here")
    )


def _unsupported(call: Call) -> UnknownCommand:
    if call.spec.kind not in (None, "string"):
        why = "Cloudflare KV has only strings"
    elif call.spec.name == "PUBLISH":
        why = "Cloudflare KV has no pub/sub"
    else:
        why = "Cloudflare KV cannot change a value in one step, only set and delete it"
    error = UnknownCommand(f"{why}; use another store for this")
    call.blame(error)
    return error


def _copy_for(call: Call, error: StoreError) -> StoreError:
    """The same error for each call: `run` attaches the replies of a batch to the one that it raises."""
    if isinstance(error, CommandError):
        made: Any = type(error)(error.sentence)
        return call.blame(made)
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(str(error), error.outcome)
    return type(error)(str(error))
