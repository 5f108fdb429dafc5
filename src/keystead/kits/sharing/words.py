"""Formats sizes and times for the pages. `sharing-words.js` must give the same results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from keystead.catalogue import Language

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")
_BYTES: Final[Mapping[Language, str]] = {"en": "bytes", "ja": "バイト", "ko": "바이트"}
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_LEAST: Final[Mapping[Language, str]] = {"en": "less than a minute", "ja": "1 分未満", "ko": "1분 미만"}
_TIMES: Final[Mapping[Language, tuple[str, str, str]]] = {
    "en": ("day", "hour", "minute"),
    "ja": ("日", "時間", "分"),
    "ko": ("일", "시간", "분"),
}
_WEEKDAYS: Final[Mapping[Language, str]] = {"ja": "月火水木金土日", "ko": "월화수목금토일"}


def size_in_words(size: int, language: Language = "en") -> str:
    """`1 byte`, `999 bytes`, `1.5 MB`, `120 MB`: in steps of 1000, like the settings."""
    if size == 1 and language == "en":
        return "1 byte"
    shown, unit = float(size), 0
    while unit < len(_UNITS) - 1 and (shown >= 999.5 if unit else shown >= 1000):
        shown, unit = shown / 1000, unit + 1
    digits = 1 if unit and shown < 99.95 else 0
    return f"{shown:.{digits}f}".removesuffix(".0") + f" {_UNITS[unit] if unit else _BYTES[language]}"


def left_in_words(ms: int, language: Language = "en") -> str:
    """`6 days 3 hours`, `3 hours 20 minutes`, `20 minutes`: a duration, in two units at most."""
    minutes = round(ms / _MINUTE_MS) * _MINUTE_MS
    if minutes <= 0:
        return _LEAST[language]
    rest = minutes if minutes < _DAY_MS else round(ms / _HOUR_MS) * _HOUR_MS
    parts = []
    for word, size_ms in zip(_TIMES[language], (_DAY_MS, _HOUR_MS, _MINUTE_MS), strict=True):
        count, rest = divmod(rest, size_ms)
        if count:
            parts.append(_amount(count, word, language))
    return " ".join(parts)


def _amount(count: int, word: str, language: Language) -> str:
    if language == "en":
        return f"{count} {word}" if count == 1 else f"{count} {word}s"
    return f"{count} {word}" if language == "ja" else f"{count}{word}"


def moment_in_words(at: datetime, language: Language = "en") -> str:
    """`Friday 20 November 2026 at 15:04 UTC`. The moment is in UTC."""
    if language == "en":
        return f"{at:%A} {at.day} {at:%B} {at.year} at {at:%H:%M} UTC"
    weekday = _WEEKDAYS[language][at.weekday()]
    if language == "ja":
        return f"{at.year}年{at.month}月{at.day}日({weekday}) {at:%H:%M} UTC"
    return f"{at.year}년 {at.month}월 {at.day}일({weekday}) {at:%H:%M} UTC"
