"""Server-sent events, for a browser's EventSource."""

from __future__ import annotations

from typing import Final

_DIGITS_MAX: Final = 18

HEARTBEAT: Final = b": still here\n\n"


def event(kind: str, data: str, *, place: int | None = None) -> bytes:
    """One event. After a lost connection the browser sends the last `place` as `Last-Event-ID`."""
    lines = [f"event: {kind}", *(f"data: {line}" for line in data.split("\n"))]
    if place is not None:
        lines.insert(0, f"id: {place}")
    return ("\n".join(lines) + "\n\n").encode()


def heartbeat() -> bytes:
    """A comment that keeps the connection open through proxies, and detects lost clients."""
    return HEARTBEAT


def place_in(last_event_id: str | None) -> int | None:
    """The position in `Last-Event-ID`; None if it is missing or invalid."""
    text = (last_event_id or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None
