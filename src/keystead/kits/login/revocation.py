"""The end of the provider's tokens: a session that ends has them revoked (RFC 7009), through the outbox."""

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
    """Has providers revoke the tokens of sessions that have ended, also while the provider is down.

    clients    whom to tell, by name. Without them messages can only be added; a server of the kit delivers them
    is_used    whether a user has another session with the same provider
    """

    def __init__(
        self,
        keys: LoginKeys,
        clients: Mapping[str, Client] | None = None,
        is_used: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._keys = keys
        self._clients = clients or {}
        self._is_used = is_used
        store = keys.revocation.store
        self.outbox: Final = Outbox(OutboxKeys(store, now_ms=keys.now_ms), self._send, topics=(TOPIC,))

    async def farewell(self, id: str, session: Session) -> Sequence[Operation[Any]]:
        """The operations by which the tokens of a session are revoked, for the step that ends it."""
        record = TokenRevocation(
            uid=session.uid,
            access_token=session.access_token,
            refresh_token=session.refresh_token,
            provider=session.provider,
        )
        await self.outbox.announce(TOPIC, id)
        return [self._keys.revocation(id).set(record), *self.outbox.add(TOPIC, id, {})]

    async def revoke(self, session: Session) -> None:
        """Have tokens revoked that never came into a session, or came too late for it."""
        for operation in await self.farewell(digest(secrets.token_urlsafe(32)), session):
            await operation

    async def _send(self, message: OutboxMessage) -> None:
        key = self._keys.revocation(message.name)
        record = await key.get().if_readable()
        if record is None:
            raise Undeliverable("the tokens to revoke are no longer known")
        provider = record.provider or DISCORD
        client = self._clients.get(provider)
        if client is not None and not await self._is_spared(client, record):
            await self._revoke(client, record)
        await key.delete()

    async def _is_spared(self, client: Client, record: TokenRevocation) -> bool:
        """Where one revocation ends all tokens of the user, those of the last session here are the ones to revoke."""
        if not client.provider.revokes_grant or self._is_used is None:
            return False
        return await self._is_used(record.uid, client.provider.name)

    async def _revoke(self, client: Client, record: TokenRevocation) -> None:
        from keystead.parts.oauth import OAuthError, ProviderRefused

        try:
            if record.refresh_token and not await client.revoke(record.refresh_token, "refresh_token"):
                return  # this provider has no endpoint for it
            await client.revoke(record.access_token, "access_token")
        except ProviderRefused as error:
            # Told again it would say the same: the client is another one by now, or it revokes no such tokens.
            _log.warning("login: %s", error)
        except OAuthError as error:
            raise DeliveryFailed(str(error)) from None
