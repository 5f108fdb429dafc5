"""A cluster: every key has a slot, and every slot a node that owns it for now.

`run` sends each command to the node that owns its key, to all nodes it needs at once. `atomically` works within one
slot: keys that must change together carry the same hash tag, as in `{user:42}:profile` and `{user:42}:sessions`.
"""

from __future__ import annotations

import asyncio
import binascii
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from keystead.errors import BadArgument, CrossSlot, StoreClosed, StoreError, StoreRefused, StoreUnavailable
from keystead.stores.commands import Call, Reply
from keystead.stores.redis.atomic_script import Script
from keystead.stores.redis.compiled_steps import CompiledCache, CompiledSteps, shape_of
from keystead.stores.redis.redis_connection import RedisConnection, RedisConnectionLost, ReplyError, call, pack_command
from keystead.stores.redis.redis_link import RedisLink, refusal, sign_in
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.redis_store import (
    MAX_BYTES,
    PAUSE_S,
    pack,
    require_writable,
    scan_command,
    shaped,
    stated_guarantees,
)
from keystead.stores.redis.reply_shapes import is_transient
from keystead.stores.redis.subscription import Listener, subscription
from keystead.stores.store_contract import Guarantees, Message, Outcome, Planned, Step, Store

SLOTS = 16_384
SILENCE_S = 0.1  # after this, a node that does not answer may have been replaced
_ASKING = pack_command((b"ASKING",))


def slot_of(key: bytes) -> int:
    """The slot of a key: of what stands between its first `{` and the next `}`, if anything does."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


@dataclass(slots=True)
class SlotCommand:
    """A command for one slot, or for any node (None): a whole call, or the part of one with keys of that slot."""

    call: Call
    slot: int | None
    node: RedisAddress | None = None  # where to send it, if not to the owner of its slot
    asking: bool = False
    reply: Any = None
    address: RedisAddress = field(default=RedisAddress("", 0))


class ClusterStore(Store):
    def __init__(self, settings: RedisSettings) -> None:
        self.url = settings.url
        self.guarantees = Guarantees(
            atomic="one slot", durability="memory", key_max_bytes=MAX_BYTES, value_max_bytes=MAX_BYTES
        )
        self._settings = settings
        self._links: dict[RedisAddress, RedisLink] = {}
        self._listeners: set[Listener] = set()
        self._owners: list[RedisAddress] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._open = False
        self._compiled = CompiledCache()

    # --- opening and closing -------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._open:
            return
        self._loop = asyncio.get_running_loop()
        self._open = True
        try:
            await self._refresh()
            probe = b"keystead:probe:" + secrets.token_hex(8).encode()
            link = self._link_to(self._owners[slot_of(probe)])
            connection = await link.connected(self._loop.time() + self._settings.timeout)
            await require_writable(connection, probe)
            self.guarantees = await stated_guarantees(connection, "one slot")
            self._watching = asyncio.create_task(self._watch())
        except RedisConnectionLost as lost:
            await self.close()
            raise StoreUnavailable(str(lost)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        self._open = False
        for listener in self._listeners:
            listener.stop(f"{self.url} was closed")
        links, self._links = self._links, {}
        for link in links.values():
            link.stop()
        tasks = [task for task in (self._watching, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for link in links.values():
            await link.close()

    async def _greet(self, connection: RedisConnection) -> None:
        await sign_in(connection, self._settings.user, self._settings.password)

    def _link_to(self, address: RedisAddress) -> RedisLink:
        link = self._links.get(address)
        if link is None:
            if not self._open:  # nobody would close it
                raise StoreClosed(f"{self.url} was closed")

            async def locate() -> RedisAddress:
                return address

            link = self._links[address] = RedisLink(self._settings, locate, self._greet)
        return link

    # --- who owns what -------------------------------------------------------------------------------------

    async def _refresh(self) -> None:
        """Learn the owners of all slots from whichever node answers first.

        One is asked, and another one whenever that takes too long: a node that hangs must not hold this up.
        """
        problems: list[str] = []
        left = self._candidates()
        asked: set[asyncio.Task[list[RedisAddress]]] = set()
        try:
            while left or asked:
                if left:
                    asked.add(asyncio.create_task(self._owners_seen_by(left.pop(0))))
                done, asked = await asyncio.wait(
                    asked, timeout=SILENCE_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for answer in done:
                    try:
                        self._owners = answer.result()
                    except StoreUnavailable as error:
                        problems.append(str(error))
                        continue
                    await self._forget_others()
                    return
        finally:
            for task in asked:
                task.cancel()
        raise StoreUnavailable(f"no node of {self.url} answers: {'; '.join(dict.fromkeys(problems))}")

    def _candidates(self) -> list[RedisAddress]:
        """Whom to ask: those who answer first, in an order of chance, as one of them may know less than the others."""
        known = list(dict.fromkeys([*self._masters(), *self._links, *self._settings.addresses]))
        random.shuffle(known)
        return sorted(known, key=lambda address: not self._is_connected(address) or self._hangs(address))

    def _is_connected(self, address: RedisAddress) -> bool:
        link = self._links.get(address)
        return link is not None and link.connection is not None and link.connection.lost is None

    def _hangs(self, address: RedisAddress) -> bool:
        link = self._links.get(address)
        return link is not None and link.connection is not None and link.connection.is_silent(SILENCE_S)

    async def _owners_seen_by(self, address: RedisAddress) -> list[RedisAddress]:
        """The owner of each slot. Raises StoreUnavailable where this node does not say, or does not know all."""
        try:
            connection = await self._link_to(address).connected(self._loop.time() + self._settings.connect_timeout)
            async with asyncio.timeout(self._settings.connect_timeout):
                [ranges] = await call(connection, ("CLUSTER", "SLOTS"))
        except StoreClosed:
            raise StoreUnavailable(f"{address} was given up") from None
        except (RedisConnectionLost, TimeoutError) as error:
            raise StoreUnavailable(str(error) or f"{address} did not answer") from None
        if isinstance(ranges, ReplyError):
            if "cluster support disabled" in str(ranges):
                raise StoreRefused(f"{address} is no cluster; write redis:// instead of redis+cluster://")
            raise refusal(address, ranges)
        owners: list[RedisAddress | None] = [None] * SLOTS
        for first, end, (host, port, *_), *_ in ranges:
            # A node that does not know its name in the eyes of others says none: it is where it was asked.
            owner = RedisAddress((host or b"").decode() or address.host, port)
            owners[first : end + 1] = [owner] * (end + 1 - first)
        whole = [owner for owner in owners if owner is not None]
        if len(whole) < SLOTS:
            raise StoreUnavailable(f"{address} knows of slots that no node owns")
        return whole

    async def _watch(self) -> None:
        """A node that hangs does not say so: while one is silent, look whether another has its slots by now."""
        while True:
            await asyncio.sleep(SILENCE_S)
            if any(map(self._hangs, self._links)):
                await self._refreshed(self._loop.time() + self._settings.connect_timeout)

    async def _forget_others(self) -> None:
        """Close the links to nodes that own nothing any more; the next refresh must not wait for them."""
        known = set(self._owners)
        for address in [address for address in self._links if address not in known]:
            await self._links.pop(address).close()

    def _masters(self) -> list[RedisAddress]:
        return list(dict.fromkeys(self._owners))

    async def _refreshed(self, deadline: float) -> None:
        """Wait for a refresh that all callers share."""
        if not self._open:
            raise StoreClosed(f"{self.url} was closed")
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.wait({self._refreshing}, timeout=max(0.0, deadline - self._loop.time()))
        if self._refreshing.done() and not self._refreshing.cancelled():
            self._refreshing.exception()  # whoever waits asks again until its deadline, and says then what is wrong

    # --- the four verbs ------------------------------------------------------------------------------------

    def _replies(self, calls: list[Call]) -> Awaitable[list[Reply]]:
        return self._exchange(calls)

    async def _exchange(self, calls: list[Call]) -> list[Reply]:
        if not self._open:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        parts = [self._pieces(call) for call in calls]
        pieces = [piece for part in parts for piece in part]
        await self._deliver(pieces)
        return [_merged(call, part) for call, part in zip(calls, parts, strict=True)]

    def _pieces(self, call: Call) -> list[SlotCommand]:
        """What of this call goes where."""
        name = call.spec.name
        if name == "SCAN":
            error = call.blame(BadArgument("a cursor belongs to one node; use store.scan, which walks all of them"))
            return [SlotCommand(call, None, reply=error)]
        if name == "DBSIZE":
            return [SlotCommand(call, None, node=address) for address in self._masters()]
        if call.spec.keys == 0:
            return [SlotCommand(call, None)]
        if len(call.keys) == 1:
            return [SlotCommand(call, slot_of(call.args[0]))]
        by_slot: dict[int, list[bytes]] = {}
        for key in call.keys:
            by_slot.setdefault(slot_of(key), []).append(key)
        return [SlotCommand(Call(call.spec, keys, call.options), slot) for slot, keys in by_slot.items()]

    async def _deliver(self, pieces: list[SlotCommand]) -> None:
        """Give every piece its reply: a value, or an error. Moves with the slots, until the deadline."""
        deadline = self._loop.time() + self._settings.timeout
        todo = [piece for piece in pieces if piece.reply is None]
        reason = ""
        while todo:
            by_node: dict[RedisAddress, list[SlotCommand]] = {}
            for piece in todo:
                by_node.setdefault(self._destination(piece), []).append(piece)
            deliveries = [self._send(address, group, deadline) for address, group in by_node.items()]
            outcomes = [await deliveries[0]] if len(deliveries) == 1 else await asyncio.gather(*deliveries)
            todo = [piece for again, _ in outcomes for piece in again]
            if not todo:
                return
            failures = [failure for _, failure in outcomes if failure]
            reason = failures[0] if failures else reason
            if self._loop.time() + PAUSE_S >= deadline:
                break
            if failures:
                await asyncio.sleep(PAUSE_S)
                await self._refreshed(deadline)
        for piece in todo:
            piece.reply = StoreUnavailable(reason or f"the slots of {self.url} kept moving")

    def _patience(self, deadline: float) -> float:
        """Until when to wait for a node that is not there: not long, as another may have its slots by now."""
        return min(deadline, self._loop.time() + SILENCE_S)

    def _destination(self, piece: SlotCommand) -> RedisAddress:
        if piece.node is not None:
            return piece.node
        return self._owners[piece.slot if piece.slot is not None else 0]

    async def _send(
        self, address: RedisAddress, group: list[SlotCommand], deadline: float
    ) -> tuple[list[SlotCommand], str]:
        """Send pieces to one node. Returns those to be sent again, and what is wrong with the node, if anything is."""
        try:
            link = self._link_to(address)
            connection = link.connection
            if connection is None or connection.lost is not None or connection.congested is not None:
                connection = await link.connected(self._patience(deadline))
            replies = await self._round_trip(deadline, connection, group)
        except StoreClosed as error:
            if self._open:
                return group, str(error)  # only this link was given up
            raise
        except StoreError as error:
            return self._elsewhere(group), str(error)
        except RedisConnectionLost as lost:
            again = []
            for piece in group:
                if lost.sent and piece.call.spec.writes:
                    piece.reply = StoreUnavailable(
                        f"{lost}; what was being written may or may not have been", "unknown"
                    )
                else:
                    again.append(piece)
            return self._elsewhere(again), str(lost)
        again, failure = [], ""
        for piece, reply in zip(group, replies, strict=True):
            piece.reply, piece.address = reply, address
            if type(reply) is ReplyError and self._redirected(piece, str(reply)):
                piece.reply = None
                again.append(piece)
            elif is_transient(reply):
                failure = f"{address} cannot serve now: {reply}"
                piece.reply = None
                again.append(piece)
            else:
                piece.reply = shaped(piece.call, reply, address)
        return _in_order(group, again) if again else [], failure

    async def _round_trip(self, deadline: float, connection: RedisConnection, group: list[SlotCommand]) -> list[Any]:
        if not any(piece.asking for piece in group):
            return await connection.send_until(deadline, pack([piece.call for piece in group]), len(group))
        payload = b"".join((_ASKING if piece.asking else b"") + pack([piece.call]) for piece in group)
        count = len(group) + sum(piece.asking for piece in group)
        replies = iter(await connection.send_until(deadline, payload, count))
        return [(next(replies), next(replies))[1] if piece.asking else next(replies) for piece in group]

    def _elsewhere(self, pieces: list[SlotCommand]) -> list[SlotCommand]:
        """Send these to the owner of their slot, whoever that is by then."""
        for piece in pieces:
            if piece.slot is not None:
                piece.node, piece.asking = None, False
        return pieces

    def _redirected(self, piece: SlotCommand, text: str) -> bool:
        """Follow the server's word that the slot has moved, or that this key has already."""
        word, _, rest = text.partition(" ")
        if word not in ("MOVED", "ASK") or piece.slot is None:
            return False
        host, _, port = rest.partition(" ")[2].rpartition(":")
        address = RedisAddress(host or piece.address.host, int(port))
        if word == "MOVED":
            self._owners[piece.slot] = address
            piece.node, piece.asking = None, False
            if self._refreshing is None or self._refreshing.done():
                self._refreshing = asyncio.create_task(self._refresh_quietly())
        else:
            piece.node, piece.asking = address, True
        return True

    async def _refresh_quietly(self) -> None:
        """One slot moved, so others did: learn of them before they are asked for."""
        with suppress(StoreError):  # the next command that needs it says so
            await self._refresh()

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        asked = shape_of(steps)
        compiled = None if asked is None else self._compiled.get(asked[0])
        if asked is not None and compiled is not None and self._open:
            self._check_loop()
            outcome = await self._at_once(compiled, asked[1])
            if outcome is not None:
                return outcome
        return await super().atomically(steps)

    async def _at_once(self, compiled: CompiledSteps, arguments: Sequence[bytes]) -> Outcome | None:
        """What compiled steps did, where nothing is in the way; None: they did nothing, and are to be run step by step.

        That is so where the slot has moved, the server cannot serve now, or a step failed.
        """
        slots = {slot_of(arguments[place]) for place in compiled.key_places}
        if len(slots) != 1:
            return None
        link = self._links.get(self._owners[slots.pop()])
        connection = None if link is None else link.connection
        if connection is None or connection.lost is not None or connection.congested is not None:
            return None
        try:
            [reply] = await connection.send(compiled.request_for(connection, arguments), 1, self._loop.time())
        except RedisConnectionLost as lost:
            if lost.sent and not compiled.reads_only:
                raise StoreUnavailable(f"{lost}; what was being written may or may not have been", "unknown") from None
            return None
        return compiled.outcome(reply)

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        if not self._open:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        script = Script(steps)
        slots = {slot_of(key): key for key in script.keys}
        if len(slots) > 1:
            named = " and ".join(repr(key.decode("utf-8", "replace")) for key in list(slots.values())[:2])
            raise CrossSlot(
                f"{named} live in different slots, which a cluster cannot change together;"
                " give keys that belong together one hash tag, as in {user:42}:a and {user:42}:b",
                "atomically",
            )
        return await self._run_script(script, next(iter(slots), None))

    async def _run_script(self, script: Script, slot: int | None) -> Outcome:
        deadline = self._loop.time() + self._settings.timeout
        piece = SlotCommand(script.steps[0].call, slot)
        text = False
        while True:
            address = self._destination(piece)
            failure = ""
            try:
                connection = await self._link_to(address).connected(self._patience(deadline))
                payload = (_ASKING if piece.asking else b"") + (script.by_text if text else script.by_digest)
                reply = (await connection.send_until(deadline, payload, 1 + piece.asking))[-1]
            except StoreClosed:
                if not self._open:
                    raise
                continue
            except StoreError as error:
                failure = str(error)
            except RedisConnectionLost as lost:
                if lost.sent and not script.reads_only:
                    raise StoreUnavailable(
                        f"{lost}; what was being written may or may not have been", "unknown"
                    ) from None
                failure = str(lost)
            else:
                piece.address = address
                reply = script.failure(reply) or reply
                if not isinstance(reply, ReplyError):
                    return script.outcome(reply, address)
                if str(reply).startswith("NOSCRIPT"):
                    text = True
                    continue
                if self._redirected(piece, str(reply)):
                    continue
                if not is_transient(reply):
                    raise _error(piece.call, reply, address)
                failure = f"{address} cannot serve now: {reply}"
            if self._loop.time() + PAUSE_S >= deadline:
                raise StoreUnavailable(failure)
            self._elsewhere([piece])
            await asyncio.sleep(PAUSE_S)
            await self._refreshed(deadline)

    async def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        """Node by node. Raises StoreUnavailable where a node fails in the middle: begin again."""
        if not self._open:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        owners = list(self._owners)
        for address in self._masters():
            cursor = b"0"
            while True:
                deadline = self._loop.time() + self._settings.timeout
                try:
                    connection = await self._link_to(address).connected(deadline)
                    [reply] = await call(connection, scan_command(cursor, pattern, kind, page))
                except RedisConnectionLost as lost:
                    raise StoreUnavailable(f"{lost}; scan again from the beginning") from None
                if isinstance(reply, ReplyError):
                    raise refusal(address, reply)
                cursor, keys = reply
                yield list(dict.fromkeys(keys))
                if cursor == b"0":
                    break
        if owners != self._owners:
            raise StoreUnavailable(f"slots of {self.url} moved meanwhile, and keys with them; scan again")

    @asynccontextmanager
    async def _subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        """From any node: a cluster carries messages to all of them."""
        if not self._open:
            raise StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")
        problem: StoreError | None = None
        for address in self._masters():
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
        raise problem or StoreUnavailable(f"no node of {self.url} answers")


def _in_order(group: list[SlotCommand], again: list[SlotCommand]) -> list[SlotCommand]:
    """What to send again so that the commands on one key still run in the order of the batch.

    A command that a later write to its key has overtaken is not run any more; a read that came after one is repeated.
    """
    waiting = {id(piece) for piece in again}
    written: set[bytes] = set()
    for piece in reversed(group):
        if id(piece) not in waiting:
            if piece.call.spec.writes and not isinstance(piece.reply, StoreError):
                written.update(piece.call.keys)
        elif not written.isdisjoint(piece.call.keys):
            piece.reply = StoreUnavailable(f"{piece.address} could not serve it before a later command on its key ran")
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
    error: StoreError = shaped(call, reply, address)
    return error


def _merged(call: Call, pieces: list[SlotCommand]) -> Reply:
    """The reply of a call from the replies of its pieces."""
    for piece in pieces:
        if isinstance(piece.reply, StoreUnavailable) and call.spec.writes and len(pieces) > 1:
            return StoreUnavailable(str(piece.reply), "unknown")  # other pieces may have taken effect
        if isinstance(piece.reply, StoreError):
            return piece.reply
    if len(pieces) == 1:
        return pieces[0].reply
    if call.spec.name != "MGET":
        return sum(piece.reply for piece in pieces)
    values = {key: value for piece in pieces for key, value in zip(piece.call.args, piece.reply, strict=True)}
    return [values[key] for key in call.args]
