"""What the teamwork kit can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from keystead.errors import BadValue
from keystead.kits.setting_types import Days, Duration, LimitsByName, SigningText, known
from keystead.kits.teamwork.service.deadlines import zone_named
from keystead.kits.teamwork.service.slack import POST_URL, Slack
from keystead.schema.lifetime import duration_ms

# Requests of one user in a minute, by what they ask for.
LIMITS: Final[Mapping[str, int]] = {"events": 120, "deadlines": 120, "teams": 60}
LONGEST_LIFETIME: Final = "12h"  # of a token: `jwt:since:{userId}` lives for a day


class TeamworkSettings(BaseModel):
    """The table `[teamwork]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    jwt_keys: SigningText | None = Field(
        None,
        description="Keys that sign access tokens, from `keystead secrets signing`; without them HS256 keys are "
        "derived from the keys that seal.",
    )
    issuer: str | None = Field(None, description="The `iss` of access tokens; without it the public URL of the server.")
    audience: str = Field("teamwork", min_length=1, description="The `aud` of access tokens.")
    token_lifetime: Duration = Field(
        "30m", description=f"For how long an access token is good, at most {LONGEST_LIFETIME}."
    )
    slack_webhook_url: SecretStr | None = Field(None, description="An incoming webhook of Slack: notices go there.")
    slack_token: SecretStr | None = Field(None, description="A bot's token of Slack, with `slack_channel`, instead.")
    slack_channel: str = Field("", description="The channel that the bot posts to.")
    slack_post_url: str = Field(POST_URL, description="Where the bot posts, if not at Slack.")
    keep_slack_log: Duration = Field(
        "90d", description="For how long the attempts to tell Slack are kept, also while Slack is off."
    )
    keep_notices: Duration = Field("180d", description="For how long a notice is kept, read or not.")
    invitation_lifetime: Duration = Field("7d", description="For how long a link that invites to a team can be used.")
    item_url: str = Field(
        "",
        description="Where a work item is seen, such as `https://work.example.com/{refType}/{refId}`: notices and "
        "Slack link to it. Without this they link to `/teamwork`, which shows what is known of it.",
    )
    zone: str = Field("UTC", description="The time zone of teams that have none of their own, such as `Asia/Seoul`.")
    deadline_days: Days = Field(
        (3,),
        min_length=1,
        max_length=20,
        description="How many days before a deadline its assignee is told, in teams that do not say.",
    )
    language: Literal["en", "ja", "ko"] = Field(
        "en",
        description="The language of Slack messages, and of titles on the channel; pages have that of their reader.",
    )
    streams_per_user: int = Field(8, ge=1, le=100, description="How many streams of notices a user may have open here.")
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        {}, description=f"Requests of one user in a minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("token_lifetime")
    @classmethod
    def _is_short(cls, given: str) -> str:
        if duration_ms(given) > duration_ms(LONGEST_LIFETIME):
            raise ValueError(f"an access token lives for {LONGEST_LIFETIME} at most, not {given}")
        return given

    @field_validator("zone")
    @classmethod
    def _is_zone(cls, given: str) -> str:
        try:
            zone_named(given)
        except BadValue as error:
            raise ValueError(str(error)) from None
        return given

    @field_validator("item_url")
    @classmethod
    def _is_link(cls, given: str) -> str:
        if given and not (given.startswith(("http://", "https://")) and "{refId}" in given and given.isprintable()):
            raise ValueError("write an address such as https://work.example.com/{refType}/{refId}")
        return given

    @property
    def slack(self) -> Slack | None:
        """Where notices go in Slack; None: nowhere."""
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
    """What production needs and these settings lack."""
    if settings.slack_token is not None and not settings.slack_channel:
        return ["teamwork.slack_channel: the channel that the bot of slack_token posts to"]
    return []
