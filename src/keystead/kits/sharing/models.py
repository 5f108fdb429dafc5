"""The values of the sharing kit, with the names that their fields have in the stored JSON."""

from typing import Self

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


class Ticket(BaseModel):
    """A download of a file that is kept here, for whoever was just let through."""

    id: str
    path: str
    name: str


class Retry(BaseModel):
    """A file that would not go: how often that was tried, and when it is tried again."""

    attempts: int
    not_before: EpochMs
