"""Settings of the login kit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Final, Literal, Self
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from keystead.kits.setting_types import Duration, LimitsByName, check_limit_names
from keystead.parts.oauth import PRESETS, BadProvider, Provider
from keystead.parts.sessions import Policy
from keystead.schema.lifetime import duration_ms

# Requests per minute and client, by kind of request.
LIMITS: Final = {
    "start": 60,
    "callback": 60,
    "claim": 30,
    "me": 120,
    "csrf": 120,
    "logout": 30,
    "sessions": 60,
    "token": 30,
}

LONGEST_IDLE: Final = "30d"  # the lifetime of an unused session in the key document
_RETURN_MAX: Final = 2048
_RETURN = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # a path on this site: ASCII, no backslash, no space


class ProviderSettings(BaseModel):
    """A provider in keystead.toml, `[login.providers.discord]`.

    `discord`, `github` and `google` need only a client. Any other provider needs an `issuer` (OpenID Connect) or its
    three URLs (plain OAuth 2).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    client_id: str = ""
    client_secret: SecretStr | None = None
    redirect_uri: str | None = None
    client_auth: Literal["basic", "post"] | None = None
    scope: str | None = None
    issuer: str | None = None
    authorize_url: str | None = None
    app_authorize_url: str | None = None
    token_url: str | None = None
    userinfo_url: str | None = None
    jwks_uri: str | None = None
    revoke_url: str | None = None

    def provider(self, name: str) -> Provider:
        """The provider of this name. Raises BadProvider."""
        given = {key: value for key, value in dict(self).items() if value not in (None, "") and key != "redirect_uri"}
        return PRESETS.get(name, Provider(name=name)).configured(**given)


class LoginSettings(BaseModel):
    """The table `[login]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    providers: dict[str, ProviderSettings] = Field(default_factory=dict, description="Sign-in providers.")
    return_to: str = Field("/", description="Default path to redirect to after sign-in.")
    idle: Duration = Field("30d", description="Idle timeout: a session ends after this long without use.")
    absolute: Duration = Field("90d", description="Absolute timeout: a session ends this long after sign-in.")
    cap: int = Field(5, ge=0, description="Maximum number of sessions per user; 0: no limit.")
    at_cap: Literal["evict", "refuse"] = Field(
        "evict", description="When a sign-in exceeds the cap: end the oldest session, or refuse the sign-in."
    )
    near: Duration | None = Field(
        None,
        description="How long another process may still accept a session that has ended, such as `1s`: sessions are "
        "then [read from a copy](near_reads.md). Default: each request asks the store.",
    )
    recent: Duration = Field(
        "1h", description="Maximum age of a sign-in that may end other sessions; older ones must sign in again."
    )
    token_lifetime: Duration = Field("1h", description="Lifetime of an access token of a program.")
    limits: Annotated[LimitsByName, check_limit_names(LIMITS)] = Field(
        default_factory=dict, description=f"Requests per minute and client: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("providers")
    @classmethod
    def _check_providers(cls, given: dict[str, ProviderSettings]) -> dict[str, ProviderSettings]:
        for name, one in given.items():
            try:
                lacking = one.provider(name).missing
            except (BadProvider, ValidationError):
                raise ValueError(
                    f"{name!r}: a provider name consists of a-z, 0-9 and -; its settings are text"
                ) from None
            if lacking:
                near = get_close_matches(name, PRESETS, 1, 0.6) if name not in PRESETS else []
                hint = f"; did you mean {near[0]}?" if near else ""
                issuer = " (or its issuer)" if "token_url" in lacking else ""
                variables = (
                    f"; set {' and '.join(f'{name}_{one}'.upper() for one in lacking)}" if name in PRESETS else ""
                )
                raise ValueError(f"{name} needs {', '.join(lacking)}{issuer}{hint}{variables}")
            if one.issuer is not None and not one.issuer.startswith(("https://", "http://")):
                raise ValueError(f"{name}: issuer must be a URL, such as https://login.example.com")
        return given

    @field_validator("return_to")
    @classmethod
    def _check_return_to(cls, given: str) -> str:
        if not is_return_path(given):
            raise ValueError("must be a path on this site, such as /welcome")
        return given

    @field_validator("idle")
    @classmethod
    def _check_idle(cls, given: str) -> str:
        if duration_ms(given) > duration_ms(LONGEST_IDLE):
            raise ValueError(f"an unused session is stored for {LONGEST_IDLE}; use that or less")
        return given

    @model_validator(mode="after")
    def _check_timeouts(self) -> Self:
        if duration_ms(self.idle) > duration_ms(self.absolute):
            raise ValueError(f"idle ({self.idle}) must not be longer than absolute ({self.absolute})")
        return self

    @property
    def policy(self) -> Policy:
        return Policy(idle=self.idle, absolute=self.absolute, cap=self.cap or None, at_cap=self.at_cap, near=self.near)


def missing(settings: LoginSettings) -> Sequence[str]:
    """What these settings lack for production."""
    if not settings.providers:
        how = "set DISCORD_CLIENT_ID and DISCORD_CLIENT_SECRET, or [login.providers.NAME] in keystead.toml"
        return [f"login: no sign-in provider is configured; {how}"]
    return [
        f"login.providers.{name}.client_secret: the client secret issued by {name}"
        for name, one in settings.providers.items()
        if one.client_secret is None
    ]


def is_return_path(path: str) -> bool:
    """Whether a sign-in may redirect there: a path on this site that is not an API route."""
    if len(path) > _RETURN_MAX or not _RETURN.fullmatch(path):
        return False
    # Normalize as browsers and servers do: `/x/../api/y` and `/%61pi/y` are API routes, too.
    first, *parts = unquote(re.split(r"[?#]", path, maxsplit=1)[0]).lower().removeprefix("/").split("/")
    return first != "api" and not {".", ".."} & {first, *parts}
