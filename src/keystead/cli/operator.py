"""The operator who runs a command, for the audit log."""

from __future__ import annotations

import getpass
import socket

from keystead.parts.sessions import Act


def operator() -> Act:
    """The account that runs this command, for the audit log."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # containers may run accounts without a name
        name = "unknown"
    return Act(who=f"operator:{name}", where=socket.gethostname())
