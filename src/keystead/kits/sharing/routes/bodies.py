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
    share_url: str | None = Field(description="null: the link was made before it was kept for you.")
    exp: int
    downloads: int
    max_downloads: int | None
    ready: bool
    has_password: bool
    size: int | None = Field(description="In bytes, of a file that is kept here.")
    receiver_name: str | None


class OwnLinksAnswer(Ok):
    links: list[OwnLinkAnswer]
    used: int = Field(description="How many bytes of your quota your files take.")
    quota: int = Field(description="0: there is no limit.")


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
    more: bool = Field(description="Whether it ended before everything was looked at: call it again.")


class WantedBody(CamelBody):
    """What a link can be told to be."""

    purpose: str | None = None
    valid_until: int | str | None = Field(None, description="In ms since 1970, or as 2026-12-31T15:00:00Z.")
    max_downloads: int | None = Field(None, description="1: a single download.")
    password: SecretStr | None = None
    owner_only: bool = Field(False, description="Whether only its owner can end it, and not everybody who has it.")
    message: str | None = Field(None, description="A line for the receiver.")
    receiver_name: str | None = Field(None, description="For whom it is; the page of the link says so.")
    theme: str | None = Field(None, description="How the page of the link looks: amber, ocean, rose or violet.")
    csrf: str | None = Field(None, description="The token of /api/blob/csrf, for pages; not needed.")

    def wanted(self, user_id: str | None) -> Wanted:
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
    owner_discord_id: str | None = Field(None, max_length=200, description="The user whose link it is.")
    user_id: str | None = Field(None, max_length=200, description="The same, without ownerDiscordId.")
    display_name: str | None = None


class DeleteBody(CamelBody):
    token: str | None = None
    id: str | None = None
    owner_key: SecretStr | None = None
    csrf: str | None = None


class StatusBody(CamelBody):
    id: str
    owner_key: SecretStr | None = Field(None, description="Not needed for a link of whoever is signed in.")


class ExtendBody(StatusBody):
    valid_until: int | str = Field(description="In ms since 1970, or as 2026-12-31T15:00:00Z.")
