"""`keystead infer` as a command: drafts of a small shop and of documents, comparisons, and hostile keys."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from keystead import Keyspace, after, sliding
from keystead.schema.check import check
from tests import forking
from tests.cli.program import Program, assert_one_sentence
from tests.cli.test_asking import Terminal
from tests.serving import environment


def imported(text: str, folder: Path) -> type[Keyspace]:
    """The keyspace of a drafted module, imported from a file as a user does."""
    path = folder / "drafted_keys.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("drafted_keys", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["drafted_keys"] = module
    spec.loader.exec_module(module)
    keyspace: type[Keyspace] = module.AppKeys
    return keyspace


def assert_formatted(path: Path, columns: int) -> None:
    command = (
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--isolated",
        "--no-cache",
        "--check",
        "--line-length",
        str(columns),
        path,
    )
    formatted = subprocess.run(command, capture_output=True, text=True)
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr


def shop(count: int = 60) -> list[tuple[Any, ...]]:
    """What a small application of redis-py writes: accounts, their sessions and an index of orders."""
    draw = random.Random(7)
    commands: list[tuple[Any, ...]] = []
    for number in range(1, count + 1):
        order, token = f"{draw.getrandbits(64):016x}", f"{draw.getrandbits(128):032x}"
        account = {"name": f"Person {number}", "plan": draw.choice(["free", "pro"]), "createdAt": 1_760_000_000_000}
        commands += [
            ("SET", f"account:{number}", json.dumps(account | ({"note": "x"} if number % 3 else {}))),
            ("SET", f"login:{token}", json.dumps({"account": number}), "PX", 1_800_000 - number),
            ("HSET", f"order:{order}", "total", number * 5, "state", draw.choice(["open", "paid"])),
            ("ZADD", "orders", number, f"{order}"),
            ("INCRBY", f"visits:{number}:2026-02-{number % 28 + 1:02}", number),
            ("SET", f"latest:{number}", order),
        ]
    return commands


def drafted(program: Program, *options: str) -> str:
    result = program.keystead("infer", program.url, "--wait", "0s", *options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_draft_has_kinds_models_lifetimes_and_relations_and_no_secrets(program: Program) -> None:
    program.write(*shop())
    text = drafted(program)
    keyspace = imported(text, program.folder)
    families = {family.pattern.text: family for family in keyspace.families.values()}
    assert {pattern: family.kind_name for pattern, family in families.items()} == {
        "account:{account_id:int}": "Value",
        "login:{login_id:hex}": "Value",
        "order:{order_id:hex}": "Hash",
        "orders": "SortedSet",
        "visits:{visit_id:int}:{date:date}": "Counter",
        "latest:{latest_id:int}": "Value",
    }
    assert families["login:{login_id:hex}"].lifetime == after("30m")
    assert families["order:{order_id:hex}"].listed_in[0].target is families["orders"]
    assert families["latest:{latest_id:int}"].leads_to[0].target is families["order:{order_id:hex}"]
    assert 'plan: Literal["free", "pro"]' in text
    assert "note: OmittedIfNone[str] = None" in text
    assert "createdAt: EpochMs" in text
    assert not re.search(r"[0-9a-f]{12}|Person", text)
    assert text.count("    # sure: 60 keys, 60 read; ") == 5
    for columns in (88, 120):
        assert_formatted(program.folder / "drafted_keys.py", columns)
    checked = program.keystead("check", "drafted_keys")
    assert (checked.returncode, checked.stdout) == (0, "1 keyspace, 6 families: no findings\n")
    assert program.keystead("doctor", "drafted_keys").stdout == f"{5 * 60 + 1} keys: no findings\n"


def test_the_doctor_finds_only_what_is_odd(program: Program) -> None:
    program.write(*shop(), ("SET", "login:" + "ab12" * 8, "{}"), ("SET", "account:x:y:z", "lost"))
    imported(drafted(program), program.folder)
    program.write(("SET", "account:999", "not an account"))
    found = json.loads(program.keystead("doctor", "drafted_keys", "--json").stdout)
    assert {code: one["count"] for code, one in found["codes"].items()}.keys() <= {"no-deadline", "unreadable"}
    assert found["codes"]["unreadable"]["count"] == 1


def test_diff_prints_only_what_an_edited_file_does_not_declare(program: Program) -> None:
    program.write(*shop(30))
    path = program.folder / "keys.py"
    assert program.keystead("infer", program.url, "--wait", "0s", "--output", str(path)).returncode == 0
    assert program.keystead("infer", program.url, "--wait", "0s", "--output", str(path)).returncode == 2
    same = program.keystead("infer", program.url, "--wait", "0s", "--diff", str(path))
    assert (same.returncode, same.stdout) == (0, "")
    program.write(*[("SADD", f"cart:{number}", "a") for number in range(30)], ("PEXPIRE", "orders", 60_000))
    changed = program.keystead("infer", program.url, "--wait", "0s", "--diff", str(path))
    lines = changed.stdout.splitlines()
    assert changed.returncode == 1
    assert len(lines) == 2
    assert lines[0].startswith("+ cart: Set cart:{cart_id:int}  (")
    assert lines[1].startswith("~ AppKeys.orders: declared as never expires")
    assert "but the keys expire" in lines[1]


def test_deadlines_that_an_application_moves_while_the_command_waits_are_sliding(program: Program) -> None:
    program.write(
        *[("SET", f"sess:{at:08x}", "x y", "PX", 1_800_000) for at in range(30)],
        *[("SET", f"once:{at:08x}", "x y", "PX", 1_800_000) for at in range(30)],
    )
    options = ("infer", program.url, "--wait", "3s")
    with subprocess.Popen(
        forking.command(*options), cwd=program.folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:  # the application, until the command has read everything twice
            program.write(*[("PEXPIRE", f"sess:{at:08x}", 1_800_000) for at in range(30)])
        assert process.stdout is not None
        text = process.stdout.read()
    families = imported(text, program.folder).families
    assert families["sess"].lifetime == sliding("30m", touch_every="30s")
    assert families["once"].lifetime == after("30m")
    assert "# sure: 30 keys, 30 read; sliding, 30 deadlines moved between two looks" in text


def test_all_reads_every_key_and_a_terminal_shows_progress(program: Program) -> None:
    program.write(*[("SET", f"item:{at}", "x y") for at in range(1_500)])
    sampled = re.search(r"1,500 keys, ([\d,]+) read", drafted(program))
    assert sampled is not None
    assert int(sampled[1].replace(",", "")) < 1_000
    path = program.folder / "all.py"
    terminal = Terminal(program, "infer", program.url, "--all", "--wait", "0s", "--output", str(path), columns=120)
    assert terminal.wait() == 0
    assert "1,500 keys, 1,500 read" in path.read_text()
    assert "reading" in terminal.said
    assert "1,500 keys" in terminal.said
    assert "wrote " in terminal.said


OTHER = """
from keystead import Keyspace, Value, after

class OtherKeys(Keyspace):
    x = Value("x", str, lifetime=after("1s"), doc="x")
"""


def test_show_doctor_and_infer_group_the_same_keys_alike(program: Program) -> None:
    program.write(*shop(), *[("SET", f"day.2026-02-{day:02}", "x") for day in range(1, 29)])
    (program.folder / "other.py").write_text(OTHER)
    shown = json.loads(program.keystead("show", "--keyspace", "other", "--json").stdout)["unknown"]["shapes"]
    examined = json.loads(program.keystead("doctor", "other", "--json").stdout)["unknown"]
    assert shown == examined
    found = re.findall(r"# \w+: (\d+) keys?, .*\n(?: +#.*\n)* +\w+ = \w+\(\n +\"(.*)\"", drafted(program))
    inferred = {re.sub(r"\{\w+:", "{", pattern): int(count) for count, pattern in found}
    assert inferred.pop("orders") == 1  # which fits a family of the session data kit, too, so it is not unknown
    assert inferred == {one["shape"]: one["count"] for one in examined}
    assert inferred["account:{int}"] == 60
    assert inferred["day.{date}"] == 28


def test_hostile_keys_and_values_put_no_code_into_the_draft(program: Program) -> None:
    hostile = '");import os;os.abort()#\n"""'
    names = [hostile, f"a:{hostile}", "class:1", "x:{y}:1", f"h:{'z' * 5000}"]
    program.write(
        *[("SET", name, json.dumps({hostile: 1, "class": 2, "__init__": 3, "model_x": 4})) for name in names],
        *[("HSET", f"hash:{number}", hostile, 1, "int", 2, "str", hostile) for number in range(9)],
    )
    keyspace = imported(drafted(program), program.folder)
    assert check([keyspace]) == []
    assert program.keystead("doctor", "drafted_keys").returncode in (0, 1)


DOCUMENT = """# Keys

| Key | Type | TTL | Notes |
|---|---|---|---|
| `login:{login_id}` | string | 30m | JSON `{ account: number }` |
| `account:{id}` | string | none | the account |
| `basket:<id>` | whatever | soon | the basket |
"""


def test_a_document_is_drafted_compared_and_what_is_not_understood_is_reported_by_line(program: Program) -> None:
    document, path = program.folder / "keys.md", program.folder / "drafted.py"
    document.write_text(DOCUMENT)
    written = program.keystead("infer", "--document", str(document), "--output", str(path))
    assert written.returncode == 0
    assert f"wrote {path}: 3 families from {document}" in written.stdout
    assert written.stderr.splitlines() == [
        f"{document}:7: the kind of basket:<id> is not stated; a Value was assumed",
        f"{document}:7: the lifetime of basket:<id> is not understood: soon",
        f"{document}:7: unknown kind: whatever",
    ]
    assert "# sure: line 5: `login:{login_id}`" in path.read_text()
    assert program.keystead("check", "drafted").returncode == 0
    same = program.keystead("infer", "--document", str(document), "--diff", str(path))
    assert (same.returncode, same.stdout) == (0, "")
    document.write_text(DOCUMENT.replace("30m", "none") + "| `order:{id}` | hash | 1d | an order |\n")
    changed = program.keystead("infer", "--document", str(document), "--diff", str(path))
    assert changed.returncode == 1
    assert [line.split(":")[0] for line in changed.stdout.splitlines()] == ["~ AppKeys.login", "+ order"]


def test_the_draft_of_a_document_can_be_compared_with_the_live_store(program: Program) -> None:
    program.write(*shop(30))
    document, path = program.folder / "keys.md", program.folder / "drafted.py"
    document.write_text(DOCUMENT)
    assert program.keystead("infer", "--document", str(document), "--output", str(path)).returncode == 0
    compared = program.keystead("infer", program.url, "--wait", "0s", "--diff", str(path))
    assert [line.split(":")[0] for line in compared.stdout.splitlines()] == [
        "+ latest",
        "+ order",
        "+ orders",
        "+ visits",
    ]


def test_usage_errors_of_infer_are_one_line(program: Program) -> None:
    document = program.folder / "keys.md"
    assert_one_sentence(program.keystead("infer"), 2, "name a store or a document")
    assert_one_sentence(program.keystead("infer", program.url, "--document", str(document)), 2, "name a store or a")
    assert_one_sentence(program.keystead("infer", "--document", str(document)), 2, "cannot be read", "No such file")
    document.write_bytes(b"\xff\xfe")
    assert_one_sentence(program.keystead("infer", "--document", str(document)), 2, "not UTF-8")
    document.write_text("# Nothing here")
    assert_one_sentence(program.keystead("infer", "--document", str(document)), 1, "describes no keys")


HOSTILE = ("\x1b[31mred\x1b[0m", "line\nbreak", "\u202egnp.exe", "bell\x07", "\x9b31m", "back\x08\x08", "\r", "tab\t")


def test_control_characters_of_keys_reach_neither_a_terminal_nor_a_file(program: Program) -> None:
    """Neither from a store nor from a document, in any command that names foreign keys."""
    program.write(
        *[("SET", f"{text}:{number}", "x") for text in HOSTILE for number in range(30)],
        *[("SET", f"lock:{text}", text, "PX", 3_600_000) for text in HOSTILE],
        *[("HSET", f"h{text}:{number}", text, text) for text in HOSTILE for number in range(3)],
    )
    path = program.folder / "keys.md"
    path.write_text("| Key | Type | TTL |\n|--|--|--|\n" + "".join(f"| `{t}:{{id}}` | {t} | {t} |\n" for t in HOSTILE))
    empty = program.folder / "other.py"
    empty.write_text(OTHER)
    for command in (
        ("infer", program.url, "--wait", "0s"),
        ("infer", program.url, "--wait", "0s", "--diff", str(empty)),
        ("infer", "--document", str(path)),
        ("doctor", "myapp.keys"),
        ("show", "--keyspace", "myapp.keys"),
    ):
        shown = program.keystead(*command)
        strange = {one for one in shown.stdout + shown.stderr if not one.isprintable()} - {"\n"}
        assert strange == set(), (command, strange)
        assert "gnp.exe" not in shown.stdout or "\\u202egnp.exe" in shown.stdout, command
