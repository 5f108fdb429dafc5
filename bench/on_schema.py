"""The overhead of typed keys over raw commands, on Redis and on SQLite.

Both sides send the same commands to the same store, and both parse a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bench.measure import Contender, Effort, Match, Peer, Play, Progress, Row, Target, alone, compare, together
from keystead import Counter, Hash, Keyspace, SortedSet, Store, Value, after, connect
from tests import servers

KEYS = 2_000
HOUR_MS = 3_600_000
TEXT = "x" * 300


class Session(BaseModel):
    uid: str
    name: str
    avatar: str
    scope: str
    token_type: str
    access_expires_at: int
    created_at: int
    last_seen_at: int
    ver: int


SESSION = Session(
    uid="281934712345678901",
    name="Ann Example",
    avatar="a_0123456789abcdef0123456789abcdef",
    scope="identify guilds",
    token_type="Bearer",
    access_expires_at=1_700_000_000_000,
    created_at=1_690_000_000_000,
    last_seen_at=1_690_000_000_000,
    ver=1,
)


class BenchKeys(Keyspace):
    """One family of each kind that is measured."""

    text = Value("text:{id}", str, lifetime=after("1h"))
    session = Value("sess:{sid:token}", Session, lifetime=after("1h"))
    hits = Counter("hits:{page}", lifetime=after("1h"))
    profile = Hash("profile:{uid}", Session, lifetime=after("1h"))
    board = SortedSet("board:{id}", str, lifetime=after("1h"))


async def run(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    with servers.redis() as server:
        async with connect(server.url) as store:
            rows += await _on(store, "schema on redis", Target("at most", 1.25), effort, progress)
    async with connect(f"sqlite:///{folder}/schema.db") as store:
        rows += await _on(store, "schema on sqlite", Target("at most", 2.0), effort, progress)
    return rows


async def _on(store: Store, subject: str, target: Target, effort: Effort, progress: Progress) -> list[Row]:
    keys = BenchKeys(store)
    for number in range(KEYS):
        await keys.run(
            keys.text(_id(number)).set(TEXT),
            keys.session(_id(number)).set(SESSION),
            keys.profile(_id(number)).set(SESSION),
            keys.board(_id(number)).add("ann", 1),
        )
    rows: list[Row] = []
    for name, typed, raw in _pairs(keys, store):
        for tasks, play in (("1 task", alone), ("32 tasks", together)):
            ours, theirs = _play(play, typed), _play(play, raw)
            peer = Peer(Contender("the same raw commands", theirs), "times the time", target)
            match = Match(f"{name}, {tasks}", Contender("typed", ours), [peer])
            rows += await compare(subject, match, effort, progress)
    return rows


def _id(number: int) -> str:
    return f"u{number:06d}"


def _play(kind: Callable[[Any, Iterator[str]], Play], operation: Any) -> Play:
    return kind(operation, itertools.cycle([_id(number * 7919 % KEYS) for number in range(KEYS)]))


def _pairs(keys: BenchKeys, store: Store) -> list[tuple[str, Any, Any]]:
    """Each operation, with typed keys and with raw commands."""
    changing = itertools.cycle([f"{number:03d}{TEXT[3:]}" for number in range(997)])

    async def get_text(id: str) -> object:
        return await keys.text(id).get()

    async def raw_get_text(id: str) -> object:
        return (await store.run([("GET", f"text:{id}")]))[0].decode()

    async def set_text(id: str) -> None:
        await keys.text(id).set(next(changing))

    async def raw_set_text(id: str) -> object:
        return await store.run([("SET", f"text:{id}", next(changing), "PX", HOUR_MS)])

    async def get_model(id: str) -> object:
        return await keys.session(id).get()

    async def raw_get_model(id: str) -> object:
        return Session.model_validate_json((await store.run([("GET", f"sess:{id}")]))[0])

    async def add(id: str) -> object:
        return await keys.session(id).add(SESSION)

    async def raw_add(id: str) -> object:
        data = SESSION.model_dump_json()
        return (await store.run([("SET", f"sess:{id}", data, "PX", HOUR_MS, "NX")]))[0] is not None

    async def count(id: str) -> object:
        return await keys.hits(id).increment()

    async def raw_count(id: str) -> object:
        key = f"hits:{id}"
        return (await store.atomically([("INCRBY", key, 1), ("PEXPIRE", key, HOUR_MS, "NX")])).replies[0]

    async def get_hash(id: str) -> object:
        return await keys.profile(id).get()

    async def raw_get_hash(id: str) -> object:
        raw = (await store.run([("HGETALL", f"profile:{id}")]))[0]
        return Session.model_validate({name.decode(): value.decode() for name, value in raw.items()})

    async def several(id: str) -> object:
        return await keys.run(keys.text(id).get(), keys.session(id).get(), keys.board(id).score("ann"))

    async def raw_several(id: str) -> object:
        text, session, score = await store.run(
            [("GET", f"text:{id}"), ("GET", f"sess:{id}"), ("ZSCORE", f"board:{id}", "ann")]
        )
        return text.decode(), Session.model_validate_json(session), score

    return [
        ("get a text", get_text, raw_get_text),
        ("set a text", set_text, raw_set_text),
        ("get a model", get_model, raw_get_model),
        ("add a model", add, raw_add),
        ("increment with a lifetime", count, raw_count),
        ("get a hash", get_hash, raw_get_hash),
        ("three reads in one batch", several, raw_several),
    ]
