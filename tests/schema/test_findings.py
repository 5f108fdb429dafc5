"""The catalogue of findings: it has every code that the source uses and no other, and each code has its test."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from keystead.schema.finding import CODES, Finding

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCHEMA = ROOT / "src" / "keystead" / "schema"
CATALOGUE = SCHEMA / "finding.py"
# Where the tests of a tool's codes are: files or folders with its name, such as `test_doctor_fix.py`.
TESTS = {
    tool: [path for path in sorted(HERE.rglob("*.py")) if tool in path.relative_to(HERE).as_posix()]
    for tool in ("check", "doctor")
}
SOURCES = [path for path in sorted((ROOT / "src" / "keystead").rglob("*.py")) if path != CATALOGUE]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), path.name)


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text in a piece of source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def texts_of(path: Path) -> frozenset[str]:
    return frozenset(texts(parsed(path)))


def makers(tree: ast.AST) -> set[str]:
    """The callables that create a finding or such an error: their classes, and functions that return one."""
    own = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and isinstance(node.returns, ast.Name)
        and node.returns.id in ("BadDeclaration", "Finding")
    }
    return own | {"BadDeclaration", "Finding"}


def codes_used(path: Path) -> set[str]:
    """The codes under which a file raises or reports something."""
    if not re.search("BadDeclaration|Finding", path.read_text()):  # most files; parsing them takes seconds
        return set()
    tree = parsed(path)
    named = makers(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            given = [*node.args, *(keyword.value for keyword in node.keywords)] if called in named else []
            found |= {one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)}
        elif isinstance(node, ast.FunctionDef) and node.name in named:
            found |= {text for default in node.args.defaults for text in texts(default)}
    return {text for text in found if re.fullmatch(r"[a-z]+(-[a-z]+)*", text)}


def test_the_search_for_codes_finds_those_that_are_known_to_be_there() -> None:
    assert {"bad-pattern", "ambiguous-pattern"} <= codes_used(SCHEMA / "pattern.py")
    assert "bad-lifetime" in codes_used(SCHEMA / "lifetime.py")
    assert {"overlap", "naming", "cross-slot"} <= codes_used(SCHEMA / "check.py")


def test_every_code_that_the_source_uses_is_in_the_catalogue() -> None:
    unknown = {str(path.relative_to(ROOT)): codes_used(path) - CODES.keys() for path in SOURCES}
    assert {path: codes for path, codes in unknown.items() if codes} == {}


def test_every_code_of_the_catalogue_is_used_in_the_source() -> None:
    # Not in all of the source: some errors of stores are called as the doctor's findings are.
    using = [path for path in SOURCES if path.is_relative_to(SCHEMA) or path.parent.name == "cli"]
    used = {text for path in using for text in texts_of(path)}
    assert CODES.keys() - used == set()


def test_every_code_has_a_test() -> None:
    tested = {tool: {text for path in paths for text in named_in_tests(path)} for tool, paths in TESTS.items()}
    assert {name: code.tool for name, code in CODES.items() if name not in tested[code.tool]} == {}


def named_in_tests(path: Path) -> set[str]:
    """The texts in the tests of a file and in the tables that they are given."""
    parts = [
        node
        for node in parsed(path).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"))
    ]
    return {text for part in parts for text in texts(part)}


def test_every_code_has_a_meaning_and_a_remedy() -> None:
    offenders = [
        name
        for name, code in CODES.items()
        if not all(vars(code).values())
        or not (code.meaning.endswith(".") and code.remedy.endswith("."))
        or code.title.endswith(".")
    ]
    assert offenders == []


def test_a_code_is_filed_under_its_own_name() -> None:
    assert [name for name, code in CODES.items() if code.name != name] == []


def test_a_finding_has_a_code_of_the_catalogue() -> None:
    with pytest.raises(KeyError, match="no-such-code"):
        Finding("no-such-code", "here", "wrong", "mend it")


def test_a_finding_has_all_its_texts_in_json() -> None:
    finding = Finding("overlap", "A.b (b:{x})", "it meets A.c", "rename it", family="A.b", key="b:1")
    assert finding.as_json() == {
        "code": "overlap",
        "severity": "error",
        "where": "A.b (b:{x})",
        "sentence": "it meets A.c",
        "remedy": "rename it",
        "family": "A.b",
        "key": "b:1",
        "link": "docs/reference/findings.md#overlap",
    }


def test_the_link_of_a_code_leads_to_its_heading() -> None:
    dead = []
    for name, code in CODES.items():
        file, _, anchor = code.link.partition("#")
        if f"\n### {anchor}\n" not in (ROOT / file).read_text():
            dead.append(name)
    assert dead == []
