"""The ledger counts each event once, charges the quota before bonuses, and overspends neither."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystead.errors import BadValue
from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger import MONTHLY_TOKENS, Ledger, month_of
from keystead.kits.membership.service.ledger_records import CrashReport, RecordedUsage, Usage
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables
from tests import forking
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server
from tests.kits.membership.ledger_worker import LIMITS, NOW_MS
from tests.serving import environment

__all__ = ["database_url", "mariadb_server", "postgres_server"]

ROOT = Path(__file__).parents[3]
MONTH = "2026-09"


def ms(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """A ledger with small limits on an empty database."""
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        yield Ledger(tables, LIMITS)


# --- profiles ----------------------------------------------------------------------------------------------


@on_databases()
async def test_a_profile_is_created_on_first_write_and_its_id_is_stable(ledger: Ledger) -> None:
    made = await ledger.profile_of("42", NOW_MS, email="ann@example.com", full_name="Ann 😀")
    assert isinstance(made.id, UUID)
    later = await ledger.profile_of("42", NOW_MS + 5)
    assert later == made
    renamed = await ledger.profile_of("42", NOW_MS + 9, full_name="Anna")
    assert (renamed.id, renamed.email, renamed.full_name) == (made.id, "ann@example.com", "Anna")
    assert await ledger.find_profile(made.id) == renamed
    assert await ledger.find_profile(uuid4()) is None


@on_databases()
async def test_20_concurrent_first_writes_create_one_profile(ledger: Ledger) -> None:
    seen = await asyncio.gather(*(ledger.profile_of("42", NOW_MS) for _ in range(20)))
    assert len({one.id for one in seen}) == 1


# --- usage -------------------------------------------------------------------------------------------------


@on_databases()
async def test_usage_is_charged_to_the_quota_then_the_oldest_bonus_then_beyond(ledger: Ledger) -> None:
    await ledger.grant_bonus("42", "younger", 30, "promotion", NOW_MS + 1)
    await ledger.grant_bonus("42", "older", 20, "welcome", NOW_MS)
    assert await ledger.record_usage("42", "Pro", "e1", 90, NOW_MS) == RecordedUsage(True, MONTH, 90, 0, 0)
    assert await ledger.record_usage("42", "Pro", "e2", 35, NOW_MS) == RecordedUsage(True, MONTH, 10, 25, 0)
    assert [(one.id, one.used) for one in await ledger.bonuses("42")] == [("older", 20), ("younger", 5)]
    status = await ledger.status("42", "Pro", NOW_MS)
    assert (status.tokens_used, status.tokens_limit, status.is_exceeded, status.bonus_left) == (100, 100, True, 25)
    assert await ledger.record_usage("42", "Pro", "e3", 40, NOW_MS) == RecordedUsage(True, MONTH, 0, 25, 15)
    status = await ledger.status("42", "Pro", NOW_MS)
    assert (status.tokens_used, status.is_exceeded, status.has_bonus_tokens) == (115, True, False)
    assert await ledger.usage("42", MONTH) == Usage(MONTH, 115, 50)


@on_databases()
async def test_a_repeated_event_counts_once_and_gets_the_same_answer(ledger: Ledger) -> None:
    first = await ledger.record_usage("42", "Pro", "e1", 60, NOW_MS)
    again = await ledger.record_usage("42", "Pro", "e1", 99, NOW_MS + 5)
    assert (first.is_new, again) == (True, RecordedUsage(False, MONTH, 60, 0, 0))
    told = await asyncio.gather(*(ledger.record_usage("42", "Pro", "e2", 7, NOW_MS) for _ in range(20)))
    assert sum(one.is_new for one in told) == 1
    assert await ledger.usage("42", MONTH) == Usage(MONTH, 67, 0)


@on_databases()
async def test_event_ids_are_separate_for_each_member(ledger: Ledger) -> None:
    for user in ("42", "43", "42 "):
        assert (await ledger.record_usage(user, "Pro", "e1", 5, NOW_MS)).is_new
    assert [(await ledger.usage(user, MONTH)).tokens_used for user in ("42", "43", "42 ")] == [5, 5, 5]


@on_databases("memory")
async def test_a_month_begins_at_midnight_in_utc(ledger: Ledger) -> None:
    last, first = ms(2026, 9, 30, 23, 59, 59), ms(2026, 10, 1)
    await ledger.record_usage("42", "Pro", "e1", 100, last)
    assert (await ledger.status("42", "Pro", last)).is_exceeded
    assert not (await ledger.status("42", "Pro", first)).is_exceeded
    assert (await ledger.record_usage("42", "Pro", "e2", 3, first)).from_quota == 3
    assert [month_of(at) for at in (last, first - 1, first)] == ["2026-09", "2026-09", "2026-10"]


@on_databases("memory")
async def test_an_upgrade_within_a_month_raises_the_limit(ledger: Ledger) -> None:
    await ledger.grant_bonus("42", "b", 50, "welcome", NOW_MS)
    await ledger.record_usage("42", "Pro", "e1", 130, NOW_MS)
    assert await ledger.record_usage("42", "Premium", "e2", 100, NOW_MS) == RecordedUsage(True, MONTH, 100, 0, 0)


@on_databases("memory")
async def test_a_free_member_can_spend_bonus_tokens(ledger: Ledger) -> None:
    assert (await ledger.status("42", "Free", NOW_MS)).is_exceeded
    await ledger.grant_bonus("42", "b", 25, "welcome", NOW_MS)
    assert await ledger.record_usage("42", "Free", "e1", 20, NOW_MS) == RecordedUsage(True, MONTH, 0, 20, 0)
    assert (await ledger.status("42", "Free", NOW_MS)).bonus_left == 5


@on_databases("sqlite", "postgres", "mariadb")
async def test_50_recordings_in_two_processes_overspend_neither_quota_nor_bonus(database_url: str) -> None:
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        ledger = Ledger(tables, LIMITS)
        for at, tokens in enumerate((95, 40)):
            await ledger.grant_bonus("42", f"b{at}", tokens, "promotion", NOW_MS + at)
        # Both report the events 20 to 30.
        ranges = ((0, 30), (20, 40))

        def recorded_by_workers() -> list[dict[str, Any]]:
            with ExitStack() as stack:
                workers = [
                    stack.enter_context(
                        forking.talking(
                            "tests.kits.membership.ledger_worker",
                            (database_url, str(first), str(last)),
                            ROOT,
                            environment(),
                        )
                    )
                    for first, last in ranges
                ]
                for one in workers:
                    assert one.stdout.readline() == "ready\n"
                for one in workers:
                    one.stdin.write("go\n")
                    one.stdin.flush()
                return [record for one in workers for record in json.loads(one.stdout.read())]

        recorded = await asyncio.to_thread(recorded_by_workers)
        new = [one for one in recorded if one["is_new"]]
        assert (len(recorded), len(new)) == (50, 40)
        sums = {part: sum(one[part] for one in new) for part in ("from_quota", "from_bonus", "beyond")}
        assert sums == {"from_quota": 100, "from_bonus": 135, "beyond": 400 - 100 - 135}
        assert [(one.granted, one.used) for one in await ledger.bonuses("42")] == [(95, 95), (40, 40)]
        assert await ledger.usage("42", MONTH) == Usage(MONTH, 400 - 135, 135)


@settings(max_examples=25)  # each on a new database
@given(
    st.lists(st.integers(0, 60), max_size=4),
    st.lists(st.tuples(st.integers(0, 90), st.sampled_from(sorted(LIMITS))), max_size=8),
)
def test_all_usage_is_charged_to_quota_bonus_or_beyond(granted: list[int], uses: list[tuple[int, Plan]]) -> None:
    async def scenario() -> None:
        async with open_tables("memory://", MEMBERSHIP_TABLES) as tables:
            ledger = Ledger(tables, LIMITS)
            for at, tokens in enumerate(granted):
                await ledger.grant_bonus("42", f"b{at}", tokens, "promotion", NOW_MS + at)
            counted, left = 0, sum(granted)
            for at, (tokens, plan) in enumerate(uses):
                room = max(0, LIMITS[plan] - counted)
                one = await ledger.record_usage("42", plan, f"e{at}", tokens, NOW_MS)
                assert one.from_quota == min(tokens, room)
                assert one.from_bonus == min(tokens - one.from_quota, left)
                assert one.from_quota + one.from_bonus + one.beyond == tokens
                counted += one.from_quota + one.beyond
                left -= one.from_bonus
            assert (await ledger.status("42", "Pro", NOW_MS)).bonus_left == left
            assert (await ledger.usage("42", MONTH)).tokens_used == counted

    asyncio.run(scenario())


@on_databases()
async def test_usage_events_are_deleted_by_age_and_monthly_sums_stay(ledger: Ledger) -> None:
    for at in range(5):
        await ledger.record_usage("42", "Pro", f"e{at}", 10, NOW_MS + at)
    assert [await ledger.delete_usage_events(NOW_MS + 3, most=2) for _ in range(3)] == [2, 1, 0]
    assert (await ledger.usage("42", MONTH)).tokens_used == 50
    assert not (await ledger.record_usage("42", "Pro", "e4", 10, NOW_MS)).is_new


@on_databases("memory")
async def test_invalid_ids_and_token_counts_are_refused_before_a_write(ledger: Ledger) -> None:
    for user, event, tokens in (("", "e", 1), ("42", "", 1), ("42", "e" * 201, 1), ("42", "e\0", 1), ("4\n", "e", 1)):
        with pytest.raises(BadValue):
            await ledger.record_usage(user, "Pro", event, tokens, NOW_MS)
    for wrong in (-1, 1.5, True, 10**12 + 1):
        with pytest.raises(BadValue, match="tokens must be a whole number"):
            await ledger.record_usage("42", "Pro", "e", wrong, NOW_MS)  # type: ignore[arg-type]
    assert await ledger.usage("42", MONTH) == Usage(MONTH, 0, 0)


def test_the_limits_are_those_of_the_plans() -> None:
    assert dict(MONTHLY_TOKENS) == {"Free": 0, "Pro": 10_000_000, "Premium": 20_000_000, "Ultimate": 50_000_000}


# --- bonuses -----------------------------------------------------------------------------------------------


@on_databases()
async def test_a_bonus_is_granted_once(ledger: Ledger) -> None:
    granted = await asyncio.gather(*(ledger.grant_bonus("42", "b", 25, "welcome", NOW_MS) for _ in range(10)))
    assert sum(granted) == 1
    assert not await ledger.grant_bonus("42", "b", 9_000, "welcome", NOW_MS)
    assert await ledger.grant_bonus("43", "b", 25, "welcome", NOW_MS)
    assert (await ledger.status("42", "Free", NOW_MS)).bonus_left == 25


@on_databases()
async def test_reported_bonus_usage_only_increases_up_to_what_was_granted(ledger: Ledger) -> None:
    await ledger.grant_bonus("42", "b", 25, "welcome", NOW_MS)
    await ledger.grant_bonus("43", "of another", 25, "welcome", NOW_MS)
    assert await ledger.sync_bonuses("42", {"b": 10, "of another": 5, "unknown": 5}) == {"b": 10}
    assert await ledger.sync_bonuses("42", {"b": 4}) == {"b": 10}
    assert await ledger.sync_bonuses("42", {"b": 99}) == {"b": 25}
    assert await ledger.sync_bonuses("42", {}) == {}
    assert await ledger.sync_bonuses("nobody", {"b": 1}) == {}
    assert [one.used for one in await ledger.bonuses("43")] == [0]


@on_databases("postgres", "mariadb", "sqlite")
async def test_a_bonus_sync_concurrent_with_usage_spends_nothing_twice(ledger: Ledger) -> None:
    await ledger.grant_bonus("42", "b", 50, "welcome", NOW_MS)
    recordings = [ledger.record_usage("42", "Free", f"e{at}", 4, NOW_MS) for at in range(10)]
    syncs = [ledger.sync_bonuses("42", {"b": at}) for at in range(0, 20, 2)]
    await asyncio.gather(*(one for pair in zip(recordings, syncs, strict=True) for one in pair))
    [bonus] = await ledger.bonuses("42")
    paid = (await ledger.usage("42", MONTH)).bonus_used
    assert paid <= bonus.used <= 50


# --- crash reports and plans -------------------------------------------------------------------------------


@on_databases()
async def test_a_crash_report_is_stored_once(ledger: Ledger) -> None:
    report = CrashReport(uuid4(), "2026-09-21T10:00:00Z", "", "1.2.3", "Windows 11", None, "x\0" * 60_000 + "😀")
    added = await asyncio.gather(*(ledger.add_crash_report(report, NOW_MS) for _ in range(5)))
    assert sum(added) == 1
    other = CrashReport(uuid4(), "2026-09-21T10:00:00Z", "it broke", "1.2.3", "Windows 11", '{"ram": 8}')
    assert await ledger.add_crash_report(other, NOW_MS + 1)
    kept = await ledger.find_crash_report(report.report_id)
    assert kept is not None
    assert kept.logs == "x\ufffd" * 60_000 + "😀"
    assert await ledger.find_crash_report(other.report_id) == other
    assert [await ledger.delete_crash_reports(NOW_MS + 1) for _ in range(2)] == [1, 0]
    assert await ledger.find_crash_report(report.report_id) is None
    assert await ledger.find_crash_report(other.report_id) == other


@on_databases()
async def test_a_plan_change_is_recorded_once_and_a_replayed_event_reverts_nothing(ledger: Ledger) -> None:
    first = await ledger.record_plan_change("42", "w1", "Pro", "webhook", NOW_MS)
    assert (first.is_new, first.is_change, first.old_plan, first.new_plan) == (True, True, "Free", "Pro")
    same = await ledger.record_plan_change("42", "w2", "Pro", "webhook", NOW_MS)
    assert (same.is_new, same.is_change) == (True, False)
    ended = await ledger.record_plan_change("42", "w3", "Free", "webhook", NOW_MS)
    assert (ended.old_plan, ended.new_plan) == ("Pro", "Free")
    for old in ("w1", "w2"):
        assert not (await ledger.record_plan_change("42", old, "Pro", "webhook", NOW_MS)).is_new
    assert (await ledger.record_plan_change("42", "w4", "Premium", "webhook", NOW_MS)).old_plan == "Free"


@on_databases()
async def test_erasing_a_user_leaves_nothing_of_them_and_all_of_others(ledger: Ledger) -> None:
    for user in ("42", "43"):
        await ledger.grant_bonus(user, "b", 5, "welcome", NOW_MS)
        await ledger.record_usage(user, "Pro", "e1", 7, NOW_MS)
        await ledger.record_plan_change(user, "w1", "Pro", "webhook", NOW_MS)
    gone = await ledger.profile_of("42", NOW_MS)
    assert await ledger.tables.erase("membership:42")
    assert not await ledger.tables.erase("membership:42")
    assert await ledger.find_profile(gone.id) is None
    assert await ledger.usage("42", MONTH) == Usage(MONTH, 0, 0)
    assert await ledger.bonuses("42") == []
    assert (await ledger.usage("43", MONTH)).tokens_used == 7
