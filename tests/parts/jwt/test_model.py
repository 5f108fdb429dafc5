"""Any history of logins, logouts and requests, compared with a model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from keystead.parts.jwt import Access, AccessTokens, NewAccess, RevokedTokens
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from tests.parts.cache.conftest import Time
from tests.parts.jwt.conftest import keys_of
from tests.parts.jwt.worker import WorkerKeys

LIFETIME_MS, LEEWAY_MS = 10_000, 700

Verb = Literal["login", "logout", "everywhere"]
STEP = st.tuples(
    st.sampled_from([0, 0, 0, 1, 1, 300, 999, 5_000, LIFETIME_MS, LIFETIME_MS + LEEWAY_MS]),
    st.sampled_from(["login", "login", "logout", "everywhere"]),
    st.integers(0, 5),
)


@dataclass
class Issued:
    new: NewAccess
    sub: str
    at_ms: int
    is_over: bool = False


@settings(max_examples=50, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=20))
def test_a_token_is_valid_exactly_until_it_is_revoked_or_expires(steps: list[tuple[int, Verb, int]]) -> None:
    """Each step is at a moment, often the same as the one before. The time of the store is that of the tokens."""

    async def play() -> None:
        time = Time()
        async with SqliteStore(MEMORY, clock=time) as store:
            keys = WorkerKeys(store, now_ms=time)
            access = AccessTokens(
                keys_of("HS256"),
                issuer="i",
                audience="a",
                lifetime="10s",
                leeway="700ms",
                revoked=RevokedTokens(keys.revoked, keys.since, may_forget=True),
                now_ms=time,
            )
            tokens: list[Issued] = []
            for pause_ms, verb, which in steps:
                time.ms += pause_ms
                sub = "ann" if which % 2 else "bob"
                if verb == "login":
                    tokens.append(Issued(access.issue(sub), sub, time.ms))
                elif verb == "everywhere":
                    for one in tokens:
                        one.is_over |= one.sub == sub
                    await access.revoke_all(sub)
                    time.ms += 1  # it returns in a later millisecond by a clock that goes
                elif tokens:
                    chosen = tokens[which % len(tokens)]
                    found = access.check(chosen.new.token)
                    if isinstance(found, Access):
                        assert await access.revoke(found) is True
                        chosen.is_over = True
                for one in tokens:
                    expired = time.ms >= one.new.expires_at_ms + LEEWAY_MS
                    assert bool(await access.admitted(one.new.token)) is not (one.is_over or expired)
            # When all tokens have expired, only the revocations of users are left.
            time.ms += LIFETIME_MS + LEEWAY_MS
            assert [key async for key in keys.revoked.scan()] == []
            time.ms += 2 * 3_600_000
            assert [key async for key in keys.since.scan()] == []

    asyncio.run(play())
