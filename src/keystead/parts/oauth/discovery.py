"""OpenID Connect discovery: the endpoints of an issuer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from keystead.parts.oauth.fetch import Endpoints
from keystead.parts.oauth.oauth_errors import BadAnswer, BadProvider, WrongIssuer
from keystead.parts.oauth.provider import Provider, check_fetched, check_visited
from keystead.parts.oauth.shared_fetch import SharedCall

KEEP_MS: Final = 3_600_000


@dataclass(frozen=True)
class ProviderUrls:
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
        self._urls: ProviderUrls | None = None
        self._fetched_at_ms = 0
        self._fetching: SharedCall[ProviderUrls] = SharedCall()
        if not provider.needs_discovery:
            self._urls = self._combine({})

    async def urls(self) -> ProviderUrls:
        """No round trip, except for the first use and once an hour. Failures are not cached."""
        if self._urls is not None and not self._is_old():
            return self._urls
        return await self._fetching.join(self._fetch)

    async def _fetch(self) -> ProviderUrls:
        self._urls = self._combine(await self._metadata())
        self._fetched_at_ms = self._now_ms()
        return self._urls

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
                self._provider.name, f"the issuer in its discovery document is not that of the setting, {issuer}"
            )
        return metadata

    def _combine(self, metadata: dict[str, Any]) -> ProviderUrls:
        ours = self._provider

        def url_of(setting: str, given: str | None, name: str) -> str | None:
            url = given or metadata.get(name)
            if url is None:
                return None
            if not isinstance(url, str):
                raise BadAnswer(ours.name, f"the {name} of its discovery document is not a URL")
            check = check_visited if setting == "authorize_url" else check_fetched
            return check(ours.name, setting, url, development=self._development)

        return ProviderUrls(
            authorize_url=url_of("authorize_url", ours.authorize_url, "authorization_endpoint")
            or self._raise_missing("authorize_url"),
            token_url=url_of("token_url", ours.token_url, "token_endpoint") or self._raise_missing("token_url"),
            userinfo_url=url_of("userinfo_url", ours.userinfo_url, "userinfo_endpoint"),
            jwks_uri=url_of("jwks_uri", ours.jwks_uri, "jwks_uri")
            or (self._raise_missing("jwks_uri") if ours.issuer else None),
            revoke_url=url_of("revoke_url", ours.revoke_url, "revocation_endpoint"),
            callback_has_iss=ours.callback_has_iss
            or metadata.get("authorization_response_iss_parameter_supported") is True,
        )

    def _raise_missing(self, setting: str) -> str:
        raise BadProvider(self._provider.name, f"it has no {setting}; set it, or set an issuer with discovery")
