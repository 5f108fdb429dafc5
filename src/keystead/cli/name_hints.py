"""Names that people type: suggestions for near misses, and completions of keyspaces in a shell."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Final

from keystead.cli.terminal_language import say
from keystead.kits import KITS

_KEYSPACE: Final = re.compile(r"^class (\w+)\((?:\w+\.)*Keyspace\)", re.MULTILINE)
_FAMILY: Final = re.compile(
    r"^    (\w+) = (?:\w+\.)*(?:Value|Counter|Hash|Set|SortedSet|List|Log|Channel)\(", re.MULTILINE
)
_MOST_FILES: Final = 300  # that are looked at; a completion has to be there at once
_LONGEST: Final = 200_000  # bytes of a file
_SKIPPED: Final = ("build", "dist", "node_modules", "tests")


def did_you_mean(name: str, among: Iterable[str]) -> str:
    """`; did you mean doctor?`, or nothing if no name is near."""
    near = get_close_matches(name, list(among), 1)
    return say("; did you mean {name}?", name=near[0]) if near else ""


def modules_here() -> dict[str, list[str]]:
    """The modules below the working directory that declare keyspaces, with the names of these."""
    return _declared_here(_KEYSPACE)


def families_here() -> dict[str, str]:
    """The families that modules below the working directory declare, with the module of each."""
    return {name: module for module, names in _declared_here(_FAMILY).items() for name in names}


def _declared_here(names: re.Pattern[str]) -> dict[str, list[str]]:
    """What the modules below the working directory declare, of those that declare keyspaces.

    Nothing is imported: a completion must not run a program.
    """
    found = {}
    for path in islice(_python_files(Path(), 0), _MOST_FILES):
        try:
            text = path.read_text("utf-8") if path.stat().st_size < _LONGEST else ""
        except (OSError, UnicodeDecodeError):
            continue
        if _KEYSPACE.search(text):
            found[".".join(path.with_suffix("").parts)] = names.findall(text)
    return found


def _python_files(folder: Path, depth: int) -> Iterable[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    yield from (one for one in entries if one.suffix == ".py" and one.stem.isidentifier())
    for one in entries if depth < 3 else ():
        if one.is_dir() and one.name.isidentifier() and one.name not in _SKIPPED and not one.is_symlink():
            yield from _python_files(one, depth + 1)


def complete_keyspace(ctx: Any, incomplete: str) -> list[str]:
    """The kits, and the keyspaces of the modules below the working directory."""
    here = modules_here()
    names = [*KITS, "kits", *here, *(f"{module}:{name}" for module, names in here.items() for name in names)]
    return [one for one in names if one.startswith(incomplete)]


def complete_family(ctx: Any, incomplete: str) -> list[str]:
    """The families of the modules below the working directory."""
    return sorted(one for one in families_here() if one.startswith(incomplete))
