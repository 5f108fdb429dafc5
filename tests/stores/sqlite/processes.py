"""Runs the functions of `programs.py` as separate processes, and waits for conditions."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests import forking

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0

# A mount namespace of its own: what the program mounts nobody else sees, and it is gone with the program.
OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")


def command(program: str, *arguments: object, under: Sequence[str] = ()) -> list[str]:
    return [*under, sys.executable, "-m", "tests.stores.sqlite.programs", program, *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(program: str, *arguments: object, under: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A program whose input and output are pipes. It is gone when the block is left."""
    with subprocess.Popen(
        command(program, *arguments, under=under),
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(
    program: str, *arguments: object, under: Sequence[str] = (), seconds: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """A program that ran to its end; one that hangs fails the test."""
    try:
        return subprocess.run(
            command(program, *arguments, under=under),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"{program} did not end within {seconds:g} s: {error.stdout!r} {error.stderr!r}")


def succeeded(program: str, *arguments: object, under: Sequence[str] = ()) -> list[str]:
    """The lines a program printed. It has to end well."""
    result = finished(program, *arguments, under=under)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def all_succeeded(programs: Sequence[Sequence[object]]) -> list[list[str]]:
    """The lines of programs that ran at the same time: each waits until all have started."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                forking.talking("tests.stores.sqlite.programs", [*map(str, program)], ROOT, environment())
            )
            for program in programs
        ]
        for one in running:
            assert one.stdout.readline() == "ready\n"
        for one in running:
            one.stdin.write("go\n")
            one.stdin.flush()
        outputs = [one.stdout.read() for one in running]
        ended = [one.command.wait(PATIENCE_S) for one in running]
        for one in running:
            one.stderr.seek(0)
        assert ended == [0] * len(running), [one.stderr.read() for one in running]
    return [out.splitlines() for out in outputs]


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line the program prints, or nothing if it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


async def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Let the event loop run until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s in vain until {what}")
        await asyncio.sleep(0.002)
