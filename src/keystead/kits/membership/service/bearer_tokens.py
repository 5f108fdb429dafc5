"""Bearer tokens: which user, session and refresh token chain an access token or a session token names."""

from __future__ import annotations

import logging
import re
from typing import Final, NamedTuple
from uuid import UUID

from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import RefreshTokenData
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.outcomes import ASKING, Named, session_invalid
from keystead.kits.membership.service.tables import is_user
from keystead.parts.jwt import Access, AccessTokens

_security = logging.getLogger("keystead.security")

_CHAIN: Final = re.compile(r"[\w-]{43}", re.ASCII)


class Claimed(NamedTuple):
    """What a bearer token names. `chain` is that of the refresh tokens that an access token came with."""

    named: Named
    chain: str | None


class BearerTokens:
    """Reads bearer tokens of both kinds. Raises MembershipRefused for all others."""

    def __init__(self, keys: MembershipKeys, devices: Devices, access: AccessTokens) -> None:
        self._keys = keys
        self._devices = devices
        self._access = access

    def read(self, bearer: str) -> Claimed:
        """What a bearer token of either kind names, without a round trip."""
        if bearer.count(".") == 1:
            named = self._devices.named(bearer)
            if named is None:
                raise session_invalid()
            return Claimed(named, None)
        access = self._access.check(bearer)
        claimed = _read_claims(access) if isinstance(access, Access) else None
        if claimed is None:
            self._log_refusal("claims" if isinstance(access, Access) else access.reason)
            raise session_invalid()
        return claimed

    def _log_refusal(self, reason: str) -> None:
        """Log a refused token: a forged one as a warning, an expired one, which is normal, as info."""
        level = logging.INFO if reason == "expired" else logging.WARNING
        event = {"event": "refused-token", "reason": reason, "client": ASKING.get()}
        _security.log(level, "membership: a bearer token was refused: %s", reason, extra=event)

    async def find(self, bearer: str) -> Named:
        """What a bearer token names, unless it came with a chain of refresh tokens that has ended."""
        claimed = self.read(bearer)
        if claimed.chain is not None:
            record = await self._keys.refresh(claimed.chain).get().if_readable()
            if not is_alive(record, claimed.named):
                raise session_invalid()
        return claimed.named


def _read_claims(access: Access) -> Claimed | None:
    """What an access token names; None: it is signed by our key, and yet no token of this kit."""
    user, session, chain = (access.claims.get(name) for name in ("pid", "ses", "chn"))
    if not is_user(user) or not isinstance(session, str) or not isinstance(chain, str) or not _CHAIN.fullmatch(chain):
        return None
    try:
        UUID(access.sub)  # the id of a profile
        return Claimed(Named(user, UUID(session)), chain)
    except ValueError:
        return None


def is_alive(record: RefreshTokenData | None, named: Named) -> bool:
    """Whether a chain of refresh tokens is that of this session, and has not ended."""
    return record is not None and not record.is_used and record.session_token == named.session
