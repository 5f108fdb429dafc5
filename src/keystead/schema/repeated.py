"""Reads that are asked again and again."""

from __future__ import annotations

from typing import Any

from keystead.errors import BadCall
from keystead.schema.operation import Operation, use_all
from keystead.stores.commands import read


class Repeated:
    """Reads of the same keys that are asked again and again, such as those of each request of one session.

        ask = Repeated(keys.session(sid).see(), keys.sessions(user).has(sid))
        seen, is_listed = await ask()

    What can be done once is done once: the keys are named, and the commands are prepared by the store. One round trip,
    not atomic.
    """

    __slots__ = ("_arguments", "_ask", "_finishes")

    def __init__(self, *reads: Operation[Any]) -> None:
        use_all(reads)
        calls = [read(step) for one in reads for step in one.steps]
        if len(calls) != len(reads) or any(call.spec.writes for call in calls):
            raise BadCall("what is repeated is a read, of one command each")
        self._ask = reads[0].store.prepared(*((call.spec.name, len(call.args)) for call in calls))
        self._arguments = tuple(argument for call in calls for argument in call.args)
        self._finishes = [one.finish for one in reads]

    async def __call__(self) -> list[Any]:
        replies = await self._ask(*self._arguments)
        return [finish([reply]) for finish, reply in zip(self._finishes, replies)]  # noqa: B905 - strict is slow
