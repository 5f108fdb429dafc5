"""The records of the sharing kit. Field names are those of the stored JSON."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from keystead.schema import EpochMs, IsoTime, OmittedIfNone, Sealed


class EdgeMeta(BaseModel):
    """An upload to delete when it expires. At least one of `blob_name` and `pathname` is required."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    blob_name: OmittedIfNone[str] = None
    """the name of the stored file"""
    pathname: OmittedIfNone[str] = None
    """the path of the stored file"""
    expires_at: IsoTime
    short_token: OmittedIfNone[str] = None
    """the digest of the short token of its link, if there is one"""
    upload: OmittedIfNone[Literal["under way", "given up"]] = None
    """set while the upload is incomplete; `expires_at` is then the end of its lease, which its process renews"""
    size: OmittedIfNone[int] = None
    """bytes charged to the storage quota"""
    charged_to: OmittedIfNone[str] = None
    """the user or client charged, in addition to the total quota"""

    @model_validator(mode="after")
    def _check_file(self) -> Self:
        if not (self.blob_name or self.pathname):
            raise ValueError("blob_name or pathname must name the file")
        return self

    @property
    def path(self) -> str:
        return self.pathname or self.blob_name or ""


class Link(BaseModel):
    """An active link and its options."""

    model_config = ConfigDict(use_attribute_docstrings=True, hide_input_in_errors=True)

    expires_at: EpochMs
    short_token: str
    """the digest of its short token"""
    owner: str
    """the digest of the owner key, which can end the link"""
    ready: bool = True
    """false while the file is still being uploaded"""
    owner_only: OmittedIfNone[bool] = None
    """true if only its owner can end it; otherwise anyone with the link can"""
    max_downloads: OmittedIfNone[int] = None
    password: OmittedIfNone[Sealed[str]] = None
    """the scrypt hash of the password"""
    display_name: OmittedIfNone[Sealed[str]] = None
    message: OmittedIfNone[Sealed[str]] = None
    theme: OmittedIfNone[str] = None
    receiver: OmittedIfNone[Sealed[str]] = None
    """the name of the recipient, as the owner wrote it"""
    user_id: OmittedIfNone[str] = None
    """the login id of the user who created the link"""
    short: OmittedIfNone[Sealed[str]] = None
    """the short token of a user's link, so that the user can copy the link again"""


class Stream(BaseModel):
    """A byte range of a file that is being sent; `end` is exclusive."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    start: int
    end: int
    sent: int
    """the position up to which it was sent, as last recorded"""
    alive_until: EpochMs
    """when it counts as interrupted, unless more is sent"""


class Ticket(BaseModel):
    """One download of an uploaded file. A ticket delivers each byte once."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    path: str
    name: str
    is_counted: bool = False
    """whether its first bytes were sent"""
    sent: list[tuple[int, int]] = []
    """the byte ranges that were sent, sorted and disjoint; ends are exclusive"""
    streams: dict[str, Stream] = {}
    """the byte ranges that are being sent"""


class PastLink(BaseModel):
    """The expiry of a link, remembered after it has expired."""

    expires_at: EpochMs


class FilesPlace(BaseModel):
    """The location of the files of a store."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    marker: str
    """the content of the file `keystead-files`, unique to this location"""
    place: str
    """its URL when first used, for error messages"""


class Claim(BaseModel):
    """The claim of a clean-up run on an upload. Expires if the process dies."""

    until: EpochMs


class Retry(BaseModel):
    """A file that could not be deleted: the number of attempts, and the time of the next one."""

    attempts: int
    not_before: EpochMs
