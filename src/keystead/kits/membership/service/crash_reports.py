"""Crash reports: validation, consent and truncation."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, overload

from pydantic import TypeAdapter, ValidationError

from keystead.kits.membership.service.ledger_records import CrashReport
from keystead.kits.membership.service.outcomes import MembershipRefused

LOGS_MOST: Final = 102_400  # characters
CUT: Final = "\n[truncated]"
_TEXT_MOST: Final = 16_384
_WORDS_MOST: Final = 256  # of versions and times
_REPORTS: Final = TypeAdapter(CrashReport)


def parse_crash_report(body: dict[str, Any]) -> CrashReport:
    """Validate a crash report for storage. Drops what the user did not consent to send, and truncates long texts.

    Only `true` is consent; any other value, such as `"no"`, is not. Raises MembershipRefused if a field is invalid.
    """
    given = dict(body)
    for name in ("system_info", "logs"):
        if given.get(f"include_{name}") is not True:
            given.pop(name, None)
    if given.get("system_info") is not None and not isinstance(given["system_info"], str):
        try:
            given["system_info"] = json.dumps(given["system_info"], ensure_ascii=False)
        except RecursionError:
            raise MembershipRefused(
                "VALIDATION_ERROR", "system_info is nested too deeply; send it as a string"
            ) from None
    try:
        report = _REPORTS.validate_python(given)
    except ValidationError as error:
        names = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
        raise MembershipRefused("VALIDATION_ERROR", f"invalid or missing fields in the crash report: {names}") from None
    return replace(
        report,
        crash_timestamp=report.crash_timestamp[:_WORDS_MOST],
        error_message=_truncate(report.error_message, _TEXT_MOST),
        app_version=report.app_version[:_WORDS_MOST],
        os_version=report.os_version[:_WORDS_MOST],
        system_info=_truncate(report.system_info, _TEXT_MOST),
        logs=_truncate(report.logs, LOGS_MOST),
    )


@overload
def _truncate(text: str, most: int) -> str: ...
@overload
def _truncate(text: str | None, most: int) -> str | None: ...
def _truncate(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else text[:most] + CUT
