"""How a command that takes long keeps out of the way of the application on the same machine."""

import os
from contextlib import suppress
from typing import Final

_NICER_BY: Final = 10


def step_back() -> None:
    """Let other processes go first where there are more of them than processors. Windows has no such call."""
    with suppress(AttributeError, OSError):
        os.nice(_NICER_BY)
