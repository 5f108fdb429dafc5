"""The values of the sharing kit, with the names that their fields have in the stored JSON."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from keystead.schema import EpochMs, IsoTime, OmittedIfNone, Sealed


class EdgeMeta(BaseModel):
    """What the clean-up job must know to delete an upload. One of `blob_name` and `pathname` is enough."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    blob_name: OmittedIfNone[str] = None
    """the name of the file where it is kept"""
    pathname: OmittedIfNone[str] = None
    """the same, by its path"""
    expires_at: IsoTime
    short_token: OmittedIfNone[str] = None
    """the link to it, if there is one"""
    upload: OmittedIfNone[Literal["under way", "given up"]] = None
    """an upload that is not complete; `expires_at` is then the end of its lease, which its process renews"""
    size: OmittedIfNone[int] = None
    """how many bytes of the storage quota it takes"""
    charged_to: OmittedIfNone[str] = None
    """whose quota that is, beside that of all"""

    @model_validator(mode="after")
    def _names_the_file(self) -> Self:
        if not (self.blob_name or self.pathname):
            raise ValueError("blob_name or pathname must name the file")
        return self

    @property
    def path(self) -> str:
        """Where the file is kept."""
        return self.pathname or self.blob_name or ""


class Link(BaseModel):
    """A link that can be used, and what its owner wanted of it."""

    model_config = ConfigDict(use_attribute_docstrings=True, hide_input_in_errors=True)

    expires_at: EpochMs
    short_token: str
    """the digest in the key of its short token"""
    owner: str
    """the digest of the secret with which its owner can end it"""
    ready: bool = True
    """false while the file is still being uploaded"""
    owner_only: OmittedIfNone[bool] = None
    """whether only its owner can end it; else whoever has the link can, too"""
    max_downloads: OmittedIfNone[int] = None
    password: OmittedIfNone[Sealed[str]] = None
    """the password that it asks for, as a slow hash"""
    display_name: OmittedIfNone[Sealed[str]] = None
    message: OmittedIfNone[Sealed[str]] = None
    theme: OmittedIfNone[str] = None
    receiver: OmittedIfNone[Sealed[str]] = None
    """for whom it is, as its owner calls them"""
    user_id: OmittedIfNone[str] = None
    """the login id of the user who made the link"""
    short: OmittedIfNone[Sealed[str]] = None
    """of a user's link: its short token, so that the user can copy the link again"""


class Stream(BaseModel):
    """A part of a file that is on its way, from `start` up to `end`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    start: int
    end: int
    sent: int
    """up to where it was sent, when that was last written down"""
    alive_until: EpochMs
    """when it counts as broken off, unless more of it was sent"""


class Ticket(BaseModel):
    """One download of a file that is kept here, for a client that was just let through. It gives each byte once."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    path: str
    name: str
    is_counted: bool = False
    """whether its first bytes went out"""
    sent: list[tuple[int, int]] = []
    """the parts of the file that were sent, each from a byte up to another, in order and apart from each other"""
    streams: dict[str, Stream] = {}
    """the parts that are on their way"""


class PastLink(BaseModel):
    """What is remembered of a link, by its short token, for some time after it has expired."""

    expires_at: EpochMs


class FilesPlace(BaseModel):
    """Where the files of a store are."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    marker: str
    """what the file `keystead-files` holds there, and nowhere else"""
    place: str
    """its address when it was first used, for people"""


class Claim(BaseModel):
    """A run of the clean-up is at work on an upload; when its process died, until then."""

    until: EpochMs


class Retry(BaseModel):
    """A file that would not go: how often that was tried, and when it is tried again."""

    attempts: int
    not_before: EpochMs
