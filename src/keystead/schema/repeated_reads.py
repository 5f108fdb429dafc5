"""Repeated reads of the same keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from keystead.errors import BadCall
from keystead.schema.operation import Operation, use_all
from keystead.stores.commands import read


class Repeated:
    """Reads of the same keys, repeated often, such as for each request of one session.

        ask = Repeated(keys.session(sid).see(), keys.sessions(user).has(sid))
        seen, is_listed = await ask()

    Keys are rendered and commands packed once. One round trip, not atomic.
    """

    __slots__ = ("_calls", "_finishes", "_run")

    def __init__(self, *reads: Operation[Any]) -> None:
        use_all(reads)
        calls = [read(step) for one in reads for step in one.steps]
        if len(calls) != len(reads) or any(call.spec.writes for call in calls):
            raise BadCall("Repeated takes reads of one command each")
        for call in calls:
            call.packed = b""
        self._run: Callable[[list[Any]], Awaitable[list[Any]]] = reads[0].store.run
        self._calls = calls
        self._finishes = [one.finish for one in reads]

    async def __call__(self) -> list[Any]:
        replies = await self._run(self._calls)
        return [finish([reply]) for finish, reply in zip(self._finishes, replies)]  # noqa: B905 - strict is slow
