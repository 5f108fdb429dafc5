"""What holds for the project as a whole: its pins, its texts, its examples."""

import ast
import asyncio
import inspect
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from functools import cache
from pathlib import Path

import pytest

import keystead
from keystead import wait
from keystead.stores import open_stores

ROOT = Path(__file__).parents[1]
REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))

# Spelled in pieces, so that this file does not name them either.
HOSTS = [
    ".".join(pieces) for pieces in (("files", "pythonhosted", "org"), ("pypi", "org"), ("registry", "npmjs", "org"))
]
MACHINE_PATHS = [
    "/" + "/".join(pieces) for pieces in (("home", ""), ("root", ""), ("work", ""), ("opt", ""), ("Users", ""))
]
TEXT_SUFFIXES = {
    "",
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".sh",
    ".html",
    ".css",
    ".svg",
    ".lua",
    ".json",
    ".js",
    ".yml",
    ".cfg",
}


def committed_files() -> list[Path]:
    """The files git tracks or would take: what is ignored is not part of the project."""
    if not (ROOT / ".git").exists():  # a source archive
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not path.relative_to(ROOT).parts[0].startswith(".venv")
        ]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@cache
def text_lines() -> list[tuple[str, int, str]]:
    return [
        (str(path.relative_to(ROOT)), number, line)
        for path in committed_files()
        if path.suffix in TEXT_SUFFIXES
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]


def test_no_file_names_a_download_host() -> None:
    assert [line for line in text_lines() if any(host in line[2] for host in HOSTS)] == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    pattern = re.compile(r"(?<![\w.:/*-])(" + "|".join(map(re.escape, MACHINE_PATHS)) + r")\w")
    assert [line for line in text_lines() if pattern.search(line[2])] == []


def test_the_version_is_the_same_everywhere() -> None:
    """It is in `keystead` only; the images repeat it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    images = [
        found
        for path in (ROOT / "deploy").iterdir()
        for found in re.findall(r"\bkeystead:(\d[\w.]*)", path.read_text())
    ]
    assert images == [keystead.__version__] * 3
    newest = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert newest[0] in (keystead.__version__, "Unreleased")
    assert newest[0] == "Unreleased" or re.fullmatch(r" - \d{4}-\d\d-\d\d", newest[1])
    is_beta = "Development Status :: 4 - Beta" in project["classifiers"]
    assert is_beta == bool(re.search("rc|b", keystead.__version__))


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_with_hashes_and_names_no_place(path: Path) -> None:
    entries = path.read_text().replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
        assert "://" not in entry
        assert " @ " not in entry


def test_the_development_pins_agree_with_the_pins_that_users_run() -> None:
    def pins(name: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    assert pins("run.txt").items() <= pins("dev.txt").items()


def code_blocks() -> list[tuple[str, str]]:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", match.group(1))
        for path in documents
        for text in [path.read_text()]
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def test_the_first_keyspace_of_the_readme_takes_ten_lines() -> None:
    first = next(code for place, code in code_blocks() if place.startswith("README.md"))
    declared = first[: first.index("if __name__")].strip().splitlines()
    assert any(line.startswith("class ") and "Keyspace" in line for line in declared)
    assert len(declared) <= 10


@pytest.mark.parametrize(("place", "code"), [pytest.param(*block, id=block[0]) for block in code_blocks()])
def test_every_python_example_in_the_documents_runs(
    place: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, object] = {"__name__": "__main__"}
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        exec(compiled, names)
        wait(open_stores._close_before_exit())  # as when a program ends


def test_make_alone_says_what_can_be_done() -> None:
    said = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(f"make {name} " in said.stdout for name in ("serve", "test", "check", "bench", "lock", "clean"))


def test_a_python_that_is_too_old_is_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.18" && exit 0\nexit 1\n')
    old.chmod(0o755)
    result = subprocess.run(
        [ROOT / "scripts" / "venv.sh", tmp_path / "venv", "requirements/run.txt"],
        env={**os.environ, "PYTHON": str(old)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"keystead: '{old}' is Python 3.9.18, but Keystead needs Python 3.11 or newer")
    assert len(result.stderr.splitlines()) == 1


FAKE_PYTHON = """\
#!/bin/bash
case "$*" in
    --version) echo "Python 3.12.1" ;;
    "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip "*) echo "WARNING: noise of pip" >&2 && echo "Collecting noise" && exit {code} ;;
esac
"""


@pytest.mark.parametrize("code", [0, 1])
def test_setting_up_shows_what_pip_says_only_when_it_fails(tmp_path: Path, code: int) -> None:
    python, folder = tmp_path / "python", tmp_path / "made here"
    python.write_text(FAKE_PYTHON.format(code=code))
    python.chmod(0o755)
    result = subprocess.run(
        [ROOT / "scripts" / "venv.sh", folder, "requirements/run.txt"],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code
    assert result.stdout.startswith(f"Setting up {folder} with Python 3.12.1")
    assert "noise" not in result.stdout
    if code == 0:
        assert result.stderr == ""
        assert result.stdout.endswith(f"Installing Keystead into {folder}\n")
    else:
        *said, sentence = result.stderr.splitlines()
        assert sorted(said) == ["Collecting noise", "WARNING: noise of pip"]
        assert sentence == (
            "keystead: the packages of requirements/run.txt could not be installed; the lines above say why."
        )


def test_the_wheel_carries_pages_and_types(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        env={**os.environ, "KEYSTEAD_REPOSITORY": "https://git.example/team/keystead/"},
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [message_from_bytes(archive.read(name)) for name in names if name.endswith("/METADATA")]
    assert metadata["Version"] == keystead.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    urls = dict(one.split(", ", 1) for one in metadata.get_all("Project-URL", []))
    assert urls.keys() == {"Homepage", "Documentation", "Changelog", "Issues", "Security"}
    assert all((ROOT / url.partition("/HEAD/")[2]).is_file() for url in urls.values() if "/HEAD/" in url)
    classifiers = metadata.get_all("Classifier", [])
    for integration in (ROOT / "src/keystead/integrations").iterdir():
        if integration.name in ("django", "flask"):
            assert f"Framework :: {integration.name.title()}" in classifiers
    pythons = {f"3.{one}" for one in re.findall(r"Python :: 3\.(\d+)", "\n".join(classifiers))}
    supported = re.search(r"Python (3\.\d+) to 3\.(\d+)", (ROOT / "docs/versioning.md").read_text())
    assert supported
    assert metadata["Requires-Python"] == f">={supported[1]}"
    assert pythons == {f"3.{minor}" for minor in range(11, int(supported[2]) + 1)}
    assert {
        "keystead/py.typed",
        "keystead/server/pages/reference.html",
        "keystead/server/pages/start.html",
        "keystead/server/pages/static/pages.css",
        "keystead/schema/docs/pages/document.html",
        "keystead/schema/docs/pages/base.css",
        "keystead/server/locale/ja.po",
        "keystead/schema/export/upstash_runtime.ts",
        "keystead/kits/widgets/components/visit.js",
        "keystead/kits/widgets/pages/gallery.html",
        "keystead/kits/widgets/assets/widgets.css",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


def test_the_reference_pages_are_what_the_code_says() -> None:
    checked = subprocess.run(
        [sys.executable, "scripts/reference.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def keystead_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run in the empty folder of the tests: in the checkout it would read the settings that lie there."""
    program = Path(sys.executable).with_name("keystead")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def test_the_key_documents_of_the_kits_are_what_the_code_says() -> None:
    checked = keystead_command("docs", "--out", str(ROOT / "docs" / "keys"), "--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_kits_have_no_findings() -> None:
    checked = keystead_command("check")
    assert checked.returncode == 0, checked.stdout
