"""CPU priority of long-running commands."""

import os
from contextlib import suppress
from typing import Final

_NICER_BY: Final = 10


def lower_priority() -> None:
    """Yield the CPU to the application on the same machine. Windows has no such call."""
    with suppress(AttributeError, OSError):
        os.nice(_NICER_BY)
