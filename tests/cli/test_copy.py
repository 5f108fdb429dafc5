"""`keystead copy`, end to end: real processes, real stores, real kills."""

import asyncio
import os
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from tests import forking, servers
from tests.cli.filled import contents_of, fill, other, wait_for_keys
from tests.cli.held_back import IMPATIENT, PATIENT, held_back
from tests.cli.program import Program, assert_one_sentence, output
from tests.cli.test_asking import Terminal
from tests.servers import Server
from tests.serving import environment, wait_until
from tests.stores.backup.contents import DAY_MS

MANY = 12_000  # so many that a copy is met on its way


class Running:
    """A command in the background, and its output so far."""

    def __init__(self, program: Program, *arguments: str, **settings: str) -> None:
        self.out = (program.folder / "out").open("w+")
        self.error = (program.folder / "error").open("w+")
        known = environment({"KEYSTEAD_STORE": program.url, "PYTHONUNBUFFERED": "1", **settings})
        self.command = forking.start(arguments, program.folder, known, self.out, self.error)

    def poll(self) -> int | None:
        return self.command.poll()

    def communicate(self) -> tuple[str, str]:
        return Path(self.out.name).read_text(), Path(self.error.name).read_text()

    def says(self, words: str) -> None:
        wait_until(lambda: words in self.communicate()[1] or self.poll() is not None, words, 60)
        assert words in self.communicate()[1], self.communicate()

    def finish(self, signum: int | None = None) -> subprocess.CompletedProcess[str]:
        if signum is not None:
            self.command.send_signal(signum)
        code = self.command.wait(300)
        out, error = self.communicate()
        self.out.close()
        self.error.close()
        return subprocess.CompletedProcess([], code, out, error)


def progress_files(program: Program) -> list[str]:
    return [path.name for path in program.folder.glob("*.progress*")]


def copied_to(url: str) -> dict[bytes, Any]:
    """The contents, without the key of the copy itself."""
    return {key: one for key, one in contents_of(url).items() if not key.startswith(b"keystead:copy:")}


def run(url: str, *commands: tuple[Any, ...]) -> list[Any]:
    async def ask() -> list[Any]:
        async with connect(url) as store:
            return await store.run(commands)

    return asyncio.run(ask())


# --- there ---------------------------------------------------------------------------------------------------


def test_a_copy_is_complete_and_names_its_progress_file(program: Program, full: dict[bytes, Any]) -> None:
    result = program.keystead("copy", program.url, other(program), "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"copied 16 keys of {program.url} into {other(program)}\n" in result.stdout
    assert re.search(r"  written: 16 in [\d.]+ s, [\d,]+ keys a second\n  compared: 16 equal, no diff", result.stdout)
    assert copied_to(other(program)) == contents_of(program.url) == full
    assert stat.S_IMODE((program.folder / "other.db").stat().st_mode) == 0o600
    [noted] = progress_files(program)
    assert f"  progress is in {noted}: keep it" in result.stdout
    assert stat.S_IMODE((program.folder / noted).stat().st_mode) == 0o600


def test_json_output_is_complete(program: Program, full: dict[bytes, Any]) -> None:
    found = output(program.keystead("copy", program.url, other(program), "--match", "s*", "--dry-run", "--json"))
    assert (found["keys"], found["new"], found["in_the_way"]) == (6, 6, 0)
    assert not (program.folder / "other.db").exists()
    copied = output(program.keystead("copy", program.url, other(program), "--match", "s*", "--yes", "--json"))
    assert (copied["from"], copied["to"]) == (program.url, other(program))
    assert (copied["keys"], copied["written"], copied["whole"], copied["in_the_way"]) == (6, 6, True, 0)
    assert (copied["verified"]["equal"], copied["verified"]["differences"]) == (6, 0)
    assert copied_to(other(program)) == {key: one for key, one in full.items() if key.startswith(b"s")}


def test_a_role_of_the_settings_names_its_store(program: Program, full: dict[bytes, Any]) -> None:
    (program.folder / "keystead.toml").write_text('[stores]\ndurable = "sqlite:///durable.db"\n')
    assert program.keystead("copy", "default", "durable", "--yes").returncode == 0
    assert copied_to(f"sqlite:///{program.folder}/durable.db") == full
    assert_one_sentence(program.keystead("copy", "default", "cache", "--yes"), 2, "'cache'", "default, durable")


def test_no_password_is_shown_or_saved(program: Program, full: dict[bytes, Any]) -> None:
    program.write(("SET", "hash2", "x"))
    with servers.valkey(password="a-secret-word") as server:
        server.ask("SET", "hash", "in the way")
        result = program.keystead("copy", program.url, server.url, "--yes")
        again = program.keystead("copy", program.url, server.url, "--yes", "--json")
    assert result.returncode == again.returncode == 1
    [name] = progress_files(program)
    noted = (program.folder / name).read_bytes().decode("latin-1")
    assert "a-secret-word" not in name + noted + result.stdout + result.stderr + again.stdout + again.stderr
    assert stat.S_IMODE((program.folder / name).stat().st_mode) == 0o600


# --- what is in the way --------------------------------------------------------------------------------------


def test_conflicting_keys_are_listed_and_kept_unless_overwrite(program: Program, full: dict[bytes, Any]) -> None:
    run(other(program), ("SET", "hash", "theirs"), ("SET", "string", "value"))
    looked = program.keystead("copy", program.url, other(program), "--dry-run")
    assert looked.returncode == 1
    assert "would copy 14 keys" in looked.stdout
    assert "1 already there and equal" in looked.stdout
    assert "1 key would not be copied" in looked.stderr
    result = program.keystead("copy", program.url, other(program), "--yes")
    assert result.returncode == 1
    assert "copied 15 keys" in result.stdout
    assert "1 already there and equal" in result.stdout
    assert "1 key not copied" in result.stderr
    assert "\n  hash\n" in result.stderr
    assert "run the same command again to continue" in result.stderr
    assert run(other(program), ("GET", "hash")) == [b"theirs"]
    told = output(program.keystead("copy", program.url, other(program), "--yes", "--overwrite", "--json"))
    assert (told["written"], told["whole"]) == (1, True)
    assert copied_to(other(program)) == full


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), (None, 130)], ids=["yes", "no", "Ctrl-C"])
def test_at_a_terminal_it_asks_for_confirmation(
    program: Program, full: dict[bytes, Any], answer: str | None, code: int
) -> None:
    run(other(program), ("SET", "theirs", "1"))
    terminal = Terminal(program, "copy", program.url, other(program), columns=300)
    terminal.until(f"Copy 16 keys of {program.url} into {other(program)}, which already holds 1 key? [y/N]")
    if answer is None:
        terminal.signal(signal.SIGINT)
    else:
        terminal.type(answer)
    assert terminal.wait() == code
    assert ("nothing was copied" in terminal.said) == (code != 0)
    assert len(copied_to(other(program))) == (17 if code == 0 else 1)
    assert len(progress_files(program)) == (1 if code == 0 else 0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{own}", "{other}"), 2, "confirmation needs a terminal; add --yes"),
        (("{own}", "{own}", "--yes"), 1, "is both source and target; name another target"),
        (("sqlite:///nowhere.db", "{other}", "--yes"), 2, "there is no database nowhere.db; name another as FROM"),
        (("sqlite:///nowhere.db", "{other}"), 2, "there is no database nowhere.db"),
        (("durible", "{other}"), 2, "'durible' is neither a store URL nor a role; the roles are: default"),
        (("nothing://x", "{other}", "--yes"), 2, "nothing:// is not the scheme"),
        (("{own}", "nothing://x", "--yes"), 2, "nothing:// is not the scheme"),
        (("{own}", "{other}", "--dry-run", "--follow"), 2, "--dry-run writes nothing"),
        (("{own}", "redis://127.0.0.1:1?connect_timeout=100ms", "--yes"), 1, "cannot reach"),
        (("redis://127.0.0.1:1?connect_timeout=100ms", "{other}", "--yes"), 1, "cannot reach"),
        (("{own}", "{other}", "--yes", "--progress", "no/such.progress"), 1, "there is no folder no"),
        (("{own}", "{other}", "--yes", "--progress", "myapp/keys.py"), 1, "is not a progress file of a copy"),
    ],
)
def test_usage_errors_are_one_line(program: Program, arguments: tuple[str, ...], code: int, said: str) -> None:
    named = [one.format(own=program.url, other=other(program)) for one in arguments]
    assert_one_sentence(program.keystead("copy", *named), code, said)
    assert not (program.folder / "nowhere.db").exists()
    assert progress_files(program) == []


def test_a_store_that_cannot_list_its_keys_is_refused(program: Program) -> None:
    with servers.memcached() as memcached:
        result = program.keystead("copy", memcached.url, other(program), "--yes")
        assert_one_sentence(result, 1, memcached.url, "cannot list its keys")
        assert_one_sentence(program.keystead("backup", "a.backup", "--store", memcached.url), 1, "cannot list its keys")
    assert [path.name for path in program.folder.glob("a.backup*")] == []


# --- interruptions -------------------------------------------------------------------------------------------


@pytest.mark.everyday("valkey-9--9")
@pytest.mark.parametrize(
    ("to", "signum", "code"),
    [("sqlite", signal.SIGKILL, -9), ("valkey", signal.SIGKILL, -9), ("valkey", signal.SIGTERM, 143)],
)
def test_a_killed_copy_resumes_with_the_same_command(
    program: Program, server: Server, to: str, signum: signal.Signals, code: int
) -> None:
    expected = fill(program.url, MANY, 100)
    with held_back(server) as proxy:
        target = other(program) if to == "sqlite" else server.url
        proxy.after_requests(400_000)
        again = ("copy", program.url, target if to == "sqlite" else proxy.url + PATIENT, "--yes")
        running = Running(program, *again)
        wait_for_keys(target, running)
        ended = running.finish(signum)
        proxy.resume()
        assert (ended.returncode, ended.stdout) == (code, "")
        if signum == signal.SIGTERM:
            assert ended.stderr == "keystead: stopped; the copied keys stay; run the same command again to continue\n"
        arrived = len(copied_to(target))
        assert 0 < arrived < len(expected)
        copied = output(program.keystead(*again, "--json"))
    assert (copied["resumed"], copied["written"]) == (True, len(expected) - arrived)  # nothing is written twice
    assert copied_to(target) == expected


@pytest.mark.matrix
@pytest.mark.parametrize("side", ["from", "to"])
def test_a_store_outage_is_a_one_line_error_and_the_copy_resumes(program: Program, server: Server, side: str) -> None:
    with held_back(server) as proxy:

        def ends(patience: str) -> tuple[str, str]:
            url = proxy.url + patience
            return (url, other(program)) if side == "from" else (program.url, url)

        source, target = ends(IMPATIENT)
        expected = fill(server.url if side == "from" else source, MANY, 100)
        (proxy.after_replies if side == "from" else proxy.after_requests)(400_000)
        ended = program.keystead("copy", source, target, "--yes")
        assert_one_sentence(ended, 1, "the copied keys stay; run the same command again to continue")
        proxy.resume()
        assert program.keystead("copy", *ends(PATIENT), "--yes").returncode == 0
        assert copied_to(target if side == "from" else server.url) == expected


# --- again ---------------------------------------------------------------------------------------------------


def test_a_second_copy_deletes_what_was_deleted_since(program: Program, full: dict[bytes, Any]) -> None:
    assert program.keystead("copy", program.url, other(program), "--yes").returncode == 0
    program.write(("DEL", "hash"), ("DEL", "string"))
    run(other(program), ("SET", "theirs", "1"))
    looked = program.keystead("copy", program.url, other(program), "--dry-run")
    assert looked.returncode == 0
    assert (
        "  2 deleted in the first store since they were copied, and would be deleted in the second\n" in looked.stdout
    )
    result = program.keystead("copy", program.url, other(program), "--yes", "--overwrite")
    assert (result.returncode, result.stderr) == (0, "")
    assert "  2 deleted in the first store since they were copied, and now in the second too\n" in result.stdout
    assert "compared: 14 equal, no differences" in result.stdout
    assert copied_to(other(program)) == {**contents_of(program.url), b"theirs": (b"string", -1, b"1")}


def test_a_second_copy_that_cannot_know_what_was_deleted_is_refused(program: Program, full: dict[bytes, Any]) -> None:
    assert program.keystead("copy", program.url, other(program), "--yes").returncode == 0
    [noted] = progress_files(program)
    (program.folder / noted).unlink()
    program.write(("DEL", "hash"))
    for option in ("--overwrite", "--no-verify"):
        result = program.keystead("copy", program.url, other(program), "--yes", option)
        assert_one_sentence(result, 1, noted, "records which keys", "--progress", "--start-over")
    assert progress_files(program) == []
    over = output(program.keystead("copy", program.url, other(program), "--yes", "--start-over", "--json"))
    assert (over["equal"], over["written"], over["whole"]) == (15, 0, True)


# --- following -----------------------------------------------------------------------------------------------


def test_a_migration_follows_changes_until_it_is_stopped(
    program: Program, full: dict[bytes, Any], server: Server
) -> None:
    running = Running(program, "copy", program.url, server.url, "--follow", "--yes", "--json")
    running.says("in step: ")
    program.write(("SET", "sess:1", "new", "PX", DAY_MS), ("DEL", "hash"), ("SADD", "set", "another"))
    wait_until(lambda: server.ask("SCARD", "set") == 4, "the change arrives", 30)
    server.ask("DEL", "string")  # a logout, by the application that has moved
    program.write(("SET", "string", "alive?"), ("SET", "last", "1"))
    ended = running.finish(signal.SIGINT)
    assert ended.returncode == 0, ended
    assert re.fullmatch(r"in step: \d+ of 16 keys changed in the last pass \(.* s\)\n", ended.stderr)
    copied = output(subprocess.CompletedProcess([], 0, ended.stdout, ""))
    assert (copied["whole"], copied["deleted_there"], copied["deleted"]) == (True, 1, 1)
    expected = contents_of(program.url)
    del expected[b"string"]
    assert copied_to(server.url) == expected


def test_at_a_terminal_one_line_shows_that_both_are_in_step_and_sigterm_finishes_it(
    program: Program, full: dict[bytes, Any]
) -> None:
    terminal = Terminal(program, "copy", program.url, other(program), "--follow", "--yes", columns=200)
    terminal.until("in step: 0 of 16 keys changed in the last pass (")
    os.kill(terminal._process.pid, signal.SIGTERM)
    assert terminal.wait() == 0
    assert "compared: 16 equal, no differences" in terminal.said
    assert copied_to(other(program)) == full


@pytest.mark.matrix
def test_stopped_before_it_is_in_step_it_resumes_later(program: Program, server: Server) -> None:
    expected = fill(program.url, MANY, 100)
    with held_back(server) as proxy:
        proxy.after_requests(400_000)
        running = Running(program, "copy", program.url, proxy.url + PATIENT, "--follow", "--yes")
        wait_for_keys(server.url, running)
        ended = running.finish(signal.SIGINT)
        proxy.resume()
        assert (ended.returncode, ended.stdout) == (130, "")
        assert "run the same command again to continue" in ended.stderr
        assert program.keystead("copy", program.url, proxy.url + PATIENT, "--yes").returncode == 0
    assert copied_to(server.url) == expected


def test_help_has_examples(program: Program) -> None:
    shown = program.keystead("copy", "--help", COLUMNS="120").stdout
    assert "keystead copy redis://localhost:6379/0 postgresql://app@localhost/app --dry-run" in shown
    assert "without logging users out" in " ".join(shown.split())
    options = (
        "--follow",
        "--overwrite",
        "--start-over",
        "--allow-empty",
        "--match",
        "--no-verify",
        "--dry-run",
        "--progress",
        "--yes",
        "--json",
    )
    assert all(option in shown for option in options)
    assert "<bool>" not in shown
