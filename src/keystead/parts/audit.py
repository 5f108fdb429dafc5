"""Audit: who did what, when and from where, in a capped log. Never the secret."""

from __future__ import annotations

from pydantic import BaseModel

from keystead.schema import EpochMs, OmittedIfNone, Operation
from keystead.schema.kinds import LogKey
from keystead.schema.times import moment


class AuditEntry(BaseModel):
    """One entry."""

    at: EpochMs
    event: str
    who: OmittedIfNone[str] = None
    what: OmittedIfNone[str] = None
    where: OmittedIfNone[str] = None
    why: OmittedIfNone[str] = None


class Audit:
    """An audit log."""

    def __init__(self, log: LogKey[AuditEntry]) -> None:
        self._log = log

    def note(self, event: str, *, who: str = "", what: str = "", where: str = "", why: str = "") -> Operation[str]:
        at = moment(self._log.bound.now_ms())
        entry = AuditEntry(
            at=at, event=event, who=who or None, what=what or None, where=where or None, why=why or None
        )
        return self._log.append(entry)
