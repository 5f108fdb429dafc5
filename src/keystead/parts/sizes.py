"""Parse sizes such as `1MB` or `64KiB`."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}


def size_bytes(given: object) -> int:
    """`1MB`, `64KiB` or `1000000`, in bytes. Raises ValueError for anything else, and for zero."""
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", given.strip().lower()) if isinstance(given, str) else None
    if found is None or found[2] not in _UNITS or int(found[1]) == 0:
        raise ValueError("no size")
    return int(found[1]) * _UNITS[found[2]]
