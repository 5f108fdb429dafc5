"""Runs the commands of REST clients on a store: one round trip for a pipeline, one atomic step for a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from keystead.errors import CommandError, KeysteadError, StoreError, StoreUnavailable
from keystead.gateway.permissions import Permission
from keystead.gateway.rest_replies import RespError, error_text
from keystead.gateway.rest_requests import RawCommand, RestError
from keystead.stores import TABLE, Call, Store
from keystead.stores.commands import read
from keystead.stores.derived import DERIVED, Derived, Exchange, derive
from keystead.stores.store_contract import Step

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


class _Foreign(NamedTuple):
    """A command outside the language, for the engine."""

    command: RawCommand


_Plan: TypeAlias = Call | Derived | Exchange | _Foreign | Exception
_ALONE: Final = (Exchange, _Foreign)
_LISTING: Final = ("SCAN", "KEYS")


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
        """All commands as one step. Raises RestError if one is invalid, refused, or fails: then none took effect.

        Only commands of the engine itself are different, as in a transaction of Redis: one that fails leaves the effect
        of the others, and its error is in its place.
        """
        plans = [self._plan(command, permission) for command in commands]
        for plan in plans:
            if isinstance(plan, Exception):
                raise RestError(400, f"EXECABORT Transaction discarded because of: {error_text(plan)}")
        if self._is_for_engine(commands, plans):
            replies = await self._run_on_engine(commands, plans, atomic=True)
        else:
            replies = await self._run_steps(commands, plans)
        _hide_keys(commands, replies, permission)
        return replies

    # --- planning --------------------------------------------------------------------------------------------

    def _plan(self, command: RawCommand, permission: Permission) -> _Plan:
        """How to run a command; an exception: why it is refused."""
        name = str(command[0]).upper()
        command[0] = name
        try:
            derived = derive(command)
            if derived is not None:
                spec = TABLE.get(name) or DERIVED[name]
                keys = [key if type(key) is bytes else str(key).encode() for key in derived.keys]
                return permission.refusal(name, spec.writes, keys) or derived
            if name not in TABLE:
                return self._plan_foreign(name, command, permission)
            call = read(command)
        except CommandError as error:
            return error
        keys = call.args[:1] if name == "PUBLISH" else call.keys  # type: ignore[assignment]
        return permission.refusal(name, call.spec.writes, keys) or call

    def _plan_foreign(self, name: str, command: RawCommand, permission: Permission) -> _Plan:
        if name in NEVER or (name in _BLOCKING and "BLOCK" in map(_word, command)):
            return RespError(f"ERR Command is not available: '{name}'")
        if self._engine is not None:
            is_script = name in SCRIPTS and (name != "SCRIPT" or _is_harmless_script(command))
            refused = permission.refuse_foreign(name, is_script)
            if refused is None or is_script:
                _remove_upstash_flag(name, command)
                return refused or _Foreign(command)
        return RespError(f"ERR unknown command '{name[:60]}'")

    def _is_for_engine(self, commands: Sequence[RawCommand], plans: Sequence[_Plan]) -> bool:
        """Whether a command is outside the language, or is one command there and several steps here.

        KEYS is a scan here, because the engine's own would hold up all other clients.
        """
        return (
            self._is_engine
            and any(type(plan) in _ALONE or (type(plan) is Derived and len(plan.steps) > 1) for plan in plans)
            and all(command[0] != "KEYS" for command in commands)
        )

    # --- running ---------------------------------------------------------------------------------------------

    async def _run_plans(self, plans: Sequence[_Plan]) -> list[Any]:
        """Commands in a row that are one step each are one round trip."""
        replies: list[Any] = []
        try:
            for group in _in_groups(plans):
                alone = group[0]
                if _needs_own_step(alone):
                    replies.append(await self._run_alone(alone))  # type: ignore[arg-type]
                else:
                    replies += await self._run_group(group)
        except StoreUnavailable as error:
            if not replies:
                raise
            # What ran before has its reply, so that no client repeats it.
            replies += [error] * (len(plans) - len(replies))
        return replies

    async def _run_group(self, plans: Sequence[_Plan]) -> list[Any]:
        calls: list[Any] = [
            plan if type(plan) is Call else plan.steps[0]  # type: ignore[union-attr]
            for plan in plans
            if type(plan) is Call or (type(plan) is Derived and plan.steps)
        ]
        try:
            found = iter(await self._store.run(calls) if calls else ())
        except StoreError as error:
            if error.replies is None:
                raise
            found = iter(error.replies)
        return [_reply_of(plan, found) for plan in plans]

    async def _run_alone(self, plan: Derived | Exchange | _Foreign) -> Any:
        try:
            if isinstance(plan, _Foreign):
                return (await self._engine.run_foreign([plan.command]))[0]  # type: ignore[union-attr]
            if isinstance(plan, Exchange):
                return await plan.run(self._store)
            return plan.reply(await self._store.atomically(plan.steps))
        except StoreUnavailable:
            raise
        except KeysteadError as error:  # of this command: Contended, CommandError
            return error

    async def _run_steps(self, commands: Sequence[RawCommand], plans: Sequence[_Plan]) -> list[Any]:
        steps: list[Step] = []
        for command, plan in zip(commands, plans, strict=True):
            if type(plan) in _ALONE or (isinstance(plan, Derived) and plan.is_guarded):
                raise RestError(400, f"EXECABORT {command[0]!s} is not available in a transaction on this store")
            steps += plan.steps if isinstance(plan, Derived) else [(plan.spec.name, *plan.args)]  # type: ignore[union-attr]
        try:
            outcome = await self._store.atomically(steps)
        except CommandError as error:
            raise RestError(400, error_text(error)) from None
        found = iter(outcome.replies)
        return [_reply_of(plan, found) for plan in plans]

    async def _run_on_engine(self, commands: Sequence[RawCommand], plans: Sequence[_Plan], atomic: bool) -> list[Any]:
        """The whole batch in the engine's own words, which include ours: one round trip."""
        sent = [command for command, plan in zip(commands, plans, strict=True) if not isinstance(plan, Exception)]
        found = iter(await self._store.run_foreign(sent, atomic=atomic))
        return [plan if isinstance(plan, Exception) else next(found) for plan in plans]


def _needs_own_step(plan: _Plan) -> bool:
    return type(plan) in _ALONE or (type(plan) is Derived and (len(plan.steps) > 1 or plan.is_guarded))


def _in_groups(plans: Sequence[_Plan]) -> Iterator[Sequence[_Plan]]:
    """The plans in order: each that needs its own step, and those between them together."""
    begin = 0
    for place, plan in enumerate(plans):
        if _needs_own_step(plan):
            if begin < place:
                yield plans[begin:place]
            yield plans[place : place + 1]
            begin = place + 1
    if begin < len(plans):
        yield plans[begin:]


def _remove_upstash_flag(name: str, command: RawCommand) -> None:
    """Remove a flag that only Upstash knows from the first line of a script. It allows more at once, nothing else."""
    place = {"EVAL": 1, "EVAL_RO": 1, "SCRIPT": 2}.get(name, len(command))
    script = command[place] if place < len(command) else ""
    if isinstance(script, str) and script.startswith(_UPSTASH_FLAG):
        command[place] = "#!lua" + script.removeprefix(_UPSTASH_FLAG)


def _is_harmless_script(command: RawCommand) -> bool:
    """Whether it is SCRIPT LOAD or SCRIPT EXISTS, which affect no other client."""
    return len(command) > 1 and _word(command[1]) in ("LOAD", "EXISTS")


def _word(given: str | bytes) -> str:
    return (given.decode("latin-1") if isinstance(given, bytes) else given).upper()


def _reply_of(plan: _Plan, replies: Iterator[Any]) -> Any:
    kind = type(plan)
    if kind is Call:
        return next(replies)
    if kind is Derived:
        given = [next(replies) for _ in plan.steps]  # type: ignore[union-attr]
        failed = next((reply for reply in given if isinstance(reply, Exception)), None)
        return failed or plan.finish(given)  # type: ignore[union-attr]
    return plan


def _hide_keys(commands: Sequence[RawCommand], replies: list[Any], permission: Permission) -> None:
    """Remove the keys from listings that the token cannot reach."""
    for place, command in enumerate(commands):
        if command[0] in _LISTING and not isinstance(replies[place], Exception):
            reply = replies[place]
            if command[0] == "KEYS":
                replies[place] = permission.visible_keys(reply)
            else:
                replies[place] = [reply[0], permission.visible_keys(reply[1])]
