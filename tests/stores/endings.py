"""Programs that end without closing their store: `python -m tests.stores.endings URL` runs and reports each.

A line of JSON for each program: its name, how it ended, and its stdout and stderr. Each is forked from this process, so
that Keystead is imported once for all of them.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from typing import Any

from keystead import KeysteadError, Store, connect

PATIENCE_S = 60.0  # for what hangs

kept: list[Any] = []  # what a program still has when it ends


async def use(url: str) -> Store:
    """A store that has read and written, and is busy: a write under way, a listener, a scan that was left."""
    store = connect(url)
    await store.open()
    await store.run([("SET", "a", "1"), ("GET", "a")])
    if store.guarantees.atomic != "nothing":
        await store.atomically([("SET", "a", "2")])
    write = asyncio.ensure_future(store.run([("SET", "b", "2")]))
    if store.url.startswith("cloudflare-kv:"):  # its HTTP client complains if it ends while it opens a connection
        await write
    kept.append(write)
    if "channel" in store.guarantees.kinds:
        listening = asyncio.Event()
        kept.append(asyncio.ensure_future(listen(store, listening)))
        await listening.wait()
    if store.guarantees.scans:
        async for _ in store.scan(page=1):
            break
    return store


async def listen(store: Store, listening: asyncio.Event) -> None:
    async with store.subscribe("news") as messages:
        listening.set()
        async for _ in messages:
            pass


async def forget(url: str) -> None:
    await use(url)


async def keep(url: str) -> None:
    kept.append(await use(url))


async def leave(url: str) -> None:
    await use(url)
    sys.exit(3)


async def fail(url: str) -> None:
    await use(url)
    raise ValueError("escaped")


async def be_interrupted(url: str) -> None:
    await use(url)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()


def run_twice(url: str) -> None:
    """The most common mistake: a store that outlives its `asyncio.run`."""
    store = asyncio.run(use(url))
    for verb in (store.run([("GET", "a")]), store.open(), store.close()):
        try:
            asyncio.run(verb)
        except KeysteadError as error:
            print(f"{error.code}: {error}")


async def use_in_a_thread(url: str) -> None:
    store = await use(url)

    def call() -> None:
        try:
            asyncio.run(store.run([("GET", "a")]))
        except KeysteadError as error:
            print(f"{error.code}: {error}")

    thread = threading.Thread(target=call)
    thread.start()
    await asyncio.to_thread(thread.join)


PROGRAMS = (forget, keep, leave, fail, be_interrupted, run_twice, use_in_a_thread)


def end_of(pid: int) -> int | None:
    """How the process ended; None: it hung, and was killed."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def main(url: str) -> None:
    for program in PROGRAMS:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            pid = os.fork()
            if pid == 0:
                os.dup2(out.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                # A person could interrupt it, also where nobody can interrupt the tests.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                work = program(url)
                if work is not None:
                    asyncio.run(work)
                return  # and so ends as any program does
            ended = end_of(pid)
            out.seek(0)
            errors.seek(0)
            told = {"program": program.__name__, "ended": ended, "out": out.read(), "errors": errors.read()}
            os.write(1, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
