"""Sanitize untrusted text for logs and terminals: one line, control characters escaped."""

from __future__ import annotations

import unicodedata

from keystead.errors import KeysteadError


def visible(text: str, longest: int) -> str:
    """The text on one line, invisible characters escaped, cut to `longest`, and valid UTF-8."""
    seen = "".join(
        character if character.isprintable() or unicodedata.category(character) == "Zs" else _escape(character)
        for character in text[: longest + 1]
    )
    return seen if len(seen) <= longest else f"{seen[: longest - 1]}…"


def one_line(text: str, longest: int) -> str:
    """As `visible`, with each run of white space as one space."""
    return visible(" ".join(text.split()), longest)


def error_text(error: BaseException, longest: int) -> str:
    """The message of a Keystead error, otherwise the class name: the text of a foreign error may contain a secret."""
    return one_line(str(error) if isinstance(error, KeysteadError) else type(error).__name__, longest)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
