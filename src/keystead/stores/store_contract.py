"""The contract every store keeps: commands in, replies out.

A store has four verbs (`run`, `atomically`, `scan`, `subscribe`), one more for repeated atomic steps (`prepared`), and
states its `guarantees`. No layer above knows which store it talks to. `keystead.testing` tests a store against this
contract.
"""

from __future__ import annotations

import asyncio
import warnings
from _thread import get_ident
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from keystead.errors import BadArgument, CommandError, StoreClosed, StoreError, UnknownCommand, WrongEventLoop
from keystead.stores.atomic_steps import (
    ATOMIC_ARGUMENTS,
    Absent,
    AtMost,
    FieldHolds,
    Holds,
    MoreThan,
    Outcome,
    Planned,
    PlanTemplate,
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
from keystead.stores.changed_keys import ChangedKeys
from keystead.stores.commands import KINDS, Call, Command, Reply, check_scan, encode, read
from keystead.stores.near_reads import NearReads
from keystead.stores.open_stores import record_close, record_open
from keystead.stores.synchronous import is_synchronous_loop, wait

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

# A whole key: name, kind, deadline in absolute ms, and value. The value is a list of parts, by kind: the string; fields
# and values; members; scores and members; items; for each entry of a stream its id, the number of its arguments, and
# the arguments.
WholeKey: TypeAlias = tuple[bytes, str, int | None, Sequence[bytes]]


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
    updates: bool = field(
        default=True,
        metadata={
            "doc": "whether a command may depend on what a key holds, such as SET NX, INCRBY, GETDEL and EXPIRE; "
            "if not, whole values are set and deleted"
        },
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
    near: Literal["exact", "bounded", "none"] = field(
        default="none",
        metadata={"doc": "near reads: never behind, behind by at most the stated bound, or none"},
    )
    scans: bool = field(default=True, metadata={"doc": "whether it can list and count its keys"})
    shortest_lifetime_ms: int = field(default=1, metadata={"doc": "the shortest lifetime, and the step of all others"})
    billed: bool = field(
        default=False, metadata={"doc": "whether each command costs money: long jobs say beforehand how many they need"}
    )
    key_max_bytes: int | None = field(default=None, metadata={"doc": "the longest key; none: no limit"})
    value_max_bytes: int | None = field(default=None, metadata={"doc": "the largest value; none: no limit"})
    step_max_bytes: int | None = field(
        default=None, metadata={"doc": "how much one atomic step may write; none: no limit"}
    )


@dataclass(frozen=True, slots=True)
class Message:
    channel: str
    data: bytes


# The name of the procedure that is being called, for metrics and slow logs.
PROCEDURE: ContextVar[str] = ContextVar("keystead procedure", default="")


class Store(ABC):
    """The database behind a keyspace. Use it as `async with keystead.connect(url) as store:`, in one event loop.

    In any other event loop every verb raises WrongEventLoop. A store that was not closed emits a ResourceWarning
    when it is garbage-collected or the program ends.

    In synchronous code, `with keystead.connect(url) as store:` opens and closes it. Without `with`, the first `wait`
    that uses it opens it, once in each process, also after a fork; it is closed at exit.
    """

    url: str  # without secrets
    guarantees: Guarantees
    _opened_in: asyncio.AbstractEventLoop | None = None  # while it is open
    _opened_thread = 0  # the thread of that loop; 0 in a forked process, where the store belongs to the parent
    _loop_runs: Callable[[], bool]
    _opening: asyncio.Task[None] | None = None  # by the first use, in synchronous code
    _is_synchronous = False  # opened by a synchronous caller
    _was_closed = False
    remake: Callable[[], Store] | None = None  # a new store of the same URL, for a forked process
    closes_before_fork = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap `open` and `close` of every store, also of other packages, to record the event loop."""
        super().__init_subclass__(**options)
        if "open" in vars(cls):
            cls.open = record_open(cls.open)  # type: ignore[method-assign, assignment]
        if "close" in vars(cls):
            cls.close = record_close(cls.close)  # type: ignore[method-assign, assignment]

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
        """Release everything. Calls in progress fail. Closing twice is not an error."""

    def _abandon(self) -> None:  # noqa: B027 - optional
        """Release the threads and sockets of a store that was not closed. The event loop is gone."""

    def _leave(self) -> None:
        """Warn that the store was not closed, and release what it holds."""
        is_own, self._opened_in, self._opened_thread = bool(self._opened_thread), None, 0
        if is_own:
            try:
                warnings.warn(
                    f"{self.url} was not closed; use `async with`", ResourceWarning, source=self, stacklevel=2
                )
            finally:  # also if warnings are errors
                self._abandon()

    def _check_loop(self) -> None:
        """Raises WrongEventLoop unless the store was opened in the running event loop."""
        # A loop that runs in this thread is the running loop. asyncio.get_running_loop is a system call (Python 3.11).
        if get_ident() == self._opened_thread and self._loop_runs():
            return
        if self._opened_in is not None and self._opened_in is not asyncio.get_running_loop():
            raise self._wrong_loop_error(self._opened_in)

    def _wrong_loop_error(self, opened_in: asyncio.AbstractEventLoop) -> WrongEventLoop:
        other, remedy = "another event loop", ", or pass the call to that loop with asyncio.run_coroutine_threadsafe"
        if opened_in.is_closed():
            other, remedy = "an event loop that has ended", ""
        return WrongEventLoop(
            f"{self.url} was opened in {other}, but a store only works in the loop it was opened in; open one for each "
            f"asyncio.run and each thread, with `async with keystead.connect(...)`{remedy}"
        )

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"{self.url} is not open; use `async with keystead.connect(...)`")

    def __enter__(self) -> Self:
        wait(self.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait(self.close())

    async def _open_on_use(self) -> None:
        """Open a store that a synchronous caller uses for the first time. Any other must be opened before."""
        if not self._was_closed and is_synchronous_loop(asyncio.get_running_loop()):
            if self._opening is None or self._opening.done():
                self._opening = asyncio.get_running_loop().create_task(self.open())
            await asyncio.shield(self._opening)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        """Run the commands in order and return their replies: one round trip, not atomic as a whole.

        A command that fails has no effect and does not stop the others. The first error is raised after all have run;
        its `replies` holds the reply of each command, with an error in place of each failure. Raises StoreUnavailable
        within the timeout of the store. If this call is cancelled, the commands may or may not have taken effect; other
        calls are not affected.
        """
        if get_ident() != self._opened_thread or not self._loop_runs():
            self._check_loop()
            if self._opened_in is None:
                await self._open_on_use()
        if type(commands) is not list:
            commands = list(commands)
        try:
            # Typed reads pass a Call, which `read` would return unchanged.
            calls = [command if type(command) is Call else read(command) for command in commands]
        except CommandError:
            calls = None
        if calls is None:
            replies = await self._run_valid(commands)
        else:
            answer = self._replies(calls) if calls else []
            replies = answer if type(answer) is list else await answer  # type: ignore[misc]
        return without_errors(replies)

    def prepared(
        self, make: Callable[..., Sequence[Step]], arguments: int, numbers: Collection[int] = ()
    ) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        """A function that runs the same atomic steps with other keys and values at each call.

            count = store.prepared(lambda key: [at_most(("GET", key), 9), ("INCRBY", key, 1)], 1)
            outcome = await count(b"hits:7")

        It does what `atomically` does with the steps that `make` returns for this many arguments, all of them bytes.
        `make` puts each argument into the steps unchanged, as a key, a member or a value; everything else must be the
        same each time. The arguments at the places `numbers` are whole numbers in digits: positive ones, such as
        deadlines, limits of guards from 0, and amounts of any sign but 0.
        A store may use that to do less work per call.
        """
        if type(self).atomically is Store.atomically:
            with suppress(CommandError):  # it is raised by each call
                return self._prepared(PlanTemplate(make, arguments, numbers))

        async def run_steps(*given: bytes) -> Outcome:
            return await self.atomically(make(*given))

        return run_steps

    def repeated(self, calls: list[Any]) -> Callable[[], Coroutine[Any, Any, list[Reply]]]:
        """`run` of the same reads again and again. A store may use that to do less work each time."""
        return lambda: self.run(calls)

    def _prepared(self, template: PlanTemplate) -> Callable[..., Coroutine[Any, Any, Outcome]]:
        """`prepared`, with planned steps."""

        async def run_planned(*given: bytes) -> Outcome:
            self._check_loop()
            if self._opened_in is None:
                await self._open_on_use()
            return await self._atomically(template.fill(given))

        return run_planned

    @property
    def near(self) -> NearReads | None:
        """Reads from copies in this process; None: the store cannot tell when a key changes, or is not open."""
        return None

    def changed_keys(
        self, prefixes: Sequence[bytes] = (b"",)
    ) -> AbstractAsyncContextManager[AsyncIterator[ChangedKeys]] | None:
        """Reports of the keys with one of these prefixes that are written or deleted, or expire, by whomever.

        They begin when the block is entered. A key that changes several times in a moment may be reported once. The
        iterator raises StoreUnavailable if changes may have been missed. None: this store does not report changes.
        """
        return None

    def version(self) -> object:
        """What is different after each commit of any process; it costs microseconds. None: this store has no such
        number, or is not open."""
        return None

    async def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]] | None:
        """Read these keys, each atomically with its deadline, but not all in one step. A fast path for copies.

        Keys that do not exist are left out. The second list has the keys that are too large for this, or of a kind
        without commands here: read them with commands. None: this store has no fast path.
        """
        return None

    async def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool] | None:
        """Write those of these keys that do not exist, each atomically with its deadline, but not all in one step.

        Returns for each whether it was written. If it raises, some may have been written. None: this store has no fast
        path, and nothing was written.
        """
        return None

    @property
    def runs_are_isolated(self) -> bool:
        """Whether one `run` is one transaction: no command of another caller runs between its commands, and after a
        crash either all have taken effect or none has."""
        return False

    @property
    def takes_foreign(self) -> bool:
        """Whether `run_foreign` works here."""
        return False

    async def run_foreign(self, commands: Sequence[Sequence[str | bytes]], *, atomic: bool = False) -> list[Reply]:
        """Run commands of the engine that are not in the language, such as EVAL on Redis, which replies as in RESP2.

        One round trip, in order; with `atomic` no other client's command runs in between, but a failed command undoes
        nothing. Each failure is an EngineError in its place. Never send what blocks the connection or changes its
        state, such as BLPOP, SUBSCRIBE, MULTI or SELECT: all callers share it. Raises UnknownCommand on a store
        without commands of its own.
        """
        raise UnknownCommand("this store has only the commands that `keystead guide commands` lists", "run_foreign")

    async def _await_replies(self, calls: list[Call]) -> list[Reply]:
        """`_replies`, awaited if necessary."""
        answer = self._replies(calls)
        return answer if isinstance(answer, list) else await answer

    async def _run_valid(self, commands: Sequence[Command]) -> list[Reply]:
        """The replies of a batch with invalid commands: those get errors, the others run."""
        calls: list[Call | CommandError] = []
        for command in commands:
            try:
                calls.append(read(command))
            except CommandError as error:
                calls.append(error)
        valid = [call for call in calls if isinstance(call, Call)]
        answers = iter(await self._await_replies(valid) if valid else [])
        return [call if isinstance(call, CommandError) else next(answers) for call in calls]

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        """Run the steps as one: all of them take effect, or none does, and no other caller sees a state in between.

        A step marked `required` whose reply is nil or 0, or a guard (`holds`, `field_holds`, `absent`, `at_most`,
        `more_than`, `still`) that does not hold, stops the batch: the Outcome is then false and names the step.
        An error of any step is raised, and then, too, nothing took effect. One round trip. Put required steps first
        where you can: on Redis a step that may stop after a write makes the server keep a copy of overwritten data.
        """
        self._check_loop()
        if self._opened_in is None:
            await self._open_on_use()
        planned = plan(steps)
        return await self._atomically(planned) if planned else Outcome([])

    def scan(self, match: str | bytes = "*", *, kind: str | None = None, page: int = 500) -> AsyncIterator[list[bytes]]:
        """Pages of the keys that match a glob pattern (`*`, `?`, `[a-z]`, `\\` to escape), of one kind or of all.

        A key that exists during the whole scan is in some page; one that is created or deleted meanwhile may or may not
        be. Stores that move keys while they are read (Redis) may return a key twice. Pages may be empty. The scan does
        not block other callers. A page holds about `page` keys, more or fewer. A store that does not guarantee `scans`
        raises UnknownCommand.
        """
        if not isinstance(match, str | bytes):
            raise BadArgument(f"a pattern must be text or bytes, not {type(match).__name__}", "SCAN")
        check_scan(kind, page)
        self._check_loop()
        pattern = encode(match)
        return self._scan(pattern, kind, page) if self._opened_in else self._scan_on_use(pattern, kind, page)

    def subscribe(self, *channels: str) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Messages published to these channels, from the moment the block is entered.

        Delivery is at-most-once: if the connection was lost, or the reader fell too far behind, messages may have been
        missed. The iterator then raises StoreUnavailable. Subscribe again, and catch up from stored data. A store
        without the kind `channel` raises UnknownCommand.
        """
        if not channels or not all(isinstance(channel, str) for channel in channels):
            raise BadArgument('channels must be text, one or more: write subscribe("news", "weather")', "SUBSCRIBE")
        for channel in channels:
            encode(channel)  # or raises
        self._check_loop()
        return self._subscribe(channels) if self._opened_in else self._subscribe_on_use(channels)

    async def _scan_on_use(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        await self._open_on_use()
        async for keys in self._scan(pattern, kind, page):
            yield keys

    @asynccontextmanager
    async def _subscribe_on_use(self, channels: tuple[str, ...]) -> AsyncIterator[AsyncIterator[Message]]:
        await self._open_on_use()
        async with self._subscribe(channels) as messages:
            yield messages

    @abstractmethod
    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        """`scan`, with checked arguments."""

    @abstractmethod
    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """`subscribe`, with checked channels."""

    @abstractmethod
    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        """The reply of each call in order, with a StoreError in place of each failure. `calls` is not empty.

        A store that does not have to wait returns the replies directly.
        """

    @abstractmethod
    async def _atomically(self, steps: list[Planned]) -> Outcome:
        """`atomically`, with planned steps. `steps` is not empty."""


def without_errors(replies: list[Reply]) -> list[Reply]:
    """The replies, or raise the first error among them, with all replies attached."""
    for reply in replies:
        if isinstance(reply, StoreError):
            reply.replies = replies
            raise reply from None
    return replies
