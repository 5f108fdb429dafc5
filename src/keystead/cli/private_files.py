"""File permissions: commands create files that only their owner can read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def private_files() -> Iterator[None]:
    """Files created in this block, such as a database, are readable only by their owner."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
