"""Chaos tests of notifications: processes are killed, readers reconnect, the bus goes down, Slack fails."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from sqlalchemy import func, select

from bench.streams import Follower
from bench.teamwork_server import TeamworkServer, hire, open_teamwork_service
from keystead.kits.teamwork.service.tables import NOTICES, SLACK_LOG, TEAMWORK_TABLES
from keystead.parts.tables import open_tables
from tests.servers import Server

ROOT = Path(__file__).parents[1]
POST = "/api/chat.postMessage"


@dataclass
class FakeSlack:
    """An unreliable Slack: some responses are 429 or 500, and some failed messages are delivered anyway."""

    url: str = ""
    posted: Counter[str] = field(default_factory=Counter)
    said: Counter[int] = field(default_factory=Counter)

    def answer(self, body: bytes) -> bytes:
        number = sum(self.said.values())
        status = 429 if number % 40 == 7 else 500 if number % 40 in (19, 33) else 200
        self.said[status] += 1
        if status == 200 or number % 40 == 33:  # the last of them has taken it all the same
            self.posted[json.loads(body)["attachments"][0]["blocks"][0]["block_id"]] += 1
        wait = "retry-after: 0\r\n" if status == 429 else ""
        content = b'{"ok": true}'
        head = f"HTTP/1.1 {status} Status\r\ncontent-length: {len(content)}\r\n{wait}\r\n"
        return head.encode() + content


@asynccontextmanager
async def fake_slack() -> AsyncIterator[FakeSlack]:
    """Run an unreliable Slack on loopback."""
    slack = FakeSlack()
    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].split("\r\n")[0])
                writer.write(slack.answer(await reader.readexactly(length)))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            writers.discard(writer)
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    slack.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}{POST}"
    try:
        yield slack
    finally:
        listening.close()
        for writer in writers:
            writer.transport.abort()
        await listening.wait_closed()


async def endure(store: Server, database: str, slack: FakeSlack, *, events: int, readers: int, kills: int) -> int:
    """Publish this many events, through kills and one outage of the bus. Returns how often the process was started."""
    arguments = (store.url, database, slack.url, str(events), str(readers))
    command = (sys.executable, "-m", "bench.office", *arguments)
    for number in range(kills):
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=DEVNULL)
        # Each one comes further than the one before.
        await _until(process, events * (number + 1) // (kills + 1))
        if number == kills // 2:
            store.kill()
            await _until(process, min(events, events * (number + 1) // (kills + 1) + 100))
            store.restart()
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=DEVNULL)
    rest, _ = await process.communicate()
    assert rest.split()[-1] == b"done", rest
    assert process.returncode == 0
    return kills + 1


async def check(bus: Server, database: str, slack: FakeSlack, *, events: int, readers: int) -> int:
    """Check that each notice is once in the table, once and in order on the stream, and in Slack. Returns the number of
    failed attempts."""
    async with open_tables(database, TEAMWORK_TABLES) as tables:
        rows = await tables.read(lambda connection: connection.execute(select(NOTICES)).all())
        failed = select(func.count()).select_from(SLACK_LOG).where(SLACK_LOG.c.status == "FAILED")
        logged: int = await tables.read(lambda connection: connection.execute(failed).scalar_one())
    assert sorted(row.event_id for row in rows) == sorted(f"event-{number}" for number in range(events))
    for user in range(1, readers + 1):
        entries = bus.ask("XRANGE", f"notifications:user:{user}:log", "-", "+")
        shown = [(entry_id, json.loads(fields[1])["notificationId"]) for entry_id, fields in entries]
        own = sorted((row.place, row.id) for row in rows if row.user_id == user)
        assert shown == [(b"%d-0" % place, number) for place, number in own]
        assert [place for place, _ in own] == list(range(1, len(own) + 1))
    assert set(slack.posted) == {f"notice-{row.id}" for row in rows}
    assert all(row.slack_sent for row in rows)
    return logged


async def _until(process: Process, told: int) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.strip() == b"done" or int(line) >= told:
            return
    raise AssertionError(f"the process ended with {await process.wait()}")


# --- readers who reconnect -----------------------------------------------------------------------------------

TELLERS = 8


async def follow_through_kills(
    folder: Path, store_url: str, *, events: int, readers: int, kills: int, limit_s: float = 600.0
) -> list[Follower]:
    """Send events to two servers that are killed repeatedly, while readers reconnect to either. Raises AssertionError
    unless each reader got each notice once, in order, and nothing else."""
    database = f"sqlite:///{folder}/followed.tables.db"
    servers = [TeamworkServer(folder, store_url, database) for _ in range(2)]
    ports = [server.port for server in servers]
    each = events // readers
    try:
        for server in servers:
            await server.start()
        async with open_teamwork_service(store_url, database, ports[0]) as teamwork:
            await hire(teamwork, range(1, readers + 2))
            tokens = [teamwork.tokens.issue(str(user)).token for user in range(1, readers + 2)]
        followers = [Follower(ports, token, random.Random(user)) for user, token in enumerate(tokens[:readers])]
        told = _Telling(ports, tokens[readers], each * readers, readers)
        async with asyncio.timeout(limit_s):
            reading = [asyncio.ensure_future(one.follow(each)) for one in followers]
            await asyncio.gather(told.tell_all(), _kill(servers, told, kills))
            await asyncio.gather(*reading)
    finally:
        for server in servers:
            await server.stop()
    for user, one in enumerate(followers):
        assert one.others == [], (user, one.others[:3])
        assert [place for place, _ in one.notices] == list(range(1, each + 1)), user
        assert {number for _, number in one.notices} == set(range(user, each * readers, readers)), user
    return followers


class _Telling:
    """Sends events over HTTP, and retries with the other server if one does not answer."""

    def __init__(self, ports: Sequence[int], token: str, events: int, readers: int) -> None:
        self._ports = ports
        self._token = token
        self._numbers = iter(range(events))
        self._events = events
        self._readers = readers
        self._count = 0
        self._moved = asyncio.Event()

    async def tell_all(self) -> None:
        headers = {"authorization": f"Bearer {self._token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=5) as client:
            await asyncio.gather(*(self._tell(client, random.Random(number)) for number in range(TELLERS)))

    async def until(self, share: float) -> None:
        """Wait until this share of the events was sent."""
        while self._count < share * self._events:
            self._moved.clear()
            await self._moved.wait()

    async def _tell(self, client: httpx2.AsyncClient, chance: random.Random) -> None:
        for number in self._numbers:
            item = {
                "refType": "DEFECT",
                "refId": number,
                "title": f"event {number}",
                "assigneeId": number % self._readers + 1,
            }
            body = {"kind": "assigned", "id": f"event-{number}", "item": item}
            # A server that was killed tells nobody when it is back.
            while not await self._is_told(client, chance.choice(self._ports), body):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            self._count += 1
            self._moved.set()

    async def _is_told(self, client: httpx2.AsyncClient, port: int, body: Mapping[str, object]) -> bool:
        try:
            answer = await client.post(f"http://127.0.0.1:{port}/api/events", json=body)
        except httpx2.TransportError:
            return False
        assert answer.status_code in (200, 503), answer.text
        return bool(answer.status_code == 200)


async def _kill(servers: Sequence[TeamworkServer], told: _Telling, kills: int) -> None:
    for number in range(kills):
        await told.until((number + 1) / (kills + 1))
        server = servers[number % len(servers)]
        await server.kill()
        await server.start()
