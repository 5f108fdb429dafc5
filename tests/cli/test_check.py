"""`keystead check`, end to end, on a user program."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import forking, servers
from tests.serving import environment

GOOD = '''
from keystead.schema import Counter, Keyspace, Value, after

class AppKeys(Keyspace):
    """Users."""

    user = Value("user:{uid:int}", str, lifetime=after("30d"), doc="who the user is")
    count = Counter("user:count", lifetime=after("1d"), doc="how many users came today")

class MoreKeys(Keyspace):
    """Tokens."""

    token = Value("token:{id}", str, lifetime=after("1d"), doc="a token")
'''
NEAR = GOOD.replace('doc="who the user is"', 'doc="who the user is", near="2s"')
OVERLAP = GOOD.replace("{uid:int}", "{uid}")
UNDOCUMENTED = GOOD.replace(', doc="a token"', "")
NO_LIFETIME = GOOD.replace('lifetime=after("1d"), doc="a token"', 'doc="a token"')
DURABLE = GOOD.replace('doc="a token"', 'doc="a token", role="durable"')
RELATED = GOOD.replace('doc="a token"', 'doc="a token", owns="lock"') + (
    '    lock = Value("lock:{id}", str, lifetime=after("5s"), doc="a lock")\n'
)
PROCEDURES = """
from keystead.schema import Counter, Keyspace, Steps, after, procedure

class AppKeys(Keyspace):
    count = Counter("count:{id}", lifetime=after("1d"), doc="a count")

    @procedure
    def add(self, id: str, by: int) -> Steps[None]:
        return Steps(self.count(id).increment(by))

    @procedure
    def double(self, id: str, by: int) -> Steps[None]:
        return Steps(self.count(id).increment(by * 2))
"""


def line_of(program: str, text: str) -> int:
    return next(number for number, line in enumerate(program.splitlines(), 1) if text in line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "__init__.py").touch()
    return tmp_path


def declare(folder: Path, program: str, name: str = "keys") -> None:
    (folder / "myapp" / f"{name}.py").write_text(program)


def check(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return forking.run(("check", *arguments), folder, environment(settings))


def report(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def assert_asked_wrongly(result: subprocess.CompletedProcess[str], *said: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("keystead: ")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert [part for part in said if part not in result.stderr] == [], result.stderr


def test_a_program_without_findings_is_one_line_and_exit_code_0(folder: Path) -> None:
    declare(folder, GOOD)
    result = check(folder, "myapp.keys")
    assert (result.returncode, result.stdout, result.stderr) == (0, "2 keyspaces, 3 families: no findings\n", "")


def test_a_procedure_that_is_not_compiled_is_listed_with_the_reason(folder: Path) -> None:
    declare(folder, PROCEDURES)
    reason = f"line {line_of(PROCEDURES, 'by * 2')} does more than create operations"
    assert check(folder, "myapp.keys").stdout.splitlines()[:4] == [
        "Procedures that are one atomic step",
        "  AppKeys.add",
        "  AppKeys.double",
        f"    planned at each call: {reason}",
    ]
    found = report(check(folder, "myapp.keys", "--json"))["procedures"]
    assert [one["not_compiled"] for one in found] == ["", reason]


@pytest.mark.parametrize(
    ("store", "reads", "said"),
    [
        ("sqlite:///{folder}/app.db", "exact", "never behind"),
        ("redis", "bounded", "at most 2 seconds behind"),
        ("memory://", "exact", "never behind"),
        pytest.param(
            "memcached", "none", "read from the store each time, because it does not report changes",
            marks=pytest.mark.matrix,
        ),
    ],
)  # fmt: skip
def test_how_far_near_reads_are_behind_depends_on_the_store(folder: Path, store: str, reads: str, said: str) -> None:
    declare(folder, NEAR)
    with servers.memcached() if store == "memcached" else servers.redis() as server:
        url = server.url if store in ("redis", "memcached") else store.format(folder=folder)
        lines = check(folder, "myapp.keys:AppKeys", "--store", url).stdout.splitlines()
        found = report(check(folder, "myapp.keys:AppKeys", "--store", url, "--json"))
    heading = lines.index("Near reads, from a copy in the process:")
    assert lines[heading + 1] == f"  AppKeys.user: {said} ({url})"
    assert found["near_reads"] == [{"family": "AppKeys.user", "bound_ms": 2000, "reads": reads, "store": url}]


def test_one_keyspace_of_a_module_can_be_named(folder: Path) -> None:
    declare(folder, OVERLAP)
    result = check(folder, "myapp.keys:MoreKeys")
    assert (result.returncode, result.stdout) == (0, "1 keyspace, 1 family: no findings\n")


def test_a_finding_shows_code_place_sentence_remedy_and_link(folder: Path) -> None:
    declare(folder, OVERLAP)
    result = check(folder, "myapp.keys")
    assert result.returncode == 1
    first, sentence, remedy, link, empty, summary = result.stdout.splitlines()
    assert first == "error overlap  AppKeys.user (user:{uid})"
    assert "AppKeys.count (user:count)" in sentence
    assert remedy.startswith("  Give one of them another literal")
    assert link == "  keystead guide findings#overlap"
    assert empty == ""
    assert summary == "2 keyspaces, 3 families: 1 error, 0 warnings"


def test_a_warning_fails_the_check_with_a_summary(folder: Path) -> None:
    declare(folder, UNDOCUMENTED)
    result = check(folder, "myapp.keys")
    assert result.returncode == 1
    assert result.stdout.startswith("warning undocumented  MoreKeys.token (token:{id})\n")
    assert result.stdout.endswith("2 keyspaces, 3 families: 1 warning, and the check fails on warnings too\n")


def test_findings_are_printed_as_json(folder: Path) -> None:
    declare(folder, OVERLAP)
    result = check(folder, "myapp.keys", "--json")
    found = report(result)
    [finding] = found.pop("findings")
    assert result.returncode == 1
    assert found == {
        "keyspaces": ["myapp.keys:AppKeys", "myapp.keys:MoreKeys"],
        "families": 3,
        "procedures": [],
        "near_reads": [],
    }
    assert finding["code"] == "overlap"
    assert finding["key"] == "user:count"
    assert finding["family"] == "AppKeys.user"


def test_json_of_a_program_without_findings(folder: Path) -> None:
    declare(folder, GOOD)
    result = check(folder, "myapp.keys:AppKeys", "--json")
    assert result.returncode == 0
    assert report(result) == {
        "keyspaces": ["myapp.keys:AppKeys"],
        "families": 2,
        "findings": [],
        "procedures": [],
        "near_reads": [],
    }


def test_a_declaration_that_cannot_be_imported_is_a_finding_at_its_file_and_line(folder: Path) -> None:
    declare(folder, NO_LIFETIME)
    result = check(folder, "myapp.keys", "--json")
    assert result.returncode == 1
    [finding] = report(result)["findings"]
    assert finding["code"] == "no-lifetime"
    assert finding["where"] == f"myapp/keys.py:{line_of(NO_LIFETIME, 'token = ')}"


def test_a_relation_that_leads_nowhere_is_a_finding_at_its_class(folder: Path) -> None:
    program = RELATED.replace('owns="lock"', 'owns="lokc"')
    declare(folder, program)
    [finding] = report(check(folder, "myapp.keys", "--json"))["findings"]
    assert finding["code"] == "dangling-relation"
    assert finding["where"] == f"myapp/keys.py:{line_of(program, 'class MoreKeys')}"
    assert "MoreKeys.token" in finding["sentence"]


def test_the_reported_line_is_in_the_declaring_module(folder: Path) -> None:
    declare(folder, NO_LIFETIME, "inner")
    declare(folder, "from myapp.inner import AppKeys\n")
    [finding] = report(check(folder, "myapp.keys", "--json"))["findings"]
    assert finding["where"] == f"myapp/inner.py:{line_of(NO_LIFETIME, 'token = ')}"


def test_one_bad_module_does_not_hide_findings_in_another(folder: Path) -> None:
    declare(folder, NO_LIFETIME, "bad")
    declare(folder, OVERLAP)
    result = check(folder, "myapp.bad", "myapp.keys", "--json")
    assert [finding["code"] for finding in report(result)["findings"]] == ["no-lifetime", "overlap"]


def test_keyspaces_of_two_modules_are_compared(folder: Path) -> None:
    declare(folder, GOOD)
    declare(folder, GOOD.replace("AppKeys", "OtherKeys").replace("user:", "client:"), "other")
    [finding] = report(check(folder, "myapp.keys", "myapp.other", "--json"))["findings"]
    assert finding["code"] == "overlap"
    family = "MoreKeys.token (token:{id})"
    assert finding["sentence"].startswith(f"{family} and {family} can both produce")


def test_without_store_no_store_is_opened(folder: Path) -> None:
    declare(folder, DURABLE)
    result = check(folder, "myapp.keys", KEYSTEAD_STORE="redis://127.0.0.1:1/0")
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["myapp"]


def test_with_store_the_families_are_checked_against_its_guarantees(folder: Path) -> None:
    declare(folder, DURABLE)
    weak = check(folder, "myapp.keys", "--store", "memory://", "--json")
    assert weak.returncode == 1
    [finding] = report(weak)["findings"]
    assert (finding["code"], finding["family"]) == ("role-weak", "MoreKeys.token")
    good = check(folder, "myapp.keys", "--store", "memory://", "--store", f"durable=sqlite:///{folder}/keys.db")
    assert (good.returncode, good.stdout) == (0, "2 keyspaces, 3 families: no findings\n")


def test_cluster_reports_what_changes_across_slots(folder: Path) -> None:
    declare(folder, RELATED)
    assert check(folder, "myapp.keys").returncode == 0
    result = check(folder, "myapp.keys", "--cluster", "--json")
    assert result.returncode == 1
    [finding] = report(result)["findings"]
    assert (finding["code"], finding["family"]) == ("cross-slot", "MoreKeys.token")


def test_an_unknown_module_is_a_one_line_error(folder: Path) -> None:
    assert_asked_wrongly(check(folder, "myapp.keyz"), "'myapp.keyz'", "myapp.keys:AppKeys")


def test_an_unknown_keyspace_is_a_one_line_error_that_lists_the_others(folder: Path) -> None:
    declare(folder, GOOD)
    assert_asked_wrongly(check(folder, "myapp.keys:ApKeys"), "'ApKeys'", "AppKeys, MoreKeys")


def test_a_module_without_keyspaces_is_a_one_line_error(folder: Path) -> None:
    declare(folder, "X = 1\n")
    assert_asked_wrongly(check(folder, "myapp.keys"), "myapp.keys declares no keyspace")


def test_a_syntax_error_is_a_one_line_error_with_its_line(folder: Path) -> None:
    declare(folder, "X = 1\nclass AppKeys(\n")
    assert_asked_wrongly(check(folder, "myapp.keys"), "myapp.keys cannot be imported", "myapp/keys.py:2", "SyntaxError")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("raise RuntimeError('no\\nluck')", "RuntimeError: no luck"),
        ("AppKees", "NameError"),
        ("int('x')", "ValueError"),
        ("int(1, 2, 3)", "TypeError"),
        ("import not_installed_here", "ModuleNotFoundError"),
    ],
)
def test_a_module_that_fails_to_import_is_a_one_line_error_with_its_line(folder: Path, line: str, error: str) -> None:
    declare(folder, f"X = 1\n\n{line}\n")
    assert_asked_wrongly(check(folder, "myapp.keys"), "myapp.keys cannot be imported", "myapp/keys.py:3", error)


def test_an_invalid_url_is_a_one_line_error(folder: Path) -> None:
    declare(folder, GOOD)
    assert_asked_wrongly(check(folder, "myapp.keys", "--store", "rediss"), "a store URL needs a scheme")


def test_an_unreachable_store_is_a_one_line_error_with_exit_code_1(folder: Path) -> None:
    declare(folder, GOOD)
    result = check(folder, "myapp.keys", "--store", "redis://127.0.0.1:1/0")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("keystead: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_kits_have_no_findings(folder: Path) -> None:
    result = check(folder)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert result.stdout.endswith("families: no findings\n")


def test_help_has_examples(folder: Path) -> None:
    said = check(folder, "--help", COLUMNS="200").stdout
    assert "keystead check myapp.keys:AppKeys" in said
    assert "keystead guide findings" in said
    assert "no store is opened" in said
