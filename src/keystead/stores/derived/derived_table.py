"""The table of derived commands, and how they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from keystead.errors import CommandError, StoreError, WrongArity
from keystead.stores.command_options import integer
from keystead.stores.commands import READ, TABLE, WRITE, Command, Reply, Spec, encode
from keystead.stores.derived import optimistic_commands as optimistic
from keystead.stores.derived.derived_command import Build, Derived, Exchange
from keystead.stores.derived.one_step_commands import (
    OK,
    blame,
    combine,
    derived,
    expire,
    flag,
    getrange,
    length,
    lpos,
    mset,
    msetnx,
    ping,
    push_to_existing,
    renamed,
    scan_entries,
    seconds,
    sintercard,
    smismember,
    smove,
    zrange_as,
)
from keystead.stores.store_contract import Store


def _rows(kind: str | None, *rows: tuple[Any, ...]) -> list[Spec]:
    return [Spec(usage.split()[0], usage, summary, kind, *rest) for usage, summary, *rest in rows]


ALL: Final = -1
_CONDITIONS: Final = "[NX | XX | GT | LT]"

# usage, summary, reads or writes, keys, fewest and most arguments, builder
DERIVED: Final[dict[str, Spec]] = {
    spec.name: spec
    for spec in (
        *_rows(
            "string",
            ("SETEX key seconds value", "OK", WRITE, 1, 3, 3, derived(lambda k, s, v: ("SET", k, v, "EX", s))),
            ("PSETEX key ms value", "OK", WRITE, 1, 3, 3, derived(lambda k, ms, v: ("SET", k, v, "PX", ms))),
            ("SETNX key value", "1 if it was set", WRITE, 1, 2, 2, derived(lambda k, v: ("SET", k, v, "NX"), flag)),
            ("GETSET key value", "the previous value, or nil", WRITE, 1, 2, 2, renamed("SET", "GET")),
            ("MSET key value [key value ...]", "OK; all are set in one step", WRITE, ALL, 2, None, mset),
            ("MSETNX key value [key value ...]", "1, or 0 if one of them exists", WRITE, ALL, 2, None, msetnx),
            ("INCR key", "the number plus 1", WRITE, 1, 1, 1, renamed("INCRBY", 1)),
            ("DECR key", "the number minus 1", WRITE, 1, 1, 1, renamed("DECRBY", 1)),
            ("INCRBYFLOAT key amount", "the sum, as text", WRITE, 1, 2, 2, optimistic.incrbyfloat),
            ("APPEND key value", "the length afterwards", WRITE, 1, 2, 2, optimistic.append),
            ("STRLEN key", "the length in bytes", READ, 1, 1, 1, derived(lambda k: ("GET", k), length)),
            ("GETRANGE key start stop", "a part of the value", READ, 1, 3, 3, getrange),
            ("SETRANGE key offset value", "the length afterwards", WRITE, 1, 3, 3, optimistic.setrange),
        ),
        *_rows(
            None,
            ("UNLINK key [key ...]", "number of keys deleted", WRITE, ALL, 1, None, renamed("DEL")),
            ("TOUCH key [key ...]", "number of keys that exist", READ, ALL, 1, None, renamed("EXISTS")),
            (
                "TTL key",
                "seconds left; -1 for no lifetime, -2 for no key",
                READ,
                1,
                1,
                1,
                derived(lambda k: ("PTTL", k), seconds),
            ),
            (
                "EXPIRETIME key",
                "its deadline, in seconds since 1970",
                READ,
                1,
                1,
                1,
                derived(lambda k: ("PEXPIRETIME", k), seconds),
            ),
            (
                f"EXPIREAT key seconds {_CONDITIONS}",
                "1 if the deadline was set",
                WRITE,
                1,
                2,
                4,
                expire(1000, "PEXPIREAT"),
            ),
            ("RENAME key newkey", "OK; the lifetime is kept", WRITE, 2, 2, 2, optimistic.rename),
            ("RENAMENX key newkey", "1, or 0 if the new key exists", WRITE, 2, 2, 2, optimistic.renamenx),
            ("COPY source destination [REPLACE]", "1 if it was copied", WRITE, 2, 2, 3, optimistic.copy_key),
        ),
        *_rows(
            "hash",
            (
                "HMSET key field value [field value ...]",
                "OK",
                WRITE,
                1,
                3,
                None,
                derived(lambda *args: ("HSET", *args), lambda replies: OK),
            ),
            ("HKEYS key", "all fields", READ, 1, 1, 1, derived(lambda k: ("HGETALL", k), lambda r: list(r[0]))),
            (
                "HVALS key",
                "all values",
                READ,
                1,
                1,
                1,
                derived(lambda k: ("HGETALL", k), lambda r: list(r[0].values())),
            ),
            ("HSTRLEN key field", "the length of a value", READ, 1, 2, 2, derived(lambda k, f: ("HGET", k, f), length)),
            (
                "HRANDFIELD key [count [WITHVALUES]]",
                "random fields, with their values",
                READ,
                1,
                1,
                3,
                optimistic.hrandfield,
            ),
            ("HINCRBYFLOAT key field amount", "the sum, as text", WRITE, 1, 3, 3, optimistic.hincrbyfloat),
            (
                "HSCAN key cursor [MATCH pattern] [COUNT n]",
                "0, and all fields with their values",
                READ,
                1,
                2,
                6,
                scan_entries("HGETALL"),
            ),
        ),
        *_rows(
            "set",
            ("SMISMEMBER key member [member ...]", "1 or 0 for each", READ, 1, 2, None, smismember),
            ("SPOP key [count]", "random members, which are removed", WRITE, 1, 1, 2, optimistic.spop),
            ("SRANDMEMBER key [count]", "random members", READ, 1, 1, 2, optimistic.srandmember),
            ("SMOVE source destination member", "1 if it was moved", WRITE, 2, 3, 3, smove),
            ("SINTER key [key ...]", "members of all sets", READ, ALL, 1, None, combine(set.intersection)),
            ("SUNION key [key ...]", "members of any set", READ, ALL, 1, None, combine(set.union)),
            ("SDIFF key [key ...]", "members of the first set only", READ, ALL, 1, None, combine(set.difference)),
            (
                "SINTERSTORE destination key [key ...]",
                "number of members of all sets, which are stored",
                WRITE,
                ALL,
                2,
                None,
                optimistic.store_set(set.intersection),
            ),
            (
                "SUNIONSTORE destination key [key ...]",
                "number of members of any set, which are stored",
                WRITE,
                ALL,
                2,
                None,
                optimistic.store_set(set.union),
            ),
            (
                "SDIFFSTORE destination key [key ...]",
                "number of members of the first set only, which are stored",
                WRITE,
                ALL,
                2,
                None,
                optimistic.store_set(set.difference),
            ),
            (
                "SINTERCARD numkeys key [key ...] [LIMIT limit]",
                "number of members of all sets, at most the limit",
                READ,
                0,
                2,
                None,
                sintercard,
            ),
            (
                "SSCAN key cursor [MATCH pattern] [COUNT n]",
                "0, and all members",
                READ,
                1,
                2,
                6,
                scan_entries("SMEMBERS"),
            ),
        ),
        *_rows(
            "zset",
            (
                "ZINCRBY key amount member",
                "the new score",
                WRITE,
                1,
                3,
                3,
                derived(lambda k, amount, member: ("ZADD", k, "INCR", amount, member)),
            ),
            (
                "ZREVRANGE key start stop [WITHSCORES]",
                "members, highest first",
                READ,
                1,
                3,
                4,
                zrange_as("ZREVRANGE", "REV"),
            ),
            (
                "ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]",
                "members in order",
                READ,
                1,
                3,
                7,
                zrange_as("ZRANGEBYSCORE", "BYSCORE"),
            ),
            (
                "ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]",
                "members, highest first",
                READ,
                1,
                3,
                7,
                zrange_as("ZREVRANGEBYSCORE", "BYSCORE", "REV"),
            ),
            ("ZPOPMAX key [count]", "the highest, which are removed", WRITE, 1, 1, 2, optimistic.zpopmax),
            (
                "ZSCAN key cursor [MATCH pattern] [COUNT n]",
                "0, and all members with their scores",
                READ,
                1,
                2,
                6,
                scan_entries("ZRANGE", 0, -1, "WITHSCORES"),
            ),
        ),
        *_rows(
            "list",
            (
                "LPUSHX key item [item ...]",
                "the length, or 0 without a list",
                WRITE,
                1,
                2,
                None,
                push_to_existing("LPUSH"),
            ),
            (
                "RPUSHX key item [item ...]",
                "the length, or 0 without a list",
                WRITE,
                1,
                2,
                None,
                push_to_existing("RPUSH"),
            ),
            ("LPOS key item [RANK rank] [COUNT n] [MAXLEN n]", "where the item is, or nil", READ, 1, 2, 8, lpos),
            (
                "LINSERT key BEFORE | AFTER pivot item",
                "the length, 0 without a list, -1 without the pivot",
                WRITE,
                1,
                4,
                4,
                optimistic.linsert,
            ),
            (
                "LMOVE source destination LEFT | RIGHT LEFT | RIGHT",
                "the item that was moved, or nil",
                WRITE,
                2,
                4,
                4,
                optimistic.lmove,
            ),
            ("RPOPLPUSH source destination", "the item that was moved, or nil", WRITE, 2, 2, 2, optimistic.rpoplpush),
        ),
        *_rows(
            None,
            ("KEYS pattern", "all keys that match, by a scan", READ, 0, 1, 1, optimistic.keys),
            ("PING [message]", "PONG, or the message", READ, 0, 0, 1, ping),
            ("ECHO message", "the message", READ, 0, 1, 1, ping),
        ),
    )
}

# Commands of the stores in which Redis also takes a lifetime of zero or less: it deletes the key.
_EXPIRING: Final[dict[str, Build]] = {
    "EXPIRE": expire(1000, "PEXPIRE"),
    "PEXPIRE": expire(1, "PEXPIRE"),
    "PEXPIREAT": expire(1, "PEXPIREAT"),
}


def derive(command: Command) -> Derived | Exchange | None:
    """A command of Redis as commands of the stores. None: pass it to the store as it is.

    None is returned for the commands of the stores themselves, and for unknown ones: the store has the error. Raises a
    CommandError that names the command as it was written, if its arguments do not fit.

        match derive(command):
            case None: [reply] = await store.run([command])
            case Exchange() as exchange: reply = await exchange.run(store)
            case Derived(steps=[]) as one: reply = one.finish([])
            case one: reply = one.reply(await store.atomically(one.steps))

    A Derived of one step that is not guarded may be sent with `run` together with others, and any Derived that is not
    guarded can be part of a larger atomic step: `finish` takes the replies of its own steps. `run_derived` does all
    that for a pipeline.
    """
    name = command[0]
    if name in TABLE and name not in _EXPIRING:
        return None
    name = (name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)).upper()
    spec = DERIVED.get(name)
    build = _EXPIRING.get(name) if spec is None else spec.parse
    if build is None:
        return None
    args: list[bytes] = []
    try:
        args = [encode(argument) for argument in command[1:]]
        if spec is None:
            return _derive_expiry(build, command, args)
        if len(args) < spec.least or (spec.most is not None and len(args) > spec.most):
            count = "1 argument does" if len(args) == 1 else f"{len(args)} arguments do"
            raise WrongArity(f"{count} not fit. Write: {spec.usage}")
        built: Derived | Exchange = build(args)
        return built
    except CommandError as error:
        raise blame(error, name, args, spec is None or spec.keys != 0) from None


def _derive_expiry(build: Build, command: Command, args: Sequence[bytes]) -> Derived | Exchange | None:
    """Only a lifetime of zero or less is rewritten; the store has the errors of all others."""
    try:
        is_over = len(args) > 1 and integer(args[1]) <= 0
    except CommandError:
        return None
    return build(args) if is_over else None


async def run_derived(store: Store, commands: Sequence[Command]) -> list[Reply]:
    """The replies to a pipeline of derived and other commands, in order, with a StoreError in place of each failure.

    Commands in a row that are one step each are one round trip. Like `Store.run`, it is not atomic as a whole.
    """
    replies: list[Reply] = []
    waiting: list[tuple[Derived | None, Command]] = []
    for command in commands:
        one: Derived | Exchange | CommandError | None
        try:
            one = derive(command)
        except CommandError as error:
            one = error
        if one is None:
            waiting.append((None, command))
        elif isinstance(one, Derived) and len(one.steps) == 1 and not one.is_guarded:
            waiting.append((one, one.steps[0]))  # type: ignore[arg-type]
        else:
            replies += await _run_waiting(store, waiting)
            waiting.clear()
            replies.append(one if isinstance(one, CommandError) else await _run_alone(store, one, command))
    return [*replies, *await _run_waiting(store, waiting)]


async def _run_waiting(store: Store, waiting: Sequence[tuple[Derived | None, Command]]) -> list[Reply]:
    """Run these commands in one round trip."""
    try:
        found = await store.run([command for _, command in waiting])
    except StoreError as error:
        if error.replies is None:
            raise
        found = error.replies
    return [
        reply if one is None or isinstance(reply, StoreError) else one.finish([reply])
        for (one, _), reply in zip(waiting, found, strict=True)
    ]


async def _run_alone(store: Store, one: Derived | Exchange, command: Command) -> Reply:
    try:
        if isinstance(one, Exchange):
            return await one.run(store)
        return one.reply(await store.atomically(one.steps)) if one.steps else one.finish([])
    except CommandError as error:
        return blame(error, str(command[0]).upper(), [encode(part) for part in command[1:2]], True)
