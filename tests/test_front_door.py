"""The README in three languages, and the tutorial."""

import os
import re
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
