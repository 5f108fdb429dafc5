"""Undoing a step on some members does not copy a large key."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from keystead import Store, connect
from keystead.errors import BadArgument
from keystead.stores import Command, Step, at_most
from tests.servers import Server

MANY = 200
FAR_MS = 4_102_444_800_000  # 2100

STOPS = at_most(("GET", "there"), 0)

LARGE: dict[str, Command] = {
    "zset": ("ZADD", "zset", *(part for n in range(MANY) for part in (n + 0.1, f"m{n}"))),
    "set": ("SADD", "set", *(f"m{n}" for n in range(MANY))),
    "hash": ("HSET", "hash", *(part for n in range(MANY) for part in (f"m{n}", n))),
    "list": ("RPUSH", "list", *(f"m{n}" for n in range(MANY))),
}
ALL = tuple(f"m{n}" for n in range(MANY))

STEPS: list[list[Command]] = [
    [("ZADD", "zset", 7, "m1", 8, "new")],
    [("ZADD", "zset", "NX", 7, "m1", 8, "new")],
    [("ZADD", "zset", "XX", "CH", "GT", 7, "m1", 8, "new")],
    [("ZADD", "zset", "INCR", 0.5, "m3")],
    [("ZREM", "zset", "m1", "none")],
    [("ZREM", "zset", *ALL)],
    [("ZREM", "zset", "m1"), ("ZADD", "zset", 1, "m1"), ("ZREM", "zset", "m1", "m2")],
    [("SADD", "set", "m1", "new", "new")],
    [("SREM", "set", "m1", "none")],
    [("SREM", "set", *ALL)],
    [("HSET", "hash", "m1", "x", "new", "y")],
    [("HSETNX", "hash", "new", "y")],
    [("HINCRBY", "hash", "m7", 5), ("HINCRBY", "hash", "new", 5)],
    [("HDEL", "hash", "m1", "none")],
    [("HDEL", "hash", *ALL)],
    [("LPUSH", "list", "a", "b")],
    [("RPUSH", "list", "a", "b"), ("LPUSH", "list", "c")],
    [("XADD", "stream", "*", "f", "v")],
    [("XADD", "stream", "MAXLEN", 50, "*", "f", "v")],
    [("XADD", "stream", "MAXLEN", "~", 50, "*", "f", "v")],
    [("PEXPIREAT", "zset", FAR_MS - 5), ("PERSIST", "set"), ("PEXPIRE", "hash", 1_000_000, "LT")],
    [("PEXPIRE", "list", 1_000_000), ("PEXPIREAT", "list", FAR_MS)],
]
COPIED: list[list[Command]] = [
    [("ZADD", "zset", 7, "new"), ("DEL", "zset"), ("ZADD", "zset", 1, "a")],
    [("PEXPIREAT", "zset", 1)],
    [("LPUSH", "list", "a"), ("LTRIM", "list", 0, 3), ("LPUSH", "list", "b")],
    [("XADD", "stream", "MAXLEN", 50, "*", "f", "v"), ("XLEN", "stream")],
    [("HDEL", "hash", "m1"), ("DEL", "hash", "set"), ("SADD", "set", "x")],
]


def _named(steps: list[Command]) -> str:
    return " ".join(str(part) for step in steps for part in step[:4])


@pytest.fixture
async def store(server: Server) -> AsyncIterator[Store]:
    async with connect(server.url) as store:
        await store.run([("SET", "there", 1), *LARGE.values()])
        await store.run([("XADD", "stream", f"{n + 1}-0", "f", "v") for n in range(MANY)])
        await store.run([("XDEL", "stream", "7-0")])
        await store.run([("PEXPIREAT", key, FAR_MS) for key in ("zset", "hash")])
        yield store


def _state(server: Server) -> list[Any]:
    """All of it as the server itself shows it. What a stream remembers of entries that are gone is left out."""
    asked: list[tuple[Any, ...]] = [("DEBUG", "DIGEST"), ("XINFO", "STREAM", "stream")]
    asked += [("PEXPIRETIME", key) for key in ("zset", "set", "hash", "list", "stream")]
    shown = [server.ask(*one) for one in asked]
    shown[1] = [shown[1][name] for name in (b"length", b"first-entry", b"last-entry")]
    return shown


def _copies(server: Server) -> int:
    stats: bytes | str = server.ask("INFO", "commandstats")
    text = stats.decode() if isinstance(stats, bytes) else str(stats)
    found = [line for line in text.splitlines() if line.startswith("cmdstat_dump:")]
    return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0


@pytest.mark.parametrize("steps", STEPS, ids=_named)
async def test_a_step_on_a_large_key_is_undone_without_a_copy_of_it(
    server: Server, store: Store, steps: list[Command]
) -> None:
    before = _state(server)
    outcome = await store.atomically([*steps, STOPS])
    assert (bool(outcome), outcome.stopped_at) == (False, len(steps))
    assert _state(server) == before
    assert _copies(server) == 0


async def test_entries_whose_ids_follow_each_other_need_no_copy_of_their_stream(server: Server, store: Store) -> None:
    last = f"{MANY}-0"
    ids = [f"{MANY + number}-0" for number in range(1, 6)]
    added: list[Command] = [("XADD", "stream", "MAXLEN", MANY, name, "f", "v") for name in ids]
    assert await store.atomically([*added, ("PEXPIREAT", "stream", FAR_MS)])
    before = _state(server)
    for refused in ([last, f"{MANY + 9}-0"], [ids[-1], f"{MANY + 9}-0"]):
        with pytest.raises(BadArgument):
            await store.atomically([("XADD", "stream", name, "f", "v") for name in refused])
    assert _state(server) == before
    assert _copies(server) == 0
    falling = [f"{MANY + 20}-0", f"{MANY + 19}-0"]
    with pytest.raises(BadArgument):
        await store.atomically([("XADD", "stream", name, "f", "v") for name in falling])
    assert _state(server) == before  # which only a copy can bring back


@pytest.mark.parametrize("steps", COPIED, ids=_named)
async def test_large_changes_are_undone_by_a_copy(server: Server, store: Store, steps: list[Command]) -> None:
    before = _state(server)
    assert not await store.atomically([*steps, STOPS])
    assert _state(server) == before
    assert _copies(server) > 0


@pytest.mark.parametrize("steps", [*STEPS, *COPIED], ids=_named)
async def test_steps_that_are_not_stopped_have_the_same_outcome(
    server: Server, store: Store, steps: list[Command]
) -> None:
    """The same steps with a guard behind them that lets them pass, and one by one, on two servers."""
    passes: Step = at_most(("GET", "nowhere"), 0)
    outcome = await store.atomically([*steps, passes])
    assert outcome
    after = _state(server)
    if any(step[0] == "XADD" for step in steps):
        length = server.ask("XLEN", "stream")
        assert length == (MANY if "MAXLEN" not in steps[0] else length)
        assert length <= MANY
        if "MAXLEN" in steps[0] and "~" not in steps[0]:
            assert length == 50
        return
    await store.run([("DEL", "zset", "set", "hash", "list")])
    await store.run(list(LARGE.values()))
    await store.run([("PEXPIREAT", key, FAR_MS) for key in ("zset", "hash")])
    replies = [(await store.run([step]))[0] for step in steps]
    assert outcome.replies[:-1] == replies
    if not any(step[0] == "PEXPIRE" for step in steps):  # those go by the time at which they came
        assert _state(server) == after


async def test_a_user_without_the_right_to_take_members_out_still_gets_all_or_nothing(
    server: Server, store: Store
) -> None:
    server.ask("ACL", "SETUSER", "adds", "on", ">secret", "~*", "+@all", "-zrem")
    before = _state(server)
    async with connect(server.url.replace("redis://", "redis://adds:secret@")) as theirs:
        assert not await theirs.atomically([("ZADD", "zset", 7, "new"), STOPS])
    assert _state(server) == before
    assert _copies(server) == 1
