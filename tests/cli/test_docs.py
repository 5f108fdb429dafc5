"""`keystead docs`, end to end, on a user program."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keystead.cli.keyspace_arguments import NAMED
from tests import forking
from tests.serving import environment

PROGRAM = '''
from keystead.schema import Counter, Keyspace, Value, after

class AppKeys(Keyspace):
    """Users."""

    user = Value("user:{uid:int}", str, lifetime=after("30d"), doc="who the user is", owns="count")
    count = Counter("count:{uid:int}", lifetime=after("1d"))

class TokenKeys(Keyspace):
    """Tokens."""

    token = Value("token:{id}", str, lifetime=after("1d"), doc="a token")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "__init__.py").touch()
    (tmp_path / "myapp" / "keys.py").write_text(PROGRAM)
    return tmp_path


def docs(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forking.run(("docs", *arguments), folder, environment())


def stdout_of(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_asked_wrongly(result: subprocess.CompletedProcess[str], *said: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("keystead: ")
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert [part for part in said if part not in result.stderr] == [], result.stderr


def test_one_keyspace_is_printed_as_markdown(folder: Path) -> None:
    text = stdout_of(docs(folder, "myapp.keys:AppKeys"))
    assert text.startswith("<!-- Made by `keystead docs` from myapp.keys:AppKeys.")
    assert "\n# App keys\n\nUsers.\n" in text
    assert "| [`user:{uid}`](#user)<br>who the user is | Value | default | string | 30 days | " in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_one_keyspace_is_printed_as_html(folder: Path) -> None:
    text = stdout_of(docs(folder, "myapp.keys:AppKeys", "--format", "html"))
    assert text.startswith("<!doctype html>\n")
    assert "<code>user:{uid}</code>" in text


def test_the_printed_document_equals_the_file(folder: Path) -> None:
    stdout_of(docs(folder, "myapp.keys", "--out", "keys"))
    assert (folder / "keys" / "app-keys.md").read_text() == stdout_of(docs(folder, "myapp.keys:AppKeys"))


def test_the_same_data_is_printed_as_json(folder: Path) -> None:
    [found] = json.loads(stdout_of(docs(folder, "myapp.keys:AppKeys", "--json")))
    assert (found["name"], found["title"], found["doc"]) == ("AppKeys", "App keys", "Users.")
    assert found["edges"] == [{"start": "user", "says": "owns", "end": "count"}]
    user, count = found["families"]
    assert (user["key"], user["pattern"], user["lifetime"]) == ("user:{uid}", "user:{uid:int}", "30 days")
    assert user["relations"] == ["Deleted with it: `count:{uid}`."]
    assert count["operations"] == {
        "writes": ["increment", "decrement", "start_at", "set", "consume"],
        "reads": ["get", "at_most", "at_least", "holds"],
    }


def test_several_keyspaces_are_printed_as_json_too(folder: Path) -> None:
    found = json.loads(stdout_of(docs(folder, "myapp.keys", "--json")))
    assert [one["name"] for one in found] == ["AppKeys", "TokenKeys"]


def test_several_keyspaces_need_a_folder(folder: Path) -> None:
    assert_asked_wrongly(docs(folder, "myapp.keys"), "myapp.keys:AppKeys, myapp.keys:TokenKeys", "--out FOLDER")


def test_a_folder_gets_a_file_for_each_keyspace_and_an_index(folder: Path) -> None:
    result = docs(folder, "myapp.keys", "--out", "docs/keys")
    assert stdout_of(result).splitlines() == [
        "wrote docs/keys/app-keys.md",
        "wrote docs/keys/token-keys.md",
        "wrote docs/keys/README.md",
        "3 files in docs/keys, 3 changed",
    ]
    assert files(folder / "docs" / "keys") == ["README.md", "app-keys.md", "token-keys.md"]
    index = (folder / "docs" / "keys" / "README.md").read_text()
    assert "| [App keys](app-keys.md) | Users. | 2 |" in index
    assert "[`token:{id}`](token-keys.md#token)" in index


def test_the_same_in_html(folder: Path) -> None:
    stdout_of(docs(folder, "myapp.keys", "--out", "site", "--format", "html"))
    assert files(folder / "site") == ["app-keys.html", "index.html", "token-keys.html"]
    assert 'href="token-keys.html#token"' in (folder / "site" / "index.html").read_text()


def test_files_that_are_up_to_date_are_not_written_again(folder: Path) -> None:
    stdout_of(docs(folder, "myapp.keys", "--out", "keys"))
    before = (folder / "keys" / "app-keys.md").stat().st_mtime_ns
    assert stdout_of(docs(folder, "myapp.keys", "--out", "keys")) == "3 files in keys, 0 changed\n"
    assert (folder / "keys" / "app-keys.md").stat().st_mtime_ns == before


def test_written_files_are_listed_as_json(folder: Path) -> None:
    told = json.loads(stdout_of(docs(folder, "myapp.keys:AppKeys", "--out", "keys", "--json")))
    names = ["keys/app-keys.md", "keys/README.md"]
    assert told == {"files": names, "changed": names, "left_over": []}


def test_without_a_name_it_exports_the_kits_and_the_server(folder: Path) -> None:
    stdout_of(docs(folder, "--out", "keys"))
    assert files(folder / "keys") == sorted([*(f"{kit}.md" for kit in NAMED), "README.md"])
    assert stdout_of(docs(folder, "login")) == (folder / "keys" / "login.md").read_text()


def test_the_check_passes_after_a_write(folder: Path) -> None:
    stdout_of(docs(folder, "myapp.keys", "--out", "keys"))
    assert stdout_of(docs(folder, "myapp.keys", "--out", "keys", "--check")) == "3 files in keys are up to date\n"


def test_the_check_ignores_line_endings(folder: Path) -> None:
    stdout_of(docs(folder, "myapp.keys", "--out", "keys"))
    for path in (folder / "keys").iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    stdout_of(docs(folder, "myapp.keys", "--out", "keys", "--check"))


def stale_folder(folder: Path) -> dict[str, bytes]:
    """A folder with a stale, a missing, a left-over and a hand-written document."""
    stdout_of(docs(folder, "myapp.keys", "--out", "keys"))
    keys = folder / "keys"
    (folder / "myapp" / "keys.py").write_text(PROGRAM.replace("30d", "31d"))
    (keys / "token-keys.md").rename(keys / "gone-keys.md")
    (keys / "notes.md").write_text("# Notes\n")
    return {path.name: path.read_bytes() for path in keys.iterdir()}


def test_the_check_names_what_is_stale_missing_and_left_over_and_writes_nothing(folder: Path) -> None:
    before = stale_folder(folder)
    result = docs(folder, "myapp.keys", "--out", "keys", "--check")
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [
        "stale: keys/app-keys.md",
        "missing: keys/token-keys.md",
        "left over: keys/gone-keys.md (no keyspace generates it: delete it)",
        "Run: keystead docs myapp.keys --out keys",
    ]
    assert {path.name: path.read_bytes() for path in (folder / "keys").iterdir()} == before


def test_the_suggested_command_fixes_the_folder(folder: Path) -> None:
    stale_folder(folder)
    said = docs(folder, "myapp.keys", "--out", "keys", "--check").stdout
    command = next(line for line in said.splitlines() if line.startswith("Run: ")).removeprefix("Run: keystead docs ")
    assert "left over: keys/gone-keys.md" in stdout_of(docs(folder, *command.split()))
    (folder / "keys" / "gone-keys.md").unlink()
    stdout_of(docs(folder, "myapp.keys", "--out", "keys", "--check"))
    assert (folder / "keys" / "notes.md").read_text() == "# Notes\n"


def test_the_check_prints_json(folder: Path) -> None:
    stale_folder(folder)
    result = docs(folder, "myapp.keys", "--out", "keys", "--check", "--json")
    assert (result.returncode, result.stderr) == (1, "")
    told: dict[str, Any] = json.loads(result.stdout)
    assert told == {
        "stale": ["keys/app-keys.md"],
        "missing": ["keys/token-keys.md"],
        "left_over": ["keys/gone-keys.md"],
        "command": "keystead docs myapp.keys --out keys",
    }


def test_the_check_of_a_missing_folder_names_every_file(folder: Path) -> None:
    result = docs(folder, "myapp.keys:AppKeys", "--format", "html", "--out", "my site", "--check")
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "missing: my site/app-keys.html",
        "missing: my site/index.html",
        "Run: keystead docs myapp.keys:AppKeys --format html --out 'my site'",
    ]
    assert not (folder / "my site").exists()


def test_the_check_needs_a_folder(folder: Path) -> None:
    assert_asked_wrongly(docs(folder, "myapp.keys:AppKeys", "--check"), "--out FOLDER")


def test_two_keyspaces_that_would_have_the_same_file_are_refused(folder: Path) -> None:
    (folder / "myapp" / "more.py").write_text(PROGRAM)
    result = docs(folder, "myapp.keys:AppKeys", "myapp.more:AppKeys", "--out", "keys")
    assert_asked_wrongly(result, "keys/app-keys.md", "myapp.keys:AppKeys", "myapp.more:AppKeys", "two folders")
    assert not (folder / "keys").exists()


def test_an_unwritable_folder_is_a_one_line_error(folder: Path) -> None:
    (folder / "taken").write_text("a file")
    result = docs(folder, "myapp.keys:AppKeys", "--out", "taken")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("keystead: cannot ")
    assert "taken/app-keys.md" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_invalid_declaration_is_a_one_line_error(folder: Path) -> None:
    (folder / "myapp" / "keys.py").write_text(PROGRAM.replace('owns="count"', 'owns="nothing"'))
    assert_asked_wrongly(docs(folder, "myapp.keys:AppKeys"), "AppKeys.user", "'nothing'")


def test_an_unknown_name_or_format_is_a_usage_error(folder: Path) -> None:
    assert_asked_wrongly(docs(folder, "myapp.nothing"), "myapp.nothing")
    result = docs(folder, "myapp.keys:AppKeys", "--format", "pdf")
    assert result.returncode == 2
    assert "markdown" in result.stderr


def test_help_has_examples(folder: Path) -> None:
    said = stdout_of(docs(folder, "--help"))
    for example in (
        "keystead docs myapp.keys:AppKeys",
        "keystead docs myapp.keys --format html > keys.html",
        "keystead docs myapp.keys --out docs/keys --check",
    ):
        assert example in said
    assert "<bool>" not in said


def test_no_store_is_touched(folder: Path) -> None:
    stdout_of(docs(folder, "myapp.keys:AppKeys"))
    assert files(folder) == ["myapp"]
