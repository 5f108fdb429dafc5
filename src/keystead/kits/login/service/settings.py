"""What the login kit can be told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Final, Literal, Self
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from keystead.kits.setting_types import Duration, LimitsByName, known
from keystead.parts.oauth import PRESETS, BadProvider, Provider
from keystead.parts.sessions import Policy
from keystead.schema.lifetime import duration_ms

# Requests of one client in a minute, by what they ask for.
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

LONGEST_IDLE: Final = "30d"  # as long as the key document gives a session that is not used
_RETURN_MAX: Final = 2048
_RETURN = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # a path of this site: no backslash, no space, nothing but ASCII


class ProviderSettings(BaseModel):
    """A provider in keystead.toml, `[login.providers.discord]`.

    `discord`, `github` and `google` need only a client. Any other name is OpenID Connect by its `issuer`, or
    plain OAuth 2 by its three URLs.
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

    providers: dict[str, ProviderSettings] = Field(default_factory=dict, description="Who users can sign in with.")
    return_to: str = Field("/", description="Where users go after a sign-in that names no path of its own.")
    idle: Duration = Field("30d", description="A session ends when it was not used for so long.")
    absolute: Duration = Field("90d", description="A session ends so long after its sign-in, however much it is used.")
    cap: int = Field(5, ge=0, description="How many sessions a user may have; 1: one device; 0: as many as they like.")
    at_cap: Literal["evict", "refuse"] = Field("evict", description="Beyond the cap, end the oldest or refuse the new.")
    recent: Duration = Field(
        "1h", description="How old a sign-in may be that ends other sessions; older ones must sign in again."
    )
    token_lifetime: Duration = Field("1h", description="For how long an access token of a program is good.")
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        default_factory=dict, description=f"Requests of one client in a minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("providers")
    @classmethod
    def _can_be_asked(cls, given: dict[str, ProviderSettings]) -> dict[str, ProviderSettings]:
        for name, one in given.items():
            try:
                lacking = one.provider(name).missing
            except (BadProvider, ValidationError):
                raise ValueError(f"{name!r}: a provider is named by a-z, 0-9 and -; its settings are text") from None
            if lacking:
                near = get_close_matches(name, PRESETS, 1, 0.6) if name not in PRESETS else []
                hint = f"; did you mean {near[0]}?" if near else ""
                issuer = " (or its issuer)" if "token_url" in lacking else ""
                variables = (
                    f"; set {' and '.join(f'{name}_{one}'.upper() for one in lacking)}" if name in PRESETS else ""
                )
                raise ValueError(f"{name} needs {', '.join(lacking)}{issuer}{hint}{variables}")
            if one.issuer is not None and not one.issuer.startswith(("https://", "http://")):
                raise ValueError(f"{name}: its issuer is a URL, such as https://login.example.com")
        return given

    @field_validator("return_to")
    @classmethod
    def _is_path(cls, given: str) -> str:
        if not is_return_path(given):
            raise ValueError("this should be a path of this site, such as /welcome")
        return given

    @field_validator("idle")
    @classmethod
    def _fits_the_document(cls, given: str) -> str:
        if duration_ms(given) > duration_ms(LONGEST_IDLE):
            raise ValueError(f"the store keeps a session that is not used for {LONGEST_IDLE}; write that or less")
        return given

    @model_validator(mode="after")
    def _ends_in_order(self) -> Self:
        if duration_ms(self.idle) > duration_ms(self.absolute):
            raise ValueError(f"idle ({self.idle}) is longer than absolute ({self.absolute}); write a shorter one")
        return self

    @property
    def policy(self) -> Policy:
        return Policy(idle=self.idle, absolute=self.absolute, cap=self.cap or None, at_cap=self.at_cap)


def missing(settings: LoginSettings) -> Sequence[str]:
    """What production needs and these settings lack."""
    if not settings.providers:
        how = "set DISCORD_CLIENT_ID and DISCORD_CLIENT_SECRET, or write [login.providers.NAME] in keystead.toml"
        return [f"login: nobody can sign in without a provider; {how}"]
    return [
        f"login.providers.{name}.client_secret: the secret that {name} gave this application"
        for name, one in settings.providers.items()
        if one.client_secret is None
    ]


def is_return_path(path: str) -> bool:
    """Whether a login may lead there: a path of this site, and no route of the API."""
    if len(path) > _RETURN_MAX or not _RETURN.fullmatch(path):
        return False
    # As the browser and the server will read it: `/x/../api/y` and `/%61pi/y` are routes of the API, too.
    first, *parts = unquote(re.split(r"[?#]", path, maxsplit=1)[0]).lower().removeprefix("/").split("/")
    return first != "api" and not {".", ".."} & {first, *parts}
