"""The command line itself: help, near misses, names of keyspaces, shell completion, and how little `--help` imports."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import typer

from keystead.cli import COMMANDS, KIT_SUMMARIES, _add_commands, app
from keystead.cli.flags import lay_out
from tests.cli.program import Program, assert_one_sentence, output
from tests.serving import environment, keystead_command

# What a list of commands needs none of.
SLOW = (
    "pydantic",
    "keystead.schema",
    "keystead.stores",
    "keystead.server",
    "sqlite3",
    "asyncio",
    "fastapi",
    "jinja2",
    "babel",
)
KEYSPACES = ("check", "doctor", "docs", "export", "watch", "audit", "console", "gateway", "show", "delete", "erase")
NO_JSON = {"serve", "guide", "gateway run", "console run"}


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    """All commands by their path."""
    if not app.registered_commands:
        _add_commands(["--help"])
    return dict(_below(typer.main.get_command(app), ()))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    for name, one in getattr(command, "commands", {}).items():
        yield from _below(one, (*path, name))


def test_the_list_of_commands_says_what_each_command_says(commands: dict[str, Any]) -> None:
    first = {name: " ".join((commands[name].help or "").split("\n\n")[0].split()) for name in commands if name}
    assert {name: first[name] for name in (*COMMANDS, *KIT_SUMMARIES)} == {**COMMANDS, **KIT_SUMMARIES}


def test_the_help_and_the_version_import_nothing_slow() -> None:
    code = (
        "import sys; from keystead.__main__ import main; sys.argv = ['keystead', sys.argv[1]]\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    for option, language in (("-h", "en"), ("-h", "ja"), ("--version", "ko")):
        env = environment({"KEYSTEAD_LANGUAGE": language})
        ran = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, env=env)
        assert ran.returncode == 0, ran.stderr
        imported = set(ran.stderr.split())
        assert "keystead.cli" in imported
        assert imported.isdisjoint(SLOW), option


def test_every_command_has_an_example_and_takes_the_short_form_of_help(
    program: Program, commands: dict[str, Any]
) -> None:
    groups = {path for path, command in commands.items() if hasattr(command, "commands")}
    own = [path for path in commands if path not in groups and path.split(maxsplit=1)[0] in COMMANDS]
    assert [path for path in own if f"keystead {path.removesuffix(' run')}" not in commands[path].help] == []
    for path in ("", "check", "gateway", "gateway token create"):
        short, long = (program.keystead(*path.split(), option) for option in ("-h", "--help"))
        assert (short.returncode, short.stdout) == (0, long.stdout)
        assert "--help" in short.stdout


def test_programs_can_read_what_every_command_prints(commands: dict[str, Any]) -> None:
    leaves = {path: one for path, one in commands.items() if not hasattr(one, "commands")}
    without = {path for path, one in leaves.items() if "--json" not in {name for p in one.params for name in p.opts}}
    assert without - NO_JSON == set()


def test_one_option_names_keyspaces_in_every_command(program: Program, commands: dict[str, Any]) -> None:
    for name in KEYSPACES:
        command = commands.get(f"{name} run", commands[name])
        assert {"--keyspace", "-k"} <= {option for param in command.params for option in param.opts}, name
    program.fill()
    for name in (
        "myapp.keys:AppKeys",
        "myapp.keys",
        "myapp/keys.py",
        "myapp/keys.py:AppKeys",
        f"{program.folder}/myapp/keys.py",
    ):
        found = output(program.keystead("check", "-k", name, "--json"))
        assert found["keyspaces"] == ["myapp.keys:AppKeys"], name
    both = output(program.keystead("check", "login", "--keyspace", "myapp.keys", "--json"))
    assert "myapp.keys:AppKeys" in both["keyspaces"]
    assert len(both["keyspaces"]) > 1
    assert program.keystead("doctor", "-k", "myapp.keys", "--fix").returncode == 0
    assert_one_sentence(program.keystead("doctor", "--fix"), 2, "--fix changes keys")


def test_the_old_name_of_the_option_still_works(program: Program) -> None:
    program.fill()
    for old in (("--keys", "myapp.keys"), ("--keys=myapp.keys",)):
        assert output(program.keystead("show", "session", *old, "--json"))["count"] == 2
    assert "--keys" not in program.keystead("show", "--help").stdout.replace("--keyspace", "")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("doktor",), "Did you mean 'doctor'?"),
        (("membershp",), "Did you mean 'membership'?"),
        (("gateway", "tokn", "list"), "Did you mean 'token'?"),
        (("doctor", "myapp.keys", "--famly", "session"), "--family"),
        (("doctor", "myapp.keys", "--family", "sesion"), "there is no family 'sesion'; did you mean session?"),
        (("check", "logn"), "did you mean login?"),
        (("check", "myapp.kyes"), "did you mean myapp.keys?"),
        (("check", "myapp.keys:AppKey"), "did you mean AppKeys?"),
    ],
)
def test_a_near_miss_is_answered_with_the_name(program: Program, arguments: tuple[str, ...], hint: str) -> None:
    result = program.keystead(*arguments, COLUMNS="200")
    assert (result.returncode, result.stdout) == (2, "")
    assert hint in result.stderr
    assert "Traceback" not in result.stderr


def test_what_resembles_nothing_gets_no_hint(program: Program) -> None:
    assert "ean" not in program.keystead("xyzzy", COLUMNS="200").stderr
    assert "did you mean" not in program.keystead("check", "xyzzy").stderr


def test_help_wraps_as_the_terminal_does_and_its_examples_can_be_copied(program: Program) -> None:
    text = "First\nline.\n\n[bold]Examples[/bold]\n\n  keystead a --b c --d e\n\n  keystead b\n\nLast\nline."
    assert lay_out(text, 100) == (
        "First line.\n\n[bold]Examples[/bold]\n  keystead a --b c --d e\n  keystead b\n\nLast line."
    )
    shown = program.keystead("erase", "--help", COLUMNS="80").stdout.splitlines()
    assert max(map(len, shown)) <= 80
    start = next(number for number, line in enumerate(shown) if "store redis" in line)
    example = " ".join(line.strip().removesuffix("\\") for line in shown[start - 1 : start + 2])
    assert " ".join(example.split()).startswith(
        "keystead erase user:42 --keyspace myapp.keys --store redis://localhost:6379/0 --store durable=sqlite:///app.db"
    )
    assert shown[start - 1].rstrip().endswith("\\")


@pytest.mark.parametrize(
    ("words", "expected", "absent"),
    [
        ("keystead do", {"doctor", "docs"}, {"serve"}),
        ("keystead doctor my", {"myapp.keys", "myapp.keys:AppKeys"}, {"login"}),
        ("keystead show --keyspace log", {"login"}, {"sharing"}),
        ("keystead doctor --family s", {"session", "sessions"}, {"lock"}),
        ("keystead delete ac", {"account"}, {"session"}),
        ("keystead doctor --exa", {"--examples"}, {"--json"}),
        ("keystead gateway token c", {"create"}, {"list"}),
    ],
)
def test_a_shell_completes_commands_options_and_keyspaces(
    program: Program, words: str, expected: set[str], absent: set[str]
) -> None:
    asked = {"_KEYSTEAD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    offered = set(program.keystead(**asked).stdout.split())
    assert expected <= offered
    assert not absent & offered


def test_a_completion_runs_no_module_of_the_user(program: Program) -> None:
    module = program.folder / "myapp" / "keys.py"
    module.write_text(f"{module.read_text()}\nraise RuntimeError('it was imported')\n")
    asked = {"_KEYSTEAD_COMPLETE": "complete_bash", "COMP_WORDS": "keystead check my", "COMP_CWORD": "2"}
    result = program.keystead(**asked)
    assert "myapp.keys:AppKeys" in result.stdout
    assert result.stderr == ""


def test_the_completion_script_is_printed(program: Program) -> None:
    shown = program.keystead("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_KEYSTEAD_COMPLETE=complete_bash" in shown.stdout
    assert "--install-completion" in program.keystead("--help").stdout


def test_lists_of_commands_name_the_kits_of_the_settings(program: Program) -> None:
    paths = str(Path(__file__).parents[2])
    shown = program.keystead("-h", KEYSTEAD_KITS="tests.server.household:KIT", PYTHONPATH=paths).stdout
    assert "household" in shown
    assert "doctor" in shown


def test_help_takes_less_than_a_third_of_a_second_of_processor_time(tmp_path: Path) -> None:
    """The median of seven starts of the installed program, which imports no command."""
    command = keystead_command("--help")
    used = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert median(used) < 0.3
