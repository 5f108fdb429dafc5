"""Request and response bodies of the sharing kit."""

from __future__ import annotations

from pydantic import Field, SecretStr

from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.sharing.service import Wanted
from keystead.kits.visit import Ok


class IssuedAnswer(Ok):
    token: str
    short_token: str
    share_url: str
    exp: int
    id: str
    owner_key: str


class UploadedAnswer(IssuedAnswer):
    file_name: str
    size: int


class RegisteredAnswer(Ok):
    key: str
    share_url: str
    expires_at: str
    id: str
    owner_key: str


class ResolvedAnswer(Ok):
    url: str
    name: str
    exp: int
    purpose: str


class EdgeAnswer(Ok):
    blob_name: str
    download_url: str
    display_name: str
    expires_at: str
    message: str | None = None
    theme: str | None = None


class StatusAnswer(Ok):
    exp: int
    downloads: int
    max_downloads: int | None
    ready: bool


class OwnLinkAnswer(CamelModel):
    id: str
    name: str
    share_url: str | None = Field(description="null for links created before short tokens were stored.")
    exp: int
    downloads: int
    max_downloads: int | None
    ready: bool
    has_password: bool
    size: int | None = Field(description="In bytes; null for external files.")
    receiver_name: str | None


class OwnLinksAnswer(Ok):
    links: list[OwnLinkAnswer]
    used: int = Field(description="Bytes of your quota in use.")
    quota: int = Field(description="In bytes; 0: no limit.")


class ExtendedAnswer(Ok):
    exp: int


class CleanedAnswer(Ok):
    now: str
    index_key: str
    scanned: int
    deleted: int
    not_found: int
    missing_meta: int
    skipped: int
    errors: int
    more: bool = Field(description="Whether uploads remain to be examined: call it again.")


class WantedBody(CamelBody):
    """The options of a link."""

    purpose: str | None = None
    valid_until: int | str | None = Field(None, description="In ms since 1970, or such as 2026-12-31T15:00:00Z.")
    max_downloads: int | None = Field(None, description="Maximum number of downloads.")
    password: SecretStr | None = None
    owner_only: bool = Field(False, description="Only the owner can end the link, not everyone who has it.")
    message: str | None = Field(None, description="A message for the recipient.")
    receiver_name: str | None = Field(None, description="Name of the recipient, shown on the page of the link.")
    theme: str | None = Field(None, description="Color theme of the page of the link: amber, ocean, rose or violet.")
    csrf: str | None = Field(None, description="The token from /api/blob/csrf; optional.")

    def to_wanted(self, user_id: str | None) -> Wanted:
        return Wanted(
            message=self.message,
            theme=self.theme,
            receiver=self.receiver_name,
            user_id=user_id,
            valid_until=self.valid_until,
            purpose=self.purpose,
            max_downloads=self.max_downloads,
            password=None if self.password is None else self.password.get_secret_value(),
            owner_only=self.owner_only,
        )


class TokenBody(WantedBody):
    url: str | None = None
    name: str | None = None


class EdgeBody(WantedBody):
    pathname: str | None = None
    download_url: str | None = None
    owner_discord_id: str | None = Field(None, max_length=200, description="The user who owns the link.")
    user_id: str | None = Field(None, max_length=200, description="Used if ownerDiscordId is absent.")
    display_name: str | None = None


class DeleteBody(CamelBody):
    token: str | None = None
    id: str | None = None
    owner_key: SecretStr | None = None
    csrf: str | None = None


class StatusBody(CamelBody):
    id: str
    owner_key: SecretStr | None = Field(None, description="Not needed if you are signed in and own the link.")


class ExtendBody(StatusBody):
    valid_until: int | str = Field(description="In ms since 1970, or such as 2026-12-31T15:00:00Z.")
