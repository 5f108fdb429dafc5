"""Lifetimes: always stated, with units, and exact in the store."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead.errors import BadDeclaration, BadValue
from keystead.schema.lifetime import after, duration_ms, end_of_day, in_words, never, sliding, until

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("1h 30m", 5_400_000),
        ("30d", 2_592_000_000),
        ("2w", 1_209_600_000),
        (timedelta(minutes=1), 60_000),
    ],
)
def test_a_duration_carries_its_unit(text: str | timedelta, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "wrong", [30, 30.0, "30", "", "30 days", "-5s", "5x", "1.5h", "0s", timedelta(0), timedelta(-1), None, True, "5s;"]
)
def test_a_duration_without_a_unit_or_of_zero_is_refused(wrong: Any) -> None:
    with pytest.raises(BadDeclaration) as raised:
        after(wrong)
    assert raised.value.finding == "bad-lifetime"


def test_a_duration_finer_than_a_millisecond_is_refused_rather_than_rounded() -> None:
    with pytest.raises(BadDeclaration, match="whole milliseconds"):
        after(timedelta(microseconds=1500))


def test_never_needs_a_reason() -> None:
    for wrong in ("", "  "):
        with pytest.raises(BadDeclaration, match="what removes"):
            never(wrong)


def test_a_touch_interval_is_shorter_than_the_life_it_prolongs() -> None:
    with pytest.raises(BadDeclaration, match="touch_every"):
        sliding("1m", touch_every="1m")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "UTC+9"])
def test_the_end_of_a_day_needs_a_time_zone(zone: str) -> None:
    with pytest.raises(BadDeclaration, match="time zone"):
        end_of_day(zone)


@given(
    ms=st.integers(0, 40 * 365 * 86_400_000),
    zone=st.sampled_from(["UTC", "Asia/Tokyo", "Europe/Berlin", "America/Sao_Paulo"]),
)
def test_end_of_day_is_the_next_midnight_and_never_now(ms: int, zone: str) -> None:
    now_ms = NOW_MS + ms
    lifetime = end_of_day(zone)
    option, at_ms = lifetime.on_create(now_ms, None)
    assert option == "PXAT"
    assert isinstance(at_ms, int)
    assert 0 < at_ms - now_ms <= 25 * 3_600_000
    there = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))
    before = datetime.fromtimestamp((at_ms - 1) / 1000, ZoneInfo(zone))
    assert before.date() == datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(ZoneInfo(zone)).date()
    assert there.date() > before.date()


def test_in_the_last_millisecond_of_a_day_one_millisecond_is_left() -> None:
    assert end_of_day("UTC").on_create(NOW_MS - 1, None) == ("PXAT", NOW_MS)
    assert end_of_day("UTC").on_create(NOW_MS, None) == ("PXAT", NOW_MS + 86_400_000)


def test_a_deadline_in_the_past_is_refused() -> None:
    lifetime = until("expires_at", at_most="14d")
    for at_ms in (NOW_MS, NOW_MS - 1):
        with pytest.raises(BadValue, match="past"):
            lifetime.on_create(NOW_MS, at_ms)
    assert lifetime.on_create(NOW_MS, NOW_MS + 1) == ("PXAT", NOW_MS + 1)


def test_a_moment_later_than_allowed_is_refused_and_not_cut() -> None:
    lifetime = until("expires_at", at_most="14d")
    latest = NOW_MS + 14 * 86_400_000
    assert lifetime.on_create(NOW_MS, latest) == ("PXAT", latest)
    with pytest.raises(BadValue, match="14 days at most"):
        lifetime.on_create(NOW_MS, latest + 1)


def test_a_missing_deadline_argument_is_named() -> None:
    with pytest.raises(BadValue, match="pass expires_at"):
        until("expires_at").on_create(NOW_MS, None)


def test_lifetimes_are_described_in_words() -> None:
    assert in_words(5_400_000) == "1 hour 30 minutes"
    assert after("30d").describe() == "30 days"
    assert (
        sliding("30m", touch_every="1m").describe() == "30 minutes after the last use; touched at most once in 1 minute"
    )
    assert until("expires_at", at_most="14d").describe() == "until `expires_at`, at most 14 days"
    assert end_of_day("UTC").describe() == "end of the day (UTC)"
    assert never("emptied by the clean-up job").describe() == "never expires: emptied by the clean-up job"
