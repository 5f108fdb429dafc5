"""What the membership kit can be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from keystead.errors import BadDeclaration
from keystead.kits.membership.service.ledger import MOST_TOKENS
from keystead.kits.setting_types import Duration, LimitsByName, SigningText, Words, known
from keystead.parts.jwt import SigningKeys
from keystead.parts.oauth import IdentityFields, Provider

# Requests in a minute: of one address, and of one user where they are signed in.
LIMITS: Final = {
    "crash_report": 10,
    "webhook": 100,
    "sign_in": 120,
    "sync": 30,
    "sync_init": 5,
    "bonus_sync": 30,
    "redeem": 10,
    "translate": 60,
}

_INCLUDED: Final = "memberships,memberships.currently_entitled_tiers,memberships.campaign"
_USER: Final = "email,full_name"
_MEMBER: Final = "patron_status,currently_entitled_amount_cents,next_charge_date,campaign_lifetime_support_cents"
_IDENTITY: Final = (
    f"https://www.patreon.com/api/oauth2/v2/identity?include={_INCLUDED}&fields%5Buser%5D={_USER}"
    f"&fields%5Bmember%5D={_MEMBER}&fields%5Btier%5D=amount_cents"
)

PATREON: Final = Provider(
    name="patreon",
    needs_secret=True,
    client_auth="post",
    scope="identity identity[email]",
    authorize_url="https://www.patreon.com/oauth2/authorize",
    token_url="https://www.patreon.com/api/oauth2/token",  # noqa: S106 - an address
    userinfo_url=_IDENTITY,
    identity=IdentityFields(id="id"),
)


def _signing_secret(given: SecretStr) -> SecretStr:
    try:
        SigningKeys.from_secret(given.get_secret_value())
    except BadDeclaration as error:  # whose sentence holds no secret
        raise ValueError(str(error)) from None
    return given


def _refuse_supabase(given: object) -> object:
    raise ValueError(
        "Supabase is not used: profiles, usage and bonuses are tables of Keystead. Unset this, and set "
        "KEYSTEAD_DATABASE to a PostgreSQL, such as the connection string that Supabase shows (postgresql://…)"
    )


class MembershipSettings(BaseModel):
    """The table `[membership]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    client_id: str = Field("", description="The id that the provider gave this application.")
    client_secret: SecretStr | None = Field(None, description="The secret that the provider gave this application.")
    authorize_url: str | None = Field(None, description="Where users sign in, if not at Patreon.")
    token_url: str | None = Field(None, description="Where codes are exchanged, if not at Patreon.")
    identity_url: str | None = Field(None, description="Who tells what a user pays for, if not Patreon.")
    revoke_url: str | None = Field(None, description="Where tokens are given back, for a provider that takes them.")
    campaign: str | None = Field(None, description="The campaign whose tiers count; without it those of any.")
    redirect_uris: Words = Field(
        (), description="Where sign-ins may return to, exactly; production needs at least one."
    )
    webhook_secret: SecretStr | None = Field(None, description="What the provider signs its webhooks with.")
    jwt_keys: SigningText | None = Field(
        None,
        description="Keys that sign access tokens, from `keystead secrets signing`; without them HS256 keys are "
        "derived from the keys that seal.",
    )
    jwt_secret: Annotated[SecretStr, AfterValidator(_signing_secret)] | None = Field(
        None,
        description="One text of 32 bytes or more that signs access tokens with HS256, for other programs that have "
        "it. Not together with `jwt_keys`.",
    )
    audience: str = Field("desktop", min_length=1, description="The `aud` of access tokens.")
    refresh_grace: Duration = Field("30s", description="For how long a refresh token may be sent again after its use.")
    keep_usage_events: Duration = Field("400d", description="For how long a recorded use is kept. Sums of months stay.")
    keep_crash_reports: Duration = Field("90d", description="For how long crash reports are kept.")
    welcome_bonus: int = Field(
        25_000, ge=0, le=MOST_TOKENS, description="Bonus tokens for a member's first `sync/init`; 0: none."
    )
    promotion_prefix: str = Field(
        "PROMO", pattern="^[A-Z0-9]{1,16}$", description="What promotion codes begin with, before the dash."
    )
    translate_url: str | None = Field(
        None, pattern="^https?://", description="Where `POST /api/translate` passes requests on to; without it, 503."
    )
    translate_key: SecretStr | None = Field(
        None, description="The API key of that service, sent to it in the header of `translate_header`."
    )
    translate_header: str = Field(
        "authorization",
        pattern="^[A-Za-z0-9-]{1,64}$",
        description="Which header takes the key; in `authorization` it is sent as a bearer token.",
    )
    translate_tokens: str = Field(
        "usage.total_tokens",
        min_length=1,
        max_length=200,
        description="Where the answer says how many tokens were used: names of JSON fields, divided by dots.",
    )
    translate_timeout: Duration = Field(
        "25s", description="How long that service may take; shorter than `request_timeout` of the server."
    )
    supabase_url: Annotated[str, AfterValidator(_refuse_supabase)] | None = Field(
        None, description="Refused: there is no Supabase here. Tables are in the setting `database`."
    )
    supabase_service_key: Annotated[SecretStr, AfterValidator(_refuse_supabase)] | None = Field(
        None, description="Refused: there is no Supabase here. Tables are in the setting `database`."
    )
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        default_factory=dict, description=f"Requests in a minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @model_validator(mode="after")
    def _one_kind_of_key(self) -> Self:
        if self.jwt_keys is not None and self.jwt_secret is not None:
            raise ValueError("jwt_keys and jwt_secret (JWT_SECRET) both say what signs access tokens; set one of them")
        return self

    @property
    def signing_keys(self) -> SigningKeys | None:
        """What signs access tokens; None: keys that are derived from those that seal."""
        if self.jwt_secret is not None:
            return SigningKeys.from_secret(self.jwt_secret.get_secret_value())
        return None if self.jwt_keys is None else SigningKeys.from_text(self.jwt_keys.get_secret_value())

    @property
    def provider(self) -> Provider:
        """Patreon, or whoever stands in for it."""
        given = {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "authorize_url": self.authorize_url,
            "token_url": self.token_url,
            "userinfo_url": self.identity_url,
            "revoke_url": self.revoke_url,
        }
        return PATREON.configured(**{name: value for name, value in given.items() if value})


def missing(settings: MembershipSettings) -> Sequence[str]:
    """What production needs and these settings lack."""
    needed = {
        "client_id": (settings.client_id, "the id that the provider gave this application (PATREON_CLIENT_ID)"),
        "client_secret": (settings.client_secret, "the secret that it gave this application (PATREON_CLIENT_SECRET)"),
        "webhook_secret": (settings.webhook_secret, "what it signs its webhooks with (PATREON_WEBHOOK_SECRET)"),
        "redirect_uris": (settings.redirect_uris, "where sign-ins may return to, such as http://localhost:8080/done"),
    }
    sentences = [f"membership.{name}: {what}" for name, (value, what) in needed.items() if not value]
    if settings.translate_key is not None and _is_in_the_clear(settings.translate_url):
        sentences.append("membership.translate_url: with https, since translate_key would go over http in the clear")
    return sentences


def _is_in_the_clear(url: str | None) -> bool:
    """Whether a request to this address can be read on the way."""
    parts = urlsplit(url or "")
    return parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost")
