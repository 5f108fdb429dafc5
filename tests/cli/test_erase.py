"""`keystead erase`, end to end."""

import pytest

from tests.cli.program import SEAL_KEYS, SEALED, Program, assert_one_sentence, output

KEYS = ("--keyspace", "myapp.keys")


def test_a_dry_run_shows_the_plan_and_changes_nothing(program: Program) -> None:
    program.fill("u1")
    program.fill("u2")
    before = program.stored_keys()
    result = program.keystead("erase", "user:u1", *KEYS, "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    assert "delete sess:u1a" in result.stdout
    assert "delete visits:u1:2026-02-23" in result.stdout
    assert "u2" not in result.stdout
    assert program.stored_keys() == before


def test_with_yes_only_the_subject_is_erased(program: Program) -> None:
    program.fill("u2")
    others = program.stored_keys()
    program.fill("u1")
    program.write(("SET", "account:u1", SEALED))
    result = program.keystead("erase", "user:u1", *KEYS, "--yes", "--json")
    found = output(result)
    assert result.returncode == 0
    assert found["keys"] == 6
    assert found["erased"]["left"] == 0
    assert program.stored_keys() == others


def test_unreadable_keys_are_reported_with_exit_code_1(program: Program) -> None:
    program.fill()
    program.write(("SET", "sess:bad", "{"))
    result = program.keystead("erase", "user:u1", *KEYS, "--yes", KEYSTEAD_SEAL_KEYS=SEAL_KEYS)
    assert result.returncode == 1
    assert "unreadable values of AppKeys.session" in result.stderr
    assert program.stored_keys() == {"sess:bad"}


def test_nothing_to_erase_is_reported(program: Program) -> None:
    result = program.keystead("erase", "user:u1", *KEYS, "--yes")
    assert (result.returncode, result.stdout) == (0, "there is no data of user:u1\n")


@pytest.mark.parametrize("subject", ["u1", "team:1"])
def test_an_undeclared_subject_is_a_one_line_error(program: Program, subject: str) -> None:
    assert_one_sentence(program.keystead("erase", subject, *KEYS, "--yes"), 2, "user:")


def test_without_a_terminal_it_requires_yes_or_dry_run(program: Program) -> None:
    program.fill()
    before = program.stored_keys()
    assert_one_sentence(program.keystead("erase", "user:u1", *KEYS), 2, "--yes", "--dry-run")
    assert program.stored_keys() == before


def test_help_has_examples(program: Program) -> None:
    shown = program.keystead("erase", "--help").stdout
    assert "keystead erase user:42 --keyspace myapp.keys --dry-run" in shown
