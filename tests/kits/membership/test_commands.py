"""The `keystead membership …` commands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests import forking
from tests.cli.program import assert_one_sentence
from tests.every_store import on_urls
from tests.serving import Keystead, environment, keystead_serving

SERVED = on_urls("sqlite", "redis")


class Operator:
    """A shell, and a running server."""

    def __init__(self, server: Keystead, store: str) -> None:
        self.server = server
        self._variables = {"KEYSTEAD_STORE": store, "KEYSTEAD_PORT": str(server.port), "COLUMNS": "200"}

    def runs(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return forking.run(("membership", *arguments), self.server.folder, environment(self._variables))

    def reads(self, *arguments: str) -> object:
        ended = self.runs(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


def test_the_help_of_each_command_says_what_it_does(tmp_path: Path) -> None:
    group = forking.run(("membership", "--help"), tmp_path, environment({"COLUMNS": "200"}))
    assert group.returncode == 0
    for name in ("status", "record-usage", "grant-bonus", "plan-history", "crash-reports", "issue-key"):
        assert name in group.stdout


@pytest.mark.matrix
@SERVED
def test_operator_commands_work_while_the_server_runs(tmp_path: Path, urls: dict[str, str]) -> None:
    with keystead_serving(tmp_path, urls["default"], "--kits", "membership") as server:
        operator = Operator(server, urls["default"])
        _count_and_grant(operator)
        _keys(operator)
        _crash_reports(operator)
        _promotions(operator)
        for wrong in (
            ("record-usage", "", "e", "1"),
            ("record-usage", "x" * 65, "e", "1"),
            ("grant-bonus", "4711", "b", "1", "--source", ""),
            ("make-promotion", "Pro", "--lasts", "soon"),
            ("make-promotion", "Pro", "--uses", "1000001"),
            ("crash-report", str(uuid4())),
        ):
            ended = operator.runs(*wrong)
            assert ended.returncode in (1, 2), wrong
            assert_one_sentence(ended, ended.returncode)
        assert operator.runs("record-usage", "4711", "e", "-5").returncode == 2


def _count_and_grant(operator: Operator) -> None:
    for is_new in (True, False):
        told = operator.reads("record-usage", "4711", "e1", "10")
        assert isinstance(told, dict)
        assert (told["is_new"], told["tokens_used"], told["plan"]) == (is_new, 10, "Free")
    granted = operator.reads("grant-bonus", "4711", "gift", "100")
    assert isinstance(granted, dict)
    assert (granted["is_new"], granted["bonus_left"]) == (True, 100)
    shown = operator.runs("status", "4711")
    assert "used        10 of 0 tokens, 0 left" in shown.stdout
    assert "bonus       100 tokens left" in shown.stdout
    assert operator.reads("plan-history", "4711") == []


def _keys(operator: Operator) -> None:
    issued = operator.runs("issue-key", "a program")
    key = issued.stdout.strip()
    assert key.startswith("ks_")
    assert "shown only once" in issued.stderr
    assert key not in operator.runs("list-keys").stdout
    url = f"{operator.server.url}/api/membership/status?user_id=4711"
    headers = {"authorization": f"Bearer {key}"}
    assert httpx2.get(url, headers=headers).json()["bonus_tokens"]["total_remaining"] == 100
    assert operator.runs("revoke-key", key).stdout == "revoked\n"
    assert operator.runs("revoke-key", key).returncode == 1
    assert httpx2.get(url, headers=headers).status_code == 401
    assert operator.reads("list-keys") == []


def _crash_reports(operator: Operator) -> None:
    words = ("crash_timestamp", "app_version", "os_version")
    report = {"report_id": str(uuid4()), "error_message": "it broke\n\x1b[31mat x", **dict.fromkeys(words, "1.0")}
    sent = {**report, "include_logs": True, "logs": "first\nsecond"}
    assert httpx2.post(f"{operator.server.url}/api/crash-report", json=sent).status_code == 200
    listed = operator.runs("crash-reports").stdout
    assert report["report_id"] in listed
    assert "it broke" in listed
    one = operator.runs("crash-report", report["report_id"])
    assert "logs: first\nsecond" in one.stdout
    assert "\x1b" not in one.stdout  # no terminal escape sequences


def _promotions(operator: Operator) -> None:
    made = operator.runs("make-promotion", "Premium", "--uses", "3", "--tokens", "50", "--redeem-within", "7d")
    code = made.stdout.strip()
    assert code.startswith("PROMO-")
    listed = operator.runs("promotions").stdout
    assert code not in listed
    assert f"PROMO-******{code[-2:]}  Premium  50 tokens  redeemed 0 of 3" in listed


def test_a_command_without_a_store_prints_a_one_line_error(tmp_path: Path) -> None:
    ended = forking.run(("membership", "status", "4711"), tmp_path, environment({}))
    assert ended.returncode == 2
    assert_one_sentence(ended, ended.returncode)


@pytest.fixture(autouse=True)
def _no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
