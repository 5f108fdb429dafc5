"""The guide of the kit matches the code."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from keystead.kits.membership import KIT, MembershipKeys, MembershipSettings
from keystead.kits.membership.commands import COMMANDS
from keystead.kits.membership.routes.request import CONSENT_CODES, PROMOTION_CODES, STATUS
from keystead.kits.membership.service import EVENTS, LIMITS, members, missing
from keystead.kits.membership.service.crash_reports import LOGS_MOST
from keystead.kits.membership.service.ledger import MONTHLY_TOKENS
from keystead.kits.membership.service.patreon import PLANS
from tests import forking
from tests.every_store import on_urls
from tests.serving import environment, keystead_serving, program

GUIDE = (Path(__file__).parents[3] / "docs" / "membership.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The rows of the table with this first heading, as cells."""
    table = GUIDE.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def plain(cell: str) -> str:
    return cell.strip("` |")


def test_the_guide_names_each_limit() -> None:
    assert {plain(name): int(plain(limit)) for name, limit, _ in rows("Limit")} == LIMITS


def test_the_guide_names_each_plan_with_its_price_and_its_tokens() -> None:
    told = {plan: (price, int(plain(tokens).replace(",", ""))) for plan, price, tokens in rows("Plan")}
    prices = {plan: str(cents) for cents, plan in PLANS} | {"Free": "0"}
    assert told == {plan: (prices[plan], tokens) for plan, tokens in MONTHLY_TOKENS.items()}


def test_the_guide_names_each_error_with_its_status() -> None:
    assert {plain(code): int(status) for code, status, _ in rows("Code")} == dict(STATUS)


def test_each_reason_of_the_service_has_a_status_and_each_status_a_reason() -> None:
    folder = Path(members.__file__).parents[1]
    sources = [file.read_text() for file in folder.rglob("*.py")]
    used = {
        node.args[0].value
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("MembershipRefused", "refuse_failures")
        if isinstance(node.args[0], ast.Constant)
    }
    assert used == STATUS.keys()


def test_the_guide_names_each_event() -> None:
    assert {event for cell, _ in rows("event") for event in re.findall(r"members:[a-z:]+", cell)} == EVENTS


def test_production_needs_the_documented_settings_and_the_guide_names_the_environment_variables() -> None:
    assert [one.partition(":")[0] for one in missing(MembershipSettings())] == [
        f"membership.{name}" for name in ("client_id", "client_secret", "webhook_secret", "redirect_uris")
    ]
    for name in KIT.environment:
        assert f"`{name}`" in GUIDE


@pytest.mark.parametrize(
    ("family", "said"), [("membership", "1 hour"), ("auth", "1 minute"), ("membership_stale", "24 hours")]
)
def test_the_documented_staleness_is_that_of_the_families(family: str, said: str) -> None:
    hours = {"1 minute": 60_000, "1 hour": 3_600_000, "24 hours": 86_400_000}
    assert MembershipKeys.families[family].lifetime.longest_ms == hours[said]
    assert said in GUIDE


def test_the_numbers_of_crash_reports_are_those_of_the_code() -> None:
    assert f"{LOGS_MOST:,} characters" in GUIDE


def test_the_guide_names_the_codes_of_promotion_and_consent_routes() -> None:
    for code in {*PROMOTION_CODES.values(), *CONSENT_CODES.values()}:
        assert f"`{code}`" in GUIDE


COMMAND_NAMES = {one.__name__.replace("_", "-") for one in COMMANDS}
STEPS = GUIDE.partition("## Set up a patron")[2].partition("\n## ")[0]


@pytest.mark.matrix
@on_urls("sqlite", "redis")
def test_the_shell_commands_of_the_guide_work(tmp_path: Path, urls: dict[str, str]) -> None:
    """Run every command of the guide in one shell, and find every line of output that it shows."""
    start, *steps = re.findall(r"```bash\n(.*?)```", STEPS, re.DOTALL)
    assert start.endswith("\nkeystead serve --kits membership\n")
    [command] = forking.command()
    for name in ("curl", "openssl"):
        program(name)
    before_serving = start.removesuffix("keystead serve --kits membership\n")
    subprocess.run([program("bash"), "-c", f"set -eu\n{before_serving}"], cwd=tmp_path, env=environment(), check=True)
    stores = {"KEYSTEAD_STORE": urls["default"]}
    settings = {**stores, "PATREON_WEBHOOK_SECRET": (tmp_path / "webhook.secret").read_text().strip()}
    with keystead_serving(tmp_path, None, "--kits", "membership", **settings) as server:
        script = "".join(f"echo; echo step; echo\n{one}" for one in steps)
        script = script.replace("http://127.0.0.1:8700", server.url)
        ended = subprocess.run(
            [program("bash"), "-c", f'set -eu\nkeystead() {{ "{command}" "$@"; }}\n{script}'],
            cwd=tmp_path,
            env=environment({**stores, "KEYSTEAD_PORT": str(server.port)}),
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert ended.returncode == 0, ended.stderr
    _, *shown = ended.stdout.split("\nstep\n")
    for step, said in zip(steps, shown, strict=True):
        for line in re.findall(r"^# (.*)$", step, re.MULTILINE):
            assert line in said, (line, said)
    used = set(re.findall(r"keystead membership ([a-z-]+)", "".join(steps)))
    assert COMMAND_NAMES - used == {"crash-report", "revoke-key"}  # they take an id that is not known in advance
