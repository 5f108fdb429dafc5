"""Files that a command generates: written if they differ, or only compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from keystead.cli.exit import leave


def current(path: Path) -> str | None:
    """The text of a file, whatever ends its lines; None: there is none. Leaves where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return ""
    except OSError as error:
        leave(f"cannot read {path}: {error.strerror or error}")


def write(files: Mapping[Path, str]) -> list[Path]:
    """Write files, and their folders where there are none; returns those that changed. Leaves where one cannot be."""
    changed = [path for path, text in files.items() if current(path) != text]
    for path in changed:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8", newline="\n")
        except OSError as error:
            leave(f"cannot write {path}: {error.strerror or error}")
    return changed
