"""The examples of the start page, run as printed in a plain shell."""

import html
import re
import shlex
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.serving import Keystead, installed_keystead_serving, redis_serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with installed_keystead_serving(tmp_path_factory.mktemp("serving")) as running:
        yield running


def examples(server: Keystead) -> tuple[str, str, str]:
    """Those for a project, for one file, and for what comes after it."""
    page = httpx2.get(server.url, timeout=300).text
    found = re.findall(r'<pre class="copy".*?<code>(.*?)</code>', page, re.DOTALL)
    project, example, commands = map(html.unescape, found)
    return project, example, commands


def run_in_bash(folder: Path, script: str) -> str:
    """Run it as in a new terminal, without an activated environment or settings. Any failure ends it."""
    folder.mkdir(exist_ok=True)
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    ran = subprocess.run(
        ["bash", "--norc", "-e"],
        input=script,
        cwd=folder,
        env=plain,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    return ran.stdout


@pytest.fixture(scope="module")
def reader(server: Keystead, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the example was run."""
    folder = tmp_path_factory.mktemp("reader")
    assert run_in_bash(folder, examples(server)[1]) == "{'laptop'}\n"
    return folder


def test_the_commands_beside_the_example_run_as_printed_where_it_was_run(server: Keystead, reader: Path) -> None:
    said = run_in_bash(reader, examples(server)[2])
    assert "1 keyspace, 2 families: no findings" in said
    assert "# First keys" in said
    assert "2 keys in 2 of 2 families" in said
    assert said.endswith("2 keys: no findings\n")


@pytest.mark.usefixtures("reader")
def test_the_example_leaves_no_unknown_keys_in_the_server_store(server: Keystead) -> None:
    python = examples(server)[1].splitlines()[-1].removesuffix("first_steps.py")
    assert run_in_bash(server.folder, f"{python} -m keystead doctor").endswith(": no findings\n")


def test_the_project_is_written_as_printed(server: Keystead, tmp_path: Path) -> None:
    run_in_bash(tmp_path, examples(server)[0])
    assert (tmp_path / "my-project" / "README.md").is_file()


def test_the_example_declares_a_keyspace(server: Keystead) -> None:
    assert "(Keyspace):" in examples(server)[1]


def environment_like_this_one(folder: Path) -> Path:
    """The Python of a new virtual environment with the same packages."""
    venv.create(folder)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "same.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return folder / "bin" / "python"


@pytest.mark.matrix
def test_a_path_with_spaces_and_a_store_with_a_password_change_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    python = environment_like_this_one(folder / "an environment")
    with redis_serving(tmp_path, "correct-horse-battery") as (_, redis_port):
        store = f"redis://:correct-horse-battery@127.0.0.1:{redis_port}/0"
        with installed_keystead_serving(folder, "--kits", "", python=python, KEYSTEAD_STORE=store) as server:
            _, example, commands = examples(server)
    assert "correct-horse" not in example + commands
    assert shlex.split(example.splitlines()[-1]) == [str(python), "first_steps.py"]
    assert run_in_bash(tmp_path / "reader", example) == "{'laptop'}\n"
    assert run_in_bash(tmp_path / "reader", commands.splitlines()[-1]) == "2 keys: no findings\n"
