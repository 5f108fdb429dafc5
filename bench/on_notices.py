"""Notification latency from the event to the browser: one at a time, in a burst to a thousand streams, through kills.

The server is `keystead serve`; readers are plain connections to its server-sent events. Another process with the same
store and database publishes the events. The latency is from that call to the line that a reader has read.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.chaos import check, endure, fake_slack, follow_through_kills
from bench.measure import Advance, Progress, Row, Target
from bench.on_doctor import memory_mb
from bench.serving import allow_many_connections
from bench.streams import Stream, stream
from bench.teamwork_server import TeamworkServer, hire, open_teamwork_service
from keystead.kits.teamwork.service import Assigned, Teamwork, WorkItem
from tests import servers

ONE_BY_ONE, ONE_BY_ONE_QUICK = 500, 20
STREAMS, STREAMS_QUICK = 1_000, 20
NOTICES, NOTICES_QUICK = 10_000, 100
EVENTS, EVENTS_QUICK = 10_000, 200
READERS = 20
KILLS = 5
GROWTH = Target("under", 50)
BURST = Target("at least", 2_000)
SAMPLE_EVERY_S = 0.1


@dataclass
class Office:
    """A server, and the service that publishes events beside it."""

    port: int
    pid: int
    teamwork: Teamwork

    @asynccontextmanager
    async def listening(self, user: int) -> AsyncIterator[Stream]:
        async with stream(self.port, self.teamwork.tokens.issue(str(user)).token) as opened:
            status, _ = await opened.head()
            if status != 200 or (await opened.next()).kind != "hello":
                raise RuntimeError(f"a stream was answered with {status}")
            yield opened

    async def tell(self, user: int, number: int) -> None:
        item = WorkItem(ref_type="DEFECT", ref_id=number, doc_no=str(time.time_ns()), title="", assignee_id=user)
        await self.teamwork.tell(Assigned(id=f"{user}-{number}", item=item))


async def run(folder: Path, progress: Progress, *, quick: bool) -> list[Row]:
    rows = await throughput(folder, progress, quick=quick, one_by_one=ONE_BY_ONE_QUICK if quick else ONE_BY_ONE)
    events = EVENTS_QUICK if quick else EVENTS
    with servers.redis() as redis:
        for name, url in (("SQLite", f"sqlite:///{folder}/reconnecting.db"), ("Redis", redis.url)):
            rows.append(await _reconnecting(folder, name, url, events, progress))
    rows.append(await _through_kills(folder, events, progress))
    return rows


async def throughput(folder: Path, progress: Progress, *, quick: bool, one_by_one: int = 0) -> list[Row]:
    """A burst, after this many notices one at a time."""
    allow_many_connections()
    rows: list[Row] = []
    with servers.redis() as redis:
        for name, url in (("SQLite", f"sqlite:///{folder}/office.db"), ("Redis", redis.url)):
            async with _office(folder, name, url, STREAMS_QUICK if quick else STREAMS) as office:
                if one_by_one:
                    rows += await _one_by_one(office, name, one_by_one, progress)
                rows += await _burst(office, name, progress, quick=quick)
    return rows


async def _one_by_one(office: Office, name: str, count: int, progress: Progress) -> list[Row]:
    took = []
    async with office.listening(1) as opened:
        with progress.activity(f"notices · {name}, one at a time", count) as advance:
            for number in range(count):
                await office.tell(1, number)
                took.append(_age_ms((await opened.next()).data))
                advance(1)
    return _percentiles(f"{name}: from the event to the browser, one at a time", took)


async def _burst(office: Office, name: str, progress: Progress, *, quick: bool) -> list[Row]:
    streams, notices = (STREAMS_QUICK, NOTICES_QUICK) if quick else (STREAMS, NOTICES)
    each = notices // streams
    users = range(2, streams + 2)
    async with AsyncExitStack() as stack:
        opened = []
        with progress.activity(f"notices · {name}, opening {streams:,} streams", streams) as advance:
            for user in users:
                opened.append(await stack.enter_async_context(office.listening(user)))
                advance(1)
        async with _watch_memory(office.pid) as held:
            with progress.activity(f"notices · {name}, a burst of {notices:,}", notices) as advance:
                began = time.perf_counter()
                reading = [asyncio.ensure_future(_read(one, each, advance)) for one in opened]
                await asyncio.gather(*(_tell_each(office, user, each) for user in users))
                took = [age for ages in await asyncio.gather(*reading) for age in ages]
                lasted = time.perf_counter() - began
    return [
        Row(
            "notices",
            f"{name}: {notices:,} notices to {streams:,} streams, each in order",
            notices / lasted,
            "a second",
            None if quick else BURST,
        ),
        *_percentiles(f"{name}: in that burst, from the event to the browser", took),
        Row("notices", f"{name}: memory of the server beyond {held[0]:.0f} MB", max(held) - held[0], "MB", GROWTH),
    ]


async def _tell_each(office: Office, user: int, count: int) -> None:
    for number in range(count):
        await office.tell(user, number)


async def _read(opened: Stream, count: int, advance: Advance) -> list[float]:
    """The age of each notice, in ms. Raises RuntimeError if one is missing or out of order."""
    ages: list[float] = []
    for place in range(1, count + 1):
        one = await opened.next()
        if (one.kind, one.place) != ("notice", place):
            raise RuntimeError(f"instead of the notice at place {place} came {one}")
        ages.append(_age_ms(one.data))
        advance(1)
    return ages


def _age_ms(data: str) -> float:
    title: str = json.loads(data)["title"]  # it begins with what the item is called, which is when it was told
    return (time.time_ns() - int(title.split()[0])) / 1e6


@asynccontextmanager
async def _watch_memory(pid: int) -> AsyncIterator[list[float]]:
    """Sample the memory of a process, in MB, while the block runs."""
    seen = [memory_mb(pid) or 0.0]

    async def look() -> None:
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            seen.append(memory_mb(pid) or 0.0)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()


def _percentiles(name: str, took: list[float]) -> list[Row]:
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return [Row("notices", f"{name}, p50", cuts[49], "ms"), Row("notices", f"{name}, p99", cuts[98], "ms")]


async def _reconnecting(folder: Path, name: str, url: str, events: int, progress: Progress) -> Row:
    place = folder / f"reconnecting-{name}"
    place.mkdir()
    with progress.activity(f"notices · {name}: {events:,} events to readers who reconnect, {KILLS} kills", 1):
        began = time.perf_counter()
        followers = await follow_through_kills(place, url, events=events, readers=READERS, kills=KILLS)
        took = time.perf_counter() - began
    return Row(
        "notices",
        f"{name}: {events:,} events, two servers, {KILLS} kills: each reader got each once, in order, and no false gap",
        took,
        "s",
        note=f"{READERS} readers, who came back {sum(one.connections for one in followers):,} times",
    )


async def _through_kills(folder: Path, events: int, progress: Progress) -> Row:
    database = f"sqlite:///{folder}/killed.tables.db"
    with (
        servers.redis("--appendonly", "yes", "--appendfsync", "always") as bus,
        progress.activity(f"notices · {events:,} events through {KILLS} kills", 1),
    ):
        began = time.perf_counter()
        async with fake_slack() as slack:
            await endure(bus, database, slack, events=events, readers=READERS, kills=KILLS)
        took = time.perf_counter() - began
        failed = await check(bus, database, slack, events=events, readers=READERS)
    note = f"Slack refused {failed:,} times; {sum(slack.posted.values()) - events:,} came to it twice"
    return Row(
        "notices",
        f"{events:,} events, killed {KILLS} times, the bus away once: each once in the table and on the stream",
        took,
        "s",
        note=note,
    )


@asynccontextmanager
async def _office(folder: Path, name: str, url: str, streams: int) -> AsyncIterator[Office]:
    place = folder / name
    place.mkdir()
    database = f"sqlite:///{place}/office.tables.db"
    server = TeamworkServer(place, url, database)
    await server.start()
    try:
        async with open_teamwork_service(url, database, server.port) as teamwork:
            await hire(teamwork, range(1, streams + 2))
            yield Office(server.port, server.serving_pid, teamwork)
    finally:
        await server.stop()
