"""The marker of generated files, which may be overwritten and should not be edited."""

from __future__ import annotations

_BEGINNING = "Made by `keystead docs` from "


def made_by(target: str) -> str:
    """The marker, for a comment in the first lines of a file. `target` names its source."""
    return f"{_BEGINNING}{target}. Change the declaration, not this file."


def is_made(text: str) -> bool:
    """Whether a text has the marker."""
    return _BEGINNING in text[:400]
