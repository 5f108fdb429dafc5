"""A process with an outbox, for the tests: `python -m tests.parts.outbox.worker URL FILE`.

It delivers by writing a line to the file for each message, and takes its time for it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from keystead import connect
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage


async def main(url: str, file: str) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)

    async def send(message: OutboxMessage) -> None:
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{os.getpid()} {message.payload['n']}\n".encode())
        os.close(handle)
        await asyncio.sleep(0.005)

    async with connect(url) as store, Outbox(OutboxKeys(store), send):
        await asked.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
