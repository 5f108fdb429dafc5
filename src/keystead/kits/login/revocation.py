"""Token revocation (RFC 7009): when a session ends, the outbox has the provider's tokens revoked."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import DISCORD, Session, TokenRevocation
from keystead.parts.digest import digest
from keystead.parts.outbox import DeliveryFailed, Outbox, OutboxKeys, OutboxMessage, Undeliverable
from keystead.schema import Operation

if TYPE_CHECKING:
    from keystead.parts.oauth import Client

_log = logging.getLogger("keystead.login")

TOPIC: Final = "login-revoke"


class Revocations:
    """Revokes the tokens of ended sessions at their provider, and retries while the provider is down.

    clients              OAuth clients by provider name. Without them messages can only be added, for a server to send
    has_other_session    whether a user has another session with the same provider
    """

    def __init__(
        self,
        keys: LoginKeys,
        clients: Mapping[str, Client] | None = None,
        has_other_session: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._keys = keys
        self._clients = clients or {}
        self._has_other_session = has_other_session
        store = keys.revocation.store
        self.outbox: Final = Outbox(OutboxKeys(store, now_ms=keys.now_ms), self._send, topics=(TOPIC,))

    async def farewell(self, id: str, session: Session) -> Sequence[Operation[Any]]:
        """The operations that queue the revocation of a session's tokens, for the atomic step that ends the session."""
        record = TokenRevocation(
            uid=session.uid,
            access_token=session.access_token,
            refresh_token=session.refresh_token,
            provider=session.provider,
        )
        await self.outbox.announce(TOPIC, id)
        return [self._keys.revocation(id).set(record), *self.outbox.add(TOPIC, id, {})]

    async def revoke(self, session: Session) -> None:
        """Queue the revocation of tokens that never got into a session, or arrived after its end."""
        for operation in await self.farewell(digest(secrets.token_urlsafe(32)), session):
            await operation

    async def _send(self, message: OutboxMessage) -> None:
        key = self._keys.revocation(message.name)
        record = await key.get().if_readable()
        if record is None:
            raise Undeliverable("the tokens to revoke are no longer known")
        provider = record.provider or DISCORD
        client = self._clients.get(provider)
        if client is not None and not await self._is_still_needed(client, record):
            await self._revoke(client, record)
        await key.delete()

    async def _is_still_needed(self, client: Client, record: TokenRevocation) -> bool:
        """If one revocation ends all tokens of the user, only the end of their last session may revoke."""
        if not client.provider.revokes_grant or self._has_other_session is None:
            return False
        return await self._has_other_session(record.uid, client.provider.name)

    async def _revoke(self, client: Client, record: TokenRevocation) -> None:
        from keystead.parts.oauth import OAuthError, ProviderRefused

        try:
            if record.refresh_token and not await client.revoke(record.refresh_token, "refresh_token"):
                return  # this provider has no revocation endpoint
            await client.revoke(record.access_token, "access_token")
        except ProviderRefused as error:
            # A retry cannot succeed: the client has changed, or the provider does not revoke such tokens.
            _log.warning("login: %s", error)
        except OAuthError as error:
            raise DeliveryFailed(str(error)) from None
