"""The nodes of a cluster: links to them, and which node owns each slot."""

from __future__ import annotations

import asyncio
import binascii
import random
from collections.abc import Callable
from contextlib import suppress

from keystead.errors import StoreClosed, StoreError, StoreRefused, StoreUnavailable
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.redis.redis_connection import RedisConnection, call
from keystead.stores.redis.redis_link import RedisLink, sign_in
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_errors import ReplyError, refusal

SLOTS = 16_384
SILENCE_S = 0.1  # a node that has not replied for this long may have been replaced


def slot_of(key: bytes) -> int:
    """The slot of a key: of its hash tag, the text between the first `{` and the next `}`, if it has one."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % SLOTS


class ClusterNodes:
    """`owners`: the owner of each slot, as far as known."""

    def __init__(self, settings: RedisSettings) -> None:
        self.is_open = False
        self.owners: list[RedisAddress] = []
        self.links: dict[RedisAddress, RedisLink] = {}
        self.on_change: Callable[[], None] | None = None  # called when a slot has another owner
        self._settings = settings
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_open = True
        await self._refresh()

    def watch(self) -> None:
        """Start looking for nodes that hang."""
        self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self.is_open = False
        links, self.links = self.links, {}
        for link in links.values():
            link.stop()
        tasks = [task for task in (self._watching, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for link in links.values():
            await link.close()

    async def greet(self, connection: RedisConnection) -> None:
        await sign_in(connection, self._settings.user, self._settings.password)

    def link_to(self, address: RedisAddress) -> RedisLink:
        link = self.links.get(address)
        if link is None:
            if not self.is_open:  # a new link would never be closed
                raise StoreClosed(f"{self._settings.url} was closed")

            async def locate() -> RedisAddress:
                return address

            link = self.links[address] = RedisLink(self._settings, locate, self.greet)
        return link

    async def _refresh(self) -> None:
        """Fetch the owners of all slots from the first node that replies.

        One node is asked, and another whenever that takes too long: a node that hangs must not block this.
        """
        problems: list[str] = []
        left = self._candidates()
        pending: set[asyncio.Task[list[RedisAddress]]] = set()
        try:
            while left or pending:
                if left:
                    pending.add(asyncio.create_task(self._ask_owners(left.pop(0))))
                done, pending = await asyncio.wait(
                    pending, timeout=SILENCE_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for answer in done:
                    try:
                        owners = answer.result()
                    except StoreUnavailable as error:
                        problems.append(str(error))
                        continue
                    if owners != self.owners:
                        self.owners = owners
                        self._changed()
                    await self._close_unused()
                    return
        finally:
            for task in pending:
                task.cancel()
        raise StoreUnavailable(f"no node of {self._settings.url} responds: {'; '.join(dict.fromkeys(problems))}")

    def _candidates(self) -> list[RedisAddress]:
        """The nodes to ask: responsive ones first, otherwise in random order: some may have old data."""
        known = list(dict.fromkeys([*self.masters(), *self.links, *self._settings.addresses]))
        random.shuffle(known)
        return sorted(known, key=lambda address: not self._is_connected(address) or self._hangs(address))

    def _is_connected(self, address: RedisAddress) -> bool:
        link = self.links.get(address)
        return link is not None and link.connection is not None and link.connection.lost is None

    def _hangs(self, address: RedisAddress) -> bool:
        link = self.links.get(address)
        return link is not None and link.connection is not None and link.connection.is_silent(SILENCE_S)

    async def _ask_owners(self, address: RedisAddress) -> list[RedisAddress]:
        """The owner of each slot according to this node. Raises StoreUnavailable if one is missing."""
        try:
            connection = await self.link_to(address).wait_for_connection(
                self._loop.time() + self._settings.connect_timeout
            )
            async with asyncio.timeout(self._settings.connect_timeout):
                [ranges] = await call(connection, ("CLUSTER", "SLOTS"))
        except StoreClosed:
            raise StoreUnavailable(f"the link to {address} was closed") from None
        except (ConnectionLost, TimeoutError) as error:
            raise StoreUnavailable(str(error) or f"{address} did not answer") from None
        if isinstance(ranges, ReplyError):
            if "cluster support disabled" in str(ranges):
                raise StoreRefused(f"{address} is not a cluster; write redis:// instead of redis+cluster://")
            raise refusal(address, ranges)
        owners: list[RedisAddress | None] = [None] * SLOTS
        for first, end, (host, port, *_), *_ in ranges:
            # A node that does not know its own address omits it: it is the one that was asked.
            owner = RedisAddress((host or b"").decode() or address.host, port)
            owners[first : end + 1] = [owner] * (end + 1 - first)
        whole = [owner for owner in owners if owner is not None]
        if len(whole) < SLOTS:
            raise StoreUnavailable(f"{address} reports slots without an owner")
        return whole

    async def _watch(self) -> None:
        """While a node is silent, check whether another has taken over its slots."""
        while True:
            await asyncio.sleep(SILENCE_S)
            if any(map(self._hangs, self.links)):
                await self.refresh_once(self._loop.time() + self._settings.connect_timeout)

    async def _close_unused(self) -> None:
        """Close the links to nodes that own no slots; the next refresh must not wait for them."""
        known = set(self.owners)
        for address in [address for address in self.links if address not in known]:
            await self.links.pop(address).close()

    def masters(self) -> list[RedisAddress]:
        return list(dict.fromkeys(self.owners))

    async def refresh_once(self, deadline: float) -> None:
        """Refresh the owners; concurrent callers share one refresh."""
        if not self.is_open:
            raise StoreClosed(f"{self._settings.url} was closed")
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.wait({self._refreshing}, timeout=max(0.0, deadline - self._loop.time()))
        if self._refreshing.done() and not self._refreshing.cancelled():
            self._refreshing.exception()  # avoids "never retrieved"; callers retry, and report it at their deadline

    def record_move(self, slot: int, address: RedisAddress) -> None:
        """Record the new owner of a slot. Other slots have probably moved, too: refresh all."""
        if self.owners[slot] != address:
            self.owners[slot] = address
            self._changed()
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_quietly())

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    async def _refresh_quietly(self) -> None:
        with suppress(StoreError):  # the next command that needs it reports it
            await self._refresh()
