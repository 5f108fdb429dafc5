"""Sizes and times as the pages say them. `sharing-words.js` says them in the same words."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from keystead.schema.lifetime import in_words

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS


def size_in_words(size: int) -> str:
    """`1 byte`, `999 bytes`, `1.5 MB`, `120 MB`: in steps of 1000, as sizes are set."""
    if size == 1:
        return "1 byte"
    shown, unit = float(size), 0
    while unit < len(_UNITS) - 1 and (shown >= 999.5 if unit else shown >= 1000):
        shown, unit = shown / 1000, unit + 1
    digits = 1 if unit and shown < 99.95 else 0
    return f"{shown:.{digits}f}".removesuffix(".0") + f" {_UNITS[unit]}"


def left_in_words(ms: int) -> str:
    """`6 days 3 hours`, `3 hours 20 minutes`, `20 minutes`: how long something still lasts, in two units at most."""
    minutes = round(ms / _MINUTE_MS) * _MINUTE_MS
    if minutes <= 0:
        return "less than a minute"
    return in_words(minutes if minutes < _DAY_MS else round(ms / _HOUR_MS) * _HOUR_MS)


def moment_in_words(at: datetime) -> str:
    """`Friday 20 November 2026 at 15:04 UTC`. The moment is in UTC."""
    return f"{at:%A} {at.day} {at:%B} {at.year} at {at:%H:%M} UTC"
