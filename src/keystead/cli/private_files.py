"""Files that a command makes, for their owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def private_files() -> Iterator[None]:
    """What is made meanwhile, such as a database, is for its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
