"""Access to the provider for applications: token exchanges, and the membership of a provider access token."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from keystead.errors import KeysteadError, StoreError
from keystead.kits.kit import Site, StandIn
from keystead.kits.membership.models import ParsedMembership
from keystead.kits.membership.service.outcomes import MembershipRefused, token_expired
from keystead.kits.membership.service.patreon import Patreon, TokenRejected, code_form
from keystead.kits.membership.service.settings import PATREON, MembershipSettings
from keystead.parts.cache import TryLater
from keystead.parts.oauth import Provider, ProviderRefused

_log = logging.getLogger("keystead.membership")

_BEARER: Final = re.compile(r"[A-Za-z0-9._~+/-]{1,2048}=*", re.ASCII)
_TRY_AGAIN_S: Final = 5
TRY_PATH: Final = "/membership/try"
_UNSET: Final = {"client_id": "unset", "client_secret": "unset"}


class ProviderAccess:
    """Exchanges codes and tokens at the provider. It stores nothing.

    stand_in   replaces the provider in development while no client is configured; None: the provider itself is used
    """

    def __init__(self, settings: MembershipSettings, site: Site, patreon: Patreon) -> None:
        self._settings = settings
        self._site = site
        self._patreon = patreon
        self.stand_in = _find_stand_in(settings, site)

    async def exchange_code(self, code: str, redirect_uri: str, verifier: str | None = None) -> dict[str, Any]:
        """Exchange a code for the provider's tokens, for an application that stores them itself. Starts no session."""
        self.check_sign_in(redirect_uri)
        with refuse_failures("TOKEN_EXCHANGE_FAILED", "the code could not be exchanged; sign in again"):
            return await self._patreon.raw_tokens(code_form(code, redirect_uri, verifier))

    async def exchange_refresh_token(self, refresh_token: str) -> dict[str, Any]:
        """Exchange a refresh token of the provider for new tokens, for the same application."""
        self.check_sign_in(None)
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        with refuse_failures("TOKEN_EXCHANGE_FAILED", "the refresh token could not be exchanged; sign in again"):
            return await self._patreon.raw_tokens(form)

    async def membership_by(self, access_token: str) -> ParsedMembership:
        """The membership of the owner of a provider access token. Not cached."""
        self.check_sign_in(None)
        if not _BEARER.fullmatch(access_token):
            raise token_expired()
        with refuse_failures("IDENTITY_FETCH_FAILED", "the provider did not identify the user; sign in again"):
            try:
                return await self._patreon.membership(access_token, self._settings.campaign)
            except TokenRejected:
                raise token_expired() from None

    def check_sign_in(self, redirect_uri: str | None) -> None:
        """Raises MembershipRefused if the redirect URI is not allowed, or sign-in is not configured."""
        if redirect_uri is not None and not self._may_return_to(redirect_uri):
            raise MembershipRefused("INVALID_REDIRECT_URI", "this redirect_uri is not allowed; see redirect_uris")
        if not self._settings.client_id and self.stand_in is None:
            raise MembershipRefused(
                "CONFIG_ERROR",
                "sign-in is not configured: set PATREON_CLIENT_ID and PATREON_CLIENT_SECRET, and restart",
            )

    def _may_return_to(self, uri: str) -> bool:
        """Whether a URI is exactly one of `redirect_uris`. An empty list allows none, or any in development.

        The try page is always allowed while there is a stand-in.
        """
        if self.stand_in is not None and uri == f"{self._site.public_url}{TRY_PATH}":
            return True
        if not self._settings.redirect_uris:
            return self._site.development
        return uri in self._settings.redirect_uris


@contextmanager
def refuse_failures(reason: str, sentence: str) -> Iterator[None]:
    """Turn provider errors into refusals, without the provider's own message."""
    try:
        yield
    except ProviderRefused as error:
        _log.info("membership: %s", error)
        raise MembershipRefused(reason, sentence) from None
    except KeysteadError as error:
        if isinstance(error, StoreError | MembershipRefused):
            raise
        _log.warning("membership: provider request failed: %s", error.code)
        wait_s = -(-error.after_ms // 1000) if isinstance(error, TryLater) else _TRY_AGAIN_S
        raise MembershipRefused(
            "PROVIDER_UNAVAILABLE", "the provider did not answer correctly; try again", retry_after_s=wait_s
        ) from None


def _find_stand_in(settings: MembershipSettings, site: Site) -> StandIn | None:
    return None if settings.client_id else site.stand_ins.get(PATREON.name)


def provider_of(settings: MembershipSettings, site: Site) -> Provider:
    """The provider to call: the configured one, or its stand-in."""
    stand_in = _find_stand_in(settings, site)
    if stand_in is not None:
        return stand_in.provider
    # In development the kit starts without a client. Sign-ins are refused then, so the provider is never called.
    return settings.provider if settings.client_id else settings.provider.configured(**_UNSET)
