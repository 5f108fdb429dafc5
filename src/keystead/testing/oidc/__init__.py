"""A real OpenID Connect provider for tests: npm's `oidc-provider` 9, strict about all that the protocols say.

    with oidc_provider(redirect_uris=["http://127.0.0.1:8700/callback"]) as provider:
        ...                                             # provider.issuer, provider.client_id, provider.client_secret
        callback_url = await log_in(authorize_url, "ada")

It demands PKCE, refuses a code that comes twice and revokes what the first use gave, rotates refresh tokens and
revokes the whole family when an old one comes back, and names itself in the callback (`iss`). Nothing is left behind.
It needs Node 20 or newer and the packages of `package-lock.json`, from the folder that `scripts/node.sh` fills.
"""

from keystead.testing.oidc.browser import cancel_login, log_in
from keystead.testing.oidc.local_provider import OidcProvider, RegisteredClient, oidc_provider

__all__ = ["OidcProvider", "RegisteredClient", "cancel_login", "log_in", "oidc_provider"]
