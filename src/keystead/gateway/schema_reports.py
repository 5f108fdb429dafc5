"""Findings of the write guard: counted, and logged without flooding the log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from keystead.schema.finding import Finding

_log = logging.getLogger("keystead.gateway")


class SchemaReports:
    """Counts findings by code and family. The 1st, 10th, 100th … of each is logged, without the key.

    `count` gets the code of each, for metrics.
    """

    def __init__(self, count: Callable[[str], None] = lambda code: None) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._count = count

    def __call__(self, finding: Finding) -> None:
        place = finding.family or _without_values(finding.key or "")
        self.counts[finding.code, place] += 1
        self._count(finding.code)
        number = self.counts[finding.code, place]
        if _is_power_of_ten(number):
            _log.warning("a write does not fit the schema: %s in %s (%d so far)", finding.code, place, number)


def _without_values(key: str) -> str:
    """The first segment of a key of no family: the rest may be an id, or a secret."""
    first, colon, _ = key.partition(":")
    return f"{first}:…" if colon else "a key without a colon"


def _is_power_of_ten(number: int) -> bool:
    return str(number).rstrip("0") == "1"
