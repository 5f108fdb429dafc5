"""Crash reports: what of them is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, overload

from pydantic import TypeAdapter, ValidationError

from keystead.kits.membership.service.ledger_records import CrashReport
from keystead.kits.membership.service.outcomes import MembershipRefused

LOGS_MOST: Final = 102_400  # characters
CUT: Final = "\n[the rest was cut]"
_TEXT_MOST: Final = 16_384
_WORDS_MOST: Final = 256  # of a version, of a time
_REPORTS: Final = TypeAdapter(CrashReport)


def crash_report_of(told: dict[str, Any]) -> CrashReport:
    """A crash report as it is kept: only what the user agreed to send, and no text that is too long.

    They agreed where it says `true`: not where it says something else that is not empty, such as `"no"`.
    """
    given = dict(told)
    for name in ("system_info", "logs"):
        if given.get(f"include_{name}") is not True:
            given.pop(name, None)
    if given.get("system_info") is not None and not isinstance(given["system_info"], str):
        try:
            given["system_info"] = json.dumps(given["system_info"], ensure_ascii=False)
        except RecursionError:
            raise MembershipRefused("VALIDATION_ERROR", "system_info is nested too deep; send it as a text") from None
    try:
        report = _REPORTS.validate_python(given)
    except ValidationError as error:
        names = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
        raise MembershipRefused("VALIDATION_ERROR", f"a crash report is wrong in: {names}") from None
    return replace(
        report,
        crash_timestamp=report.crash_timestamp[:_WORDS_MOST],
        error_message=_cut(report.error_message, _TEXT_MOST),
        app_version=report.app_version[:_WORDS_MOST],
        os_version=report.os_version[:_WORDS_MOST],
        system_info=_cut(report.system_info, _TEXT_MOST),
        logs=_cut(report.logs, LOGS_MOST),
    )


@overload
def _cut(text: str, most: int) -> str: ...
@overload
def _cut(text: str | None, most: int) -> str | None: ...
def _cut(text: str | None, most: int) -> str | None:
    """A text that is not too long, and says where it was cut."""
    return text if text is None or len(text) <= most else text[:most] + CUT
