"""Validation, consent and truncation of crash reports."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from keystead.kits.membership import Members, MembershipRefused
from keystead.kits.membership.commands import crash_reports
from keystead.kits.membership.service.crash_reports import CUT, LOGS_MOST, parse_crash_report
from tests.kits.membership.conftest import Books, here


def report(**more: Any) -> dict[str, Any]:
    return {
        "report_id": str(uuid4()),
        "crash_timestamp": "2026-01-18T09:30:00Z",
        "error_message": "",
        "app_version": "1.0",
        "os_version": "11",
        **more,
    }


def test_only_data_with_consent_is_stored() -> None:
    full = report(system_info={"cpu": 8}, logs="a line")
    kept = parse_crash_report(full)
    assert (kept.system_info, kept.logs) == (None, None)
    kept = parse_crash_report(full | {"include_system_info": True, "include_logs": True})
    assert (kept.system_info, kept.logs) == ('{"cpu": 8}', "a line")


def test_long_logs_are_truncated_and_marked() -> None:
    just = parse_crash_report(report(include_logs=True, logs="x" * LOGS_MOST))
    assert just.logs == "x" * LOGS_MOST
    over = parse_crash_report(report(include_logs=True, logs="x" * (LOGS_MOST + 1)))
    assert over.logs == "x" * LOGS_MOST + CUT


@pytest.mark.parametrize("name", ["report_id", "crash_timestamp", "error_message", "app_version", "os_version"])
def test_an_incomplete_report_is_refused_with_the_missing_fields(name: str) -> None:
    told = report()
    del told[name]
    with pytest.raises(MembershipRefused, match=name):
        parse_crash_report(told)


@here
async def test_a_crash_report_is_one_escaped_line_of_the_list(members: Members) -> None:
    for ends in ("\n", "\r", "\x0b", "\x85", "\u2028"):
        forged = f"1.0{ends}{uuid4()}  2026-01-18 09:30 UTC  1.0  all is well"
        await members.crash_report(report(app_version=forged, error_message=forged))
    listed = (await crash_reports(members)).text.splitlines()
    assert len(listed) == 5


@here
async def test_a_repeated_report_succeeds_and_is_stored_once(members: Members, ledger: Books) -> None:
    told = report(error_message="first")
    assert await members.crash_report(told) is True
    assert await members.crash_report({**told, "error_message": "second"}) is False
    kept = await ledger.find_crash_report(UUID(told["report_id"]))
    assert kept is not None
    assert kept.error_message == "first"
