"""Settings of the membership kit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from keystead.errors import BadDeclaration
from keystead.kits.membership.service.ledger import MOST_TOKENS
from keystead.kits.setting_types import Duration, LimitsByName, SigningText, Words, check_limit_names
from keystead.parts.jwt import SigningKeys
from keystead.parts.oauth import IdentityFields, Provider

# Requests per minute: per client address, or per user on routes of signed-in members.
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
    except BadDeclaration as error:  # its message contains no secret
        raise ValueError(str(error)) from None
    return given


def _refuse_supabase(given: object) -> object:
    raise ValueError(
        "Supabase is not supported: Keystead has its own tables. Unset this, and set KEYSTEAD_DATABASE to a PostgreSQL "
        "URL, such as the connection string of your Supabase project (postgresql://…)"
    )


class MembershipSettings(BaseModel):
    """The table `[membership]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    client_id: str = Field("", description="OAuth client id of this application.")
    client_secret: SecretStr | None = Field(None, description="OAuth client secret of this application.")
    authorize_url: str | None = Field(None, description="Authorization endpoint, if not Patreon's.")
    token_url: str | None = Field(None, description="Token endpoint, if not Patreon's.")
    identity_url: str | None = Field(None, description="Identity endpoint, if not Patreon's.")
    revoke_url: str | None = Field(None, description="Token revocation endpoint, if the provider has one.")
    campaign: str | None = Field(None, description="Only tiers of this campaign count; unset: tiers of any campaign.")
    redirect_uris: Words = Field(
        (), description="Allowed redirect URIs of sign-ins, exact matches; production needs at least one."
    )
    webhook_secret: SecretStr | None = Field(None, description="Secret that the provider signs webhooks with.")
    jwt_keys: SigningText | None = Field(
        None,
        description="Keys that sign access tokens, from `keystead secrets signing`; unset: HS256 with keys derived "
        "from the encryption keys.",
    )
    jwt_secret: Annotated[SecretStr, AfterValidator(_signing_secret)] | None = Field(
        None,
        description="Shared HS256 secret of at least 32 bytes for access tokens, if other programs verify them. "
        "Excludes `jwt_keys`.",
    )
    audience: str = Field("desktop", min_length=1, description="The `aud` of access tokens.")
    refresh_grace: Duration = Field("30s", description="How long a used refresh token may be retried.")
    keep_usage_events: Duration = Field("400d", description="Retention of usage events. Monthly sums stay.")
    keep_crash_reports: Duration = Field("90d", description="Retention of crash reports.")
    welcome_bonus: int = Field(
        25_000, ge=0, le=MOST_TOKENS, description="Bonus tokens for a member's first `sync/init`; 0: none."
    )
    promotion_prefix: str = Field(
        "PROMO", pattern="^[A-Z0-9]{1,16}$", description="Prefix of promotion codes, before the dash."
    )
    translate_url: str | None = Field(
        None, pattern="^https?://", description="Target of `POST /api/translate`; unset: it answers 503."
    )
    translate_key: SecretStr | None = Field(
        None, description="API key of the translation service, sent in the header `translate_header`."
    )
    translate_header: str = Field(
        "authorization",
        pattern="^[A-Za-z0-9-]{1,64}$",
        description="Header for the key; in `authorization` it is sent as a bearer token.",
    )
    translate_tokens: str = Field(
        "usage.total_tokens",
        min_length=1,
        max_length=200,
        description="Path of the number of used tokens in the JSON response: field names separated by dots.",
    )
    translate_timeout: Duration = Field(
        "25s", description="Timeout of the translation service; less than the server's `request_timeout`."
    )
    supabase_url: Annotated[str, AfterValidator(_refuse_supabase)] | None = Field(
        None, description="Not supported; the tables are in the setting `database`."
    )
    supabase_service_key: Annotated[SecretStr, AfterValidator(_refuse_supabase)] | None = Field(
        None, description="Not supported; the tables are in the setting `database`."
    )
    limits: Annotated[LimitsByName, check_limit_names(LIMITS)] = Field(
        default_factory=dict, description=f"Requests per minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @model_validator(mode="after")
    def _refuse_both_keys(self) -> Self:
        if self.jwt_keys is not None and self.jwt_secret is not None:
            raise ValueError("jwt_keys and jwt_secret (JWT_SECRET) exclude each other; set one of them")
        return self

    @property
    def signing_keys(self) -> SigningKeys | None:
        """Keys that sign access tokens; None: derive them from the encryption keys."""
        if self.jwt_secret is not None:
            return SigningKeys.from_secret(self.jwt_secret.get_secret_value())
        return None if self.jwt_keys is None else SigningKeys.from_text(self.jwt_keys.get_secret_value())

    @property
    def provider(self) -> Provider:
        """Patreon, with these settings."""
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
    """One line for each setting that production needs and that is missing."""
    needed = {
        "client_id": (settings.client_id, "the OAuth client id of this application (PATREON_CLIENT_ID)"),
        "client_secret": (settings.client_secret, "the OAuth client secret (PATREON_CLIENT_SECRET)"),
        "webhook_secret": (settings.webhook_secret, "the secret that signs webhooks (PATREON_WEBHOOK_SECRET)"),
        "redirect_uris": (settings.redirect_uris, "allowed redirect URIs, such as http://localhost:8080/done"),
    }
    lines = [f"membership.{name}: {what}" for name, (value, what) in needed.items() if not value]
    if settings.translate_key is not None and _is_unencrypted(settings.translate_url):
        lines.append("membership.translate_url: use https, because http would send translate_key unencrypted")
    return lines


def _is_unencrypted(url: str | None) -> bool:
    parts = urlsplit(url or "")
    return parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost")
