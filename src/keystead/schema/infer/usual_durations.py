"""Durations that people write as lifetimes."""

from __future__ import annotations

from typing import Final

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_USUAL: Final = (
    *(SECOND_MS * n for n in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(MINUTE_MS * n for n in (1, 2, 3, 5, 10, 15, 20, 30, 45)),
    *(HOUR_MS * n for n in (1, 2, 3, 4, 6, 8, 12, 18)),
    *(DAY_MS * n for n in (1, 2, 3, 5, 7, 10, 14, 21, 30, 31, 45, 60, 90, 120, 180, 270, 365, 400, 730, 1095, 1825)),
    DAY_MS * 3650,
)
_CLOCKS_MS: Final = 4_000  # less than the doctor allows


def usual_ms(ms: int) -> int:
    """The shortest usual duration that is not shorter, but for the clocks of programs and stores."""
    return next(
        (one for one in _USUAL if ms <= one + min(_CLOCKS_MS, one // 50)), -(-ms // (30 * DAY_MS)) * 30 * DAY_MS
    )
