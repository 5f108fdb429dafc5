"""`keystead backup` and `keystead restore`, end to end: real processes, real stores, real kills."""

import asyncio
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from keystead import connect
from keystead.cli import restore_command
from keystead.cli.transfers import with_timeout
from keystead.stores.backup import BackupFile, Restored, backup, restore
from keystead.stores.backup.file import BLOCK_BYTES
from tests import servers
from tests.cli.filled import MANY, contents_of, fill, other, wait_for_keys
from tests.cli.held_back import IMPATIENT, PATIENT, held_back
from tests.cli.program import SEALED, Program, assert_one_sentence, output
from tests.cli.test_asking import Terminal
from tests.servers import Server
from tests.serving import environment, keystead_command, wait_until


def save(program: Program) -> None:
    """Like `keystead backup keys.backup`, without starting a process."""

    async def write() -> None:
        async with connect(program.url) as store:
            await backup(store, program.folder / "keys.backup")

    asyncio.run(write())


def restore_into(url: str, program: Program) -> None:
    async def write() -> None:
        async with connect(url) as store:
            with BackupFile(program.folder / "keys.backup") as file:
                await restore(store, file)

    asyncio.run(write())


def start_command(program: Program, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        keystead_command(*arguments),
        cwd=program.folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- there and back -----------------------------------------------------------------------------------------


def test_a_backup_is_restored_into_another_store(program: Program, full: dict[bytes, Any]) -> None:
    result = program.keystead("backup", "keys.backup")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"saved 16 keys of {program.url} in keys.backup\n" in result.stdout
    assert re.search(
        r"5 string, 2 hash, 2 set, 2 zset, 2 list, 3 stream\n.* MB, .* s, [\d,]+ keys a second", result.stdout
    )
    result = program.keystead("restore", "keys.backup", "--store", other(program), "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"restored 16 keys into {other(program)}\n" in result.stdout
    assert contents_of(other(program)) == full
    made = Path(other(program).removeprefix("sqlite:///"))
    assert stat.S_IMODE((program.folder / made).stat().st_mode) == 0o600
    result = program.keystead("restore", "keys.backup", "--store", other(program), "--verify")
    assert result.returncode == 0
    assert "16 equal\nno differences\n" in result.stdout.replace("  ", "")


def test_json_output_is_complete(program: Program, full: dict[bytes, Any]) -> None:
    saved = output(program.keystead("backup", "keys.backup", "--match", "s*", "--json"))
    assert (saved["file"], saved["store"], saved["match"], saved["keys"]) == ("keys.backup", program.url, "s*", 6)
    assert saved["kinds"] == {"string": 2, "hash": 0, "set": 2, "zset": 0, "list": 0, "stream": 2}
    assert saved["bytes"] == (program.folder / "keys.backup").stat().st_size
    checked = output(program.keystead("restore", "keys.backup", "--dry-run", "--json"))
    assert (checked["keys"], checked["there"], checked["expired"]) == (6, 6, 0)
    restored = output(program.keystead("restore", "keys.backup", "--store", other(program), "--yes", "--json"))
    assert restored == {
        "store": other(program),
        "keys": 6,
        "restored": 6,
        "expired": 0,
        "skipped": 0,
        "resumed_at": 0,
        "missing": 0,
    }
    compared = output(program.keystead("restore", "keys.backup", "--verify", "--json"))
    assert (compared["equal"], compared["differences"]) == (6, 0)
    assert contents_of(other(program)) == {key: one for key, one in full.items() if key.startswith(b"s")}


def test_sealed_values_stay_sealed_and_need_no_keys(program: Program) -> None:
    program.write(("SET", "account:u1", SEALED))
    assert program.keystead("backup", "keys.backup").returncode == 0
    assert program.keystead("restore", "keys.backup", "--store", other(program), "--yes").returncode == 0
    assert contents_of(other(program)) == {b"account:u1": (b"string", -1, SEALED)}


def test_only_its_owner_may_read_the_file_and_no_password_is_in_it(program: Program) -> None:
    with servers.valkey(password="a-secret-word") as server:
        fill(server.url)
        result = program.keystead("backup", "keys.backup", "--store", server.url, "--json")
        restored = program.keystead("restore", "keys.backup", "--store", server.url, "--if-there", "skip", "--yes")
    file = program.folder / "keys.backup"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "a-secret-word" not in result.stdout + result.stderr + restored.stdout + restored.stderr
    assert "a-secret-word" not in program.keystead("restore", "keys.backup", "--dry-run").stdout
    assert "a-secret-word" not in output(result)["store"]
    assert restored.returncode == 0


# --- what is in the way -------------------------------------------------------------------------------------


def test_an_existing_file_is_only_overwritten_with_a_flag(program: Program, full: dict[bytes, Any]) -> None:
    assert program.keystead("backup", "keys.backup", "--match", "hash").returncode == 0
    assert_one_sentence(program.keystead("backup", "keys.backup"), 1, "keys.backup already exists", "--overwrite")
    assert output(program.keystead("backup", "keys.backup", "--overwrite", "--json"))["keys"] == 16
    assert_one_sentence(program.keystead("backup", "keys.backup", "--overwrite", "--resume"), 2, "one of them")


def test_existing_keys_are_refused_skipped_or_replaced(program: Program, full: dict[bytes, Any]) -> None:
    save(program)
    program.write(("SET", "hash", "mine"), ("DEL", "set"))
    again = ("restore", "keys.backup", "--yes")
    assert_one_sentence(program.keystead(*again), 1, "15 of the 16 keys", "--if-there skip", "--if-there replace")
    assert b"set" not in contents_of(program.url)
    skipped = output(program.keystead(*again, "--if-there", "skip", "--json"))
    assert (skipped["restored"], skipped["skipped"]) == (1, 15)
    assert contents_of(program.url) == {**full, b"hash": (b"string", -1, b"mine")}
    verified = program.keystead("restore", "keys.backup", "--verify")
    assert verified.returncode == 1
    assert "1 of another kind" in verified.stdout
    assert "other kind: hash" in verified.stdout
    assert output(program.keystead(*again, "--if-there", "replace", "--json"))["restored"] == 16
    assert contents_of(program.url) == full


def test_a_dry_run_prints_the_result_and_creates_nothing(program: Program, full: dict[bytes, Any]) -> None:
    save(program)
    result = program.keystead("restore", "keys.backup", "--store", other(program), "--dry-run")
    assert result.returncode == 0
    assert f"keys.backup is whole: 16 keys of {program.url}, saved 20" in result.stdout
    assert f"would restore 16 keys into {other(program)}\n" in result.stdout
    assert not (program.folder / "other.db").exists()
    for how, said in (("skip", "would restore 0 keys"), ("replace", "would be replaced"), ("refuse", "--if-there")):
        assert said in program.keystead("restore", "keys.backup", "--dry-run", "--if-there", how).stdout
    assert contents_of(program.url) == full


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), (None, 130)], ids=["yes", "no", "Ctrl-C"])
def test_at_a_terminal_it_asks_for_confirmation(
    program: Program, full: dict[bytes, Any], answer: str | None, code: int
) -> None:
    save(program)
    terminal = Terminal(program, "restore", "keys.backup", "--store", other(program), columns=200)
    terminal.until(f"Restore 16 keys into {other(program)}? [y/N]")
    if answer is None:
        terminal.signal(signal.SIGINT)
    else:
        terminal.type(answer)
    assert terminal.wait() == code
    assert ("nothing was restored" in terminal.said) == (code != 0)
    assert contents_of(other(program)) == (full if code == 0 else {})


def test_at_a_terminal_a_progress_bar_is_shown(program: Program, full: dict[bytes, Any]) -> None:
    terminal = Terminal(program, "backup", "keys.backup")
    assert terminal.wait() == 0
    assert "saving" in terminal.said
    assert "saved 16 keys" in terminal.said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("restore", "keys.backup"), 2, "needs a terminal"),
        (("restore", "nothing.backup", "--yes"), 1, "cannot read nothing.backup"),
        (("restore", "myapp/keys.py", "--yes"), 1, "is not a Keystead backup"),
        (("restore", "keys.backup", "--verify", "--dry-run"), 2, "--verify only compares"),
        (("restore", "keys.backup", "--verify", "--store", "sqlite:///nowhere.db"), 2, "there is no database"),
        (("backup", "new.backup", "--store", "sqlite:///nowhere.db"), 2, "there is no database"),
        (("backup", "new.backup", "--store", "nothing://x"), 2, "nothing"),
        (("backup", "new.backup", "--resume"), 1, "there is no new.backup.part"),
        (("backup", "no/folder/keys.backup"), 1, "there is no folder no/folder"),
        (("backup", "new.backup", "--store", "redis://127.0.0.1:1?connect_timeout=100ms"), 1, "cannot reach"),
    ],
)
def test_usage_errors_are_one_line(program: Program, arguments: tuple[str, ...], code: int, said: str) -> None:
    save(program)
    assert_one_sentence(program.keystead(*arguments), code, said)
    assert not (program.folder / "nowhere.db").exists()


@pytest.mark.parametrize("change", ["cut", "flipped"])
def test_a_damaged_file_is_refused_and_nothing_is_written(
    program: Program, full: dict[bytes, Any], change: str
) -> None:
    save(program)
    file = program.folder / "keys.backup"
    data = bytearray(file.read_bytes())
    if change == "cut":
        del data[-10:]
    else:
        data[len(data) // 2] ^= 1
    file.write_bytes(data)
    said = "is truncated" if change == "cut" else "was altered"
    result = program.keystead("restore", "keys.backup", "--store", other(program), "--yes")
    assert_one_sentence(result, 1, "keys.backup is damaged", said, "Nothing was restored")
    assert contents_of(other(program)) == {}


# --- what is not kept ---------------------------------------------------------------------------------------


def test_a_key_that_could_never_be_restored_is_left_out_with_exit_code_1(program: Program, server: Server) -> None:
    server.ask("SET", "good", "x")
    server.ask("SET", "far", "x", "PXAT", 300_000_000_000_000)
    result = program.keystead("backup", "keys.backup", "--store", server.url)
    assert result.returncode == 1
    assert "saved 1 key of" in result.stdout
    assert result.stderr == (
        "left out 1 key that could never be restored:\n  far has a deadline before 1970 or after the year 9999\n"
    )
    restore_into(program.url, program)
    assert contents_of(program.url) == {b"good": (b"string", -1, b"x")}


def test_a_restore_with_missing_keys_at_the_end_fails(
    program: Program, full: dict[bytes, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(program)

    async def write(*_: Any, **__: Any) -> Restored:
        return Restored(keys=16, restored=16, expired=0, skipped=0, resumed_at=0, missing=3)

    monkeypatch.setattr(restore_command, "write", write)
    monkeypatch.setattr(restore_command, "lower_priority", lambda: None)  # it would slow down all tests that follow
    with pytest.raises(typer.Exit) as ended:
        restore_command.restore(program.folder / "keys.backup", store=other(program), yes=True)
    assert ended.value.exit_code == 1
    assert "3 keys of the backup missing at the end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "waits"),
    [
        ("redis://host:1", "redis://host:1?timeout=60s"),
        ("redis://host:1?connect_timeout=1s", "redis://host:1?connect_timeout=1s&timeout=60s"),
        ("redis://host:1?timeout=1s", "redis://host:1?timeout=1s"),
    ],
)
def test_transfers_have_a_long_timeout_unless_the_url_sets_one(url: str, waits: str) -> None:
    assert with_timeout(url) == waits


# --- interruptions ------------------------------------------------------------------------------------------


def part_is_larger_than(program: Program, size: int) -> bool:
    part = program.folder / "keys.backup.part"
    return part.exists() and part.stat().st_size > size


def wait_for_blocks(program: Program, process: subprocess.Popen[str]) -> None:
    """Wait until some blocks are in the file."""
    wait_until(
        lambda: part_is_larger_than(program, 5 * BLOCK_BYTES // 2) or process.poll() is not None, "keys are saved", 60
    )
    assert process.poll() is None, process.communicate()


@pytest.mark.everyday("9--9")
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_killed_backup_resumes_and_is_complete(
    program: Program, server: Server, signum: signal.Signals, code: int
) -> None:
    expected = fill(server.url, MANY)
    with held_back(server) as proxy:
        proxy.slowly()
        again = ("backup", "keys.backup", "--store", proxy.url + PATIENT)
        with start_command(program, *again) as process:
            wait_for_blocks(program, process)
            process.send_signal(signum)
            out, error = process.communicate(timeout=300)
        proxy.resume()
        assert (process.returncode, out) == (code, "")
        if signum != signal.SIGKILL:
            assert error == "keystead: stopped; the keys saved so far are in keys.backup.part; --resume continues\n"
        assert not (program.folder / "keys.backup").exists()
        assert_one_sentence(program.keystead(*again), 1, "--resume", "--overwrite")
        saved = output(program.keystead(*again, "--resume", "--json"))
    assert saved["keys"] == len(expected)
    assert 0 < saved["kept"] < len(expected)
    assert not part_is_larger_than(program, -1)
    restore_into(other(program), program)
    assert contents_of(other(program)) == expected


@pytest.mark.matrix
@pytest.mark.everyday("valkey-9--9")
@pytest.mark.parametrize(
    ("to", "signum", "code"),
    [("sqlite", signal.SIGKILL, -9), ("valkey", signal.SIGKILL, -9), ("valkey", signal.SIGINT, 130)],
)
def test_a_killed_restore_resumes_and_is_complete(
    program: Program, server: Server, to: str, signum: signal.Signals, code: int
) -> None:
    expected = fill(program.url, MANY)
    save(program)
    with held_back(server) as proxy:
        target = other(program) if to == "sqlite" else server.url
        proxy.slowly()
        again = ("restore", "keys.backup", "--store", target if to == "sqlite" else proxy.url + PATIENT, "--yes")
        with start_command(program, *again) as process:
            wait_for_keys(target, process, noted=True)
            process.send_signal(signum)
            out, error = process.communicate(timeout=300)
        proxy.resume()
        assert (process.returncode, out) == (code, "")
        if signum == signal.SIGINT:
            assert error == "keystead: stopped; the restored keys stay, and --resume continues\n"
        assert 0 < len(contents_of(target)) < len(expected)
        assert_one_sentence(program.keystead(*again), 1, "was interrupted", "--resume")
        done = output(program.keystead(*again, "--resume", "--json"))
    assert done["restored"] == done["keys"] == len(expected)
    assert 0 < done["resumed_at"] < len(expected)
    assert contents_of(target) == expected


@pytest.mark.matrix
def test_a_store_outage_in_a_backup_is_a_one_line_error_and_it_resumes(program: Program, server: Server) -> None:
    expected = fill(server.url, MANY)
    with held_back(server) as proxy:
        proxy.after_replies(5 * BLOCK_BYTES)
        backup = ("backup", "keys.backup", "--store")
        ended = program.keystead(*backup, proxy.url + IMPATIENT)
        assert_one_sentence(ended, 1, "--resume continues")
        assert "did not answer" in ended.stderr or "no connection to" in ended.stderr
        proxy.resume()
        saved = output(program.keystead(*backup, proxy.url + PATIENT, "--resume", "--json"))
    assert saved["keys"] == len(expected)
    assert saved["kept"] > 0


@pytest.mark.matrix
def test_a_store_outage_in_a_restore_is_a_one_line_error_and_it_resumes(program: Program, server: Server) -> None:
    expected = fill(program.url, MANY)
    save(program)
    with held_back(server) as proxy:
        proxy.after_requests(3_000_000)
        restore = ("restore", "keys.backup", "--yes", "--store")
        ended = program.keystead(*restore, proxy.url + IMPATIENT)
        assert_one_sentence(ended, 1, "--resume continues")
        assert "did not answer" in ended.stderr or "no connection to" in ended.stderr
        assert 0 < len(contents_of(server.url)) < len(expected)
        proxy.resume()
        assert program.keystead(*restore, proxy.url + PATIENT, "--resume").returncode == 0
    assert contents_of(server.url) == expected


async def _put(url: str, key: str) -> None:
    async with connect(url) as store:
        await store.run([("SET", key, "1")])


def test_a_backup_has_one_store_and_names_the_others(program: Program, full: dict[bytes, Any]) -> None:
    (program.folder / "keystead.toml").write_text(f'[stores]\ndurable = "{other(program)}"\n')
    asyncio.run(_put(other(program), "durable:1"))
    tables = program.keystead("tables", "upgrade")
    assert tables.returncode == 0, tables.stderr
    saved = program.keystead("backup", "keys.backup")
    assert saved.returncode == 0, saved.stderr
    durable, relational = saved.stderr.splitlines()
    assert durable == "not included, the store of the role durable: keystead backup FILE --store durable"
    assert relational.startswith("not included, the relational tables: sqlite3 ")
    saved = program.keystead("backup", "durable.backup", "--store", "durable")
    assert saved.returncode == 0
    assert saved.stderr == ""
    assert saved.stdout.startswith("saved 1 key ")
    assert_one_sentence(
        program.keystead("backup", "x.backup", "--store", "durible"), 2, "'durible'", "the roles are: default, durable"
    )


def test_help_has_examples(program: Program) -> None:
    shown = program.keystead("backup", "--help").stdout
    assert "keystead backup keys.backup --resume" in shown
    assert all(option in shown for option in ("--store", "--match", "--resume", "--overwrite", "--json"))
    shown = program.keystead("restore", "--help").stdout
    assert "keystead restore keys.backup --verify" in shown
    assert all(option in shown for option in ("--if-there", "--dry-run", "--resume", "--verify", "--yes", "--json"))
    assert "<bool>" not in shown


def test_the_file_is_where_it_was_asked_for(program: Program, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    assert program.keystead("backup", "deep/keys.backup").returncode == 0
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["keys.backup"]
