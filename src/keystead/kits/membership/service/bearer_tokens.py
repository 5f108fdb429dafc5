"""Bearer tokens: parse access tokens and session tokens into user, session and refresh token chain."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple
from uuid import UUID

from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import RefreshTokenData
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.outcomes import CLIENT_ADDRESS, SessionRef, session_invalid
from keystead.kits.membership.service.tables import is_user
from keystead.parts.jwt import Access, AccessTokens

_security = logging.getLogger("keystead.security")

_CHAIN: Final = re.compile(r"[\w-]{43}", re.ASCII)


class BearerClaims(NamedTuple):
    """What a bearer token names. `chain` is the refresh token chain of an access token."""

    session: SessionRef
    chain: str | None


class BearerTokens:
    """Parses bearer tokens of both kinds. Raises MembershipRefused for all others."""

    def __init__(self, keys: MembershipKeys, devices: Devices, access: AccessTokens) -> None:
        self._keys = keys
        self._devices = devices
        self._access = access

    def read(self, bearer: str) -> BearerClaims:
        """Parse a bearer token of either kind. No round trip."""
        if bearer.count(".") == 1:
            session = self._devices.parse_token(bearer)
            if session is None:
                raise session_invalid()
            return BearerClaims(session, None)
        access = self._access.check(bearer)
        claimed = _read_claims(access) if isinstance(access, Access) else None
        if claimed is None:
            reason = "claims" if isinstance(access, Access) else access.reason
            level = logging.INFO if reason == "expired" else logging.WARNING  # expiry is normal, forgery is not
            event = {"event": "refused-token", "reason": reason, "client": CLIENT_ADDRESS.get()}
            _security.log(level, "membership: bearer token refused: %s", reason, extra=event)
            raise session_invalid()
        return claimed

    async def find(self, bearer: str) -> SessionRef:
        """The session of a bearer token. Refuses an access token whose refresh token chain has ended."""
        claimed = self.read(bearer)
        if claimed.chain is not None:
            record = await self._keys.refresh(claimed.chain).get().if_readable()
            if not is_alive(record, claimed.session):
                raise session_invalid()
        return claimed.session


def _read_claims(access: Access) -> BearerClaims | None:
    """The claims of an access token; None if our key signed it but it is not a token of this kit."""
    user, session_id, chain = (access.claims.get(name) for name in ("pid", "ses", "chn"))
    if not is_user(user) or not isinstance(session_id, str):
        return None
    if not isinstance(chain, str) or not _CHAIN.fullmatch(chain):
        return None
    try:
        UUID(access.sub)  # the id of a profile
        return BearerClaims(SessionRef(user, UUID(session_id)), chain)
    except ValueError:
        return None


def is_alive(record: RefreshTokenData | None, session: SessionRef) -> bool:
    """Whether a refresh token chain belongs to this session and has not ended."""
    return record is not None and not record.is_used and record.session_token == session.id
