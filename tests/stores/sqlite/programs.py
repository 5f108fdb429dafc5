"""Programs that the tests run as separate processes: `python -m tests.stores.sqlite.programs NAME ARGUMENTS`."""

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from keystead import connect
from keystead.errors import KeysteadError
from keystead.stores import holds, required
from keystead.stores.sqlite import SqliteStore

NOBODY = 65_534


def tell(line: str) -> None:
    """One line, in one write: lines of one process are never torn, not even by kill -9."""
    os.write(1, f"{line}\n".encode())


def wait_for_the_others() -> None:
    tell("ready")
    sys.stdin.readline()


async def code_of(call: Awaitable[Any]) -> str:
    """`ok`, or the code of the error the call ended with."""
    try:
        await call
    except KeysteadError as error:
        return error.code
    return "ok"


# --- crashes -----------------------------------------------------------------------------------------------


async def write_until_killed(path: str, run: str) -> None:
    """32 tasks that write forever, and print each acknowledged write."""
    async with SqliteStore(path) as store:

        async def write(task: int) -> None:
            number = 0
            while True:
                name = f"{run}:{task}:{number}"
                await store.run([("SET", f"single:{name}", name), ("INCRBY", f"count:{run}:{task}", 1)])
                tell(f"single {name}")
                await store.atomically(
                    [
                        ("SET", f"left:{name}", name),
                        ("HSET", f"right:{name}", "name", name),
                        ("RPUSH", f"pairs:{run}", name),
                    ]
                )
                tell(f"pair {name}")
                number += 1

        await asyncio.gather(*map(write, range(32)))


# --- several processes -------------------------------------------------------------------------------------


async def increment(path: str, times: str) -> None:
    async with SqliteStore(path) as store:
        wait_for_the_others()
        replies = await asyncio.gather(*(store.run([("INCRBY", "counter", 1)]) for _ in range(int(times))))
        for [total] in replies:
            tell(str(total))


async def increment_one_after_another(path: str, times: str) -> None:
    async with SqliteStore(path) as store:
        wait_for_the_others()
        for _ in range(int(times)):
            [total] = await store.run([("INCRBY", "counter", 1)])
            tell(str(total))


async def come_and_go(path: str, times: str) -> None:
    """As scripts and restarting workers do: open, write, read, close, again and again, sometimes twice at once."""
    wait_for_the_others()
    for _ in range(int(times)):
        async with SqliteStore(path) as store, SqliteStore(path) as second:
            writes = [s.run([("INCRBY", "counter", 1)]) for s in (store, second) for _ in range(5)]
            for [total] in await asyncio.gather(*writes):
                tell(str(total))
            await store.run([("GET", "counter")])


async def expire_at_once(path: str, times: str) -> None:
    wait_for_the_others()
    async with SqliteStore(path) as store:
        for number in range(int(times)):
            await asyncio.gather(
                *(store.run([("SET", f"{os.getpid()}:{number}:{i}", "x", "PX", 1)]) for i in range(32))
            )
        tell("done")


async def claim(path: str, name: str, keys: str) -> None:
    """Print each key that this process was the first to set."""
    async with SqliteStore(path) as store:
        wait_for_the_others()
        replies = await asyncio.gather(
            *(store.run([("SET", f"claim:{number}", name, "NX")]) for number in range(int(keys)))
        )
        for number, [reply] in enumerate(replies):
            if reply is not None:
                tell(str(number))


async def swap(path: str, times: str) -> None:
    """Increment a value by compare-and-set; print how often another process was faster."""
    async with SqliteStore(path) as store:
        wait_for_the_others()
        done = lost = 0
        while done < int(times):
            [held] = await store.run([("GET", "value")])
            outcome = await store.atomically(
                [holds("value", held), ("SET", "value", int(held or 0) + 1), required(("RPUSH", "log", held or "0"))]
            )
            done, lost = (done + 1, lost) if outcome else (done, lost + 1)
        tell(str(lost))


async def open_at_once(path: str) -> None:
    """Open a file that may not exist yet, at the same moment as others."""
    wait_for_the_others()
    async with SqliteStore(path) as store:
        await store.run([("INCRBY", "opened", 1)])


async def obey(path: str) -> None:
    """Run each command from a line of JSON, and print its reply."""
    async with SqliteStore(path) as store:
        tell("ready")
        while line := sys.stdin.readline():
            [reply] = await store.run([json.loads(line)])
            tell(reply.decode() if isinstance(reply, bytes) else json.dumps(reply))


# --- messages ----------------------------------------------------------------------------------------------


async def listen(path: str, channel: str, messages: str) -> None:
    async with SqliteStore(path) as store, store.subscribe(channel) as inbox:
        tell("ready")
        for _ in range(int(messages)):
            message = await anext(inbox)
            tell(message.data.decode())


async def listen_until_killed(path: str, channel: str) -> None:
    async with SqliteStore(path) as store, store.subscribe(channel):
        tell("ready")
        await asyncio.Event().wait()


async def publish(path: str, channel: str, name: str, messages: str) -> None:
    """Publish sequentially, in the order of their numbers; print the replies."""
    async with SqliteStore(path) as store:
        wait_for_the_others()
        for number in range(int(messages)):
            [listening] = await store.run([("PUBLISH", channel, f"{name}:{number}")])
            tell(str(listening))


# --- ends of programs --------------------------------------------------------------------------------------


async def forget_to_close(path: str) -> None:
    store = connect(f"sqlite:///{path}")
    await store.open()
    await store.run([("SET", "a", "1")])
    await store.run([("HSET", "h", *(str(number) for number in range(2_000)))])
    await store.run([("HGETALL", "h")])  # starts the thread for large reads
    async with store.subscribe("channel"):
        await store.run([("PUBLISH", "channel", "x")])
    tell("written")


async def fail_while_open(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    pending = [asyncio.ensure_future(store.run([("SET", f"k{n}", "x")])) for n in range(100)]
    await pending[0]
    tell("written")
    raise ValueError("escaped")


async def write_until_interrupted(path: str) -> None:
    async with SqliteStore(path) as store:

        async def write(task: int) -> None:
            for number in range(1_000_000):
                await store.run([("SET", f"{task}:{number}", "x")])
                tell(f"{task}:{number}")

        await asyncio.gather(*map(write, range(8)))


async def stop_the_loop(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    for number in range(500):
        asyncio.ensure_future(store.run([("SET", f"k{number}", "x")]))  # noqa: RUF006 - it is to be pending
    await store.run([("SET", "a", "1")])
    tell("written")
    for number in range(500):
        asyncio.ensure_future(store.run([("SET", f"l{number}", "x")]))  # noqa: RUF006
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
    await asyncio.Event().wait()


async def leave_a_lock_waiting(path: str) -> None:
    """End while another connection holds the file and a write waits for it."""
    store = SqliteStore(path, timeout=60)
    await store.open()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await store.run([("SET", "a", "1")])
    tell("ends")


# --- faults ------------------------------------------------------------------------------------------------


def drop_rights() -> None:
    """Root may write whatever the modes say; nobody else may."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


async def open_without_rights(path: str) -> None:
    drop_rights()
    try:
        async with SqliteStore(path) as store:
            tell("ok")
            tell(await code_of(store.run([("SET", "a", "1")])))
    except KeysteadError as error:
        tell(error.code)
        tell(str(error))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def leave_room(ballast: str, room_bytes: int) -> None:
    """Fill the disk but for this much."""
    with open(ballast, "wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        file.truncate(file.tell() - room_bytes)


async def open_on_a_read_only_mount(folder: str) -> None:
    """Needs a mount namespace of its own."""
    async with SqliteStore(f"{folder}/store.db") as store:
        await store.run([("SET", "a", "1")])
    mount("--bind", folder, folder)
    mount("-o", "remount,ro,bind", folder)
    tell(await code_of(SqliteStore(f"{folder}/store.db").open()))
    tell(await code_of(SqliteStore(f"{folder}/new.db").open()))


async def fill_the_disk(folder: str) -> None:
    """Needs a mount namespace of its own. Tells facts as JSON."""
    mount("-t", "tmpfs", "-o", "size=6m", "tmpfs", folder)
    facts: dict[str, Any] = {}
    path = f"{folder}/store.db"
    ballast = f"{folder}/ballast"
    async with SqliteStore(path) as store:
        acknowledged = []
        for number in range(100):
            await store.run([("SET", f"before:{number}", "x" * 1000)])
            acknowledged.append(f"before:{number}")
        leave_room(ballast, 700_000)  # for small writes, not for large ones

        # One batch that does not fit, among others that do, all in one group.
        big = "x" * 3_000_000
        codes = await asyncio.gather(
            *(code_of(store.run([("SET", f"small:{number}", "y")])) for number in range(5)),
            code_of(store.run([("SET", "big", big)])),
            code_of(store.atomically([("SET", "left", "y"), ("SET", "big", big), ("SET", "right", "y")])),
            *(code_of(store.run([("SET", f"small:{number}", "y")])) for number in range(5, 10)),
        )
        facts["one large batch among small ones"] = codes
        acknowledged += [f"small:{number}" for number in range(10)]

        # Until nothing fits any more.
        code, number = "ok", 0
        while code == "ok" and number < 10_000:
            code = await code_of(store.run([("SET", f"filler:{number}", "z" * 5000)]))
            if code == "ok":
                acknowledged.append(f"filler:{number}")
            number += 1
        facts["when nothing fits"] = code
        facts["atomically when nothing fits"] = await code_of(
            store.atomically([("SET", "left", "z" * 300_000), ("SET", "right", "z" * 300_000)])
        )
        facts["missing while full"] = await missing(store, acknowledged)
        [halves] = await store.run([("EXISTS", "left", "right", "big")])
        facts["halves"] = halves

        os.unlink(ballast)
        facts["after room was made"] = await code_of(store.run([("SET", "after", "1"), ("SET", "big", big)]))
    async with SqliteStore(path) as store:
        facts["missing after reopening"] = await missing(store, [*acknowledged, "after", "big"])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        facts["integrity"] = connection.execute("PRAGMA integrity_check").fetchone()[0]
    tell(json.dumps(facts))


async def missing(store: SqliteStore, keys: list[str]) -> list[str]:
    [found] = await store.run([("MGET", *keys)])
    return [key for key, value in zip(keys, found, strict=True) if value is None]


def hold_the_lock(path: str, how: str) -> None:
    """Hold a write transaction until told to let go."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"BEGIN {how}")
        tell("ready")
        sys.stdin.readline()
        connection.execute("ROLLBACK")
    tell("released")


def crash_with_a_log(path: str) -> None:
    """A database of another program, left behind by a crash with its log beside it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE theirs (x)")
    connection.execute("INSERT INTO theirs VALUES ('kept')")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    # A person could interrupt it, also where nobody can interrupt the tests, as under `nohup`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name, *arguments = sys.argv[1:]
    program: Callable[..., Any] = globals()[name]
    if asyncio.iscoroutinefunction(program):
        asyncio.run(program(*arguments))
    else:
        program(*arguments)


if __name__ == "__main__":
    main()
