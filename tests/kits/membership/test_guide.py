"""The guide of the kit says what the code does."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from keystead.kits.membership import KIT, MembershipKeys, MembershipSettings, routes
from keystead.kits.membership.routes import STATUS, router
from keystead.kits.membership.service import EVENTS, LIMITS, members, missing
from keystead.kits.membership.service.crash_reports import LOGS_MOST
from keystead.kits.membership.service.ledger import MONTHLY_TOKENS
from keystead.kits.membership.service.patreon import PLANS

GUIDE = (Path(__file__).parents[3] / "docs" / "membership.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rows of the table that begins so, cell by cell."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def test_the_guide_names_each_route_and_no_other() -> None:
    told = {tuple(plain(route).split(" ")) for route, *_ in rows("Route")}
    there = {(method, one.path) for one in router().routes if isinstance(one, APIRoute) for method in one.methods or ()}
    assert told == there


def test_the_guide_names_each_setting_with_its_default_and_its_description() -> None:
    told = {plain(name): (plain(default), doc.strip("| ")) for name, default, doc in rows("Setting")}
    assert list(told) == list(MembershipSettings.model_fields)
    for name, setting in MembershipSettings.model_fields.items():
        default: Any = "" if setting.default_factory is not None else setting.default
        assert told[name] == (str(default) if default else "", setting.description)


def test_the_guide_names_each_limit() -> None:
    assert {plain(name): int(plain(limit)) for name, limit, _ in rows("Limit")} == LIMITS


def test_the_guide_names_each_plan_with_its_price_and_its_tokens() -> None:
    told = {plan: (price, int(plain(tokens).replace(",", ""))) for plan, price, tokens in rows("Plan")}
    prices = {plan: str(cents) for cents, plan in PLANS} | {"Free": "0"}
    assert told == {plan: (prices[plan], tokens) for plan, tokens in MONTHLY_TOKENS.items()}


def test_the_guide_names_each_error_with_its_status() -> None:
    assert {plain(code): int(status) for code, status, _ in rows("Code")} == dict(STATUS)


def test_each_reason_of_the_service_has_a_status_and_each_status_a_reason() -> None:
    folder = Path(members.__file__).parent
    sources = [file.read_text() for file in folder.glob("*.py")] + [inspect.getsource(routes)]
    used = {
        node.args[0].value
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("MembershipRefused", "_failing")
        if isinstance(node.args[0], ast.Constant)
    }
    assert used == STATUS.keys()


def test_the_guide_names_each_event() -> None:
    assert {event for cell, _ in rows("event") for event in re.findall(r"members:[a-z:]+", cell)} == EVENTS


def test_production_needs_what_the_guide_says_and_the_names_of_the_document_are_read() -> None:
    assert [one.partition(":")[0] for one in missing(MembershipSettings())] == [
        f"membership.{name}" for name in ("client_id", "client_secret", "webhook_secret", "redirect_uris")
    ]
    for name in KIT.environment:
        assert f"`{name}`" in GUIDE


@pytest.mark.parametrize(
    ("family", "said"), [("membership", "1 hour"), ("auth", "1 minute"), ("membership_stale", "24 hours")]
)
def test_how_old_an_answer_may_be_is_what_the_families_say(family: str, said: str) -> None:
    hours = {"1 minute": 60_000, "1 hour": 3_600_000, "24 hours": 86_400_000}
    assert MembershipKeys.families[family].lifetime.longest_ms == hours[said]
    assert said in GUIDE


def test_the_numbers_of_crash_reports_are_those_of_the_code() -> None:
    assert f"{LOGS_MOST:,} characters" in GUIDE
