"""Routes for programs with an API key: record usage, grant bonuses, read plan history and crash reports."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import Depends, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from keystead.http.responses import json_response
from keystead.http.routing import KitRouter
from keystead.kits.membership.models import Plan
from keystead.kits.membership.routes.account import BonusesAnswer, MonthlyUsage, format_time
from keystead.kits.membership.routes.request import Authorization, Serving, bearer, refusal_of
from keystead.kits.membership.service.ledger import MOST_TOKENS
from keystead.kits.membership.service.ledger_records import CrashReport
from keystead.kits.membership.service.programs import LISTED_MAX, SOURCE, Programs, Standing
from keystead.kits.membership.service.tables import ID_MAX_BYTES, USER_MAX_BYTES, WORD_MAX_BYTES

_HEADLINE_MOST: Final = 500


class UsageBody(BaseModel):
    user_id: str = Field(min_length=1, max_length=USER_MAX_BYTES, description="The member's id at Patreon.")
    event_id: str = Field(min_length=1, max_length=ID_MAX_BYTES, description="Each id counts once; reuse it to retry.")
    tokens: int = Field(ge=0, le=MOST_TOKENS, strict=True)


class BonusBody(BaseModel):
    user_id: str = Field(min_length=1, max_length=USER_MAX_BYTES, description="The member's id at Patreon.")
    bonus_id: str = Field(
        min_length=1, max_length=ID_MAX_BYTES, description="Each id is granted once; reuse it to retry."
    )
    tokens: int = Field(ge=1, le=MOST_TOKENS, strict=True)
    source: str = Field(
        SOURCE, min_length=1, max_length=WORD_MAX_BYTES, description="The reason for the bonus, in a word."
    )


class StandingAnswer(BaseModel):
    success: Literal[True] = True
    user_id: str
    plan: Plan
    plan_is_stale: bool
    monthly_usage: MonthlyUsage
    has_bonus_tokens: bool
    bonus_tokens: BonusesAnswer


class UsedAnswer(StandingAnswer):
    is_new: bool
    from_quota: int
    from_bonus: int
    beyond: int


class GrantedAnswer(StandingAnswer):
    is_new: bool


class PlanNoteAnswer(BaseModel):
    old_plan: Plan
    new_plan: Plan
    source: str
    at: str


class PlanHistoryAnswer(BaseModel):
    success: Literal[True] = True
    user_id: str
    changes: list[PlanNoteAnswer]


class CrashSummary(BaseModel):
    report_id: UUID
    received_at: str
    crash_timestamp: str
    error_message: str
    app_version: str
    os_version: str
    has_logs: bool


class CrashReportsAnswer(BaseModel):
    success: Literal[True] = True
    reports: list[CrashSummary]
    next_before: UUID | None = Field(description="The `before` of the next page; null on the last page.")


class CrashReportAnswer(BaseModel):
    success: Literal[True] = True
    report_id: UUID
    crash_timestamp: str
    error_message: str
    app_version: str
    os_version: str
    system_info: str | None
    logs: str | None


async def _require_api_key(members: Serving, authorization: Authorization = None) -> Programs:
    await members.programs.admit(bearer(authorization))
    return members.programs


Program = Annotated[Programs, Depends(_require_api_key)]
UserId = Annotated[str, Query(min_length=1, max_length=USER_MAX_BYTES, description="The member's id at Patreon.")]
Limit = Annotated[int, Query(ge=1, le=LISTED_MAX)]


def add_program_routes(routes: KitRouter) -> None:
    add = partial(routes.add, translate=partial(refusal_of, success=False))
    add("POST /api/membership/usage", _record_usage, "Record usage of a member", UsedAnswer)
    add("POST /api/membership/bonus", _grant_bonus, "Grant bonus tokens", GrantedAnswer)
    add("GET /api/membership/status", _standing, "Plan, usage and bonus tokens of a member", StandingAnswer)
    add("GET /api/membership/plan-history", _plan_history, "Plan changes of a member", PlanHistoryAnswer)
    add("GET /api/membership/crash-reports", _crash_reports, "The newest crash reports", CrashReportsAnswer)
    add("GET /api/membership/crash-reports/{report_id}", _crash_report, "One crash report", CrashReportAnswer)


async def _record_usage(programs: Program, body: UsageBody) -> Response:
    recorded, standing = await programs.record_usage(body.user_id, body.event_id, body.tokens)
    return json_response(
        UsedAnswer(
            **_standing_fields(standing),
            is_new=recorded.is_new,
            from_quota=recorded.from_quota,
            from_bonus=recorded.from_bonus,
            beyond=recorded.beyond,
        )
    )


async def _grant_bonus(programs: Program, body: BonusBody) -> Response:
    is_new, standing = await programs.grant_bonus(body.user_id, body.bonus_id, body.tokens, body.source)
    return json_response(GrantedAnswer(**_standing_fields(standing), is_new=is_new))


async def _standing(programs: Program, user_id: UserId) -> Response:
    return json_response(StandingAnswer(**_standing_fields(await programs.standing(user_id))))


async def _plan_history(programs: Program, user_id: UserId, limit: Limit = LISTED_MAX) -> Response:
    found = await programs.plan_history(user_id, limit)
    changes = [
        PlanNoteAnswer(old_plan=one.old_plan, new_plan=one.new_plan, source=one.source, at=format_time(one.at_ms))
        for one in found
    ]
    return json_response(PlanHistoryAnswer(user_id=user_id, changes=changes))


async def _crash_reports(programs: Program, limit: Limit = 50, before: UUID | None = None) -> Response:
    found = await programs.crash_reports(limit, before)
    reports = [_summary(one.report, one.received_at_ms) for one in found]
    return json_response(
        CrashReportsAnswer(reports=reports, next_before=reports[-1].report_id if len(found) == limit else None)
    )


async def _crash_report(programs: Program, report_id: UUID) -> Response:
    found = await programs.crash_report(report_id)
    return json_response(CrashReportAnswer(**asdict(found)))


def _standing_fields(standing: Standing) -> dict[str, object]:
    return {
        "user_id": standing.user,
        "plan": standing.plan,
        "plan_is_stale": standing.plan_is_stale,
        "monthly_usage": MonthlyUsage.of(standing.status),
        "has_bonus_tokens": standing.status.has_bonus_tokens,
        "bonus_tokens": BonusesAnswer.of(standing.bonuses),
    }


def _summary(report: CrashReport, received_at_ms: int) -> CrashSummary:
    return CrashSummary(
        report_id=report.report_id,
        received_at=format_time(received_at_ms),
        crash_timestamp=report.crash_timestamp,
        error_message=report.error_message[:_HEADLINE_MOST],
        app_version=report.app_version,
        os_version=report.os_version,
        has_logs=report.logs is not None,
    )
