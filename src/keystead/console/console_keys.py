"""The key document of the console: one-time links, the sessions of people who use it, and what they did."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from keystead.parts.audit import AuditEntry
from keystead.parts.sessions import SessionRecord
from keystead.schema import Keyspace, Log, Set, Value, after, never, sliding
from keystead.schema import link as relation

Role = Literal["viewer", "operator", "admin"]


class ConsoleLink(BaseModel):
    """A link that opens the console once."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    who: str
    """whom it is for, as the audit log names them: `operator:ann`"""
    role: Role
    """`viewer` reads; `operator` deletes, renews and edits single keys; `admin` erases people and repairs"""


class ConsoleSession(SessionRecord):
    """Somebody who uses the console. `uid` is their name, as in the audit log."""

    role: Role
    """what they may do"""


class ConsoleKeys(Keyspace):
    """The console: one-time links, sessions, and the audit log of everything that was done in it."""

    link = Value(
        "keystead:console:link:{digest:token}",
        ConsoleLink,
        lifetime=after("1h"),
        role="console",
        doc="A link that was printed and not opened yet. The key holds the digest of its secret. Consumed once.",
        used_by=("keystead serve", "keystead console", "POST /console/enter"),
    )
    session = Value(
        "keystead:console:session:{sid:token}",
        ConsoleSession,
        lifetime=sliding("1h", touch_every="1m"),
        role="console",
        listed_in=relation("sessions", admits=True),
        tag="sid",
        doc="A session of the console. The key holds the digest of its token.",
        used_by=("/console",),
    )
    sessions = Set(
        "keystead:console:sessions:{uid}",
        str,
        lifetime=sliding("1h", touch_every="1m"),
        role="console",
        doc="The live sessions of one person: each member is the `sid` of a session.",
        used_by=("/console",),
    )
    audit = Log(
        "keystead:console:audit",
        AuditEntry,
        keep=10_000,
        lifetime=never("bounded by `keep`"),
        role="console",
        doc="Who did what in the console. An entry is written before the act.",
        used_by=("/console/audit",),
    )
