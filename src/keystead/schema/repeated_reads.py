"""Repeated reads of the same keys."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from keystead.errors import BadCall
from keystead.schema.operation import Operation, use_all
from keystead.stores.commands import Reply, read
from keystead.stores.near_reads import NearRead


class Repeated:
    """Reads of the same keys, repeated often, such as for each request of one session.

        ask = Repeated(keys.session(sid).see(), keys.sessions(user).has(sid))
        seen, is_listed = await ask()

    Keys are rendered and commands packed once. One round trip, not atomic.

    near   for `replies`: how many seconds they may be behind the store. Most then come from a copy in this process, and
           are the same list as long as nothing has changed
    """

    __slots__ = ("_ask", "_finishes", "_near_read", "_near_s", "_store", "remembered")

    def __init__(self, *reads: Operation[Any], near: float = 0.0) -> None:
        use_all(reads)
        calls = [read(step) for one in reads for step in one.steps]
        if len(calls) != len(reads) or any(call.spec.writes for call in calls):
            raise BadCall("Repeated takes reads of one command each")
        for call in calls:
            call.packed = b""
        self._store = reads[0].store
        self._ask = self._store.repeated(calls)
        self._finishes = [one.finish for one in reads]
        self._near_s = near
        self._near_read = NearRead(calls) if near else None
        self.remembered: Any = None  # for the caller: what it made of the latest replies

    async def __call__(self) -> list[Any]:
        return self.finish(await self._ask())

    def replies(self) -> list[Reply] | Awaitable[list[Reply]]:
        """The replies for `finish`, from a copy if there is one: then without waiting."""
        read = self._near_read
        if read is None:
            return self._ask()
        near = self._store.near
        return self._ask() if near is None else near.read(read, self._near_s)

    def finish(self, replies: list[Reply]) -> list[Any]:
        """The results of these replies."""
        return [finish([reply]) for finish, reply in zip(self._finishes, replies)]  # noqa: B905 - strict is slow
