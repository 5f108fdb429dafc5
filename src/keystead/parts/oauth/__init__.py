"""OAuth 2 and OpenID Connect client: log in with a provider, without HTTP routes and without a store.

provider = DISCORD.configured(client_id="...", client_secret="...")
client = Client(provider, http, now_ms)
verifier = new_verifier()
url = await client.authorize_url(redirect_uri, state, challenge_of(verifier), nonce)
...                                     # the browser comes back with code, state and perhaps iss
await client.check_issuer(iss)
tokens = await client.exchange(code, verifier, redirect_uri)
who = await client.identity(tokens, nonce)
"""

from keystead.extras import from_extra

with from_extra("oauth", "keystead.parts.oauth"):
    from keystead.parts.oauth.oauth_client import Client
    from keystead.parts.oauth.oauth_errors import (
        BadAnswer,
        BadIdToken,
        BadProvider,
        OAuthError,
        ProviderRefused,
        ProviderUnavailable,
        WrongIssuer,
        error_word,
    )
    from keystead.parts.oauth.pkce import challenge_of, new_verifier
    from keystead.parts.oauth.provider import DISCORD, GITHUB, GOOGLE, PRESETS, IdentityFields, Provider, oidc
    from keystead.parts.oauth.token_response import Identity, Tokens

__all__ = [
    "DISCORD",
    "GITHUB",
    "GOOGLE",
    "PRESETS",
    "BadAnswer",
    "BadIdToken",
    "BadProvider",
    "Client",
    "Identity",
    "IdentityFields",
    "OAuthError",
    "Provider",
    "ProviderRefused",
    "ProviderUnavailable",
    "Tokens",
    "WrongIssuer",
    "challenge_of",
    "error_word",
    "new_verifier",
    "oidc",
]
