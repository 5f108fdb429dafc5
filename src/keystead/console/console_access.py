"""Who may use the console: one-time links, sessions, and what each role may do."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Final, get_args

from keystead.console.console_keys import ConsoleKeys, ConsoleLink, ConsoleSession, Role
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.digest import digest
from keystead.parts.sanitize import visible
from keystead.parts.sessions import Act, Gone, Live, New, Policy, Sessions
from keystead.schema.kinds.log import LogEntry
from keystead.schema.times import moment

ROLES: Final[tuple[Role, ...]] = get_args(Role)  # each may do what those before it may
LINK_LIFETIME: Final = "1 hour"
_POLICY: Final = Policy(idle="1h", absolute="12h", cap=10)
_FRESH: Final = timedelta(minutes=15)
_SECRET_CHARS: Final = 43
_LONGEST_NAME: Final = 100


def allows(role: Role, needed: Role) -> bool:
    """Whether somebody with this role may do what needs another."""
    return ROLES.index(role) >= ROLES.index(needed)


class ConsoleAccess:
    """Links and sessions of the console. During an outage every method raises the store's error: nobody gets in."""

    def __init__(self, keys: ConsoleKeys) -> None:
        self._keys = keys
        self.audit = Audit(keys.audit())
        self._sessions = Sessions(keys.session, _POLICY, audit=self.audit)

    async def create_link(self, who: str, role: Role, where: str = "") -> str:
        """The secret of a new link, which opens the console once, within an hour. The store has only its digest."""
        secret = secrets.token_urlsafe(32)
        link = ConsoleLink(who=visible(who, _LONGEST_NAME), role=role)
        await self.audit.note("console-link-created", who=link.who, where=where, why=role)
        await self._keys.link(digest(secret)).add(link)
        return secret

    async def enter(self, secret: str, where: str) -> New[ConsoleSession] | None:
        """Exchange the secret of a link for a session. None: there is no such link, or it was used or has expired.

        The link is consumed in one atomic step: of several callers one gets a session.
        """
        if len(secret) != _SECRET_CHARS:
            return None
        link = await self._keys.link(digest(secret)).consume()
        if link is None:
            return None
        session = ConsoleSession(uid=link.who, role=link.role, proven_at=moment(self._keys.now_ms()))
        return await self._sessions.create(session, Act(session.uid, where))

    async def enter_signed_in(
        self, subject: str, role: Role, since: datetime | None, where: str
    ) -> New[ConsoleSession]:
        """A session for a signed-in user. `since`: when they signed in."""
        session = ConsoleSession(uid=subject, role=role, subject=subject, proven_at=since)
        return await self._sessions.create(session, Act(session.uid, where))

    async def read(self, token: str | None) -> Live[ConsoleSession] | Gone:
        return Gone("unknown") if token is None else await self._sessions.read(token)

    async def entries(self, limit: int, before: str | None) -> list[LogEntry[AuditEntry | None]]:
        """Entries of the audit log, newest first, or those before an id. Raises BadArgument for a wrong id."""
        return await self._keys.audit().see_latest(limit, before=before)

    async def leave(self, token: str, act: Act) -> None:
        await self._sessions.revoke(token, act)

    def is_fresh(self, live: Live[ConsoleSession]) -> bool:
        """Whether they proved who they are a moment ago: acts on many keys need that again (re-authentication)."""
        proven_at = live.session.proven_at
        return proven_at is not None and moment(self._keys.now_ms()) - proven_at <= _FRESH

    async def is_alive(self, session_id: str) -> bool:
        """Whether a session has not ended. It is not touched: work in the background keeps nobody signed in."""
        return bool(await self._keys.session(session_id).exists())
