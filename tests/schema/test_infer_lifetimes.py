"""How `infer` guesses lifetimes from TTLs of two looks, and from moments in values."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import time_ns
from typing import Any

import pytest

from keystead import Store, connect
from keystead.schema.infer import DraftFamily, infer
from keystead.schema.infer.evidence import Evidence, Watched
from keystead.schema.infer.lifetime_guess import guess_lifetime
from keystead.schema.infer.usual_durations import usual_ms
from keystead.schema.lifetime import After, Lifetime, Never, Sliding, until
from keystead.stores import Command

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_KEYS = 100


def drafted(commands: list[Command], between: Callable[[Store], Awaitable[Any]] | None = None) -> DraftFamily:
    async def look() -> DraftFamily:
        async with connect("memory://") as store:
            await store.run(commands)
            look_again = None if between is None else partial(between, store)
            [family] = (await infer(store, between=look_again)).draft.families
            return family

    return asyncio.run(look())


def sessions(ttls_ms: Sequence[int | None], value: str = "x y") -> list[Command]:
    return [
        ("SET", f"sess:{at:08x}", value, *(() if ttl_ms is None else ("PX", ttl_ms)))
        for at, ttl_ms in enumerate(ttls_ms)
    ]


@pytest.mark.parametrize(
    ("ms", "usual"),
    [
        (1, _S), (900, _S), (5 * _S, 5 * _S), (50 * _S, _M), (_M, _M), (59 * _M, _H), (_H, _H), (_H + 2 * _S, _H),
        (_H + 9 * _S, 2 * _H), (23 * _H, _D), (25 * _D, 30 * _D), (30 * _D + 3 * _S, 30 * _D), (30 * _D + _H, 31 * _D),
        (360 * _D, 365 * _D), (5 * 364 * _D, 1825 * _D), (3651 * _D, 3660 * _D),
    ],
)  # fmt: skip
def test_a_usual_duration_is_the_shortest_that_is_not_shorter(ms: int, usual: int) -> None:
    assert usual_ms(ms) == usual


def test_ttls_of_any_age_tell_the_duration_that_they_began_with() -> None:
    draw = random.Random(2)
    family = drafted(sessions([draw.randrange(_M, 30 * _D) for _ in range(_KEYS)]))
    assert family.lifetime == After(30 * _D)


def test_few_keys_with_a_much_longer_ttl_are_an_exception() -> None:
    """Of a hundred keys two: the doctor reports them."""
    draw = random.Random(3)
    ttls: list[int | None] = [draw.randrange(_M, _H) for _ in range(98)]
    family = drafted(sessions([*ttls, 400 * _D, 300 * _D]))
    assert family.lifetime == After(_H)
    assert family.evidence[0].endswith("; 2 of 100 have more than 1 hour")
    many = drafted(sessions([*ttls, *[400 * _D] * 10]))
    assert many.lifetime == After(400 * _D)
    near = drafted(sessions([draw.randrange(40 * _M) for _ in range(99)] + [44 * _M]))
    assert near.lifetime == After(45 * _M)


def test_keys_without_a_deadline_beside_others_are_named() -> None:
    family = drafted(sessions([_H] * 90 + [None] * 10))
    assert isinstance(family.lifetime, After)
    assert "; 10 of 100 have no deadline" in family.evidence[0]
    assert family.confidence == "likely"
    kept = drafted(sessions([_H] * 10 + [None] * 90))
    assert isinstance(kept.lifetime, Never)
    assert "; 10 of 100 have a deadline" in kept.evidence[0]


def test_deadlines_that_move_between_the_looks_are_sliding() -> None:
    async def use(store: Store) -> None:
        await store.run([("PEXPIRE", f"sess:{at:08x}", _H) for at in range(30)])

    family = drafted(sessions([_H - 5 * _M] * _KEYS), use)
    assert family.lifetime == Sliding(_H, _M)
    assert "sliding, 30 deadlines moved between two looks" in family.evidence[0]


def test_keys_that_were_read_persisted_or_shortened_in_between_are_not_sliding() -> None:
    async def use(store: Store) -> None:
        await store.run([("GET", f"sess:{at:08x}") for at in range(30)])
        await store.run([("PERSIST", "sess:00000000"), ("PEXPIRE", "sess:00000001", 9 * _M), ("DEL", "sess:00000002")])

    assert drafted(sessions([10 * _M] * _KEYS), use).lifetime == After(10 * _M)


def test_a_key_that_expired_and_was_written_anew_is_not_sliding() -> None:
    """The marker of a cooldown, for example. Both looks are a minute apart."""
    evidence, at_ms = Evidence(), time_ns() // 1_000_000
    for number in range(9):
        evidence.add(f"cooldown:{number}", "string", 10 * _S, at_ms, b"x")
    for one in evidence.watched:
        evidence.see_again(one, 10 * _S, at_ms + _M)
    assert guess_lifetime(evidence, {})[0] == After(10 * _S)
    evidence.see_again(evidence.watched[0], 10 * _S, at_ms + 5 * _S)
    assert isinstance(guess_lifetime(evidence, {})[0], Sliding)


def _watched(rows: list[tuple[dict[str, Any], int]]) -> Evidence:
    """Evidence of keys with these values and TTLs, looked at at the moment 2,000,000,000,000."""
    evidence = Evidence()
    for at, (value, left_ms) in enumerate(rows):
        evidence.add(f"sess:{at}", "string", left_ms, 2_000_000_000_000, json.dumps(value).encode())
    assert all(isinstance(one, Watched) for one in evidence.watched)
    return evidence


_NOW = 2_000_000_000_000


@pytest.mark.parametrize(
    ("fields", "lifetime"),
    [
        # It ends 30 minutes after the last use; some were used long after they began.
        (
            lambda at, left: {"created": _NOW + left - (30 + at) * _M, "seen": _NOW + left - 30 * _M},
            Sliding(30 * _M, 30 * _S),
        ),
        # It ends 30 minutes after it began: `seen` says nothing about it.
        (lambda at, left: {"created": _NOW + left - 30 * _M, "seen": _NOW + left - 29 * _M + at * 900}, After(30 * _M)),
        # Written once: both moments are the same, so nothing tells that use moves the deadline.
        (lambda at, left: {"created": _NOW + left - 30 * _M, "seen": _NOW + left - 30 * _M}, After(30 * _M)),
        (lambda at, left: {"expires": _NOW + left + at % 3}, until("expires")),
        # One of them ends elsewhere.
        (lambda at, left: {"expires": _NOW + left + (_H if at == 7 else 0)}, After(30 * _M)),
    ],
    ids=["last use", "creation", "no use", "a field", "a field of most"],
)  # fmt: skip
def test_moments_in_values_tell_what_the_deadline_follows(
    fields: Callable[[int, int], dict[str, int]], lifetime: Lifetime
) -> None:
    lefts = [30 * _M - at * _M // 2 for at in range(40)]
    evidence = _watched([(fields(at, left), left) for at, left in enumerate(lefts)])
    times = dict.fromkeys(fields(0, 0), "EpochMs")
    assert guess_lifetime(evidence, times)[0] == lifetime


def test_a_deadline_in_seconds_or_as_a_text_is_until_that_field() -> None:
    ends_s = _NOW // 1000 + 900
    evidence = _watched([({"exp": ends_s + at}, (900 + at) * _S) for at in range(9)])
    assert guess_lifetime(evidence, {"exp": "EpochSeconds"})[0] == until("exp", unit="s")
    texts = _watched([({"expires": f"2033-05-18T03:48:{20 + at}+00:00"}, (900 + at) * _S) for at in range(9)])
    assert guess_lifetime(texts, {"expires": "IsoTime"})[0] == until("expires")
