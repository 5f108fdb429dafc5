"""What a store holds and no family can read is an outcome: no route fails because of it, and no job stops."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import quote

import pytest

import keystead
from keystead import KeysteadError, Store
from keystead.errors import BadKey, BadValue, Unreadable
from keystead.kits import KITS
from keystead.parts.outbox import Outbox
from keystead.parts.schedule import Schedule
from keystead.schema import Keyspace
from keystead.schema.chunked_reading import entries_of, whole
from keystead.schema.family import Bound
from keystead.schema.family_lookup import name_of
from keystead.server.scheduled_jobs import jobs_of, schedule_keys
from keystead.stores import Call, Command, Message, Outcome, Reply
from keystead.stores.store_contract import Planned
from tests.kits.walks import WALKS, Step, Walk
from tests.real_servers import redis_server

__all__ = ["redis_server"]

BYTES: Final = b"\xff\xfe\x00"
TEXTS: Final = {
    "wrong bytes": BYTES,
    "junk JSON": b'{"a":',
    "unknown version": b'{"v":99,"ver":99,"version":99}',
    "junk number": b"12abc",
    "a number beyond 64 bits": b"9" * 40,
    "nothing": b"",
}

# Commands that do what they do whatever kind of key they meet.
OF_ANY_KIND: Final = {"EXISTS", "DEL", "SET", "PTTL", "PEXPIRE", "PEXPIREAT", "MGET", "TYPE", "PUBLISH"}

# What is read in the background, after the answer that made it necessary.
READ_LATER: Final = {"TeamworkKeys.notice_log", "TeamworkKeys.dashboard_teams", "LoginKeys.revocation"}

# What a GET may write: copies that are read from tables or a provider again, how often a link was used, and lists whose
# entries without a record are removed when they are met. The end of a sign-in is a GET, too.
WRITTEN_BY_READS: Final = {
    *(f"MembershipKeys.{name}" for name in ("auth", "auth_mark", "membership", "membership_mark", "membership_stale")),
    *(f"TeamworkKeys.{name}" for name in ("dashboard", "dashboard_mark", "user_session", "user_session_mark")),
    *("SharingKeys.uses", "SharingKeys.index", "LoginKeys.user_sessions"),
}
SIGN_IN: Final = "GET /api/auth/{provider}/callback"


class Spy(Store):
    """Another store, whose time stands, and the keys that were asked of it."""

    def __init__(self, store: Store) -> None:
        self.url, self.guarantees, self.inner = store.url, store.guarantees, store
        self.time = [b"%d" % time.time(), b"0"]  # or a limit would count in another window than the one with junk
        self.asked: set[tuple[str, bytes]] = set()  # commands, with the keys that they name

    async def open(self) -> None:
        await self.inner.open()
        self.guarantees = self.inner.guarantees

    async def close(self) -> None:
        await self.inner.close()

    def _replies(self, calls: list[Call]) -> list[Reply] | Awaitable[list[Reply]]:
        self.asked.update((call.spec.name, key) for call in calls for key in _names_in(call))
        found = self.inner._replies(calls)
        return self._at_one_time(calls, found) if any(call.spec.name == "TIME" for call in calls) else found

    async def _at_one_time(self, calls: list[Call], found: list[Reply] | Awaitable[list[Reply]]) -> list[Reply]:
        replies = found if isinstance(found, list) else await found
        return [self.time if call.spec.name == "TIME" else reply for call, reply in zip(calls, replies, strict=True)]

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        calls = [step.call for step in steps if not step.guard]
        self.asked.update((call.spec.name, key) for call in calls for key in _names_in(call))
        outcome = await self.inner._atomically(steps)
        told = [
            self.time if step.call.spec.name == "TIME" else reply
            for step, reply in zip(steps, outcome.replies, strict=False)
        ]
        return replace(outcome, replies=told)

    def _scan(self, pattern: bytes, kind: str | None, page: int) -> AsyncIterator[list[bytes]]:
        return self.inner._scan(pattern, kind, page)

    def _subscribe(self, channels: tuple[str, ...]) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        return self.inner._subscribe(channels)


def _names_in(call: Call) -> Sequence[bytes]:
    return call.args[:1] if call.spec.name == "PUBLISH" else call.keys


class Contents:
    """All that a store holds, to be put back as it was."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writes: list[list[Command]] = []

    async def take(self) -> None:
        async for page in self._store.scan():
            for key in page:
                [kind, left_ms] = await self._store.run([("TYPE", key), ("PTTL", key)])
                name = kind.decode() if isinstance(kind, bytes) else str(kind)
                [held] = await self._store.run([whole(name, key)])
                end: list[Command] = [("PEXPIRE", key, left_ms)] if left_ms > 0 else []
                self._writes.append([*_written(name, key, held), *end])

    async def put_back(self) -> None:
        there = [key async for page in self._store.scan() for key in page]
        commands: list[Command] = [("DEL", key) for key in there]
        await self._store.run([*commands, *(command for writes in self._writes for command in writes)])


def _written(kind: str, key: bytes, held: Any) -> list[Command]:
    match kind:
        case "string":
            return [("SET", key, held)]
        case "hash":
            return [("HSET", key, *(part for pair in held.items() for part in pair))]
        case "set":
            return [("SADD", key, *held)]
        case "zset":
            return [("ZADD", key, *(part for member, score in held for part in (score, member)))]
        case "list":
            return [("RPUSH", key, *held)]
        case _:
            return [("XADD", key, entry_id, *fields) for entry_id, fields in entries_of(kind, held)]


def junk_of(bound: Bound[Any], key: bytes) -> Iterator[tuple[str, list[Command]]]:
    """Each sort of junk under this key, by what it is."""
    kind, gone = bound.family.kind, ("DEL", key)
    if kind == "channel":
        yield "junk messages", [("PUBLISH", key, text) for text in TEXTS.values()]
        return
    yield "wrong kind", [gone, ("SET", key, "x") if kind == "list" else ("RPUSH", key, "x")]
    if kind == "string":
        for name, text in TEXTS.items():
            yield name, [gone, ("SET", key, text)]
        return
    added: dict[str, list[Command]] = {
        "set": [("SADD", key, *TEXTS.values())],
        "zset": [("ZADD", key, *(part for text in TEXTS.values() for part in (1, text)))],
        "list": [("LPUSH", key, *TEXTS.values())],
        "stream": [("XADD", key, "*", "data", text) for text in TEXTS.values()] + [("XADD", key, "*", "other", "x")],
    }
    if kind == "hash":
        names = [name.encode() for name in bound.family.fields] or [b"Theme", b"User_Theme", b"User_Message", BYTES]
        for name, text in TEXTS.items():
            yield name, [("HSET", key, *(part for field in names for part in (field, text)))]
        return
    yield "junk beside what is good", added[kind]
    yield "junk only", [gone, *added[kind]]


class Junkyard:
    """One application and its store; what is wrong with its answers is gathered."""

    def __init__(self, walk: Walk, spies: list[Spy], log: pytest.LogCaptureFixture) -> None:
        self.walk = walk
        self.spies = spies
        self.log = log
        self.wrong: list[str] = []
        self.touched: dict[int, set[bytes]] = {}
        self.looked_into: set[bytes] = set()
        self.statuses: dict[int, int] = {}  # of each step where all is well
        keyspaces = [one for one in gc.get_objects() if isinstance(one, Keyspace)]
        bounds = [bound for keys in keyspaces for bound in keys.bounds() if bound.store in spies]
        self.bounds = {name_of(bound.family): bound for bound in bounds}
        self.parts: list[str] = (
            [*walk.beside] + [f"job {job.name}" for job in self.jobs] + (["outbox"] if self.outboxes else [])
        )
        self.steps: list[Step | str] = [*walk.steps, *self.parts]

    @property
    def jobs(self) -> list[Any]:
        state = self.walk.app.state
        return jobs_of(state.running, state.kits)

    @property
    def outboxes(self) -> list[Outbox]:
        return [one for one in gc.get_objects() if isinstance(one, Outbox) and one._store in self.spies]

    async def do(self, step: Step | str) -> str | None:
        """Why a step did not go as it should; None: it did."""
        try:
            async with asyncio.timeout(20):
                return await self._do(step)
        except TimeoutError:
            return "it hangs"

    async def _do(self, step: Step | str) -> str | None:
        if isinstance(step, Step):
            status, text = await self.walk.ask(step)
            was = self.statuses.setdefault(id(step), status)
            masked = status == 400 and was < 400 and "BAD_REQUEST" in text  # it is not the client's fault
            return f"{status} {text[:150]}" if status >= 500 or masked else None
        try:
            if step in self.walk.beside:
                with suppress(Unreadable):  # which the command says in a sentence
                    await self.walk.beside[step]()
                return None
            if step == "outbox":
                for outbox in self.outboxes:
                    await outbox.deliver_due()
                return None
            state = self.walk.app.state
            schedule = Schedule(schedule_keys(state.stores, time.time_ns().__floordiv__(1_000_000).__int__), self.jobs)
            name = step.removeprefix("job ")
            await schedule.list()
            entry: Any = await schedule.run_now(name)
            await schedule.history(name)
            return None if entry.outcome == "done" else f"{entry.outcome}: {entry.error}"
        except KeysteadError as error:
            return f"{type(error).__name__}: {error}"

    async def learn(self) -> None:
        """Walk once where all is well, and see which keys each step asks for."""
        for place, step in enumerate(self.steps):
            for spy in self.spies:
                spy.asked.clear()
            wrong = await self.do(step)
            assert wrong is None, f"{step}: {wrong}"
            asked = [one for spy in self.spies for one in spy.asked]
            self.touched[place] = {key for _, key in asked}
            self.looked_into |= {key for command, key in asked if command not in OF_ANY_KIND}

    def keys_of(self, bound: Bound[Any]) -> set[bytes]:
        every = set().union(*self.touched.values())
        return {key for key in every if bound.parse(key) is not None and self._owner(key) is bound}

    def _owner(self, key: bytes) -> Bound[Any] | None:
        return next((bound for bound in self.bounds.values() if bound.parse(key) is not None), None)

    async def plant(self, name: str, bound: Bound[Any], sort: str, keys: set[bytes]) -> None:
        for key in keys:
            await bound.store.run(dict(junk_of(bound, key))[sort])
        self.log.clear()
        met: list[Unreadable] = []
        with patch.object(Unreadable, "__init__", _noting(Unreadable, met)):
            for place, step in enumerate(self.steps):
                if not keys & self.touched[place]:
                    continue
                what = step.route if isinstance(step, Step) else step
                before = await self._held(bound, keys)
                wrong = await self.do(step)
                if wrong is not None and not (isinstance(step, str) and name.startswith("ScheduleKeys")):
                    self.wrong.append(f"{name}, {sort}: {what}: {wrong}")
                only_reads = isinstance(step, Step) and step.route.startswith("GET ") and step.route != SIGN_IN
                reads = only_reads and name not in WRITTEN_BY_READS
                if reads and await self._held(bound, keys) != before:
                    self.wrong.append(f"{name}, {sort}: {what} only reads, but has changed what it could not read")
        named = [one for one in self.log.records if getattr(one, "family", "") == name]
        is_met = any(one.key is not None and _as_bytes(one.key) in keys for one in met)
        if sort == "wrong kind":
            is_met = bool(keys & self.looked_into)
        if is_met and not named and name not in READ_LATER:
            self.wrong.append(f"{name}, {sort}: no line in the log names the family")
        self.wrong += [f"{name}, {sort}: a log line without its code" for one in named if not getattr(one, "code", "")]
        raised = [one.getMessage() for one in self.log.records if one.exc_info]
        self.wrong += [f"{name}, {sort}: a traceback in the log: {one[:200]}" for one in raised]

    async def _held(self, bound: Bound[Any], keys: set[bytes]) -> list[Any]:
        """What these keys hold now."""
        found = []
        for key in sorted(keys):
            [kind] = await bound.store.run([("TYPE", key)])
            name = kind.decode() if isinstance(kind, bytes) else str(kind)
            found.append((name, (await bound.store.run([whole(name, key)]))[0] if name != "none" else None))
        return found


def _noting(kind: type[KeysteadError], met: list[Any]) -> Callable[..., None]:
    """`__init__` of this error, which notes each one."""
    init = kind.__init__

    def noting(error: KeysteadError, *arguments: Any) -> None:
        init(error, *arguments)
        met.append(error)

    return noting


def _as_bytes(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else key.encode()


@pytest.mark.parametrize(
    ("where", "sorts"),
    [
        ("memory", 2),
        pytest.param("memory", None, marks=pytest.mark.matrix),
        pytest.param("redis", 2, marks=pytest.mark.matrix),
    ],
)
@pytest.mark.parametrize("kit", KITS)
async def test_no_route_and_no_job_fails_because_of_what_cannot_be_read(
    kit: str,
    where: str,
    sorts: int | None,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keystead.parts.passwords._hash", _quick_hash)
    url = "memory://"
    if where == "redis":
        server = request.getfixturevalue("redis_server")
        server.ask("FLUSHALL")
        url = server.url
    spies: list[Spy] = []

    def connect(given: str, **more: Any) -> Store:
        spies.append(Spy(real(given, **more)))
        return spies[-1]

    real = keystead.connect
    with patch.object(keystead, "connect", connect):
        async with WALKS[kit](url, tmp_path / "files") as walk:
            asked = {step.route for step in walk.steps}
            assert asked == walk.routes, "each route of the kit is in its walk"
            await _junk_everywhere(Junkyard(walk, spies, caplog), sorts)


async def _junk_everywhere(yard: Junkyard, sorts: int | None) -> None:
    contents = [Contents(spy.inner) for spy in yard.spies]
    for one in contents:
        await one.take()
    await yard.learn()
    missing = []
    for name, bound in sorted(yard.bounds.items()):
        keys = yard.keys_of(bound)
        if not keys:
            missing.append(name)
            continue
        for sort in [sort for sort, _ in junk_of(bound, b"")][:sorts]:
            for one in contents:
                await one.put_back()
            await yard.plant(name, bound, sort, keys)
    assert not missing, f"no step of the walk reads {missing}"
    assert not yard.wrong, "\n" + "\n".join(yard.wrong)


def _quick_hash(text: str, salt: bytes) -> bytes:
    """Passwords that cost nothing: that their hash is slow is held elsewhere."""
    return sha256(salt + text.encode("utf-8", "surrogatepass")).digest()


NASTY: Final = ("\ud800", "\x00", "a:b*{c}\n[d]", 10**30, -(10**30), "x" * 5_000, True, ["x"], {"x": 1}, None)


@pytest.mark.parametrize("kit", KITS)
async def test_input_that_cannot_become_a_key_or_a_value_is_never_a_fault_of_the_server(
    kit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keystead.parts.passwords._hash", _quick_hash)
    wrong: list[str] = []
    refused: list[KeysteadError] = []
    for error in (BadKey, BadValue):
        monkeypatch.setattr(error, "__init__", _noting(error, refused))
    async with WALKS[kit]("memory://", tmp_path / "files") as walk:
        for step in walk.steps:
            for other in _with_nasty_input(step):
                refused.clear()
                status, text = await walk.ask(other)
                if status >= 500 or (refused and status < 400):
                    wrong.append(f"{step.route}: {other.path[:90]} {other.json!r:.200}: {status} {text[:150]}")
    assert not wrong, "\n" + "\n".join(wrong)


def _with_nasty_input(step: Step) -> Iterator[Step]:
    """The same request with something else in the place of each of its fields, its query and its path."""
    if step.streams:
        return
    for nasty in NASTY:
        for name in step.json or ():
            content = json.dumps({**step.json, name: nasty}).encode()
            kind = {"content-type": "application/json"}
            yield replace(step, json=None, content=content, headers={**step.headers, **kind})
        if not isinstance(nasty, str | int):
            continue
        for name in step.form or ():
            yield replace(step, form={**(step.form or {}), name: str(nasty).encode("utf-8", "replace").decode()})
        yield from _with_nasty_headers(step, str(nasty).encode("utf-8", "surrogatepass")[:8_000])
        path, _, query = step.path.partition("?")
        written = quote(str(nasty).encode("utf-8", "surrogatepass"), safe="")[:8_000]
        for part in query.split("&") if query else ():
            yield replace(step, path=f"{path}?{query.replace(part, part.partition('=')[0] + '=' + written)}")
        if "{" in step.route:
            *front, last = path.split("/")
            yield replace(step, path="/".join([*front, written]) + (f"?{query}" if query else ""))
            yield replace(step, path="/".join([*front[:-1], written, last]) + (f"?{query}" if query else ""))


def _with_nasty_headers(step: Step, nasty: bytes) -> Iterator[Step]:
    """Something else in the place of each header, of what follows its scheme, and of each cookie."""
    text = nasty.replace(b"\x00", b"%00").replace(b"\n", b"%0a")  # clients send no control characters
    for name, given in step.headers.items():
        front, separator, _ = given.rpartition("=" if name.lower() == "cookie" else " ")
        for other in {text, f"{front}{separator}".encode() + text}:
            headers: dict[str, Any] = {**step.headers, name: other}
            yield replace(step, headers=headers)
