"""Rates as text: `10/minute`, `100 per 60s`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from keystead.errors import BadDeclaration
from keystead.schema.lifetime import duration_ms, in_words

MOST: Final = 1_000_000_000_000

_WRITTEN: Final = re.compile(r"\s*(\d[\d_,]*)\s*(?:/|\bper\b)\s*(.+?)\s*", re.IGNORECASE)
_WORDS: Final = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}
_SHORT: Final = {"s": "1s", "sec": "1s", "m": "1m", "min": "1m", "h": "1h", "d": "1d"}


@dataclass(frozen=True)
class Rate:
    """An amount per window. `Rate.of("10/minute")` parses one."""

    amount: int
    window_ms: int

    def __post_init__(self) -> None:
        if type(self.amount) is not int or not 1 <= self.amount <= MOST:
            raise BadDeclaration(f"a limit allows at least 1 and at most {MOST:,}, not {self.amount!r:.40}")
        if type(self.window_ms) is not int or self.window_ms < 1:
            raise BadDeclaration(f"the window of a limit has at least 1 ms, not {self.window_ms!r:.40}")

    @classmethod
    def of(cls, rate: str | Rate) -> Rate:
        """`10/minute`, `5 per second`, `100/15m`, `1000 per 1h 30m`. Raises BadDeclaration for anything else."""
        if isinstance(rate, Rate):
            return rate
        written = _WRITTEN.fullmatch(rate) if type(rate) is str else None
        if written is None:
            raise _no_rate(rate)
        amount, window = written.groups()
        unit = window.lower()
        window = _SHORT.get(unit) or _WORDS.get(unit.removesuffix("s")) or _counted(unit)
        try:
            ms = duration_ms(window, "a window")
        except BadDeclaration:
            raise _no_rate(rate) from None
        return cls(int(re.sub("[_,]", "", amount)), ms)

    def __str__(self) -> str:
        return f"{self.amount:,} in {in_words(self.window_ms)}"


def _counted(window: str) -> str:
    """`2 minutes` as `2 m`; anything else unchanged."""
    return re.sub(r"\b(second|minute|hour|day)s?\b", lambda word: word[1][0], window)


def _no_rate(rate: object) -> BadDeclaration:
    return BadDeclaration(f'a rate is a number and a time, such as "10/minute" or "100 per 60s", not {rate!r:.60}')
