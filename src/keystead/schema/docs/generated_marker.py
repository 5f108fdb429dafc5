"""The mark of a file that was made: it may be replaced, and is not to be changed by hand."""

from __future__ import annotations

_BEGINNING = "Made by `keystead docs` from "


def made_by(target: str) -> str:
    """The mark, for a comment in the first lines of a file. `target` names what it was made from."""
    return f"{_BEGINNING}{target}. Change the declaration, not this file."


def is_made(text: str) -> bool:
    """Whether the text of a file has the mark."""
    return _BEGINNING in text[:400]
