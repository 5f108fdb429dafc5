"""Guess a lifetime from deadlines: none, fixed, until a field of the value, or sliding."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from keystead.schema.infer.evidence import Evidence
from keystead.schema.infer.usual_durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from keystead.schema.lifetime import After, Lifetime, in_words, never, sliding, until

_SAME_MS: Final = 2_500  # two moments that one write made
_USED_MS: Final = 10_000
_FEWEST: Final = 3
_KEPT_REASON: Final = "TODO: state what removes these keys; no deadline was seen"


def guess_lifetime(evidence: Evidence, time_fields: Mapping[str, str]) -> tuple[Lifetime, str]:
    """The lifetime, and why in a few words. `time_fields` are the fields that a deadline may be in, and their types."""
    seen, without = evidence.expiring, evidence.read - evidence.expiring
    odd = f"; {without} of {evidence.read} have no deadline" if without and seen else ""
    if seen * 2 <= evidence.read:
        odd = f"; {seen} of {evidence.read} have a deadline" if seen else ""
        return never(_KEPT_REASON), f"no deadline{odd}"
    longest_ms, longer = evidence.usual_ttl()
    odd += f"; {longer} of {seen} have more than {in_words(longest_ms)}" if longer else ""
    used = _is_renewed(evidence)
    if evidence.moved or used:
        why = f"{evidence.moved} deadlines moved between two looks" if evidence.moved else "use moves the deadline"
        return sliding(f"{longest_ms}ms", touch_every=f"{max(longest_ms // 60, 1)}ms"), f"sliding, {why}{odd}"
    field = _deadline_field(evidence, time_fields)
    if field is not None:
        unit = "s" if time_fields[field] == "EpochSeconds" else "ms"
        return until(field, unit=unit), f"the deadline is the field {field}{odd}"  # type: ignore[arg-type]
    return After(longest_ms), f"fixed, or not used in between; the longest TTL was {_rounded(evidence.longest_ms)}{odd}"


def _rounded(ms: int) -> str:
    """The duration in at most two units: `29 days 23 hours`."""
    unit = next(
        (unit for longest, unit in ((DAY_MS, HOUR_MS), (HOUR_MS, MINUTE_MS), (SECOND_MS, SECOND_MS)) if ms >= longest),
        1,
    )
    return in_words(ms // unit * unit) or "0 seconds"


def moment_ms(value: Any) -> int | None:
    """A stored moment in milliseconds; None if it is none."""
    if isinstance(value, int) and not isinstance(value, bool) and 1_000_000_000 <= value < 5_000_000_000_000:
        return value if value >= 100_000_000_000 else value * 1000
    if isinstance(value, str) and 20 <= len(value) <= 40 and value[10] == "T":
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1000)
        except (ValueError, OverflowError):
            return None
    return None


def _moments(evidence: Evidence) -> dict[str, list[int]]:
    """For each field that always holds a moment: how long before its deadline each value's is."""
    rows = [one for one in evidence.watched if one.left_ms >= 0 and isinstance(one.value, dict)]
    names = [name for name in (rows[0].value if rows else {}) if all(moment_ms(r.value.get(name)) for r in rows)]
    return {name: [row.deadline_ms - (moment_ms(row.value[name]) or 0) for row in rows] for name in names}


def _is_steady(left_ms: list[int]) -> bool:
    return max(left_ms) - min(left_ms) <= _SAME_MS


def _deadline_field(evidence: Evidence, time_fields: Mapping[str, str]) -> str | None:
    for name, left_ms in _moments(evidence).items():
        if name in time_fields and len(left_ms) >= _FEWEST and all(abs(one) <= _SAME_MS for one in left_ms):
            return name
    return None


def _is_renewed(evidence: Evidence) -> bool:
    """Whether deadlines follow a field such as `last_seen_at` and not an earlier one, such as `created_at`."""
    moments = _moments(evidence)
    for last, left_ms in moments.items():
        if len(left_ms) < _FEWEST or not _is_steady(left_ms) or min(left_ms) <= _USED_MS:
            continue
        for first, earlier_ms in moments.items():
            gaps = [earlier - later for earlier, later in zip(earlier_ms, left_ms, strict=True)]
            used = sum(gap > _USED_MS for gap in gaps)
            if first != last and min(gaps) >= 0 and used * 3 >= len(gaps) and not _is_steady(earlier_ms):
                return True
    return False
