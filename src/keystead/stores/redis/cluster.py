"""A cluster: every key has a slot, and every slot is owned by a node.

`run` sends each command to the node that owns its key, to several nodes concurrently. `atomically` works within one
slot: keys that must change together carry the same hash tag, as in `{user:42}:profile` and `{user:42}:sessions`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from keystead.errors import BadArgument, CrossSlot, StoreClosed, StoreError, StoreUnavailable
from keystead.stores.changed_keys import ChangedKeys
from keystead.stores.commands import Call, Reply
from keystead.stores.near_reads import NearReads, dropping
from keystead.stores.reconnecting_link import ConnectionLost, unknown_write
from keystead.stores.redis.atomic_script import Script
from keystead.stores.redis.cluster_cursor import ClusterCursor
from keystead.stores.redis.cluster_near_reads import ClusterNearReads
from keystead.stores.redis.cluster_nodes import SILENCE_S, ClusterNodes, slot_of
from keystead.stores.redis.compiled_steps import CompiledCache, CompiledSteps, shape_of
from keystead.stores.redis.compiled_store import written_keys
from keystead.stores.redis.redis_connection import RedisConnection, call, pack_command
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.redis_store import (
    MAX_BYTES,
    compiled_request,
    pack,
    pack_script,
    require_writable,
    scan_command,
    stated_guarantees,
)
from keystead.stores.redis.reply_errors import ReplyError, refusal
from keystead.stores.redis.reply_shapes import is_transient
from keystead.stores.redis.script_runs import PAUSE_S, convert_reply
from keystead.stores.redis.subscription import Listener, subscription
from keystead.stores.redis.tracked_keys import KeyListener, tracked_keys
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Step, Store

_ASKING = pack_command((b"ASKING",))


@dataclass(slots=True)
class SlotCommand:
    """A command for one slot, or for any node (None): a whole call, or the part of one with keys of that slot."""

    call: Call
    slot: int | None
    node: RedisAddress | None = None  # where to send it, if not to the owner of its slot
    asking: bool = False
    cursor: ClusterCursor | None = None  # of SCAN
    reply: Any = None
    address: RedisAddress = field(default=RedisAddress("", 0))


class ClusterStore(Store):
    def __init__(self, settings: RedisSettings) -> None:
        self.url = settings.url
        self.guarantees = Guarantees(
            atomic="one slot", durability="memory", key_max_bytes=MAX_BYTES, value_max_bytes=MAX_BYTES
        )
        self._settings = settings
        self._nodes = ClusterNodes(settings)
        self._listeners: set[Listener] = set()
        self._key_listeners: set[KeyListener] = set()
        self._compiled = CompiledCache()
        self._near: ClusterNearReads | None = None  # from the first near read on

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._nodes.is_open:
            return
        self._loop = asyncio.get_running_loop()
        try:
            await self._nodes.open()
            probe = b"keystead:probe:" + secrets.token_hex(8).encode()
            link = self._nodes.link_to(self._nodes.owners[slot_of(probe)])
            connection = await link.wait_for_connection(self._loop.time() + self._settings.timeout)
            await require_writable(connection, probe)
            self.guarantees = replace(await stated_guarantees(connection, "one slot"), near="bounded")
            self._nodes.watch()
        except ConnectionLost as lost:
            await self.close()
            raise StoreUnavailable(str(lost)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._nodes.is_open = False
        stopping: list[Listener | KeyListener] = [*self._listeners, *self._key_listeners]
        for listener in stopping:
            listener.stop(f"{self.url} was closed")
        if self._near is not None:
            near, self._near = self._near, None
            await near.close()
        await self._nodes.close()

    # --- the four verbs ------------------------------------------------------------------------------------

    def _replies(self, calls: list[Call]) -> Awaitable[list[Reply]]:
        return self._exchange(calls)

    async def _exchange(self, calls: list[Call]) -> list[Reply]:
        if not self._nodes.is_open:
            raise self._closed_error()
        parts = [self._split(call) for call in calls]
        pieces = [piece for part in parts for piece in part]
        if self._near is None:
            await self._deliver(pieces)
        else:
            written = [key for call in calls if call.spec.writes for key in call.keys]
            await dropping(self._near, written, self._deliver(pieces))
        return [_merge(call, part) for call, part in zip(calls, parts, strict=True)]

    def _split(self, call: Call) -> list[SlotCommand]:
        """Split a call by slot."""
        name = call.spec.name
        if name == "SCAN":
            return [self._scan_piece(call)]
        if name == "DBSIZE":
            return [SlotCommand(call, None, node=address) for address in self._nodes.masters()]
        if call.spec.keys == 0:
            return [SlotCommand(call, None)]
        if len(call.keys) == 1:
            return [SlotCommand(call, slot_of(call.args[0]))]
        by_slot: dict[int, list[bytes]] = {}
        for key in call.keys:
            by_slot.setdefault(slot_of(key), []).append(key)
        return [SlotCommand(Call(call.spec, keys, call.options), slot) for slot, keys in by_slot.items()]

    def _scan_piece(self, call: Call) -> SlotCommand:
        """SCAN for the node of the cursor."""
        try:
            cursor = ClusterCursor.read(call.options.cursor, self._nodes.owners)
        except BadArgument as error:
            return SlotCommand(call, None, reply=call.blame(error))
        of_node = Call(call.spec, [b"%d" % cursor.at, *call.args[1:]], call.options)
        return SlotCommand(of_node, None, node=self._nodes.masters()[cursor.node], cursor=cursor)

    async def _deliver(self, pieces: list[SlotCommand]) -> None:
        """Set the reply of every piece: a value, or an error. Follows slots that move, until the deadline."""
        deadline = self._loop.time() + self._settings.timeout
        todo = [piece for piece in pieces if piece.reply is None]
        reason = ""
        while todo:
            todo, failures = await self._send_all(todo, deadline)
            if not todo:
                return
            reason = failures[0] if failures else reason
            if self._loop.time() + PAUSE_S >= deadline:
                break
            if failures:
                await asyncio.sleep(PAUSE_S)
                await self._nodes.refresh_once(deadline)
        for piece in todo:
            piece.reply = StoreUnavailable(reason or f"the slots of {self.url} kept moving")

    async def _send_all(self, pieces: list[SlotCommand], deadline: float) -> tuple[list[SlotCommand], list[str]]:
        """Send each piece to its node, to all nodes at once. Returns the pieces to send again, and what failed."""
        by_node: dict[RedisAddress, list[SlotCommand]] = {}
        for piece in pieces:
            by_node.setdefault(self._destination(piece), []).append(piece)
        sends = [self._send(address, group, deadline) for address, group in by_node.items()]
        outcomes = [await sends[0]] if len(sends) == 1 else await asyncio.gather(*sends)
        again = [piece for unsent, _ in outcomes for piece in unsent]
        return again, [failure for _, failure in outcomes if failure]

    def _patience(self, deadline: float) -> float:
        """How long to wait for a node that is unreachable: not long, since another may own its slots by now."""
        return min(deadline, self._loop.time() + SILENCE_S)

    def _destination(self, piece: SlotCommand) -> RedisAddress:
        if piece.node is not None:
            return piece.node
        return self._nodes.owners[piece.slot if piece.slot is not None else 0]

    async def _send(
        self, address: RedisAddress, group: list[SlotCommand], deadline: float
    ) -> tuple[list[SlotCommand], str]:
        """Send pieces to one node. Returns the pieces to send again, and what is wrong with the node, if anything."""
        try:
            link = self._nodes.link_to(address)
            connection = link.connection
            if connection is None or connection.lost is not None or connection.congested is not None:
                connection = await link.wait_for_connection(self._patience(deadline))
            replies = await self._round_trip(deadline, connection, group)
        except StoreClosed as error:
            if self._nodes.is_open:
                return group, str(error)  # only this link is closed
            raise
        except StoreError as error:
            return self._route_to_owner(group), str(error)
        except ConnectionLost as lost:
            return self._route_to_owner(_unsent(group, lost)), str(lost)
        again, failure = [], ""
        for piece, reply in zip(group, replies, strict=True):
            piece.reply, piece.address = reply, address
            if type(reply) is ReplyError and self._redirect(piece, str(reply)):
                piece.reply = None
                again.append(piece)
            elif is_transient(reply):
                failure = f"{address} is unavailable: {reply}"
                piece.reply = None
                again.append(piece)
            else:
                piece.reply = convert_reply(piece.call, reply, address)
        return _in_order(group, again) if again else [], failure

    async def _round_trip(self, deadline: float, connection: RedisConnection, group: list[SlotCommand]) -> list[Any]:
        if not any(piece.asking for piece in group):
            return await connection.send_until(deadline, pack([piece.call for piece in group]), len(group))
        payload = b"".join((_ASKING if piece.asking else b"") + pack([piece.call]) for piece in group)
        count = len(group) + sum(piece.asking for piece in group)
        replies = iter(await connection.send_until(deadline, payload, count))
        return [(next(replies), next(replies))[1] if piece.asking else next(replies) for piece in group]

    def _route_to_owner(self, pieces: list[SlotCommand]) -> list[SlotCommand]:
        """Send these to the current owner of their slot."""
        for piece in pieces:
            if piece.slot is not None:
                piece.node, piece.asking = None, False
        return pieces

    def _redirect(self, piece: SlotCommand, text: str) -> bool:
        """Follow a MOVED or ASK reply. False: it is neither."""
        word, _, rest = text.partition(" ")
        if word not in ("MOVED", "ASK") or piece.slot is None:
            return False
        host, _, port = rest.partition(" ")[2].rpartition(":")
        address = RedisAddress(host or piece.address.host, int(port))
        if word == "MOVED":
            self._nodes.record_move(piece.slot, address)
            piece.node, piece.asking = None, False
        else:
            piece.node, piece.asking = address, True
        return True

    @property
    def near(self) -> NearReads | None:
        self._check_loop()
        if self._near is None and self._opened_in is not None:
            self._near = ClusterNearReads(self._settings, self._nodes, self.run)
        return self._near

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        found = shape_of(steps)
        compiled = None if found is None else self._compiled.get(found[0])
        # While another synchronous caller opens it, slots have no known owner yet: the general path waits for that.
        if found is not None and compiled is not None and self._opened_in is not None:
            self._check_loop()
            work = self._run_compiled(compiled, found[1])
            near = None if compiled.reads_only else self._near
            outcome = await (work if near is None else dropping(near, found[1], work))
            if outcome is not None:
                return outcome
        return await super().atomically(steps)

    async def _run_compiled(self, compiled: CompiledSteps, arguments: Sequence[bytes]) -> Outcome | None:
        """Run compiled steps on the fast path. None: they did nothing, and the general path has to run them.

        That is so if the slot has moved, the server cannot serve now, or a step failed.
        """
        slots = {slot_of(arguments[place]) for place in compiled.key_places}
        if len(slots) != 1:
            return None
        link = self._nodes.links.get(self._nodes.owners[slots.pop()])
        connection = None if link is None else link.connection
        if connection is None or connection.lost is not None or connection.congested is not None:
            return None
        try:
            [reply] = await connection.send(compiled_request(connection, compiled, arguments), 1, self._loop.time())
        except ConnectionLost as lost:
            if lost.sent and not compiled.reads_only:
                raise unknown_write(lost) from None
            return None
        return compiled.outcome(reply)

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        if not self._nodes.is_open:
            raise self._closed_error()
        script = Script(steps)
        slots = {slot_of(key): key for key in script.keys}
        if len(slots) > 1:
            named = " and ".join(repr(key.decode("utf-8", "replace")) for key in list(slots.values())[:2])
            raise CrossSlot(
                f"{named} are in different slots, which a cluster cannot change atomically;"
                " give keys that belong together one hash tag, as in {user:42}:a and {user:42}:b",
                "atomically",
            )
        work = self._run_script(script, next(iter(slots), None))
        return await (work if self._near is None else dropping(self._near, written_keys(steps), work))

    async def _run_script(self, script: Script, slot: int | None) -> Outcome:
        deadline = self._loop.time() + self._settings.timeout
        piece = SlotCommand(script.steps[0].call, slot)
        payload = pack_script(script, by_text=False)
        while True:
            reply, failure = await self._send_script(script, piece, payload, deadline)
            if not failure:
                reply = script.failure(reply) or reply
                if not isinstance(reply, ReplyError):
                    return script.outcome(reply, piece.address)
                if str(reply).startswith("NOSCRIPT"):
                    payload = pack_script(script, by_text=True)
                    continue
                if self._redirect(piece, str(reply)):
                    continue
                if not is_transient(reply):
                    raise _error(piece.call, reply, piece.address)
                failure = f"{piece.address} is unavailable: {reply}"
            if self._loop.time() + PAUSE_S >= deadline:
                raise StoreUnavailable(failure)
            self._route_to_owner([piece])
            await asyncio.sleep(PAUSE_S)
            await self._nodes.refresh_once(deadline)

    async def _send_script(
        self, script: Script, piece: SlotCommand, payload: bytes, deadline: float
    ) -> tuple[Any, str]:
        """The reply, or the reason why there is none. Raises StoreUnavailable if the script may have written."""
        while True:
            address = self._destination(piece)
            try:
                connection = await self._nodes.link_to(address).wait_for_connection(self._patience(deadline))
                request = _ASKING + payload if piece.asking else payload
                replies = await connection.send_until(deadline, request, 1 + piece.asking)
            except StoreClosed:
                if not self._nodes.is_open:
                    raise
                continue  # only this link was closed
            except StoreError as error:
                return None, str(error)
            except ConnectionLost as lost:
                if lost.sent and not script.reads_only:
                    raise unknown_write(lost) from None
                return None, str(lost)
            piece.address = address
            return replies[-1], ""

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        """Node by node. Raises StoreUnavailable if a node fails meanwhile: scan again from the start."""
        if not self._nodes.is_open:
            raise self._closed_error()
        owners = list(self._nodes.owners)
        for address in self._nodes.masters():
            cursor = b"0"
            while True:
                deadline = self._loop.time() + self._settings.timeout
                try:
                    connection = await self._nodes.link_to(address).wait_for_connection(deadline)
                    [reply] = await call(connection, scan_command(cursor, pattern, kind, page))
                except ConnectionLost as lost:
                    raise StoreUnavailable(f"{lost}; scan again from the beginning") from None
                if isinstance(reply, ReplyError):
                    raise refusal(address, reply)
                cursor, keys = reply
                yield list(dict.fromkeys(keys))
                if cursor == b"0":
                    break
        if owners != self._nodes.owners:
            raise StoreUnavailable(f"slots of {self.url} moved during the scan; scan again")

    @asynccontextmanager
    async def _subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        """From any node: a cluster broadcasts messages to all of them."""
        if not self._nodes.is_open:
            raise self._closed_error()
        problem: StoreError | None = None
        for address in self._nodes.masters():
            try:
                entered = subscription(self._settings, address, channels, self._listeners)
                mailbox = await entered.__aenter__()
            except StoreUnavailable as error:
                problem = error
                continue
            try:
                yield mailbox
            finally:
                await entered.__aexit__(None, None, None)
            return
        raise problem or StoreUnavailable(f"no node of {self.url} responds")

    @asynccontextmanager
    async def changed_keys(self, prefixes: Sequence[bytes] = (b"",)) -> AsyncIterator[AsyncIterator[ChangedKeys]]:
        """From all masters, each of which reports its own keys."""
        self._check_loop()
        if self._opened_in is None:
            await self._open_on_use()
        if not self._nodes.is_open:
            raise self._closed_error()
        owners = list(self._nodes.owners)
        async with tracked_keys(
            self._settings,
            self._nodes.masters(),
            self._nodes.greet,
            prefixes,
            self._key_listeners,
            lambda: owners == self._nodes.owners,
        ) as reports:
            yield reports


def _unsent(group: list[SlotCommand], lost: ConnectionLost) -> list[SlotCommand]:
    """The pieces that are safe to send again. The others, writes that may have run, fail."""
    again = []
    for piece in group:
        if lost.sent and piece.call.spec.writes:
            piece.reply = unknown_write(lost)
        else:
            again.append(piece)
    return again


def _in_order(group: list[SlotCommand], again: list[SlotCommand]) -> list[SlotCommand]:
    """The pieces to send again so that the commands on one key still run in the order of the batch.

    A command whose key a later command has written is not retried; a read that followed a retried command is repeated.
    """
    waiting = {id(piece) for piece in again}
    written: set[bytes] = set()
    for piece in reversed(group):
        if id(piece) not in waiting:
            if piece.call.spec.writes and not isinstance(piece.reply, StoreError):
                written.update(piece.call.keys)
        elif not written.isdisjoint(piece.call.keys):
            piece.reply = StoreUnavailable(f"{piece.address} was unavailable until a later command on its key had run")
            waiting.discard(id(piece))
    pending: set[bytes] = set()
    for piece in group:
        if id(piece) in waiting:
            pending.update(piece.call.keys)
        elif not piece.call.spec.writes and not pending.isdisjoint(piece.call.keys):
            piece.reply = None
            waiting.add(id(piece))
    return [piece for piece in group if id(piece) in waiting]


def _error(call: Call, reply: ReplyError, address: RedisAddress) -> StoreError:
    error: StoreError = convert_reply(call, reply, address)
    return error


def _merge(call: Call, pieces: list[SlotCommand]) -> Reply:
    """The reply of a call from the replies of its pieces."""
    for piece in pieces:
        if isinstance(piece.reply, StoreUnavailable) and call.spec.writes and len(pieces) > 1:
            return StoreUnavailable(str(piece.reply), "unknown")  # other pieces may have taken effect
        if isinstance(piece.reply, StoreError):
            return piece.reply
    if len(pieces) == 1:
        [piece] = pieces
        if piece.cursor is None:
            return piece.reply
        return [b"%d" % piece.cursor.after(int(piece.reply[0])), piece.reply[1]]
    if call.spec.name != "MGET":
        return sum(piece.reply for piece in pieces)
    values = {key: value for piece in pieces for key, value in zip(piece.call.args, piece.reply, strict=True)}
    return [values[key] for key in call.args]
