"""The configuration of a provider: its endpoints, our client, and its user fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from keystead.parts.oauth.oauth_errors import BadProvider
from keystead.stores.loopback import is_loopback

# Never `none`, and never an HMAC, whose key would be a shared secret.
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")


class IdentityFields(BaseModel):
    """The fields of the userinfo response that identify a user. For `name`, the first that is not empty is used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = "sub"
    name: tuple[str, ...] = ("name", "preferred_username", "nickname")
    avatar: str = "picture"


class Provider(BaseModel):
    """An OAuth 2 or OpenID Connect provider.

    With an `issuer` it is OpenID Connect: ID tokens are verified, and endpoints that are not given are found by
    discovery. Without, it is plain OAuth 2, and `authorize_url`, `token_url` and `userinfo_url` must be given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    client_id: str = ""
    client_secret: SecretStr | None = None
    needs_secret: bool = False  # a public client is identified by its redirect URI and PKCE
    client_auth: Literal["basic", "post"] = "basic"  # the secret is in a header, or in the form
    scope: str = "openid profile"
    issuer: str | None = None
    authorize_url: str | None = None
    app_authorize_url: str | None = None  # opens the provider's own app instead of a browser
    token_url: str | None = None
    userinfo_url: str | None = None
    jwks_uri: str | None = None
    revoke_url: str | None = None
    revokes_grant: bool = False  # revoking one token revokes all tokens of this user and client, on every device
    authorize_parameters: Mapping[str, str] = Field(default_factory=dict)
    identity: IdentityFields = IdentityFields()
    algorithms: tuple[Literal["RS256", "PS256", "ES256", "EdDSA", "Ed25519"], ...] = ALGORITHMS
    callback_has_iss: bool = False  # RFC 9207: every callback names the issuer, so one that does not is refused

    def configured(self, **settings: Any) -> Self:
        """The same provider with other settings, usually `client_id` and `client_secret`. Raises BadProvider."""
        try:
            # The fields themselves, not a dump: a dump would mask the secret.
            return type(self).model_validate({**dict(self), **settings})
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise BadProvider(self.name, f"invalid settings: {wrong}") from None

    @property
    def needs_discovery(self) -> bool:
        return self.issuer is not None and not (self.authorize_url and self.token_url and self.jwks_uri)

    @property
    def missing(self) -> list[str]:
        """The required settings that are missing."""
        needed = {"client_id": self.client_id}
        if self.needs_secret:
            needed["client_secret"] = self.client_secret.get_secret_value() if self.client_secret else ""
        if self.issuer is None:
            needed |= {
                "authorize_url": self.authorize_url or "",
                "token_url": self.token_url or "",
                "userinfo_url": self.userinfo_url or "",
            }
        return [name for name, value in needed.items() if not value]


def oidc(issuer: str, *, name: str = "oidc", **settings: Any) -> Provider:
    """Any OpenID Connect provider by its issuer, with discovery of endpoints and keys."""
    return Provider(name=name).configured(issuer=issuer, **settings)


DISCORD: Final = Provider(
    name="discord",
    needs_secret=True,
    scope="identify guilds",
    authorize_url="https://discord.com/oauth2/authorize",
    app_authorize_url="discord://-/oauth2/authorize",
    token_url="https://discord.com/api/oauth2/token",  # noqa: S106 - an address
    userinfo_url="https://discord.com/api/users/@me",
    revoke_url="https://discord.com/api/oauth2/token/revoke",
    revokes_grant=True,
    authorize_parameters={"prompt": "consent"},
    identity=IdentityFields(id="id", name=("global_name", "username"), avatar="avatar"),
)

GITHUB: Final = Provider(
    name="github",
    needs_secret=True,
    client_auth="post",
    scope="read:user",
    authorize_url="https://github.com/login/oauth/authorize",
    token_url="https://github.com/login/oauth/access_token",  # noqa: S106 - an address
    userinfo_url="https://api.github.com/user",
    identity=IdentityFields(id="id", name=("name", "login"), avatar="avatar_url"),
)

GOOGLE: Final = Provider(
    name="google",
    needs_secret=True,
    scope="openid profile",
    issuer="https://accounts.google.com",
    authorize_url="https://accounts.google.com/o/oauth2/v2/auth",
    token_url="https://oauth2.googleapis.com/token",  # noqa: S106 - an address
    userinfo_url="https://openidconnect.googleapis.com/v1/userinfo",
    jwks_uri="https://www.googleapis.com/oauth2/v3/certs",
    revoke_url="https://oauth2.googleapis.com/revoke",
    revokes_grant=True,
    authorize_parameters={"access_type": "offline"},  # without it there is no refresh token
)

PRESETS: Final[Mapping[str, Provider]] = {one.name: one for one in (DISCORD, GITHUB, GOOGLE)}


def check_fetched(provider: str, what: str, url: str, *, development: bool) -> str:
    """Refuse (BadProvider) a URL to which secrets would be sent in plain text.

    It must be https; in development, http to this machine itself is allowed.
    """
    scheme, host = _scheme_and_host(provider, what, url)
    if scheme == "https" or (scheme == "http" and development and is_loopback(host)):
        return url
    also = " (or http on this machine)" if development else ""
    raise BadProvider(provider, f"{what} must be an https URL{also}")


def check_visited(provider: str, what: str, url: str, *, development: bool) -> str:
    """Refuse (BadProvider) a URL that a browser should not be sent to: not https, nor http in development."""
    scheme, _ = _scheme_and_host(provider, what, url)
    if scheme == "https" or (scheme == "http" and development):
        return url
    raise BadProvider(provider, f"{what} must be an https URL")


def _scheme_and_host(provider: str, what: str, url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadProvider(provider, f"{what} is not a URL") from None
    if not host or parts.username is not None or parts.fragment or not url.isprintable() or " " in url:
        raise BadProvider(provider, f"{what} must be a URL with a host, without user, fragment or spaces")
    return parts.scheme, host
