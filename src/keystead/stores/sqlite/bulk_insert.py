"""Insert many rows with few statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

_PARAMETERS: Final = 999  # the limit per statement in old versions of SQLite


def insert_rows(execute: Callable[[str, Sequence[Any]], Any], into: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert these rows. `into`: `INSERT INTO table (columns)`.

    Not `executemany`: it reacquires the GIL after each row, and waits for a busy event loop each time.
    """
    if not rows:
        return
    one = f"({','.join('?' * len(rows[0]))})"
    at_once = _PARAMETERS // len(rows[0])
    for at in range(0, len(rows), at_once):
        some = rows[at : at + at_once]
        execute(f"{into} VALUES {','.join([one] * len(some))}", list(chain.from_iterable(some)))
