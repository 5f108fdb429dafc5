"""Stores full of widgets, as the service writes them, but in large batches."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from unittest.mock import patch

from bench.measure import Advance
from bench.widget_apps import LIMITS, SEAL_KEYS
from keystead.kits.kit import Site
from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.models import (
    LAYOUT,
    BbsMessage,
    BbsRecord,
    BbsSettings,
    CounterRecord,
    LikeRecord,
    RankingDetail,
    RankingEntry,
    RankingMeta,
    RankingRecord,
)
from keystead.kits.widgets.service import Visitor, Widgets, WidgetSettings, open_widgets
from keystead.parts import passwords
from keystead.parts.digest import digest
from keystead.schema import Operation
from keystead.schema.seal import KeyRing
from keystead.stores import Store

TOKEN: Final = "bench-token"
EDIT_TOKEN: Final = "bench-edit-token"
DAYS: Final = 3  # on which each counter was visited
_BATCH: Final = 500
_NUMBER: Final = 9_876_543  # of the template counter: seven digits, like all others
_ADDRESSES: Final = 250
_visitor_numbers = itertools.count()


@asynccontextmanager
async def open_service(store: Store) -> AsyncIterator[Widgets]:
    """The service on a store. Rate limits are counted, but never reached."""
    keys = WidgetKeys(store, seal=KeyRing.from_text(SEAL_KEYS))
    origin = "http://127.0.0.1"
    site = Site(origin, origin, development=True, now_ms=_now_ms, render=lambda *_, **__: "")
    async with open_widgets(keys, WidgetSettings(limits=LIMITS), site) as widgets:
        yield widgets


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


@asynccontextmanager
async def quick_hashes() -> AsyncIterator[None]:
    """Use a fast hash for tokens. The slow one costs the same among a million widgets, and would hide the rest."""

    async def quick(password: str, salt: bytes) -> bytes:
        return sha256(salt + password.encode()).digest()

    with patch.object(passwords, "_scrypt", quick):
        yield


def visitors() -> Iterator[Visitor]:
    """Endless distinct visitors, from some addresses."""
    return (Visitor(f"192.0.2.{number % _ADDRESSES}", f"browser {number}") for number in _visitor_numbers)


# --- counters ----------------------------------------------------------------------------------------------


def counter_id(number: int) -> str:
    return f"bench-{number:07d}"


def page(number: int) -> str:
    return f"https://bench.example.com/page/{number:07d}"


async def fill_counters(widgets: Widgets, count: int, advance: Advance) -> None:
    """Write counters with some days of visits: eight keys and an index entry each.

    The families make the commands of one counter; all others differ from it only in a number.
    """
    store, template = widgets.keys.store_of("default"), await _counter(widgets, _NUMBER)
    created_ms, index = _now_ms(), widgets.keys.counters().key
    for first in range(0, count, _BATCH):
        numbers = [f"{number:07d}" for number in range(first, min(first + _BATCH, count))]
        steps = [_renumber(command, number) for number in numbers for command in template]
        entries = [part for number in numbers for part in (created_ms + int(number), f"bench-{number}")]
        await store.run([*steps, ("ZADD", index, *entries)])
        advance(len(numbers))


async def _counter(widgets: Widgets, number: int) -> list[Any]:
    """The commands that write one counter, without its index entry."""
    id, keys, now = counter_id(number), widgets.keys, datetime.now(UTC)
    days = [now.date() - timedelta(days=back) for back in range(DAYS)]
    operations: list[Operation[Any]] = [
        keys.counter_url(page(number)).set(id),
        keys.counter_owner(id).set(await passwords.hash_password(TOKEN)),
        keys.counter_total(id).set(DAYS),
        keys.counter_last(id).set(now),
        *(keys.counter_daily(id, day).set(1) for day in days),
    ]
    record = CounterRecord(id=id, url=page(number), created=now, layout=LAYOUT)
    return [_record(widgets.counters, record), *(step for one in operations for step in one.steps)]


def _renumber(command: Any, number: str) -> Any:
    text, data = str(_NUMBER), b"%d" % _NUMBER
    return tuple(
        part.replace(text, number)
        if isinstance(part, str)
        else part.replace(data, number.encode())
        if isinstance(part, bytes)
        else part
        for part in command
    )


def _record(service: Any, record: Any) -> Any:
    """The command that writes the record of a widget."""
    bound = getattr(service.keys, service.name)
    key = bound(record.id).key
    return ("SET", key, bound.family.codecs["value"].encode(record, key, bound.keyspace.ring))


# --- boards ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Board:
    """A full board."""

    id: str
    size: int

    def message(self, number: int) -> BbsMessage:
        return BbsMessage(
            id=f"{self.id}_m{number}",
            timestamp=datetime.now(UTC),
            author="Ann Example",
            message=f"Message {number}: a line or two, as people write them to each other on a board.",
            icon="🎉",
            user_hash="0123456789abcdef",
            edit_digest=digest(EDIT_TOKEN),
        )


async def fill_board(widgets: Widgets, size: int, advance: Advance) -> Board:
    board = Board(f"board-{size}", size)
    settings = BbsSettings(title="BBS", messages_per_page=10, max_messages=size, icons=["🎉"])
    record = BbsRecord(id=board.id, url=page(size), created=datetime.now(UTC), settings=settings, layout=LAYOUT)
    await _write_record(widgets, widgets.boards, record)
    for first in range(0, size, _BATCH):
        batch = range(first, min(first + _BATCH, size))
        await widgets.keys.bbs_messages(board.id).append(*map(board.message, batch))
        advance(len(batch))
    return board


async def refill(widgets: Widgets, board: Board) -> None:
    """Restore the oldest messages, which new and then deleted ones have pushed out."""
    messages = widgets.keys.bbs_messages(board.id)
    missing = board.size - await messages.count()
    if missing:
        await messages.append(*map(board.message, range(board.size - missing, board.size)))


# --- rankings ----------------------------------------------------------------------------------------------


async def fill_ranking(widgets: Widgets, size: int, advance: Advance) -> str:
    """A full ranking: each better score replaces the worst."""
    id, keys, now = f"ranking-{size}", widgets.keys, datetime.now(UTC)
    record = RankingRecord(id=id, url=page(size), created=now, max_entries=size, layout=LAYOUT)
    await _write_record(widgets, widgets.rankings, record)
    await keys.ranking_meta(id).set(RankingMeta(title="Scores"))
    await keys.ranking_sequence(id).set(size)
    for first in range(0, size, _BATCH):
        batch = range(first, min(first + _BATCH, size))
        members = {RankingEntry(f"player {number}", f"{number:016x}"): number for number in batch}
        details = {
            member.unique_id: RankingDetail(display_score=f"{score} s", at=now) for member, score in members.items()
        }
        turns = {member: score + 1 for member, score in members.items()}
        await keys.run(
            keys.ranking_scores(id).put(members),
            keys.ranking_turns(id).put(turns),
            keys.ranking_details(id).put(details),
        )
        advance(len(batch))
    return id


# --- visitors ----------------------------------------------------------------------------------------------


async def fill_busy(widgets: Widgets, visitors: int, advance: Advance) -> str:
    """A counter and a like button of one page that this many visitors have used today."""
    id, keys, now = f"busy-{visitors}", widgets.keys, datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    await _write_record(widgets, widgets.counters, CounterRecord(id=id, url=page(visitors), created=now, layout=LAYOUT))
    await _write_record(widgets, widgets.likes, LikeRecord(id=id, url=page(visitors), created=now, layout=LAYOUT))
    await keys.run(keys.counter_total(id).set(visitors), keys.like_total(id).set(visitors))
    for first in range(0, visitors, _BATCH):
        batch = range(first, min(first + _BATCH, visitors))
        marks = [keys.counter_visit(id, f"{number:016x}").set(now, end_of_day=midnight) for number in batch]
        liked = [keys.like_user(id, f"{number:016x}").set(True, end_of_day=midnight) for number in batch]
        await keys.store_of("default").run([step for one in (*marks, *liked) for step in one.steps])
        advance(len(batch))
    return id


async def _write_record(widgets: Widgets, service: Any, record: Any) -> None:
    steps: Sequence[Any] = [_record(service, record), *service.index.put({record.id: 0}).steps]
    await widgets.keys.store_of("default").run(steps)
