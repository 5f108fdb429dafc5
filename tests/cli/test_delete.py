"""`keystead delete`, end to end."""

import os
import pty
import subprocess

import pytest

from tests import forking
from tests.cli.program import Program, assert_one_sentence, output
from tests.serving import environment

KEYS = ("--keyspace", "myapp.keys")


def test_a_dry_run_shows_the_plan_and_changes_nothing(program: Program) -> None:
    program.fill()
    before = program.stored_keys()
    result = program.keystead("delete", "session", "u1a", *KEYS, "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    assert "delete sess:u1a" in result.stdout
    assert "delete lock:u1a" in result.stdout
    assert "take out u1a of user:u1:sessions" in result.stdout
    assert program.stored_keys() == before


def test_with_yes_it_deletes_the_key_and_its_related_keys(program: Program) -> None:
    program.fill()
    result = program.keystead("delete", "session", "u1a", *KEYS, "--yes", "--json")
    found = output(result)
    assert result.returncode == 0
    assert (found["key"], found["existed"], found["deleted"]) == ("sess:u1a", True, True)
    assert {step["key"] for step in found["plan"]} == {"sess:u1a", "lock:u1a", "user:u1:sessions"}
    assert program.stored_keys() == {"sess:u1b", "user:u1:sessions", "visits:u1:2026-02-23"}
    assert program.write(("SMEMBERS", "user:u1:sessions")) == [{b"u1b"}]


def test_values_are_parsed_by_their_placeholders(program: Program) -> None:
    program.fill()
    assert program.keystead("delete", "daily", "u1", "2026-02-23", *KEYS, "--yes").returncode == 0
    assert "visits:u1:2026-02-23" not in program.stored_keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("daily", "u1", "2026-02-30"), "2026-02-23"),
        (("daily", "u1"), "takes uid day, and 1 was given"),
        (("session",), "takes sid, and none was given"),
        (("session", "a", "b"), "2 were given"),
        (("sesion", "a"), "there is no family 'sesion'"),
    ],
)
def test_values_that_do_not_fit_are_a_one_line_error(program: Program, arguments: tuple[str, ...], said: str) -> None:
    assert_one_sentence(program.keystead("delete", *arguments, *KEYS, "--yes"), 2, said)


def test_a_missing_key_is_reported(program: Program) -> None:
    result = program.keystead("delete", "lock", "nobody", *KEYS, "--yes")
    assert result.returncode == 1
    assert "there is no lock:nobody" in result.stderr


def test_without_a_terminal_it_requires_yes_or_dry_run(program: Program) -> None:
    program.fill()
    before = program.stored_keys()
    assert_one_sentence(program.keystead("delete", "session", "u1a", *KEYS), 2, "--yes", "--dry-run")
    assert program.stored_keys() == before


@pytest.mark.parametrize(("answer", "code", "is_deleted"), [("y\n", 0, True), ("n\n", 1, False)])
def test_on_a_terminal_it_asks_for_confirmation(program: Program, answer: str, code: int, is_deleted: bool) -> None:
    program.fill()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        forking.command("delete", "session", "u1a", *KEYS),
        cwd=program.folder,
        env=environment({"KEYSTEAD_STORE": program.url}),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.write(ours, answer.encode())
        out, error = process.communicate(timeout=300)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code
    assert "Delete 2 keys? [y/N]" in error
    assert "delete sess:u1a" in out
    assert ("sess:u1a" not in program.stored_keys()) is is_deleted


def test_help_has_examples(program: Program) -> None:
    shown = program.keystead("delete", "--help").stdout
    assert "keystead delete session 9f86d081 --keyspace myapp.keys:AppKeys" in shown
