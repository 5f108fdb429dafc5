"""Settings of the teamwork kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from keystead.errors import BadValue
from keystead.kits.setting_types import Days, Duration, LimitsByName, SigningText, check_limit_names
from keystead.kits.teamwork.service.deadlines import parse_zone
from keystead.kits.teamwork.service.slack import POST_URL, Slack
from keystead.schema.lifetime import duration_ms

LIMITS: Final[Mapping[str, int]] = {"events": 120, "deadlines": 120, "teams": 60}  # requests per user and minute
LONGEST_LIFETIME: Final = "12h"  # of a token; shorter than the day that `jwt:since:{userId}` lives


class TeamworkSettings(BaseModel):
    """The table `[teamwork]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    jwt_keys: SigningText | None = Field(
        None,
        description="The signing keys of access tokens, from `keystead secrets signing`. By default HS256 keys are "
        "derived from the seal keys.",
    )
    issuer: str | None = Field(None, description="The `iss` of access tokens. The default is the server's public URL.")
    audience: str = Field("teamwork", min_length=1, description="The `aud` of access tokens.")
    token_lifetime: Duration = Field("30m", description=f"The lifetime of access tokens, at most {LONGEST_LIFETIME}.")
    slack_webhook_url: SecretStr | None = Field(None, description="The URL of a Slack incoming webhook for notices.")
    slack_token: SecretStr | None = Field(None, description="A Slack bot token, instead; needs `slack_channel`.")
    slack_channel: str = Field("", description="The channel that the bot posts to.")
    slack_post_url: str = Field(POST_URL, description="The URL that the bot posts to.")
    keep_slack_log: Duration = Field(
        "90d", description="How long attempts to post to Slack are kept, also while Slack is off."
    )
    keep_notices: Duration = Field("180d", description="How long notices are kept, read or not.")
    invitation_lifetime: Duration = Field("7d", description="The lifetime of team invitations.")
    item_url: str = Field(
        "",
        description="The address of a work item, such as `https://work.example.com/{refType}/{refId}`, for links in "
        "notices and Slack. The default is `/teamwork`, which shows the known details of the item.",
    )
    zone: str = Field("UTC", description="The default time zone of teams, such as `Asia/Seoul`.")
    deadline_days: Days = Field(
        (3,),
        min_length=1,
        max_length=20,
        description="How many days before a deadline its assignee is notified, by default.",
    )
    language: Literal["en", "ja", "ko"] = Field(
        "en",
        description="The language of Slack messages, and of titles on the channel. Pages use the reader's language.",
    )
    streams_per_user: int = Field(8, ge=1, le=100, description="The most open notice streams per user and process.")
    limits: Annotated[LimitsByName, check_limit_names(LIMITS)] = Field(
        {}, description=f"Rate limits per user and minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("token_lifetime")
    @classmethod
    def _check_lifetime(cls, given: str) -> str:
        if duration_ms(given) > duration_ms(LONGEST_LIFETIME):
            raise ValueError(f"the lifetime of access tokens is at most {LONGEST_LIFETIME}, not {given}")
        return given

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, given: str) -> str:
        try:
            parse_zone(given)
        except BadValue as error:
            raise ValueError(str(error)) from None
        return given

    @field_validator("item_url")
    @classmethod
    def _check_item_url(cls, given: str) -> str:
        if given and not (given.startswith(("http://", "https://")) and "{refId}" in given and given.isprintable()):
            raise ValueError("write an address such as https://work.example.com/{refType}/{refId}")
        return given

    @property
    def slack(self) -> Slack | None:
        """The Slack destination; None: Slack is off."""
        if self.slack_token is not None:
            return Slack(
                token=self.slack_token.get_secret_value(),
                channel=self.slack_channel,
                post_url=self.slack_post_url,
                language=self.language,
            )
        if self.slack_webhook_url is not None:
            return Slack(webhook_url=self.slack_webhook_url.get_secret_value(), language=self.language)
        return None


def missing(settings: TeamworkSettings) -> Sequence[str]:
    """Settings that production requires and that are missing."""
    if settings.slack_token is not None and not settings.slack_channel:
        return ["teamwork.slack_channel: the channel that the bot of slack_token posts to"]
    return []
