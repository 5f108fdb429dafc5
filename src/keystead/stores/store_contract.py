"""The contract every store keeps: commands in, replies out.

A store has four verbs (`run`, `atomically`, `scan`, `subscribe`), one more for atomic steps that are run again and
again (`prepared`), and states its `guarantees`. Nothing above this
layer knows which store it talks to. `keystead.testing` holds any store to what is written here.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import warnings
import weakref
from _thread import get_ident
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from keystead.errors import BadArgument, CommandError, StoreError, WrongEventLoop
from keystead.stores.atomic_steps import (
    ATOMIC_ARGUMENTS,
    Absent,
    AtMost,
    FieldHolds,
    Holds,
    MoreThan,
    Outcome,
    Planned,
    Required,
    Step,
    Still,
    absent,
    at_most,
    field_holds,
    holds,
    keys_of,
    more_than,
    plan,
    required,
    still,
    store_ms,
)
from keystead.stores.commands import KINDS, Call, Command, Reply, check_scan, encode, read
from keystead.stores.worker_thread import join_stopped

__all__ = [
    "ATOMIC_ARGUMENTS",
    "PROCEDURE",
    "Absent",
    "AtMost",
    "FieldHolds",
    "Guarantees",
    "Holds",
    "Message",
    "MoreThan",
    "Outcome",
    "Planned",
    "Required",
    "Step",
    "Still",
    "Store",
    "WholeKey",
    "absent",
    "at_most",
    "field_holds",
    "holds",
    "keys_of",
    "more_than",
    "plan",
    "required",
    "still",
    "store_ms",
    "without_errors",
]

# A key as a whole: name, kind, deadline in absolute ms, and value. The value is a list of parts, by kind: the string;
# fields and values; members; scores and members; items; for each entry of a stream its id, how many arguments follow,
# and these.
WholeKey: TypeAlias = tuple[bytes, str, int | None, Sequence[bytes]]

EXIT_WAITS_S = 1.0  # at most, until connections of stores that were left open are closed


@dataclass(frozen=True, slots=True)
class Guarantees:
    """What a store promises. A family states what it needs; a pair that does not fit is refused at the start."""

    kinds: frozenset[str] = field(
        default=KINDS | {"channel"},
        metadata={"doc": "kinds of value it can hold, and `channel` for messages"},
    )
    atomic: Literal["any keys", "one slot", "one key", "nothing"] = field(
        default="any keys", metadata={"doc": "what one atomic step may span"}
    )
    consistency: Literal["read your writes", "eventual"] = field(
        default="read your writes",
        metadata={"doc": "whether a read sees every write that was acknowledged before it"},
    )
    durability: Literal["disk", "seconds", "memory"] = field(
        default="disk",
        metadata={"doc": "what survives a crash: all that was acknowledged, all but the last seconds, or nothing"},
    )
    evicts: bool = field(default=False, metadata={"doc": "whether a key may vanish before its time"})
    scans: bool = field(default=True, metadata={"doc": "whether it can list and count its keys"})
    shortest_lifetime_ms: int = field(default=1, metadata={"doc": "the shortest lifetime, and the step of all others"})
    key_max_bytes: int | None = field(default=None, metadata={"doc": "the longest key; none: no limit of its own"})
    value_max_bytes: int | None = field(default=None, metadata={"doc": "the largest value; none: no limit of its own"})


@dataclass(frozen=True, slots=True)
class Message:
    channel: str
    data: bytes


# The name of the procedure that is being called, for whoever counts calls or logs slow ones.
PROCEDURE: ContextVar[str] = ContextVar("keystead procedure", default="")


class Store(ABC):
    """Where families live. Use it as `async with keystead.connect(url) as store:`, in one event loop.

    From any other event loop every verb raises WrongEventLoop. A store that is not closed says so in a ResourceWarning
    when it is forgotten or the program ends.
    """

    url: str  # without secrets
    guarantees: Guarantees
    _opened_in: asyncio.AbstractEventLoop | None = None  # while it is open
    _opened_thread = 0  # in which that loop ran then; 0 in a process that was forked since: the parent has it open
    _loop_runs: Callable[[], bool]

    def __init_subclass__(cls, **options: Any) -> None:
        """Each store notes where it is opened, also one of another package, which knows nothing of this."""
        super().__init_subclass__(**options)
        if "open" in vars(cls):
            cls.open = _noting_where(cls.open)  # type: ignore[method-assign, assignment]
        if "close" in vars(cls):
            cls.close = _noting_that_closed(cls.close)  # type: ignore[method-assign, assignment]

    def __del__(self) -> None:
        if self._opened_in is not None:
            self._leave()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make sure that the store can be read and written.

        Raises StoreUnavailable, StoreReadOnly, StoreRefused or StoreDamaged: at the start, not at the first write.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. Calls under way end with an error. Closing twice is no error."""

    def _abandon(self) -> None:  # noqa: B027 - most stores have something to let go, but none must
        """Let go of threads and sockets of a store that was not closed. There is no event loop any more."""

    def _leave(self) -> None:
        """Warn that nobody closed it, and let go of what it holds."""
        is_own, self._opened_in, self._opened_thread = bool(self._opened_thread), None, 0
        if is_own:
            try:
                warnings.warn(
                    f"{self.url} was not closed; use `async with`", ResourceWarning, source=self, stacklevel=2
                )
            finally:  # where warnings are errors, too
                self._abandon()

    def _check_loop(self) -> None:
        """Raises WrongEventLoop where this is not the event loop that the store was opened in."""
        # A loop that runs, and in this thread, is the running loop. To ask for that takes a system call (Python 3.11).
        if get_ident() == self._opened_thread and self._loop_runs():
            return
        if self._opened_in is not None and self._opened_in is not asyncio.get_running_loop():
            raise self._in_wrong_loop(self._opened_in)

    def _in_wrong_loop(self, opened_in: asyncio.AbstractEventLoop) -> WrongEventLoop:
        other, remedy = "another event loop", ", or pass the call to that loop with asyncio.run_coroutine_threadsafe"
        if opened_in.is_closed():
            other, remedy = "an event loop that has ended", ""
        return WrongEventLoop(
            f"{self.url} was opened in {other}, and a store works only in the loop it was opened in; open one for each "
            f"asyncio.run and each thread, with `async with keystead.connect(...)`{remedy}"
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        """Run the commands in order and return their replies: one round trip, not atomic as a whole.

        A command that fails has no effect and stops none of the others. The first such error is raised when all have
        run; its `replies` holds the reply of each command, with an error in the place of each that failed.
        Raises StoreUnavailable within the timeout of the store. If this call is cancelled, the commands may or may
        not have taken effect; no other call is touched by that.
        """
        if get_ident() != self._opened_thread or not self._loop_runs():
            self._check_loop()
        if type(commands) is not list:
            commands = list(commands)
        try:
            # A typed read comes as a Call: what `read` would say of it, without calling that.
            calls = [command if type(command) is Call else read(command) for command in commands]
        except CommandError:
            calls = None
        if calls is None:
            replies = await self._some_replies(commands)
        else:
            answer = self._replies(calls) if calls else []
            replies = answer if type(answer) is list else await answer  # type: ignore[misc]
        return without_errors(replies)

    def prepared(
        self, make: Callable[..., Sequence[Step]], arguments: int
    ) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        """A function that runs the same atomic steps again and again, on other keys.

            count = store.prepared(lambda key: [at_most(("GET", key), 9), ("INCRBY", key, 1)], 1)
            outcome = await count(b"hits:7")

        It does what `atomically` does with the steps that `make` makes of as many arguments, all of them bytes. Each of
        them stands in the steps as it is, as a key, a member or a value, and all else is the same each time. A store
        may take the chance to do less work for each.
        """

        def ask(*given: bytes) -> Coroutine[Any, Any, Outcome]:
            return self.atomically(make(*given))

        return ask

    async def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]] | None:
        """Read these keys, each with its deadline in one atomic step; not one step as a whole. The shortcut of a copy.

        Those that are gone are not among them. The second list is of keys that are too large for this, or of a kind
        that has no commands here: they are to be read with commands. None: this store has no shortcut.
        """
        return None

    async def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool] | None:
        """Write these keys, each with its deadline in one atomic step, where there is none of its name.

        Returns for each whether it was written. Not one step as a whole: where it raises, some may have been written.
        None: this store has no shortcut, and nothing was written.
        """
        return None

    async def _answered(self, calls: list[Call]) -> list[Reply]:
        """What `_replies` says, whether it had to wait or not."""
        answer = self._replies(calls)
        return answer if isinstance(answer, list) else await answer

    async def _some_replies(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies of a batch in which some commands are written wrongly: those are errors, the others run."""
        calls: list[Call | CommandError] = []
        for command in commands:
            try:
                calls.append(read(command))
            except CommandError as error:
                calls.append(error)
        good = [call for call in calls if isinstance(call, Call)]
        answers = iter(await self._answered(good) if good else [])
        return [call if isinstance(call, CommandError) else next(answers) for call in calls]

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        """Run the steps as one: all of them take effect, or none does, and nobody sees a state in between.

        A step marked `required` whose reply is nil or 0, or a guard (`holds`, `field_holds`, `absent`, `at_most`,
        `more_than`, `still`) that does not hold, stops the whole: the Outcome is then false and says which step it was.
        An error of any step is raised, and then, too, nothing took effect. One round trip. Put required steps first
        where you can: on Redis a step that may stop after others have written makes the server keep a copy of what they
        write over.
        """
        self._check_loop()
        planned = plan(steps)
        return await self._atomically(planned) if planned else Outcome([])

    def scan(self, match: str | bytes = "*", *, kind: str | None = None, page: int = 500) -> AsyncIterator[list[bytes]]:
        """Pages of the keys that match a glob pattern (`*`, `?`, `[a-z]`, `\\` to escape), of one kind or of all.

        A key that is there the whole time is in some page; one that comes or goes meanwhile may or may not be; a
        key may come twice on stores that move keys while they are read (Redis). Pages may be empty. The store
        goes on serving others. A page holds about `page` keys, more or fewer. A store that does not guarantee `scans`
        raises UnknownCommand.
        """
        if not isinstance(match, str | bytes):
            raise BadArgument(f"a pattern is text or bytes, not {type(match).__name__}", "SCAN")
        check_scan(kind, page)
        self._check_loop()
        return self._scan(encode(match), kind, page)

    def subscribe(self, *channels: str) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Messages published to these channels, from the moment the block is entered.

        At most once: where the connection was lost, or the reader fell too far behind, messages may have been
        missed; the iterator then raises StoreUnavailable rather than go on in silence. Subscribe again, and catch
        up from what is stored. A store without the kind `channel` raises UnknownCommand.
        """
        if not channels or not all(isinstance(channel, str) for channel in channels):
            raise BadArgument('channels are text, one or more: write subscribe("news", "weather")', "SUBSCRIBE")
        for channel in channels:
            encode(channel)  # or raise what is wrong with it
        self._check_loop()
        return self._subscribe(channels)

    @abstractmethod
    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        """As `scan`, of arguments that were checked."""

    @abstractmethod
    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """As `subscribe`, of channels that were checked."""

    @abstractmethod
    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        """The reply of each call in order, a StoreError in the place of each that failed. `calls` is not empty.

        A store that need not wait returns the replies themselves.
        """

    @abstractmethod
    async def _atomically(self, steps: list[Planned]) -> Outcome:
        """As `atomically`, of steps that were read. `steps` is not empty."""


_Opening: TypeAlias = Callable[[Any], Coroutine[Any, Any, None]]
_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _noting_where(open_: _Opening) -> _Opening:
    @wraps(open_)
    async def open_here(store: Store) -> None:
        store._check_loop()
        await open_(store)
        store._opened_in, store._opened_thread = asyncio.get_running_loop(), get_ident()
        store._loop_runs = store._opened_in.is_running
        _open_stores.add(store)

    return open_here


def _noting_that_closed(close: _Opening) -> _Opening:
    @wraps(close)
    async def close_here(store: Store) -> None:
        store._check_loop()
        try:
            await close(store)
        finally:
            store._opened_in, store._opened_thread = None, 0
            _open_stores.discard(store)

    return close_here


def _disown() -> None:
    """In a process that was forked: what its parent has open is not this one's to use, to warn of or to close."""
    for store in list(_open_stores):
        store._opened_thread = 0
    _open_stores.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_disown)


@atexit.register
def _leave_open_stores() -> None:
    """Before modules and threads go, when nothing could be said or closed in order any more."""
    left = [store for store in _open_stores if store._opened_in is not None]
    for store in left:
        with suppress(ResourceWarning):  # where warnings are errors: the exit goes on
            store._leave()
    if left:
        # asyncio would say the same again of each connection that they had.
        warnings.filterwarnings("ignore", "unclosed transport", ResourceWarning)
        join_stopped(EXIT_WAITS_S)


def without_errors(replies: list[Reply]) -> list[Reply]:
    """The replies, if there is no error among them; else the first one is raised, and says what the others are."""
    for reply in replies:
        if isinstance(reply, StoreError):
            reply.replies = replies
            raise reply from None
    return replies
