"""A process that is killed in the middle of a put."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.serving import environment, wait_until

# Puts more than two parts of a blob, prints that, and waits forever.
_PROGRAM = """
import asyncio, sys
from keystead.parts.blobs import open_blobs
from tests.parts.blobs.streams import LARGE, MIB, many

async def stopping():
    for piece in many(LARGE):
        yield piece
    print("all but the end", flush=True)
    await asyncio.Event().wait()

asyncio.run(open_blobs(sys.argv[1]).put(sys.argv[2], stopping(), max_bytes=100 * MIB))
"""


def put_and_be_killed(
    place: Path | str, path: str, arrived: Callable[[], bool], settings: Mapping[str, str] | None = None
) -> None:
    """Put most of a blob, and get killed when parts of it have arrived."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, place, path],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(settings),
        cwd=Path(__file__).parents[3],
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "all but the end\n"
            wait_until(arrived, "parts of the blob have arrived")
        finally:
            process.kill()
