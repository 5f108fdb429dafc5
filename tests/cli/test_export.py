"""`keystead export`, end to end, on a user program."""

import json
import subprocess
from pathlib import Path

import pytest

from keystead.cli.keyspace_arguments import NAMED
from tests import forking
from tests.serving import environment

PROGRAM = '''
from keystead.schema import Counter, Keyspace, Value, after
from pydantic import BaseModel

class User(BaseModel):
    name: str
    mail: str | None = None

class AppKeys(Keyspace):
    """Users."""

    user = Value("user:{uid:int}", User, lifetime=after("30d"), doc="who the user is")
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


def export(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forking.run(("export", *arguments), folder, environment())


def stdout_of(result: subprocess.CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_json_schema_is_printed(folder: Path) -> None:
    text = stdout_of(export(folder, "myapp.keys"))
    found = json.loads(text)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert list(found["keyspaces"]) == ["AppKeys", "TokenKeys"]
    assert found["keyspaces"]["AppKeys"]["families"]["user"]["value"] == {"$ref": "#/$defs/User"}
    assert found["$defs"]["User"]["required"] == ["name", "mail"]
    assert stdout_of(export(folder, "myapp.keys", "--json")) == text


def test_typescript_is_printed(folder: Path) -> None:
    text = stdout_of(export(folder, "myapp.keys:AppKeys", "--format", "typescript"))
    assert "export interface User {\n  name: string;\n  mail: string | null;\n}\n" in text
    assert "export type CountKey = `count:${string}`;" in text
    assert "TokenKey" not in text
    assert text.endswith("}\n")


def test_typescript_is_printed_as_json(folder: Path) -> None:
    text = stdout_of(export(folder, "myapp.keys:AppKeys", "--format", "typescript"))
    assert json.loads(stdout_of(export(folder, "myapp.keys:AppKeys", "--format", "typescript", "--json"))) == {
        "typescript": text
    }


def test_a_file_is_written_with_its_folder_and_only_if_it_changes(folder: Path) -> None:
    command = ("myapp.keys", "--format", "typescript", "--out", "web/src/keys.ts")
    assert stdout_of(export(folder, *command)) == "wrote web/src/keys.ts\n"
    written = (folder / "web" / "src" / "keys.ts").read_bytes()
    assert written.decode() == stdout_of(export(folder, "myapp.keys", "--format", "typescript"))
    assert b"\r" not in written
    assert stdout_of(export(folder, *command)) == "web/src/keys.ts is up to date\n"
    assert json.loads(stdout_of(export(folder, *command, "--json"))) == {"file": "web/src/keys.ts", "changed": False}


@pytest.mark.parametrize("form", ["json-schema", "typescript"])
def test_without_a_name_it_exports_the_kits_and_the_server(folder: Path, form: str) -> None:
    assert stdout_of(export(folder, "--format", form)) == stdout_of(export(folder, *NAMED, "--format", form))


def test_an_unwritable_file_is_a_one_line_error(folder: Path) -> None:
    result = export(folder, "myapp.keys", "--out", "myapp")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("keystead: cannot ")
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_name_or_format_is_a_usage_error(folder: Path) -> None:
    unknown = export(folder, "myapp.nothing")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr.startswith("keystead: ")
    assert export(folder, "myapp.keys", "--format", "rust").returncode == 2


def test_help_has_examples(folder: Path) -> None:
    said = stdout_of(export(folder, "--help"))
    assert "keystead export myapp.keys --format typescript --out web/src/keys.ts" in said
    assert "2^53" in said
    assert "<bool>" not in said


@pytest.mark.parametrize("form", ["typescript", "upstash", "json-schema"])
def test_the_format_may_be_the_first_argument(folder: Path, form: str) -> None:
    text = stdout_of(export(folder, "myapp.keys:AppKeys", "--format", form))
    assert stdout_of(export(folder, form, "myapp.keys:AppKeys")) == text
    assert stdout_of(export(folder, form, "myapp.keys:AppKeys", "--format", form)) == text
    assert stdout_of(export(folder, form)) == stdout_of(export(folder, "--format", form))


def test_two_formats_are_a_usage_error(folder: Path) -> None:
    refused = export(folder, "typescript", "myapp.keys", "--format", "upstash")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "two formats: typescript and upstash" in " ".join(refused.stderr.split())


def test_the_typed_client_is_a_module_over_the_client_of_upstash(folder: Path) -> None:
    text = stdout_of(export(folder, "upstash", "myapp.keys:AppKeys"))
    assert "from '@upstash/redis'" in text or 'from "@upstash/redis"' in text
    assert "export interface User {" in text
    shown = " ".join(stdout_of(export(folder, "--help")).split())
    assert "keystead export upstash myapp.keys --out web/src/keys.ts" in shown
