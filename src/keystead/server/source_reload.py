"""`keystead serve --reload`: renew the workers when the source of an imported module of the user changes."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from keystead.server.logs import SERVER

_POLL_EVERY_S: Final = 0.5


def reload_on_change(renew: Callable[[], object], stopped: threading.Event) -> None:
    """Call `renew` whenever a source file has changed, in a thread of its own, until `stopped` is set."""
    threading.Thread(target=_watch, args=(renew, stopped), name="keystead-reload", daemon=True).start()


def _watch(renew: Callable[[], object], stopped: threading.Event) -> None:
    before = _modified_at()
    while not stopped.wait(_POLL_EVERY_S):
        now = _modified_at()
        # A module that was imported since then has not changed.
        changed = sorted(path for path, when in before.items() if now.get(path) != when)
        before = now
        if changed:
            SERVER.info("%s changed: renewing the workers", ", ".join(Path(path).name for path in changed))
            renew()


def _modified_at() -> dict[str, int]:
    """When each source file was written, in nanoseconds; 0 for one that is gone."""
    files = {file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    return {file: _written_at(file) for file in files if not file.startswith(_INSTALLED)}


def _written_at(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return 0


# The interpreter, installed packages and Keystead itself. They change only with an upgrade.
_INSTALLED: Final = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[1]),
)
