"""OpenID Connect discovery: the endpoints of an issuer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from keystead.parts.oauth.fetch import Endpoints
from keystead.parts.oauth.oauth_errors import BadAnswer, BadProvider, WrongIssuer
from keystead.parts.oauth.provider import Provider, check_fetched, check_visited
from keystead.parts.oauth.shared_fetch import Shared

KEEP_MS: Final = 3_600_000


@dataclass(frozen=True)
class Places:
    """The endpoints of a provider. Each URL was checked: no secret is sent in plain text."""

    authorize_url: str
    token_url: str
    userinfo_url: str | None
    jwks_uri: str | None
    revoke_url: str | None
    callback_has_iss: bool


class Discovery:
    """The endpoints of a provider, from its settings or else by discovery. Cached for an hour."""

    def __init__(
        self, provider: Provider, endpoints: Endpoints, now_ms: Callable[[], int], *, development: bool
    ) -> None:
        self._provider = provider
        self._endpoints = endpoints
        self._now_ms = now_ms
        self._development = development
        self._places: Places | None = None
        self._fetched_at_ms = 0
        self._fetching: Shared[Places] = Shared()
        if not provider.needs_discovery:
            self._places = self._combined({})

    async def places(self) -> Places:
        """No round trip, except for the first use and once an hour. Failures are not cached."""
        if self._places is not None and not self._is_old():
            return self._places
        return await self._fetching.join(self._fetched)

    async def _fetched(self) -> Places:
        self._places = self._combined(await self._metadata())
        self._fetched_at_ms = self._now_ms()
        return self._places

    def _is_old(self) -> bool:
        return self._provider.needs_discovery and self._now_ms() - self._fetched_at_ms >= KEEP_MS

    async def _metadata(self) -> dict[str, Any]:
        issuer = self._provider.issuer or ""
        check_fetched(self._provider.name, "issuer", issuer, development=self._development)
        if "?" in issuer:
            raise BadProvider(self._provider.name, "issuer must be a URL without a query")
        url = f"{issuer.removesuffix('/')}/.well-known/openid-configuration"
        metadata = await self._endpoints.get("discovery document", url)
        # An exact match: one slash more or less is another issuer (OpenID Connect Discovery 1.0, 4.3).
        if metadata.get("issuer") != issuer:
            raise WrongIssuer(
                self._provider.name, f"its discovery document names another issuer than the setting, {issuer}"
            )
        return metadata

    def _combined(self, metadata: dict[str, Any]) -> Places:
        ours = self._provider

        def place(setting: str, given: str | None, name: str) -> str | None:
            url = given or metadata.get(name)
            if url is None:
                return None
            if not isinstance(url, str):
                raise BadAnswer(ours.name, f"the {name} of its discovery document is not a URL")
            check = check_visited if setting == "authorize_url" else check_fetched
            return check(ours.name, setting, url, development=self._development)

        return Places(
            authorize_url=place("authorize_url", ours.authorize_url, "authorization_endpoint")
            or self._lacks("authorize_url"),
            token_url=place("token_url", ours.token_url, "token_endpoint") or self._lacks("token_url"),
            userinfo_url=place("userinfo_url", ours.userinfo_url, "userinfo_endpoint"),
            jwks_uri=place("jwks_uri", ours.jwks_uri, "jwks_uri") or (self._lacks("jwks_uri") if ours.issuer else None),
            revoke_url=place("revoke_url", ours.revoke_url, "revocation_endpoint"),
            callback_has_iss=ours.callback_has_iss
            or metadata.get("authorization_response_iss_parameter_supported") is True,
        )

    def _lacks(self, setting: str) -> str:
        raise BadProvider(self._provider.name, f"it has no {setting}; set it, or set an issuer that tells it")
