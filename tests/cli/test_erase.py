"""`keystead erase` as a user meets it."""

import pytest

from tests.cli.program import SEAL_KEYS, SEALED, Program, assert_one_sentence, output

KEYS = ("--keys", "myapp.keys")


def test_a_dry_run_shows_the_plan_and_changes_nothing(program: Program) -> None:
    program.fill("u1")
    program.fill("u2")
    before = program.held()
    result = program.keystead("erase", "user:u1", *KEYS, "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    assert "delete sess:u1a" in result.stdout
    assert "delete visits:u1:2026-02-23" in result.stdout
    assert "u2" not in result.stdout
    assert program.held() == before


def test_with_yes_all_of_one_subject_goes_and_the_others_stay(program: Program) -> None:
    program.fill("u2")
    others = program.held()
    program.fill("u1")
    program.write(("SET", "account:u1", SEALED))
    result = program.keystead("erase", "user:u1", *KEYS, "--yes", "--json")
    found = output(result)
    assert result.returncode == 0
    assert found["keys"] == 6
    assert found["erased"]["left"] == 0
    assert program.held() == others


def test_what_could_not_be_read_is_said_and_the_exit_code_is_1(program: Program) -> None:
    program.fill()
    program.write(("SET", "sess:bad", "{"))
    result = program.keystead("erase", "user:u1", *KEYS, "--yes", KEYSTEAD_SEAL_KEYS=SEAL_KEYS)
    assert result.returncode == 1
    assert "unreadable values of AppKeys.session" in result.stderr
    assert program.held() == {"sess:bad"}


def test_nothing_to_erase_is_said(program: Program) -> None:
    result = program.keystead("erase", "user:u1", *KEYS, "--yes")
    assert (result.returncode, result.stdout) == (0, "nothing belongs to user:u1\n")


@pytest.mark.parametrize("subject", ["u1", "team:1"])
def test_a_subject_that_nobody_declares_is_one_sentence(program: Program, subject: str) -> None:
    assert_one_sentence(program.keystead("erase", subject, *KEYS, "--yes"), 2, "user:")


def test_without_a_terminal_nobody_can_be_asked(program: Program) -> None:
    program.fill()
    before = program.held()
    assert_one_sentence(program.keystead("erase", "user:u1", *KEYS), 2, "--yes", "--dry-run")
    assert program.held() == before


def test_help_teaches_with_examples(program: Program) -> None:
    shown = program.keystead("erase", "--help").stdout
    assert "keystead erase user:42 --keys myapp.keys --dry-run" in shown
