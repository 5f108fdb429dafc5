"""The README in three languages, and the tutorial."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import free_port, redis_serving

ROOT = Path(__file__).parents[1]
READMES = [ROOT / name for name in ("README.md", "README.ja.md", "README.ko.md")]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FIGURE = re.compile(r"\d+\.\d+")


def text_only(document: str) -> str:
    return _FENCE.sub("", document)


def table_shapes(document: str) -> list[int]:
    return [line.count("|") for line in text_only(document).splitlines() if line.startswith("|")]


def heading_levels(document: str) -> list[str]:
    return re.findall(r"^#+ ", text_only(document), re.MULTILINE)


def links(document: str) -> list[str]:
    """All but those to the other languages, in an order that does not depend on the language."""
    return sorted(link for link in _LINK.findall(document) if not link.startswith(("README", "docs/pictures")))


def test_the_readmes_have_the_same_headings_code_links_tables_and_figures() -> None:
    english, *others = (path.read_text() for path in READMES)
    for other in others:
        assert _FENCE.findall(other) == _FENCE.findall(english)
        assert heading_levels(other) == heading_levels(english)
        assert table_shapes(other) == table_shapes(english)
        assert sorted(_FIGURE.findall(text_only(other))) == sorted(_FIGURE.findall(text_only(english)))
        assert links(other) == links(english)


def test_every_figure_of_the_readme_is_in_the_benchmarks() -> None:
    comparison = READMES[0].read_text().partition("## Why not")[2].partition("## ")[0]
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    figures = set(_FIGURE.findall(comparison))
    assert len(figures) > 10
    assert [one for one in sorted(figures) if not re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.]\d)", measured)] == []


def test_the_example_of_the_readme_takes_at_most_fifteen_lines() -> None:
    [example] = [code for language, code in _FENCE.findall(READMES[0].read_text()) if language == "python"]
    assert len([line for line in example.splitlines() if line]) <= 15


def test_the_pictures_of_the_readme_differ_only_in_their_words() -> None:
    shapes = [
        re.findall(r"<(?:rect|path)[^>]*>", (ROOT / "docs" / "pictures" / name).read_text())
        for name in ("keystead.svg", "keystead.ja.svg", "keystead.ko.svg")
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    assert "prefers-color-scheme: dark" in (ROOT / "docs" / "pictures" / "keystead.svg").read_text()


TUTORIAL = ROOT / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def redis_port(tmp_path: Path) -> Iterator[int]:
    with redis_serving(tmp_path, "party") as (_, port):
        yield port


@pytest.mark.matrix
def test_every_step_of_the_tutorial_runs_as_printed(tmp_path: Path, redis_port: int) -> None:
    """With other ports, and the packages of this environment: an installation has its own test."""
    party = tmp_path / "party"
    path = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    ran = ""
    for language, name, block in _BLOCK.findall(TUTORIAL.read_text()):
        if language == "python":
            (party / name).write_text(block)
        elif language == "text":
            missing = [line for line in block.splitlines() if line not in ran.splitlines()]
            assert missing == [], ran
        else:
            script = re.sub(r"^(?:python3 -m venv|pip install) .*\n", "", block, flags=re.MULTILINE)
            script = script.replace("127.0.0.1:6379", f":party@127.0.0.1:{redis_port}")
            if "granian" in script:
                port = str(free_port())
                script = script.replace("--port 8000", f"--port {port}").replace(":8000/", f":{port}/") + "wait\n"
            folder = party if party.exists() else tmp_path
            done = subprocess.run(
                ["bash", "-e"], input=script, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            ran = done.stdout
    assert (party / "documents" / "party-keys.md").is_file()


@pytest.mark.matrix
def test_the_distributions_install_and_run_in_a_clean_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", tmp_path / "dist"], cwd=ROOT, check=True, capture_output=True
    )
    assert len(list((tmp_path / "dist").glob("*.tar.gz"))) == 1
    [wheel] = (tmp_path / "dist").glob("*.whl")
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[cli]"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    [example] = [code for language, code in _FENCE.findall(READMES[0].read_text()) if language == "python"]
    (tmp_path / "first.py").write_text(example)
    said = [
        subprocess.run([python, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for arguments in (["first.py"], ["-m", "keystead", "doctor", "first", "--store", "sqlite:///first.db"])
    ]
    assert said == ["{'laptop'}\nann None\n", "2 keys: no findings\n"]


@pytest.mark.matrix
def test_the_readme_leads_to_a_first_result_in_a_clean_home_with_three_commands(tmp_path: Path) -> None:
    """As printed, with nothing but Python: a copy of the sources, an empty home, and a new virtual environment."""
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).symlink_to(ROOT / name)
    blocks = _FENCE.findall(READMES[0].read_text())
    [example] = [code for language, code in blocks if language == "python"]
    (tmp_path / "first.py").write_text(example)
    start, look = [code for language, code in blocks if language == "sh" and "make" not in code]
    assert len(start.splitlines()) <= 5
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    environment = {**kept, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    script = start.replace("python3 ", f"{sys._base_executable} ")  # type: ignore[attr-defined]
    lasting = [line for line in look.splitlines() if line.split()[1] in ("watch", "console")]
    brief = [line for line in look.splitlines() if line not in lasting]
    ran = subprocess.run(
        ["bash", "-e"],
        input=script + "\n".join(brief),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = ran.stdout.splitlines()
    assert "{'laptop'}" in said
    assert "ann None" in said
    assert said[-1] == "2 keys: no findings"

    said_first = [
        first_line_of(f"source .venv-first/bin/activate; exec {line}", tmp_path, environment) for line in lasting
    ]
    assert [line.split()[0] for line in said_first] == ["watching", "Keystead"]


def first_line_of(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command that runs until Ctrl-C says first."""
    running = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env={**environment, "KEYSTEAD_PORT": str(free_port())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert running.stdout
    try:
        return running.stdout.readline()
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate()
