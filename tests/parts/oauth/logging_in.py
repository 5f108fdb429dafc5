"""One login at a real provider, step by step, as a test needs it."""

import time
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, urlsplit

from keystead.parts.oauth import Client, Provider, Tokens, challenge_of, new_verifier, oidc
from tests.oidc import OidcProvider, log_in

REDIRECT_URI = "http://127.0.0.1:8700/api/auth/oidc/callback"


class Clock:
    """A clock that tests move. It starts at the real time, because the provider has its own clock."""

    def __init__(self) -> None:
        self.ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.ms

    def move(self, *, seconds: float) -> None:
        self.ms += round(seconds * 1000)


@dataclass
class Login:
    """The state that a caller keeps during a login."""

    client: Client
    verifier: str = field(default_factory=new_verifier)
    state: str = field(default_factory=lambda: token_urlsafe(16))
    nonce: str = field(default_factory=lambda: token_urlsafe(16))

    async def url(self) -> str:
        return await self.client.authorize_url(REDIRECT_URI, self.state, challenge_of(self.verifier), self.nonce)

    async def callback(self, account: str = "ada") -> dict[str, str]:
        """The parameters with which the browser comes back."""
        return parameters(await log_in(await self.url(), account))

    async def tokens(self, account: str = "ada") -> Tokens:
        return await self.client.exchange((await self.callback(account))["code"], self.verifier, REDIRECT_URI)


def parameters(url: str) -> dict[str, str]:
    """The query of a URL in which no parameter comes twice."""
    query = parse_qs(urlsplit(url).query, strict_parsing=True)
    assert all(len(values) == 1 for values in query.values())
    return {name: value for name, [value] in query.items()}


def registered(provider: OidcProvider, client: int = 0, **settings: Any) -> Provider:
    """The provider as one of its clients configures it."""
    known = provider.clients[client]
    return oidc(provider.issuer, client_id=known.client_id, client_secret=known.client_secret, **settings)
