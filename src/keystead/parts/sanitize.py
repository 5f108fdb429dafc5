"""Sanitize untrusted text for logs and terminals: one line, control characters escaped."""

from __future__ import annotations

import unicodedata


def visible(text: str, longest: int) -> str:
    """The text on one line, invisible characters escaped, cut to `longest`, and valid UTF-8."""
    seen = "".join(
        character if character.isprintable() or unicodedata.category(character) == "Zs" else _escape(character)
        for character in text[: longest + 1]
    )
    return seen if len(seen) <= longest else f"{seen[: longest - 1]}…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
