"""`validate` of the membership kit, the start of every member request, beside hand-written code.

By hand, the session, the row of its user and the membership are three JSON values. The session names the user, so it
must be read first: three round trips, or two with MGET. A token of the kit names its user, so the kit reads all three
at once. The kit also seals the provider's tokens and validates models; the hand-written code does neither.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import redis.asyncio

from bench.measure import (
    TASKS,
    Contender,
    Effort,
    Match,
    Peer,
    Progress,
    Row,
    Target,
    alone,
    blocking,
    compare,
    random_keys,
    together,
)
from bench.round_trips import count_round_trips
from keystead import KeyRing, connect
from keystead.kits.kit import Site
from keystead.kits.membership import Members, MembershipKeys, MembershipRefused, MembershipSettings
from keystead.kits.membership.models import CachedMembership, ParsedMembership
from keystead.kits.membership.service import open_members
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.parts.oauth import Tokens
from keystead.parts.tables import open_tables
from keystead.schema.times import moment
from keystead.stores import Store
from tests import servers

MEMBERS: Final = 2_000
ENDS_MS: Final = 4_102_444_800_000  # 2100
SESSION_S: Final = 30 * 86_400
BASE: Final = "http://127.0.0.1:8712"
RING: Final = KeyRing({"bench": b"k" * 32})
ONE: Final = Target("at most", 1)
BESIDE_SELECTS: Final = Target("at least", 0.6)

Validate = Callable[[str], Awaitable[object]]


class NobodySignedIn(RuntimeError):
    """The session is not valid."""


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    with servers.redis() as server:
        rows = await _round_trips(server)
    return [*rows, *await throughput(folder, MEMBERS // 10 if quick else MEMBERS, effort, progress)]


async def throughput(folder: Path, members: int, effort: Effort, progress: Progress) -> list[Row]:
    with servers.redis() as server:
        rows = await _on_redis(server, members, effort, progress)
    return [*rows, *await _on_sqlite(folder, members, effort, progress)]


async def _round_trips(server: servers.Server) -> list[Row]:
    """The round trips for a valid session, for an ended one, and without a session."""
    rows = []
    async with count_round_trips(server.port) as between, connect(between.url) as store, _open_kit(store) as members:
        [old] = await _sign_in(members, 1)
        [token] = await _sign_in(members, 1)  # which ends the one before
        for name, given, expected in (
            ("validate of a session", token, None),
            ("validate of a session that another device has ended", old, "SESSION_INVALID"),
        ):
            before = between.trips
            if await _refusal(members, given) != expected:
                raise RuntimeError(f"{name}: it is answered otherwise")
            rows.append(Row("membership, redis", name, between.trips - before, "round trips", ONE))
    return rows


async def _refusal(members: Members, token: str) -> str | None:
    try:
        await members.validate(token)
    except MembershipRefused as refused:
        return refused.reason
    return None


async def _on_redis(server: servers.Server, members: int, effort: Effort, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    client = redis.asyncio.Redis(port=server.port)
    try:
        async with connect(server.url) as store, _open_kit(store) as kit:
            tokens, sessions = await _sign_in(kit, members), _by_hand(members)
            for key, value in _values_by_hand(members).items():
                await client.set(key, value, ex=SESSION_S)
            by_hand = {"redis-py, three GETs": _three_gets(client), "redis-py, GET and MGET": _get_and_mget(client)}
            for validate in by_hand.values():
                await _check_same(kit, tokens, validate, sessions)
            for tasks, playing in ((TASKS, together), (1, alone)):
                ours = Contender("keystead", playing(kit.validate, _draw(tokens)))
                peers = [Peer(Contender(name, playing(ask, _draw(sessions)))) for name, ask in by_hand.items()]
                match = Match(f"validate, {tasks} task{'s' * (tasks > 1)}", ours, peers)
                rows += await compare("membership, redis", match, effort, progress)
    finally:
        await client.aclose()
    return rows


async def _on_sqlite(folder: Path, members: int, effort: Effort, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    with closing(sqlite3.connect(folder / "by-hand.db", isolation_level=None)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("CREATE TABLE kept (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        plain.executemany("INSERT INTO kept VALUES (?, ?)", _values_by_hand(members).items())
        async with connect(f"sqlite:///{folder}/membership.db") as store, _open_kit(store) as kit:
            tokens, sessions = await _sign_in(kit, members), _by_hand(members)
            selects = _three_selects(plain)

            async def ask(session: str) -> object:
                return selects(session)

            await _check_same(kit, tokens, ask, sessions)
            by_hand = Contender("sqlite3, three SELECTs", blocking(selects, _draw(sessions)))
            peer = Peer(by_hand, target=BESIDE_SELECTS)
            for tasks, playing in ((TASKS, together), (1, alone)):
                ours = Contender("keystead", playing(kit.validate, _draw(tokens)))
                match = Match(f"validate, {tasks} task{'s' * (tasks > 1)}", ours, [peer])
                rows += await compare("membership, sqlite", match, effort, progress)
    return rows


# --- ours --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _open_kit(store: Store) -> Any:
    keys = MembershipKeys(store, seal=RING, now_ms=_now_ms)
    async with open_tables("memory://", MEMBERSHIP_TABLES) as tables:
        site = Site(BASE, BASE, True, _now_ms, render=lambda *_, **__: "", tables=tables)
        async with open_members(keys, MembershipSettings(), site) as members:
            yield members


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _sign_in(members: Members, count: int) -> list[str]:
    """The tokens of this many members with a cached membership."""
    tokens = []
    for number in range(count):
        user = _user(number)
        granted = Tokens(f"access-{user}", f"refresh-{user}", None, "identity", "Bearer", ENDS_MS)
        token, _ = await members.devices.admit(user, granted, f"{user}@example.org", "Ann Example")
        told = CachedMembership(membership=_membership(user), cached_at=moment(_now_ms()))
        await members.keys.membership(user).set(told)
        tokens.append(token)
    return tokens


def _user(number: int) -> str:
    return f"{number:07d}"


def _membership(user: str) -> ParsedMembership:
    return ParsedMembership(
        user_id=user,
        email=f"{user}@example.org",
        full_name="Ann Example",
        plan="Premium",
        has_bonus_tokens=False,
        pledge_amount_cents=500,
        campaign_lifetime_support_cents=5_000,
        next_charge_date="2026-02-01",
        is_active=True,
        patron_status="active_patron",
    )


def _draw(tokens: Sequence[str]) -> Iterator[str]:
    return (tokens[int(key.rpartition(":")[2])] for key in random_keys(len(tokens)))


# --- by hand -----------------------------------------------------------------------------------------------


def _by_hand(members: int) -> list[str]:
    return [f"by-hand:session:{_user(number)}" for number in range(members)]


def _values_by_hand(members: int) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, session in enumerate(_by_hand(members)):
        user = _user(number)
        granted = {"accessToken": f"access-{user}", "refreshToken": f"refresh-{user}", "expiresAt": ENDS_MS}
        values[session] = json.dumps({**granted, "userId": user})
        named = {"email": f"{user}@example.org", "fullName": "Ann Example", "sessionTokens": [session]}
        values[f"by-hand:usertoken:{user}"] = json.dumps({**granted, **named, "updatedAt": _now_ms()})
        told = {"membership": _membership(user).model_dump(exclude_none=True), "cachedAt": _now_ms()}
        values[f"by-hand:membership:{user}"] = json.dumps(told)
    return values


def _three_gets(client: redis.asyncio.Redis) -> Validate:
    async def validate(session: str) -> dict[str, Any]:
        user = _user_in(await client.get(session))
        _refuse_unnamed(await client.get(f"by-hand:usertoken:{user}"), session)
        return _membership_of(user, await client.get(f"by-hand:membership:{user}"))

    return validate


def _get_and_mget(client: redis.asyncio.Redis) -> Validate:
    async def validate(session: str) -> dict[str, Any]:
        user = _user_in(await client.get(session))
        row, told = await client.mget(f"by-hand:usertoken:{user}", f"by-hand:membership:{user}")
        _refuse_unnamed(row, session)
        return _membership_of(user, told)

    return validate


def _three_selects(plain: sqlite3.Connection) -> Callable[[str], object]:
    def value(key: str) -> str | None:
        row = plain.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def validate(session: str) -> dict[str, Any]:
        user = _user_in(value(session))
        _refuse_unnamed(value(f"by-hand:usertoken:{user}"), session)
        return _membership_of(user, value(f"by-hand:membership:{user}"))

    return validate


def _user_in(value: str | bytes | None) -> str:
    if value is None:
        raise NobodySignedIn("there is no such session")
    user: str = json.loads(value)["userId"]
    return user


def _refuse_unnamed(value: str | bytes | None, session: str) -> None:
    if value is None or session not in json.loads(value)["sessionTokens"]:
        raise NobodySignedIn("another session of this user counts")


def _membership_of(user: str, value: str | bytes | None) -> dict[str, Any]:
    if value is None:
        raise NobodySignedIn("nothing is remembered of this membership")
    found: dict[str, Any] = json.loads(value)["membership"]
    return {"userId": user, **found}


async def _check_same(kit: Members, tokens: Sequence[str], validate: Validate, sessions: Sequence[str]) -> None:
    """Both sides must return the same membership: refusals are fast, but meaningless."""
    for token, session in zip(tokens[:20], sessions, strict=False):
        member, told = await kit.validate(token), await validate(session)
        if member.membership.model_dump(exclude_none=True) != told:
            raise RuntimeError("both sides return different memberships")
