"""The OAuth 2 and OpenID Connect client: from the authorize URL to the identity of the user."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit, urlunsplit

import httpx2

from keystead.parts.oauth.discovery import Discovery
from keystead.parts.oauth.fetch import Endpoints
from keystead.parts.oauth.id_token import IssuerKeys, verified_claims
from keystead.parts.oauth.oauth_errors import BadIdToken, BadProvider, WrongIssuer
from keystead.parts.oauth.provider import Provider
from keystead.parts.oauth.token_response import Identity, Tokens, identity_from, tokens_from
from keystead.schema.lifetime import duration_ms


class Client:
    """A client for one provider; it caches the provider's keys and endpoints.

    `http` is shared and stays open; nothing secret is in a URL that it fetches. `timeout` bounds each request as a
    whole. `development` allows http to this machine itself; without it every endpoint must be https (BadProvider).

    The caller keeps `state`, the verifier and the nonce, and uses each once.
    """

    def __init__(
        self,
        provider: Provider,
        http: httpx2.AsyncClient,
        now_ms: Callable[[], int],
        *,
        development: bool = False,
        timeout: str | timedelta = "10s",
    ) -> None:
        if provider.missing:
            raise BadProvider(provider.name, f"it needs {', '.join(provider.missing)}")
        self.provider = provider
        self._now_ms = now_ms
        self._endpoints = Endpoints(provider.name, http, duration_ms(timeout, "a timeout") / 1000)
        self._discovery = Discovery(provider, self._endpoints, now_ms, development=development)
        self._keys = IssuerKeys(provider.name, self._endpoints, now_ms)

    async def authorize_url(self, redirect_uri: str, state: str, challenge: str, nonce: str) -> str:
        """The URL to redirect the browser to. `challenge` is `challenge_of(verifier)`; plain OAuth 2 ignores the nonce.

        The first call may need discovery: one round trip.
        """
        urls = await self._discovery.urls()
        return _with_query(urls.authorize_url, self._authorization(redirect_uri, state, challenge, nonce))

    def app_authorize_url(self, redirect_uri: str, state: str, challenge: str, nonce: str) -> str | None:
        """The same for the provider's own app; None if it has no app."""
        if self.provider.app_authorize_url is None:
            return None
        parameters = self._authorization(redirect_uri, state, challenge, nonce)
        return _with_query(self.provider.app_authorize_url, parameters)

    async def check_issuer(self, iss: str | None) -> None:
        """Check the `iss` of a callback (RFC 9207). Raises WrongIssuer if the callback is from another provider.

        Call it before the code exchange, which would send the code of one provider to another. None is refused only if
        the provider declares that it always sends `iss`. A provider without issuer has nothing to compare: there, use a
        separate redirect URI for each provider.
        """
        if self.provider.issuer is None:
            return
        if iss is None:
            if (await self._discovery.urls()).callback_has_iss:
                raise WrongIssuer(self.provider.name, "the callback does not name its issuer")
        elif iss != self.provider.issuer:
            raise WrongIssuer(self.provider.name, "the callback comes from another issuer")

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Tokens:
        """Exchange a code for tokens. ProviderRefused: it is used, expired, or not ours. One round trip."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        return tokens_from(await self._request_tokens(form), self.provider, self._now_ms())

    async def refresh(self, refresh_token: str) -> Tokens:
        """New tokens for a refresh token. Keep the old refresh token unless there is a new one.

        ProviderRefused: it is spent or revoked. ProviderUnavailable: it may have been spent, because the response can
        be lost. One round trip.
        """
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return tokens_from(await self._request_tokens(form), self.provider, self._now_ms(), refresh_token)

    async def identity(self, tokens: Tokens, nonce: str) -> Identity:
        """The identity of the user of these tokens. `nonce` is the one of `authorize_url`.

        With OpenID Connect the ID token is verified (BadIdToken), and userinfo must have the same subject. One round
        trip, and one more if the issuer's keys are not cached.
        """
        urls = await self._discovery.urls()
        facts: dict[str, Any] = {}
        subject: str | None = None
        if self.provider.issuer is not None:
            if tokens.id_token is None or urls.jwks_uri is None:
                raise BadIdToken(self.provider.name, "it sent no ID token; is `openid` in the scope?")
            facts = await verified_claims(
                tokens.id_token, nonce, self.provider, self._keys, urls.jwks_uri, self._now_ms()
            )
            subject = facts["sub"]
        if urls.userinfo_url is not None:
            headers = {"authorization": f"Bearer {tokens.access_token}"}
            userinfo = await self._endpoints.get("userinfo endpoint", urls.userinfo_url, headers)
            # The access token could have been swapped for that of another user (OpenID Connect Core 1.0, 5.3.2).
            if subject is not None and userinfo.get("sub") != subject:
                raise BadIdToken(self.provider.name, "its userinfo has another subject than its ID token")
            facts |= userinfo
        return identity_from(facts, self.provider.identity, self.provider.name)

    async def revoke(self, token: str, kind: Literal["access_token", "refresh_token"] = "refresh_token") -> bool:
        """Revoke a token (RFC 7009), and with a refresh token its access tokens. An expired one is not an error.

        False: this provider has no endpoint for it, and nothing was sent. One round trip.
        """
        urls = await self._discovery.urls()
        if urls.revoke_url is None:
            return False
        headers, form = self._authenticate({"token": token, "token_type_hint": kind})
        await self._endpoints.post_and_check("revocation endpoint", urls.revoke_url, headers, form)
        return True

    def _authorization(self, redirect_uri: str, state: str, challenge: str, nonce: str) -> dict[str, str]:
        parameters = {
            "response_type": "code",
            "client_id": self.provider.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.provider.scope,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if self.provider.issuer is not None:
            parameters["nonce"] = nonce
        return {**self.provider.authorize_parameters, **parameters}

    async def _request_tokens(self, form: dict[str, str]) -> dict[str, Any]:
        urls = await self._discovery.urls()
        headers, form = self._authenticate(form)
        return await self._endpoints.post("token endpoint", urls.token_url, headers, form)

    def _authenticate(self, form: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and form fields that authenticate the client. Without a secret it only sends its id."""
        secret = self.provider.client_secret
        if secret is None:
            return {}, {**form, "client_id": self.provider.client_id}
        plain = secret.get_secret_value()
        if self.provider.client_auth == "post":
            return {}, {**form, "client_id": self.provider.client_id, "client_secret": plain}
        # RFC 6749, 2.3.1: each is form-encoded first, so that a colon in either is safe.
        pair = f"{quote_plus(self.provider.client_id)}:{quote_plus(plain)}"
        return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}, form


def _with_query(url: str, parameters: dict[str, str]) -> str:
    """The URL with these query parameters added; existing ones with the same name are replaced."""
    parts = urlsplit(url)
    others = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in parameters]
    return urlunsplit(parts._replace(query=urlencode([*others, *parameters.items()])))
