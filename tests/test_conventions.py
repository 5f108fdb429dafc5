"""Rules over the whole source: each test lists all offenders at once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from complexipy import file_complexity

from keystead.kits import KITS

PACKAGE = Path(__file__).parents[1] / "src" / "keystead"
MODULES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE = 500
MOST_COMPLEX = 20


def is_of_a_kit(path: Path) -> bool:
    """Whether it is in `kits/NAME/`: kits all have the same shape, so their modules have the same names."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] == "kits" and len(parts) > 2


def place(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def shared(named: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in named.items() if len(places) > 1}


def test_outside_of_kits_no_two_modules_share_a_name() -> None:
    named = defaultdict(list)
    for path in MODULES:
        if not is_of_a_kit(path) and path.name not in ("__init__.py", "__main__.py"):
            named[path.name].append(place(path))
    assert shared(named) == {}


def test_outside_of_kits_no_two_public_classes_share_a_name() -> None:
    named = defaultdict(list)
    for path in MODULES:
        if not is_of_a_kit(path) and path.parent.name != "commands":  # Django wants the name `Command` there
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    named[node.name].append(place(path))
    assert shared(named) == {}


def test_the_server_names_no_kit() -> None:
    """A kit of others has the same means: what the server knows of a kit stands in its `Kit`."""
    names = re.compile(rf"(?:keystead\.kits\.)?(?:{'|'.join(KITS)})")
    offenders = []
    for path in (PACKAGE / "server").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            if names.fullmatch(path.stem):
                offenders.append(place(path))
            if path.suffix == ".py":
                offenders += [f"{place(path)}: {said}" for said in _said_in(path) if names.fullmatch(said)]
    assert offenders == []


def _said_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield ".".join(node.module.split(".")[:3])


def test_no_file_is_longer_than_it_can_be_read() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_no_function_is_too_complex() -> None:
    """Cognitive complexity: each branch counts one, and one more for each level that it is nested in."""
    found = {
        f"{place(path)}:{function.name}": function.complexity
        for path in MODULES
        for function in file_complexity(str(path)).functions
        if function.complexity > MOST_COMPLEX
    }
    assert found == {}
