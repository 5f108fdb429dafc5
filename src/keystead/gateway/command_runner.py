"""Runs the commands of REST clients on a store: one round trip for a pipeline, one atomic step for a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from keystead.errors import CommandError, Contended, EngineError, StoreError, StoreUnavailable
from keystead.gateway.command_plans import (
    AtomicPart,
    CommandPlan,
    DerivedPlan,
    ExchangePlan,
    ForeignPlan,
    PlainPlan,
    RefusedPlan,
)
from keystead.gateway.permissions import Permission
from keystead.gateway.rest_replies import error_text, unavailable
from keystead.gateway.rest_requests import RawCommand, RestError
from keystead.stores import TABLE, Store
from keystead.stores.commands import encode, read
from keystead.stores.derived import DERIVED, Exchange, attempts, derive

SCRIPTS: Final = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "SCRIPT"})
# They need a connection of their own, block the one that all clients share, or change its state.
NEVER: Final = frozenset(
    {
        *("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "MONITOR"),
        *("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"),
        *("BLPOP", "BRPOP", "BRPOPLPUSH", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "WAIT", "WAITAOF"),
        *("AUTH", "HELLO", "RESET", "QUIT", "SELECT", "SWAPDB", "CLIENT", "READONLY", "READWRITE", "ASKING"),
        *("SYNC", "PSYNC", "REPLCONF", "REPLICAOF", "SLAVEOF", "FAILOVER", "SHUTDOWN", "DEBUG", "MIGRATE"),
        *("CLUSTER", "MODULE", "PFDEBUG", "PFSELFTEST"),
    }
)
_UPSTASH_FLAG: Final = "#!lua flags=allow-key-locking"
# With the option BLOCK these would wait for new entries, and block the connection.
_BLOCKING: Final = frozenset({"XREAD", "XREADGROUP"})


_LISTING: Final = ("SCAN", "KEYS")
# The server answers nobody else while it collects a page.
_LARGEST_PAGE: Final = 1_000


class CommandRunner:
    """Runs commands on a store, which may be a guarded one.

    engine   takes commands outside the language, if its engine has such. By default the store itself; None: they are
             refused
    """

    def __init__(self, store: Store, *, engine: Store | Literal["itself"] | None = "itself") -> None:
        self._store = store
        found = store if engine == "itself" else engine
        self._engine = found if found is not None and found.takes_foreign else None
        # An engine beside a guarded store only gets what the guard cannot check.
        self._is_engine = self._engine is store

    async def run(self, commands: Sequence[RawCommand], permission: Permission) -> list[Any]:
        """The reply of each command, with an exception in place of each failure. Raises StoreUnavailable.

        One round trip, unless the store has no command of its own for one that takes several steps (RENAME, APPEND).
        """
        plans = [self._plan(command, permission) for command in commands]
        if self._is_for_engine(commands, plans):
            replies = await self._run_on_engine(commands, plans, atomic=False)
        else:
            replies = await self._run_plans(plans)
        _hide_keys(commands, replies, permission)
        return replies

    async def run_atomically(self, commands: Sequence[RawCommand], permission: Permission) -> list[Any]:
        """All commands as one transaction. Raises RestError if one is invalid or refused: then none took effect.

        As in a transaction of Redis, a command that fails when it runs leaves the effect of the others, and its error
        is in its place. A store that cannot do so undoes the others, and RestError is raised.
        """
        plans = [self._plan(command, permission) for command in commands]
        for plan in plans:
            if isinstance(plan, RefusedPlan):
                raise RestError(400, error_text(plan.error))
        if self._is_engine and all(command[0] != "KEYS" for command in commands):
            replies = await self._run_on_engine(commands, plans, atomic=True)
            _raise_if_discarded(replies)
        else:
            _check_transaction(commands, plans)
            try:
                replies = await self._run_transaction(plans)
            except (CommandError, Contended) as error:
                raise RestError(400, error_text(error)) from None
        _hide_keys(commands, replies, permission)
        return replies

    # --- planning --------------------------------------------------------------------------------------------

    def _plan(self, command: RawCommand, permission: Permission) -> CommandPlan:
        name = str(command[0]).upper()
        command[0] = name
        if name == "SCAN":
            _limit_page(command)
        try:
            derived = derive(command)
            if derived is not None:
                writes = (TABLE.get(name) or DERIVED[name]).writes
                keys = [key if type(key) is bytes else str(key).encode() for key in derived.keys]
                refused = permission.refusal(name, writes, keys)
                if refused is not None:
                    return RefusedPlan(refused)
                return ExchangePlan(derived) if isinstance(derived, Exchange) else DerivedPlan(derived, writes)
            if name not in TABLE:
                return self._plan_foreign(name, command, permission)
            call = read(command)
        except CommandError as error:
            return RefusedPlan(error)
        refused = permission.refusal(name, call.spec.writes, call.args[:1] if name == "PUBLISH" else call.keys)
        return PlainPlan(call) if refused is None else RefusedPlan(refused)

    def _plan_foreign(self, name: str, command: RawCommand, permission: Permission) -> CommandPlan:
        if name in NEVER or _affects_connection(name, command):
            return RefusedPlan(unavailable(name))
        if self._engine is not None:
            is_script = name in SCRIPTS and (name != "SCRIPT" or _is_harmless_script(command))
            refused = permission.refuse_foreign(name, is_script)
            if refused is not None and is_script:
                return RefusedPlan(refused)
            if refused is None:
                _remove_upstash_flag(name, command)
                command[:] = [encode(word) for word in command]  # raises the error of text that cannot be sent
                return ForeignPlan(command, self._engine)
        return RefusedPlan(unavailable(name))

    def _is_for_engine(self, commands: Sequence[RawCommand], plans: Sequence[CommandPlan]) -> bool:
        """Whether a command is outside the language, or is one command there and several steps here.

        KEYS is a scan here, because the engine's own would hold up all other clients.
        """
        return (
            self._is_engine
            and any(plan.is_alone for plan in plans)
            and all(command[0] != "KEYS" for command in commands)
        )

    # --- running ---------------------------------------------------------------------------------------------

    async def _run_plans(self, plans: Sequence[CommandPlan]) -> list[Any]:
        """Commands in a row that are one step each are one round trip."""
        replies: list[Any] = []
        try:
            for group in _in_groups(plans):
                if group[0].is_alone:
                    replies.append(await group[0].run(self._store))
                else:
                    replies += await self._run_group(group)
        except StoreUnavailable as error:
            if not replies:
                raise
            # What ran before has its reply, so that no client repeats it.
            replies += [error] * (len(plans) - len(replies))
        return replies

    async def _run_group(self, plans: Sequence[CommandPlan]) -> list[Any]:
        steps: list[Any] = [step for plan in plans for step in plan.steps]
        try:
            replies = await self._store.run(steps) if steps else []
        except StoreError as error:
            if error.replies is None:
                raise
            replies = error.replies
        return _replies_of(plans, replies)

    async def _run_transaction(self, plans: Sequence[CommandPlan]) -> list[Any]:
        """Raises CommandError, and Contended if other callers changed each time what a command had read."""
        if self._store.runs_are_isolated and not any(plan.reads_first for plan in plans):
            return await self._run_group(plans)
        keys = [key for plan in plans if isinstance(plan, ExchangePlan) for key in plan.keys]
        async for _ in attempts(keys):
            parts = [await plan.attempt(self._store) for plan in plans]
            made = [part for part in parts if part is not None]
            if len(made) < len(plans):
                continue
            outcome = await self._store.atomically([step for part in made for step in part.steps])
            if outcome:
                return _replies_of(made, outcome.replies)
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def _run_on_engine(
        self, commands: Sequence[RawCommand], plans: Sequence[CommandPlan], atomic: bool
    ) -> list[Any]:
        """The whole batch in the engine's own words, which include ours: one round trip."""
        sent = [command for command, plan in zip(commands, plans, strict=True) if not isinstance(plan, RefusedPlan)]
        found = iter(await self._store.run_foreign(sent, atomic=atomic))
        return [plan.error if isinstance(plan, RefusedPlan) else next(found) for plan in plans]


def _raise_if_discarded(replies: Sequence[Any]) -> None:
    """Raise RestError if the engine refused a command of a transaction, so that none ran."""
    if any(isinstance(reply, EngineError) and reply.sentence.startswith("EXECABORT") for reply in replies):
        refused = (reply for reply in replies if isinstance(reply, EngineError) and "EXECABORT" not in reply.sentence)
        raise RestError(400, error_text(next(refused, replies[-1])))


def _check_transaction(commands: Sequence[RawCommand], plans: Sequence[CommandPlan]) -> None:
    """Raise RestError for a command that cannot be part of this transaction.

    One that reads first does so before the transaction, so none before it may write the same keys.
    """
    written: set[str | bytes] = set()
    for command, plan in zip(commands, plans, strict=True):
        if not plan.is_atomic:
            raise RestError(400, f"ERR {command[0]!s} is not available in a transaction on this store")
        if plan.reads_first and not written.isdisjoint(plan.written):
            raise RestError(
                400,
                f"ERR {command[0]!s} depends on a key that the transaction wrote before, which is not available "
                "on this store",
            )
        written.update(plan.written)


def _in_groups(plans: Sequence[CommandPlan]) -> Iterator[Sequence[CommandPlan]]:
    """The plans in order: each that needs its own step, and those between them together."""
    begin = 0
    for place, plan in enumerate(plans):
        if plan.is_alone:
            if begin < place:
                yield plans[begin:place]
            yield plans[place : place + 1]
            begin = place + 1
    if begin < len(plans):
        yield plans[begin:]


def _replies_of(parts: Sequence[CommandPlan | AtomicPart], replies: Sequence[Any]) -> list[Any]:
    """The reply of each command, from those of all their steps."""
    found: list[Any] = []
    begin = 0
    for part in parts:
        end = begin + len(part.steps)
        found.append(part.finish(list(replies[begin:end])))
        begin = end
    return found


def _remove_upstash_flag(name: str, command: RawCommand) -> None:
    """Remove a flag that only Upstash knows from the first line of a script. It allows more at once, nothing else."""
    place = {"EVAL": 1, "EVAL_RO": 1, "SCRIPT": 2}.get(name, len(command))
    script = command[place] if place < len(command) else ""
    if isinstance(script, str) and script.startswith(_UPSTASH_FLAG):
        command[place] = "#!lua" + script.removeprefix(_UPSTASH_FLAG)


def _limit_page(command: RawCommand) -> None:
    """Make a large COUNT of SCAN smaller: it is a hint, and thousands of keys at once would hold up all others."""
    for at in range(2, len(command) - 1, 2):
        count = command[at + 1]
        if _word(command[at]) == "COUNT" and count.isdigit() and (len(count) > 9 or int(count) > _LARGEST_PAGE):
            command[at + 1] = str(_LARGEST_PAGE)


def _affects_connection(name: str, command: RawCommand) -> bool:
    """Whether options of a command make it block the connection, or change its state for all who share it."""
    if name in _BLOCKING:
        return "BLOCK" in map(_word, command)
    return name == "SCRIPT" and len(command) > 1 and _word(command[1]) == "DEBUG"


def _is_harmless_script(command: RawCommand) -> bool:
    """Whether it is SCRIPT LOAD or SCRIPT EXISTS, which affect no other client."""
    return len(command) > 1 and _word(command[1]) in ("LOAD", "EXISTS")


def _word(given: str | bytes) -> str:
    return (given.decode("latin-1") if isinstance(given, bytes) else given).upper()


def _hide_keys(commands: Sequence[RawCommand], replies: list[Any], permission: Permission) -> None:
    """Remove the keys from listings that the token cannot reach."""
    for place, command in enumerate(commands):
        if command[0] in _LISTING and not isinstance(replies[place], Exception):
            reply = replies[place]
            if command[0] == "KEYS":
                replies[place] = permission.visible_keys(reply)
            else:
                replies[place] = [reply[0], permission.visible_keys(reply[1])]
