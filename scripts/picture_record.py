"""What the pictures in docs/pictures show: the pages they were taken of, and the files themselves.

Only `scripts/pictures.py` writes the record, when it has taken the pictures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import keystead

ROOT: Final = Path(__file__).parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
RECORD: Final = ROOT / "scripts" / "pictures.json"
# By the first word of a picture: the packages whose pages it shows, besides the frame of all pages.
PACKAGES: Final = {
    "console": ("console",),
    "membership": ("kits/membership", "demo"),
    "start": (),
    "teamwork": ("kits/teamwork",),
    "widgets": ("kits/widgets",),
}
_FRAME: Final = ("server",)
_SHOWN: Final = {".html", ".css", ".js", ".svg"}


def pages(group: str) -> str:
    """The digest of the version and of all templates, styles and scripts that make a group of pictures."""
    found = sha256(keystead.__version__.encode())
    for package in (*_FRAME, *PACKAGES[group]):
        for path in sorted((ROOT / "src" / "keystead" / package).rglob("*")):
            if path.suffix in _SHOWN:
                found.update(b"\0" + path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def files(group: str) -> dict[str, str]:
    """The digest of each picture of a group."""
    found = sorted(path for path in PICTURES.glob("*.png") if group_of(path) == group)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in found}


def group_of(path: Path) -> str:
    return path.stem.partition("-")[0]


def stale() -> Iterator[str]:
    """The groups of pictures that may show what is no longer there, or were not taken by the script."""
    known: dict[str, Any] = json.loads(RECORD.read_text())
    for group in PACKAGES:
        if known.get(group) != {"pages": pages(group), "files": files(group)}:
            yield group
