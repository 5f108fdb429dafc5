"""Runs the commands of REST clients on a store: one round trip for a pipeline, one atomic step for a transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from keystead.errors import CommandError, StoreError
from keystead.gateway.command_aliases import ALIASES
from keystead.gateway.permissions import SCRIPTS, Permission, refuse_command
from keystead.gateway.rest_replies import RespError, error_text
from keystead.gateway.rest_requests import RawCommand, RestError
from keystead.stores import TABLE, Call, Store
from keystead.stores.commands import read

# They need a connection of their own, or block one that all clients share.
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


class _Foreign(NamedTuple):
    """A command outside the language, which only an engine that has it can run."""

    words: tuple[str | bytes, ...]


class _Ready(NamedTuple):
    """A reply that needs no store."""

    reply: Any


class _Converted(NamedTuple):
    call: Call
    convert: Callable[[Any], Any]


_Plan: TypeAlias = Call | _Converted | _Foreign | _Ready | Exception


class CommandRunner:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self, commands: Sequence[RawCommand], permission: Permission) -> list[Any]:
        """The reply of each command, with an exception in place of each failure. Raises StoreUnavailable."""
        plans = [self._plan(command, permission) for command in commands]
        if any(type(plan) is _Foreign for plan in plans):
            return await self._run_foreign(commands, plans, atomic=False)
        calls = [plan.call if type(plan) is _Converted else plan for plan in plans if type(plan) in _CALLS]
        replies = iter(await self._replies(calls) if calls else ())  # type: ignore[arg-type]
        return [_reply_of(plan, replies) for plan in plans]

    async def run_atomically(self, commands: Sequence[RawCommand], permission: Permission) -> list[Any]:
        """All commands, or none: an invalid, refused or failed command discards the transaction. Raises RestError."""
        plans = [self._plan(command, permission) for command in commands]
        for plan in plans:
            if isinstance(plan, Exception):
                raise RestError(400, f"EXECABORT Transaction discarded because of: {error_text(plan)}")
        if any(type(plan) is _Foreign for plan in plans):
            return await self._run_foreign(commands, plans, atomic=True)
        calls = [plan.call if type(plan) is _Converted else plan for plan in plans if type(plan) in _CALLS]
        try:
            outcome = await self._store.atomically([(one.spec.name, *one.args) for one in calls])  # type: ignore[union-attr]
        except CommandError as error:
            raise RestError(400, error_text(error)) from None
        replies = iter(outcome.replies)
        return [_reply_of(plan, replies) for plan in plans]

    async def _replies(self, calls: list[Call]) -> list[Any]:
        try:
            return await self._store.run(calls)  # type: ignore[arg-type]
        except StoreError as error:
            if error.replies is None:
                raise
            return error.replies

    async def _run_foreign(self, commands: Sequence[RawCommand], plans: Sequence[_Plan], atomic: bool) -> list[Any]:
        """The whole batch in the engine's own language, in which our commands are a part: one round trip."""
        sent = [
            tuple(command)
            for command, plan in zip(commands, plans, strict=True)
            if type(plan) in _CALLS or type(plan) is _Foreign
        ]
        replies = await self._store.run_foreign(sent, atomic=atomic)
        found = iter(replies)
        return [
            plan.reply if type(plan) is _Ready else plan if isinstance(plan, Exception) else next(found)
            for plan in plans
        ]

    def _plan(self, command: RawCommand, permission: Permission) -> _Plan:
        name = str(command[0]).upper()
        command[0] = name
        spec = TABLE.get(name)
        if spec is None:
            return self._plan_other(name, command, permission)
        try:
            call = read(command)
        except CommandError as error:
            return error
        refused = permission.refusal(call)
        if refused is not None:
            return refused
        if name == "SCAN":
            return _Converted(call, lambda reply: [reply[0], permission.visible_keys(reply[1])])
        if name == "KEYS":
            return _Converted(call, permission.visible_keys)
        return call

    def _plan_other(self, name: str, command: RawCommand, permission: Permission) -> _Plan:
        """A command that is not in the table: an alias, one that needs no store, or one of the engine's own."""
        alias = ALIASES.get(name)
        try:
            if alias is not None:
                call = read(alias.rewrite(name, command[1:]))
                return permission.refusal(call) or (call if alias.reply is None else _Converted(call, alias.reply))
        except CommandError as error:
            error.command = name
            return error
        if name in _WITHOUT_STORE:
            return _WITHOUT_STORE[name](command)
        if name in NEVER:
            return RespError(f"ERR Command is not available: '{name}'")
        if self._store.takes_foreign and (name in SCRIPTS or permission.is_admin):
            return _Foreign(tuple(command)) if permission.may_run_scripts else refuse_command(name)
        return RespError(f"ERR unknown command '{name[:60]}'")


_CALLS: Final = (Call, _Converted)


def _reply_of(plan: _Plan, replies: Any) -> Any:
    kind = type(plan)
    if kind is Call:
        return next(replies)
    if kind is _Converted:
        reply = next(replies)
        return reply if isinstance(reply, Exception) else plan.convert(reply)  # type: ignore[union-attr]
    return plan.reply if kind is _Ready else plan  # type: ignore[union-attr]


def _ping(command: RawCommand) -> _Plan:
    if len(command) > 2:
        return RespError("ERR wrong number of arguments for 'ping' command")
    return _Ready(command[1] if len(command) == 2 else b"PONG")


def _echo(command: RawCommand) -> _Plan:
    if len(command) != 2:
        return RespError("ERR wrong number of arguments for 'echo' command")
    return _Ready(command[1])


_WITHOUT_STORE: Final = {"PING": _ping, "ECHO": _echo}
