"""Events while everything breaks: the process is killed, the bus goes away, and Slack answers 429 and 500."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from keystead.testing.servers import Server
from tests.parts.oauth.stand_in import StandIn, answer

ROOT = Path(__file__).parents[3]
POST = "/api/chat.postMessage"


@dataclass
class FakeSlack:
    """Slack: of its answers some are 429, some 500, and some it takes a message without saying so."""

    server: StandIn
    posted: Counter[str] = field(default_factory=Counter)
    said: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.server.answers[POST] = self._answer

    def _answer(self) -> bytes:
        _, sent = self.server.asked.pop()
        number = sum(self.said.values())
        status = 429 if number % 40 == 7 else 500 if number % 40 in (19, 33) else 200
        self.said[status] += 1
        if status == 200 or number % 40 == 33:  # the last of them has taken it all the same
            block = json.loads(sent.partition("\r\n\r\n")[2])["attachments"][0]["blocks"][0]
            self.posted[block["block_id"]] += 1
        return answer({"ok": True}, status, "retry-after: 0\r\n" if status == 429 else "")


async def endure(store: Server, database: str, slack: FakeSlack, *, events: int, readers: int, kills: int) -> int:
    """Tell of so many events, with so many kills and one time without the bus; how often the process was started."""
    arguments = (store.url, database, slack.server.url + POST, str(events), str(readers))
    command = (sys.executable, "-m", "tests.kits.teamwork.office_worker", *arguments)
    for number in range(kills):
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
        # Each one comes further than the one before.
        await _until(process, events * (number + 1) // (kills + 1))
        if number == kills // 2:
            store.kill()
            await _until(process, min(events, events * (number + 1) // (kills + 1) + 100))
            store.restart()
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
    rest, _ = await process.communicate()
    assert rest.split()[-1] == b"done", rest
    assert process.returncode == 0
    return kills + 1


async def _until(process: Process, told: int) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.strip() == b"done" or int(line) >= told:
            return
    raise AssertionError(f"the process ended with {await process.wait()}")
