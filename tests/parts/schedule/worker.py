"""A process with a schedule, for the tests: `python -m tests.parts.schedule.worker URL FILE`.

It writes a line to the file for each thing that happens to its job. The first run of `stuck` never ends by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping

from keystead import connect
from keystead.parts.schedule import Job, Run, Schedule, ScheduleKeys


def jobs(file: str) -> list[Job]:
    def note(*words: object) -> None:
        line = " ".join(map(str, (*words, os.getpid()))) + "\n"
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, line.encode())
        os.close(handle)

    async def counted(run: Run) -> Mapping[str, int | str]:
        note("counted", run.number, run.due_ms)
        return {"pid": os.getpid()}

    async def stuck(run: Run) -> None:
        note("began", run.number)
        if run.number == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                note("cancelled", run.number)
                raise
        note("ended", run.number)

    return [
        Job("counted", "* * * * *", counted, missed="each"),
        Job("stuck", "0 0 1 1 *", stuck, lease="1s"),
    ]


async def main(url: str, file: str) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    async with connect(url) as store:
        schedule = Schedule(ScheduleKeys(store), jobs(file), look_every="300ms", stop_within="100ms")
        async with schedule:
            await asked.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
