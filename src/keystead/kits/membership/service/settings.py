"""What the membership kit can be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from keystead.kits.setting_types import Duration, LimitsByName, SigningText, Words, known
from keystead.parts.oauth import IdentityFields, Provider

# Requests in a minute: of one address, and of one user where they ask past the cache.
LIMITS: Final = {"crash_report": 10, "webhook": 100, "sign_in": 120, "sync": 30}

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
    audience: str = Field("desktop", min_length=1, description="The `aud` of access tokens.")
    refresh_grace: Duration = Field("30s", description="For how long a refresh token may be sent again after its use.")
    keep_usage_events: Duration = Field("400d", description="For how long a recorded use is kept. Sums of months stay.")
    keep_crash_reports: Duration = Field("90d", description="For how long crash reports are kept.")
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        default_factory=dict, description=f"Requests in a minute: {', '.join(LIMITS)}; 0: no limit."
    )

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
    return [f"membership.{name}: {what}" for name, (value, what) in needed.items() if not value]
