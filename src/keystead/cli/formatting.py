"""Text formatting shared by commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from keystead.cli.terminal_language import plural, say

if TYPE_CHECKING:
    from keystead.parts.apikeys import IssuedApiKey

_LONGEST = 500  # characters of a value


def json_text(data: Any, indent: int | None = None) -> str:
    """JSON with terminal control characters escaped, because people read it too."""
    text = json.dumps(data, indent=indent, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_json(data: Any) -> None:
    typer.echo(json_text(data, indent=2))


def rough_duration(ms: int) -> str:
    """The time in words, rounded down to days, hours, minutes or seconds. Three days are more telling than 70 hours."""
    if ms >= 3 * 86_400_000:
        return plural("{count} day", "{count} days", ms // 86_400_000)
    if ms >= 3 * 3_600_000:
        return plural("{count} hour", "{count} hours", ms // 3_600_000)
    if ms >= 3 * 60_000:
        return plural("{count} minute", "{count} minutes", ms // 60_000)
    return plural("{count} second", "{count} seconds", ms // 1_000) if ms >= 1_000 else say("less than a second")


def one_line(text: str) -> str:
    """Text with control characters escaped: keys and values of others, or a line of a file."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shorten(value: Any) -> str:
    """A value on one line, without control characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = one_line(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def print_issued(issued: IssuedApiKey, as_json: bool, revoke: str) -> None:
    """A new secret, and the command that revokes it."""
    if as_json:
        print_json(issued._asdict())
        return
    typer.echo(issued.token)
    typer.echo(say("It is shown only once. To revoke it: {command}", command=f"{revoke} {issued.id}"), err=True)
