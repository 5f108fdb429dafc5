"""Results and errors of the sharing service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from keystead.errors import KeysteadError


class SharingRefused(KeysteadError):
    """A request of the sharing kit is refused. `reason` is a stable code; `more` has further fields of the response."""

    code = "sharing-refused"

    def __init__(self, reason: str, sentence: str, **more: object) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.more = more


@dataclass(frozen=True)
class Wanted:
    """The options of a new link."""

    valid_until: int | str | None = None
    """the expiry, in ms since 1970 or as an ISO 8601 time with an offset; None: the default lifetime"""
    purpose: str | None = None
    max_downloads: int | None = None
    password: str | None = field(default=None, repr=False)
    owner_only: bool = False
    display_name: str | None = None
    message: str | None = None
    theme: str | None = None
    receiver: str | None = None
    user_id: str | None = None
    """the id of the signed-in user who owns the link"""


@dataclass(frozen=True)
class Issued:
    """A new link. The owner key, shown only once, gives access to its status and can end it."""

    id: str
    token: str = field(repr=False)
    short_token: str = field(repr=False)
    owner_key: str = field(repr=False)
    expires_ms: int
    name: str
    path: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Shown:
    """The details of a link, for viewing it. Viewing uses up nothing."""

    name: str
    expires_ms: int
    purpose: str
    size: int | None = None
    needs_password: bool = False
    downloads_left: int | None = None
    message: str | None = None
    theme: str | None = None
    receiver: str | None = None


@dataclass(frozen=True)
class Resolved:
    """The target of a link after all checks: an external URL, or a ticket for an uploaded file."""

    name: str
    display_name: str
    expires_ms: int
    purpose: str
    url: str | None = None
    ticket: str | None = field(default=None, repr=False)
    path: str | None = None
    message: str | None = None
    theme: str | None = None


@dataclass(frozen=True)
class Status:
    """The status of a link, for its owner."""

    expires_ms: int
    downloads: int
    max_downloads: int | None
    ready: bool


@dataclass(frozen=True)
class OwnLink:
    """A link in the list of its owner."""

    id: str
    name: str
    short_token: str | None = field(repr=False)
    expires_ms: int
    downloads: int
    max_downloads: int | None
    ready: bool
    has_password: bool
    size: int | None = None
    receiver: str | None = None


@dataclass(frozen=True)
class Download:
    """A download. `start` and `length` are those of the body, `size` is that of the whole file. `tag` identifies the
    file."""

    name: str
    size: int
    start: int
    length: int
    is_part: bool
    tag: str
    body: AsyncIterator[bytes]


def ended() -> SharingRefused:
    return SharingRefused("REVOKED", "this link was ended; ask for a new one")


def used_up() -> SharingRefused:
    return SharingRefused("USED_UP", "this link has reached its download limit; ask for a new one")


def expired(expires_ms: int) -> SharingRefused:
    return SharingRefused("EXPIRED", "this link has expired; ask for a new one", exp=expires_ms)
