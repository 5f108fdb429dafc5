"""The operator who runs a command, and the audit log that records it."""

from __future__ import annotations

import getpass
import socket

from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.sessions import Act
from keystead.schema import Keyspace, Log


def operator() -> Act:
    """The account that runs this command, for the audit log."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # containers may run accounts without a name
        name = "unknown"
    return Act(who=f"operator:{name}", where=socket.gethostname())


def audit_of(keys: Keyspace) -> Audit | None:
    """The audit log of a keyspace; None if it has none."""
    for one in keys.bounds():
        if isinstance(one.family, Log) and one.family.item.type is AuditEntry and not one.family.pattern.names:
            return Audit(one())
    return None
