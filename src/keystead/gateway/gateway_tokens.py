"""Tokens of the gateway: created, listed, revoked, and checked with every request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from time import monotonic
from typing import Final

from keystead.errors import BadValue
from keystead.gateway.gateway_keys import Access, GatewayKeys, GatewayToken
from keystead.gateway.permissions import Permission
from keystead.parts.apikeys import IssuedApiKey, SecretKeys
from keystead.parts.audit import Audit

# A revoked token is refused after at most this long: until then a gateway process may use what it has read before.
TOKEN_STALENESS_S: Final = 1.0


class GatewayTokens(SecretKeys[GatewayToken]):
    """The tokens in a store. Creation and revocation are audited."""

    def __init__(self, keys: GatewayKeys) -> None:
        super().__init__(keys.token, keys.tokens(), GatewayToken)
        self._audit = Audit(keys.audit())

    async def create(
        self,
        name: str,
        access: Access = "read",
        *,
        families: Sequence[str] = (),
        values: Mapping[str, str] | None = None,
        keys: Sequence[str] = (),
        by: str = "",
    ) -> IssuedApiKey:
        """A new token. Raises BadValue for limits that this access cannot have.

        families   the families it is limited to, such as `ShopKeys.cart`
        values     the values of placeholders in its keys, such as {"uid": "42"}
        keys       glob patterns that its keys must match
        by         who created it, for the audit log
        """
        if access in ("scripts", "admin") and (families or values or keys):
            raise BadValue(f"a token with access {access} cannot be limited: its commands can reach every key")
        issued = await self.issue_record(
            name,
            lambda name, made_ms, digest: GatewayToken(
                name=name,
                made_ms=made_ms,
                digest=digest,
                access=access,
                families=list(families),
                values=dict(values or {}),
                keys=list(keys),
            ),
        )
        await self._audit.note("token-created", who=by, what=issued.id, why=f"{access}: {name}")
        return issued

    async def revoke_token(self, token_id: str, by: str = "") -> bool:
        """Revoke a token for good. False: there is none with this id."""
        revoked = await self.revoke(token_id)
        if revoked:
            await self._audit.note("token-revoked", who=by, what=token_id)
        return revoked


class TokenCheck:
    """The permission of each token, read again when it is older than `TOKEN_STALENESS_S`.

    Unknown tokens are not remembered, so that guesses take no memory; each costs at most one read.
    """

    def __init__(self, tokens: GatewayTokens, permit: Callable[[str, GatewayToken], Permission]) -> None:
        self._tokens = tokens
        self._permit = permit
        self._known: dict[bytes, tuple[float, Permission]] = {}  # by digest

    async def permission(self, token: str) -> Permission | None:
        """What this token may do; None: it is unknown or revoked. Raises the store's error."""
        place = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(place)
        now = monotonic()
        if known is not None and now - known[0] < TOKEN_STALENESS_S:
            return known[1]
        found = await self._tokens.find(token)
        if found is None:
            self._known.pop(place, None)
            return None
        permission = self._permit(*found)
        self._known[place] = now, permission
        return permission
