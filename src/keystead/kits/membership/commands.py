"""Show members and plan changes, record usage, grant bonus tokens, read crash reports, manage keys and promotions."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from keystead.kits.kit_command import Shown
from keystead.parts.sanitize import visible
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import moment

if TYPE_CHECKING:
    from keystead.kits.membership.service import Members
    from keystead.kits.membership.service.programs import Standing

_ROW_MOST = 1_000

User = Annotated[str, typer.Argument(metavar="USER", help="The member's id at Patreon.")]
Tokens = Annotated[int, typer.Argument(metavar="TOKENS", help="How many tokens.", min=0)]
Limit = Annotated[int, typer.Option(metavar="NUMBER", help="How many at most.", min=1, max=1_000)]


class PaidPlan(StrEnum):
    PRO = "Pro"
    PREMIUM = "Premium"
    ULTIMATE = "Ultimate"


# --- members ---------------------------------------------------------------------------------------------------


async def status(members: Members, user: User) -> Shown:
    """Show the plan, usage and bonus tokens of a member this month."""
    return _show_standing(await members.programs.standing(user))


async def record_usage(
    members: Members,
    user: User,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="An id for this usage. Each id counts once.")],
    tokens: Tokens,
) -> Shown:
    """Record tokens that a member has used, once per EVENT, and show the member's status."""
    recorded, standing = await members.programs.record_usage(user, event, tokens)
    parts = f"{recorded.from_quota:,} of the quota, {recorded.from_bonus:,} of bonus tokens, {recorded.beyond:,} beyond"
    first = f"recorded: {parts}" if recorded.is_new else f"already recorded, not counted again: {parts}"
    return _show_standing(standing, first, is_new=recorded.is_new)


async def grant_bonus(
    members: Members,
    user: User,
    bonus: Annotated[str, typer.Argument(metavar="BONUS", help="An id for this bonus. Each id is granted once.")],
    tokens: Tokens,
    source: Annotated[str, typer.Option(metavar="WORD", help="The reason for the bonus.")] = "operator",
) -> Shown:
    """Grant a member bonus tokens, once per BONUS, and show the member's status."""
    is_new, standing = await members.programs.grant_bonus(user, bonus, tokens, source)
    return _show_standing(standing, "granted" if is_new else "already granted, not granted again", is_new=is_new)


async def plan_history(members: Members, user: User, limit: Limit = 50) -> Shown:
    """Show the plan changes of a member by webhooks, newest first."""
    found = await members.programs.plan_history(user, limit)
    lines = [f"{_format_time(one.at_ms)}  {one.old_plan} -> {one.new_plan}  {one.source}" for one in found]
    return Shown("\n".join(lines) or "this member has no plan history", [asdict(one) for one in found])


# --- crash reports ---------------------------------------------------------------------------------------------


async def crash_reports(members: Members, limit: Limit = 20) -> Shown:
    """List the newest crash reports, newest first."""
    found = await members.programs.crash_reports(limit)
    lines: list[str] = []
    data: list[dict[str, object]] = []
    for one in found:
        report = one.report
        headline = report.error_message.strip().partition("\n")[0][:200] or "(no message)"
        line = f"{report.report_id}  {_format_time(one.received_at_ms)}  {report.app_version}  {headline}"
        lines.append(visible(line, _ROW_MOST))  # reports come from clients: escape line breaks and control characters
        data.append(
            {
                "report_id": str(report.report_id),
                "received_at_ms": one.received_at_ms,
                "app_version": report.app_version,
                "os_version": report.os_version,
                "error_message": report.error_message,
            }
        )
    return Shown("\n".join(lines) or "there are no crash reports", data)


async def crash_report(
    members: Members,
    id: Annotated[UUID, typer.Argument(metavar="ID", help="An id from `keystead membership crash-reports`.")],
) -> Shown:
    """Show one crash report, with its logs if the user consented to send them."""
    found = await members.programs.crash_report(id)
    data = {**asdict(found), "report_id": str(found.report_id)}
    return Shown("\n".join(f"{name}: {value}" for name, value in data.items() if value is not None), data)


# --- API keys --------------------------------------------------------------------------------------------------


async def issue_key(
    members: Members,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A description of what the key is for.")],
) -> Shown:
    """Create an API key for a program that records usage. It is shown only once: the store holds its digest."""
    issued = await members.programs.issue_key(name)
    note = f"This key is shown only once. To revoke it: keystead membership revoke-key {issued.id}"
    return Shown(issued.token, issued._asdict(), note)


async def list_keys(members: Members) -> Shown:
    """List the API keys: id, creation time and name. No secret is shown."""
    found = await members.programs.list_keys()
    lines = [f"{one.id}  since {_format_time(one.made_ms)}  {one.name}" for one in found]
    data = [{"id": one.id, "name": one.name, "made_ms": one.made_ms} for one in found]
    return Shown("\n".join(lines) or "there are no API keys", data)


async def revoke_key(
    members: Members,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key, or the whole key.")],
) -> Shown:
    """Revoke an API key, immediately and permanently. The exit code is 1 if there is no such key."""
    if await members.programs.revoke_key(id):
        return Shown("revoked", {"revoked": True})
    text = "there is no such API key; `keystead membership list-keys` lists them"
    return Shown(text, {"revoked": False}, code=1)


# --- promotions ------------------------------------------------------------------------------------------------


async def make_promotion(
    members: Members,
    plan: Annotated[PaidPlan, typer.Argument(metavar="PLAN", help="Pro, Premium or Ultimate.")],
    uses: Annotated[int, typer.Option(metavar="NUMBER", help="How many members may redeem it.", min=1)] = 1,
    lasts: Annotated[str, typer.Option(metavar="DURATION", help="How long the promotion lasts.")] = "30d",
    redeem_within: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long the code can be redeemed. Default: no limit.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Bonus tokens. Default: a month of the plan.", min=0)
    ] = None,
) -> Shown:
    """Create a promotion code. It is shown only once: the database holds its digest."""
    now_ms = members.keys.now_ms()
    made = await members.account.promotions.make(
        plan.value,
        now_ms,
        max_uses=uses,
        lasts_ms=duration_ms(lasts, "--lasts"),
        redeem_before_ms=None if redeem_within is None else now_ms + duration_ms(redeem_within, "--redeem-within"),
        bonus_tokens=tokens,
    )
    return Shown(made.code, {"code": made.code, "masked": made.masked}, "This code is shown only once.")


async def promotions(members: Members) -> Shown:
    """List the promotion codes, masked, newest first."""
    found = await members.account.promotions.list()
    lines = [
        f"{one.masked}  {one.plan}  {one.bonus_tokens:,} tokens  redeemed {one.uses:,} of {one.max_uses:,}  "
        f"since {_format_time(one.made_at_ms)}"
        for one in found
    ]
    return Shown("\n".join(lines) or "there are no promotion codes", [asdict(one) for one in found])


def _show_standing(standing: Standing, first: str = "", **more: Any) -> Shown:
    status = standing.status
    left = max(0, status.tokens_limit - status.tokens_used)
    lines = [
        *([first] if first else []),
        f"member      {standing.user}",
        f"plan        {standing.plan}{' (stale: the provider does not answer)' if standing.plan_is_stale else ''}",
        f"month       {status.month}",
        f"used        {status.tokens_used:,} of {status.tokens_limit:,} tokens, {left:,} left",
        f"bonus       {status.bonus_left:,} tokens left",
    ]
    data = {
        "user_id": standing.user,
        "plan": standing.plan,
        "plan_is_stale": standing.plan_is_stale,
        "month": status.month,
        "tokens_used": status.tokens_used,
        "tokens_limit": status.tokens_limit,
        "tokens_left": left,
        "bonus_left": status.bonus_left,
        "bonuses": [asdict(one) for one in standing.bonuses],
    }
    return Shown("\n".join(lines), {**data, **more})


def _format_time(at_ms: int) -> str:
    return f"{moment(at_ms):%Y-%m-%d %H:%M} UTC"


COMMANDS = (
    status,
    record_usage,
    grant_bonus,
    plan_history,
    crash_reports,
    crash_report,
    issue_key,
    list_keys,
    revoke_key,
    make_promotion,
    promotions,
)
