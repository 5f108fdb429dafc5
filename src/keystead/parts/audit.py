"""Audit log: who did what, when and from where, with a bounded size. Never a secret."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from keystead.errors import BadValue
from keystead.parts.sanitize import visible
from keystead.schema import EpochMs, Keyspace, Log, OmittedIfNone, Operation
from keystead.schema.family import Bound
from keystead.schema.kinds import LogKey
from keystead.schema.times import deadline_ms, moment

__all__ = ["Audit", "AuditEntry", "audit_of", "is_audit_log"]

_EVENT = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_LONGEST_EVENT: Final = 64
_LONGEST: Final = {"who": 200, "what": 200, "where": 100, "why": 500}


class AuditEntry(BaseModel):
    """One action, done or refused. Unknown fields are left out of the stored JSON."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    at: EpochMs
    """when"""
    event: str
    """what happened, as a word that the application chooses: `link-issued`"""
    who: OmittedIfNone[str] = None
    """who did it: `user:42`, `clean-up`"""
    what: OmittedIfNone[str] = None
    """to what: a public id or a digest, never a secret"""
    where: OmittedIfNone[str] = None
    """from where: an address"""
    why: OmittedIfNone[str] = None
    """the reason, if there is one"""


class Audit:
    """An audit log: `Audit(keys.audit())`, where `audit` is a family `Log("audit:app", AuditEntry, keep=…)`.

    The family sets the size and the retention. During a store outage `note` raises the store's error. An entry in the
    same step as its action is written together with it, or neither is.
    """

    def __init__(self, log: LogKey[AuditEntry]) -> None:
        given: Any = log
        if not isinstance(given, LogKey) or given.bound.family.item.type is not AuditEntry:
            raise BadValue("Audit needs a key of a family Log(…, AuditEntry, …), as in Audit(keys.audit())")
        self._log = log

    def note(
        self,
        event: str,
        *,
        who: str = "",
        what: str = "",
        where: str = "",
        why: str = "",
        now: datetime | int | None = None,
    ) -> Operation[str]:
        """An operation that writes an entry; its result is the id of the entry. One round trip, atomic.

        Await it, or put it into `atomically` with the action it records: then both take effect, or neither. On a
        cluster an atomic step needs its keys in one slot; otherwise write the entry in a separate step.

        `what` is a public id or a digest: readers of the log must not be able to use it as a credential. Long texts are
        cut and control characters escaped, which prevents log injection. `now` is a datetime or in ms; by default the
        clock of the keyspace. Raises BadValue for an invalid event name.
        """
        if len(event) > _LONGEST_EVENT or not _EVENT.fullmatch(event):
            raise BadValue("an audit event is a name such as link-issued: lower-case letters, digits and hyphens")
        texts = {"who": who, "what": what, "where": where, "why": why}
        entry = AuditEntry(
            at=moment(self._log.bound.now_ms() if now is None else deadline_ms(now)),
            event=event,
            **{name: visible(text, _LONGEST[name]) for name, text in texts.items() if text},
        )
        return self._log.append(entry)

    def latest(self, limit: int) -> Operation[list[AuditEntry]]:
        """The newest entries, newest first. One round trip. Raises Unreadable if one of them cannot be read."""
        return self._log.newest(limit)


def audit_of(keys: Keyspace) -> Audit | None:
    """The audit log of a keyspace; None if it has none."""
    return next((Audit(one()) for one in keys.bounds() if is_audit_log(one) and not one.family.pattern.names), None)


def is_audit_log(bound: Bound[Any]) -> bool:
    """Whether the keys of this family are audit logs."""
    return isinstance(bound.family, Log) and bound.family.item.type is AuditEntry
