"""Running commands and scripts of Redis over any connection: typed replies, and retries where they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from keystead.errors import StoreError, StoreUnavailable
from keystead.stores.commands import Call, Reply
from keystead.stores.reconnecting_link import ConnectionLost, unknown_write
from keystead.stores.redis.reply_errors import ReplyError
from keystead.stores.redis.reply_shapes import SHAPES, error_of, is_transient

T = TypeVar("T")
PAUSE_S = 0.02  # before retrying on an unavailable server


def convert_reply(call: Call, reply: Any, address: object) -> Reply:
    if type(reply) is ReplyError:
        return error_of(call, reply, address)
    shape = None if isinstance(reply, StoreError) else SHAPES.get(call.spec.name)
    return reply if shape is None else shape(call, reply)


def refuse_unsafe(lost: ConnectionLost, calls: list[Call]) -> None:
    """Raise if sending the calls again could run a write twice."""
    if lost.sent and any(call.spec.writes for call in calls):
        raise unknown_write(lost) from None


def to_retry(calls: list[Call], replies: list[Any], first: int, demoted: bool) -> list[int]:
    """The places of the commands to send again, if the one at `first` did not run; none: retrying is not safe.

    The order of a batch holds: everything from that command on is sent again, and nothing if a later write did run.
    A demoted master may return stale data, so its reads are repeated, too.
    """
    if any(calls[i].spec.writes and type(replies[i]) is not ReplyError for i in range(first, len(calls))):
        return []
    return [i for i, call in enumerate(calls) if i >= first or (demoted and not call.spec.writes)]


class Runnable(Protocol[T]):
    """A script for `run_script`. `otherwise`: the script to run if this one did nothing.

    rest        the number of its keys, the keys, and the arguments
    error_call  the command that errors of the whole script name
    """

    @property
    def reads_only(self) -> bool: ...
    @property
    def otherwise(self) -> Runnable[T] | None: ...
    @property
    def text(self) -> bytes: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def rest(self) -> Sequence[bytes]: ...
    @property
    def error_call(self) -> Call: ...
    def failure(self, reply: Any) -> ReplyError | None: ...
    def outcome(self, reply: list[Any], address: object) -> T: ...


class Answer(NamedTuple):
    """A reply, or ConnectionLost, and where it came from. `leave`: look for the master elsewhere."""

    reply: Any
    address: object
    leave: Callable[[], None]


# Sends a script, by its text or by its digest.
SendScript: TypeAlias = Callable[[Runnable[T], bool], Awaitable[Answer]]


async def run_script(send: SendScript[T], script: Runnable[T], deadline: float, answer: Answer | None = None) -> T:
    """Run the script; retry only if it did not run. `answer`: of a caller that has already sent it."""
    loop = asyncio.get_running_loop()
    by_text = False
    while True:
        reply, address, leave = answer or await send(script, by_text)
        answer = None
        if isinstance(reply, ConnectionLost):
            _refuse_retry(reply, script, loop.time() >= deadline)
            continue
        reply = script.failure(reply) or reply
        if isinstance(reply, list):
            return script.outcome(reply, address)
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT"):
            by_text = True  # a new or restarted server: EVAL also caches the script there
        elif is_transient(reply) and loop.time() + PAUSE_S < deadline:
            if str(reply).startswith("READONLY"):
                leave()
            await asyncio.sleep(PAUSE_S)
        elif script.otherwise is not None:
            script, by_text = script.otherwise, False
        else:
            raise error_of(script.error_call, reply, address)


def _refuse_retry(lost: ConnectionLost, script: Runnable[Any], is_overdue: bool) -> None:
    """Raise if the script may have written, or if there is no time left."""
    if lost.sent and not script.reads_only:
        raise unknown_write(lost)
    if is_overdue:
        raise StoreUnavailable(str(lost))
