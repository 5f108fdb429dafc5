"""Text formatting shared by commands."""

import json
from typing import Any

import typer

_LONGEST = 500  # characters of a value


def pluralize(count: int, one: str, many: str = "") -> str:
    """`1 key`, `1,000 keys`"""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON with terminal control characters escaped, because people read it too."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_json(data: Any) -> None:
    typer.echo(json_text(data, indent=2))


def shorten(value: Any) -> str:
    """A value on one line, without control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"
