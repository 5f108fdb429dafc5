"""Generated files: read for comparison, and written if they differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from keystead.cli.exit import fail
from keystead.cli.terminal_language import say


def read(path: Path) -> str | None:
    """The text of a file with normalized line endings; None if it does not exist. Exits if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        fail(say("cannot read {path}: {reason}", path=path, reason=error.strerror or error))


def write(files: Mapping[Path, str]) -> list[Path]:
    """Write the files that differ, creating folders, and return them. Exits if one cannot be written."""
    changed = [path for path, text in files.items() if read(path) != text]
    for path in changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8", newline="\n")
        except OSError as error:
            fail(say("cannot write {path}: {reason}", path=path, reason=error.strerror or error))
    return changed
