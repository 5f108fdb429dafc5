"""Text of a stranger, as it may be kept and shown: on one line, and nothing in it that a terminal obeys."""

from __future__ import annotations

import unicodedata


def visible(text: str, longest: int) -> str:
    """The text on one line, with what cannot be seen written out, and no longer than this. UTF-8 can hold it."""
    seen = "".join(
        character if character.isprintable() or unicodedata.category(character) == "Zs" else _written_out(character)
        for character in text[: longest + 1]
    )
    return seen if len(seen) <= longest else f"{seen[: longest - 1]}…"


def _written_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
