"""Real processes that use one token at the same moment."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from keystead import Store
from tests import forking
from tests.every_store import on
from tests.parts.refresh.conftest import App, rotated
from tests.serving import environment

ROOT = Path(__file__).parents[3]


@on("sqlite", "redis", "cluster")
async def test_twenty_presentations_in_two_processes_mint_one_successor(store: Store) -> None:
    app = App(store, lambda: time.time_ns() // 1_000_000)
    await app.log_in()
    begun = await app.begin()
    with ExitStack() as stack:
        arguments = (store.url, begun.token, "10")
        processes = [
            stack.enter_context(forking.talking("tests.parts.refresh.presenting", arguments, ROOT, environment()))
            for _ in range(2)
        ]
        for process in processes:  # both are up before the first one begins
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        lines = [line.split() for process in processes for line in process.stdout.read().splitlines()]
        assert [process.command.wait(300) for process in processes] == [0, 0]
    assert sorted(line[0] for line in lines) == ["Retried"] * 19 + ["Rotated"]
    [successor] = {line[1] for line in lines}
    assert await rotated(app.tokens.rotate(successor))
