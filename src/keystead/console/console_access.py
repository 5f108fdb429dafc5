"""Who may use the console: one-time links, sessions, and what each role may do."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Final, get_args

from keystead.console.console_keys import ConsoleKeys, ConsoleLink, ConsoleSession, Role
from keystead.parts.audit import Audit
from keystead.parts.digest import digest
from keystead.parts.sanitize import visible
from keystead.parts.sessions import Act, Gone, Live, New, Policy, Sessions
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
        return await self._sessions.create(ConsoleSession(uid=link.who, role=link.role), Act(where=where))

    async def read(self, token: str | None) -> Live[ConsoleSession] | Gone:
        return Gone("unknown") if token is None else await self._sessions.read(token)

    async def leave(self, token: str, where: str) -> None:
        await self._sessions.revoke(token, Act(where=where))

    def is_fresh(self, live: Live[ConsoleSession]) -> bool:
        """Whether they came in a moment ago: acts on many keys need a new link otherwise (re-authentication)."""
        return moment(self._keys.now_ms()) - live.session.created_at <= _FRESH
