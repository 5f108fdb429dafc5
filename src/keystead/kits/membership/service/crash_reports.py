"""Crash reports: what of them is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from keystead.kits.membership.service.ledger import CrashReport
from keystead.kits.membership.service.outcomes import MembershipRefused

LOGS_MOST: Final = 102_400  # characters
LOGS_CUT: Final = "\n[the rest was cut]"
_TEXT_MOST: Final = 16_384
_REPORTS: Final = TypeAdapter(CrashReport)


def crash_report_of(told: dict[str, Any]) -> CrashReport:
    """A crash report as it is kept: only what the user agreed to send, and logs that are not too long."""
    given = dict(told)
    if not given.get("include_system_info"):
        given.pop("system_info", None)
    if not given.get("include_logs"):
        given.pop("logs", None)
    if given.get("system_info") is not None and not isinstance(given["system_info"], str):
        given["system_info"] = json.dumps(given["system_info"], ensure_ascii=False)
    try:
        report = _REPORTS.validate_python(given)
    except ValidationError as error:
        names = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
        raise MembershipRefused("VALIDATION_ERROR", f"a crash report is wrong in: {names}") from None
    logs = report.logs
    if logs is not None and len(logs) > LOGS_MOST:
        logs = logs[:LOGS_MOST] + LOGS_CUT
    return replace(report, error_message=report.error_message[:_TEXT_MOST], logs=logs)
