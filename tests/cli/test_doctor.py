"""`keystead doctor`, end to end, on a user program and a real store."""

import json
import signal
import subprocess

import pytest

from tests import forking
from tests.cli.program import SEAL_KEYS, SEALED, Program, assert_one_sentence, output
from tests.serving import environment, wait_until

MANY = 2_000


def test_a_clean_store_is_one_line_and_exit_code_0(program: Program) -> None:
    program.fill()
    result = program.keystead("doctor", "myapp.keys")
    assert (result.returncode, result.stdout, result.stderr) == (0, "5 keys: no findings\n", "")


def test_findings_are_explained_and_the_exit_code_is_1(program: Program) -> None:
    program.fill()
    program.write(("DEL", "sess:u1a"), ("SET", "tmp:1", "x"))
    result = program.keystead("doctor", "myapp.keys:AppKeys")
    assert result.returncode == 1
    assert result.stderr == ""
    assert "error orphan  lock:u1a" in result.stdout
    assert "AppKeys.lock: it is owned by sess:u1a, which is gone" in result.stdout
    assert "keystead guide findings#orphan" in result.stdout
    assert "warning unknown-key  tmp:1" in result.stdout
    assert result.stdout.endswith("5 keys: 3 findings\n")


def test_the_summary_groups_findings_by_code_and_all_shows_each(program: Program) -> None:
    program.fill()
    program.write(
        *[("SET", f"lock:{number}", "x", "PX", 3_600_000) for number in range(9)],
        *[("SET", f"{word}:x", "x") for word in ("ape", "bee", "cat", "dog", "elk")],
    )
    summary = program.keystead("doctor", "myapp.keys")
    assert summary.returncode == 1
    lines = summary.stdout.splitlines()
    assert lines[0] == "error orphan  9 findings in AppKeys.lock"
    assert sum(line.startswith("  lock:") for line in lines) == 3
    assert "  and 6 more" in lines
    assert lines.count("  keystead guide findings#orphan") == 1
    assert summary.stdout.count("warning unknown-key") == 3
    assert "unknown keys of 2 more shapes" in lines
    assert lines[-2].startswith("--all shows every finding")
    assert lines[-1] == "19 keys: 14 findings"
    assert len(lines) <= 24
    whole = program.keystead("doctor", "myapp.keys", "--all").stdout
    assert whole.count("error orphan  lock:") == 9
    assert whole.count("keystead guide findings#orphan") == 9
    assert whole.count("warning unknown-key") == 5
    assert "--all" not in whole
    one = program.keystead("doctor", "myapp.keys", "--examples", "1").stdout
    assert "  and 8 more" in one
    assert program.keystead("doctor", "myapp.keys", "--examples", "0").stdout.count("lock:") == 0


def test_a_summary_of_many_codes_fits_a_screen(program: Program) -> None:
    program.fill()
    program.write(
        ("DEL", "sess:u1a"),
        ("PERSIST", "sess:u1b"),
        ("SET", "visits:u1:2026-02-24", "x", "PX", 1_000_000),
        ("SADD", "user:u1:sessions", "gone1", "gone2"),
        ("RPUSH", "account:u2", "x"),
        ("SET", "tmp:1", "x"),
    )
    lines = program.keystead("doctor", "myapp.keys").stdout.splitlines()
    codes = [line.split()[1] for line in lines if line.startswith(("error ", "warning "))]
    assert len(codes) > 4
    assert len(set(codes)) == len(codes)
    assert len(lines) <= 24
    assert lines[-2].startswith("--all shows every finding")


def test_unknown_keys_are_grouped_by_shape_with_counts(program: Program) -> None:
    program.write(*[("SET", f"cart:{number}:items", "x") for number in range(30)], ("SET", "odd:one", "x"))
    result = program.keystead("doctor", "myapp.keys")
    assert "warning unknown-key  cart:{int}:items (30 keys, such as cart:" in result.stdout
    assert result.stdout.count("warning unknown-key") == 2
    shapes = output(program.keystead("doctor", "myapp.keys", "--json"))["unknown"]
    assert [(one["shape"], one["count"]) for one in shapes] == [("cart:{int}:items", 30), ("odd:one", 1)]


def test_json_output_is_complete(program: Program) -> None:
    program.fill()
    program.write(*[("SET", f"lock:{number}", "x") for number in range(9)], ("PERSIST", "sess:u1b"))
    result = program.keystead("doctor", "myapp.keys", "--json", "--examples", "2")
    found = output(result)
    assert result.returncode == 1
    assert (found["examined"], found["findings"], found["fixed"], found["left"]) == (14, 19, 0, 19)
    assert found["codes"] == {
        "no-deadline": {"count": 10, "fixed": 0, "families": {"AppKeys.lock": 9, "AppKeys.session": 1}},
        "orphan": {"count": 9, "fixed": 0, "families": {"AppKeys.lock": 9}},
    }
    assert [one["code"] for one in found["examples"]].count("orphan") == 2
    assert found["examples"][0].keys() == {
        *("code", "severity", "where", "sentence", "remedy", "family", "key", "link", "fixed", "note")
    }


def test_fix_repairs_and_a_second_run_is_clean(program: Program) -> None:
    program.fill()
    program.write(("DEL", "sess:u1a"), ("PERSIST", "sess:u1b"), ("SET", "visits:u1:2026-02-24", "x", "PX", 1_000_000))
    result = program.keystead("doctor", "myapp.keys", "--fix", "--yes")
    assert result.returncode == 0, result.stdout
    assert result.stdout.startswith("to do:\n")
    assert "  orphan, 1 finding in AppKeys.lock: delete\n" in result.stdout
    assert "  unreadable, 1 finding in AppKeys.daily: set aside\n" in result.stdout
    assert "orphan  lock:u1a repaired" in result.stdout
    assert result.stdout.endswith("4 findings, 4 repaired, 0 left\n")
    assert program.keystead("doctor", "myapp.keys", "--json").returncode == 0
    assert program.stored_keys() == {
        "sess:u1b", "user:u1:sessions", "visits:u1:2026-02-23", "keystead:quarantine:visits%3Au1%3A2026-02-24"
    }  # fmt: skip


def test_setting_aside_more_than_one_percent_needs_yes(program: Program) -> None:
    program.fill()
    program.write(("SET", "visits:u1:2026-02-24", "x", "PX", 1_000_000), ("PERSIST", "lock:u1a"), ("SET", "tmp:1", "x"))
    refused = program.keystead("doctor", "myapp.keys", "--fix", "--set-aside-unknown")
    assert refused.returncode == 1
    assert refused.stderr == (
        "keystead: not set aside without --yes, because it is more than 1 % of a family: 1 of 2 keys (AppKeys.daily), "
        "1 of 7 keys (unknown). Everything else is repaired\n"
    )
    assert "3 findings, 1 repaired, 2 left" in refused.stdout
    assert {"visits:u1:2026-02-24", "tmp:1"} <= program.stored_keys()
    told = json.loads(program.keystead("doctor", "myapp.keys", "--fix", "--json").stdout)
    assert told["plan"]["needs_yes"] == [
        {"family": "AppKeys.daily", "count": 1, "total": 2, "what": "key", "repair": "set aside"}
    ]
    assert told["plan"]["codes"]["unreadable"]["count"] == 1
    agreed = program.keystead("doctor", "myapp.keys", "--fix", "--set-aside-unknown", "--yes")
    assert (agreed.returncode, agreed.stderr) == (0, "")


def test_deleting_more_than_one_percent_needs_yes_and_a_whole_family_is_never_deleted(
    program: Program,
) -> None:
    program.fill()
    program.write(("SET", "lock:gone", "x", "PX", 3_600_000))
    refused = program.keystead("doctor", "myapp.keys", "--fix")
    assert refused.returncode == 1
    assert refused.stderr == (
        "keystead: not deleted without --yes, because it is more than 1 % of a family: 1 of 2 keys (AppKeys.lock). "
        "Everything else is repaired\n"
    )
    assert "lock:gone" in program.stored_keys()
    program.write(("DEL", "lock:u1a"), *[("SET", f"lock:{number}", "x", "PX", 3_600_000) for number in range(10)])
    before = program.stored_keys()
    astray = program.keystead("doctor", "myapp.keys", "--fix", "--yes")
    assert astray.returncode == 1
    assert "orphan, 11 findings in AppKeys.lock: leave alone: no key of this family has its owner" in astray.stdout
    assert program.stored_keys() == before


@pytest.mark.parametrize("fix", [(), ("--fix", "--yes")])
def test_wrong_seal_keys_stop_the_doctor_and_nothing_is_repaired(program: Program, fix: tuple[str, ...]) -> None:
    program.fill()
    program.write(("SET", "account:u1", SEALED), ("SET", "account:u2", SEALED), ("DEL", "sess:u1a"))
    before = program.stored_keys()
    result = program.keystead("doctor", "myapp.keys", *fix, KEYSTEAD_SEAL_KEYS=SEAL_KEYS)
    assert_one_sentence(result, 2, "2 of AppKeys.account", "KEYSTEAD_SEAL_KEYS", "nothing was repaired")
    assert program.stored_keys() == before


def test_unknown_keys_are_left_alone_unless_requested(program: Program) -> None:
    program.write(("SET", "tmp:1", "x"))
    assert program.keystead("doctor", "myapp.keys", "--fix").returncode == 1
    assert program.stored_keys() == {"tmp:1"}
    assert program.keystead("doctor", "myapp.keys", "--fix", "--set-aside-unknown", "--yes").returncode == 0
    assert program.stored_keys() == {"keystead:quarantine:tmp%3A1"}
    assert_one_sentence(program.keystead("doctor", "myapp.keys", "--set-aside-unknown"), 2, "--fix")


def test_a_key_that_was_set_aside_is_restored(program: Program) -> None:
    program.write(("SET", "account:u1", "x"))
    assert program.keystead("doctor", "myapp.keys", "--fix", "--yes").returncode == 0
    assert "account:u1" in program.keystead("show", "quarantine", "--keyspace", "myapp.keys").stdout
    result = program.keystead("doctor", "--restore", "account:u1")
    assert (result.returncode, result.stderr) == (0, "")
    assert "restored account:u1 in " in result.stdout
    assert program.write(("GET", "account:u1")) == [b"x"]
    assert_one_sentence(program.keystead("doctor", "--restore", "account:u1"), 1, "no key 'account:u1' was set aside")
    program.keystead("doctor", "myapp.keys", "--fix", "--yes")
    assert output(program.keystead("doctor", "--restore", "account:u1", "--json"))["restored"] == "account:u1"


def test_an_existing_key_is_not_overwritten_by_a_restore(program: Program) -> None:
    program.write(("SET", "account:u1", "x"))
    program.keystead("doctor", "myapp.keys", "--fix", "--yes")
    program.write(("SET", "account:u1", "new"))
    assert_one_sentence(program.keystead("doctor", "--restore", "account:u1"), 1, "'account:u1' exists again")


def test_it_can_be_limited_to_families(program: Program) -> None:
    program.fill()
    program.write(("PERSIST", "lock:u1a"), ("PERSIST", "sess:u1a"), ("SET", "tmp:1", "x"))
    found = output(program.keystead("doctor", "myapp.keys", "--family", "lock", "--json"))
    assert found["codes"] == {"no-deadline": {"count": 1, "fixed": 0, "families": {"AppKeys.lock": 1}}}
    two = program.keystead("doctor", "myapp.keys", "--family", "lock", "--family", "AppKeys.session", "--json")
    assert output(two)["findings"] == 2
    assert_one_sentence(program.keystead("doctor", "myapp.keys", "--family", "locks"), 2, "there is no family 'locks'")


def test_sealed_values_need_no_keys(program: Program) -> None:
    program.write(("SET", "account:u1", SEALED))
    result = program.keystead("doctor", "myapp.keys")
    assert result.returncode == 0
    assert "AppKeys.account: without keys, 1 sealed value could not be checked" in result.stdout
    assert "KEYSTEAD_SEAL_KEYS" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.keys",), "there is no module"),
        (("myapp.keys:Other",), "has no keyspace"),
        (("myapp.keys", "--store", "nothing://x"), "nothing"),
    ],
)
def test_usage_errors_are_one_line(program: Program, arguments: tuple[str, ...], said: str) -> None:
    assert_one_sentence(program.keystead("doctor", *arguments), 2, said)


@pytest.mark.matrix
@pytest.mark.everyday("2")
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_stop_it_with_a_message(program: Program, signum: signal.Signals, code: int) -> None:
    program.fill()
    healthy = program.stored_keys()
    program.write(*[("SET", f"lock:{number}", "x") for number in range(MANY)])
    with subprocess.Popen(
        forking.command("doctor", "myapp.keys", "--fix", "--yes", "--json"),
        cwd=program.folder,
        env=environment({"KEYSTEAD_STORE": program.url}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_until(lambda: program.write(("DBSIZE",)) != [MANY + len(healthy)], "the first keys are repaired", 60)
            assert process.poll() is None
            process.send_signal(signum)
            out, error = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == code, error
    assert out == ""
    assert error.startswith("keystead: stopped after ")
    assert len(error.splitlines()) == 1
    result = program.keystead("doctor", "myapp.keys", "--fix", "--yes")
    assert result.returncode == 0
    assert program.stored_keys() == healthy


def test_help_has_examples(program: Program) -> None:
    shown = program.keystead("doctor", "--help").stdout
    assert "keystead doctor myapp.keys --family session --fix" in shown
    assert all(option in shown for option in ("--fix", "--family", "--restore", "--examples", "--json", "--store"))
    assert "<bool>" not in shown
