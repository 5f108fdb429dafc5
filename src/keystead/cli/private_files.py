"""Files that a command makes, for their owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def private_files() -> Iterator[None]:
    """Files created meanwhile, such as a database, are readable only by their owner."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
