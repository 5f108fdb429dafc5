"""What comes of a link: it is issued, it leads somewhere, or it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from keystead.errors import KeysteadError


class SharingRefused(KeysteadError):
    """Something about a link is refused. `reason` is a stable word; `more` is told beside the sentence."""

    code = "sharing-refused"

    def __init__(self, reason: str, sentence: str, **more: object) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.more = more


@dataclass(frozen=True)
class Wanted:
    """What whoever issues a link wants of it."""

    valid_until: int | str | None = None
    """when it expires, in ms since 1970 or as an ISO 8601 time with its offset; None: after the default"""
    purpose: str | None = None
    max_downloads: int | None = None
    password: str | None = field(default=None, repr=False)
    owner_only: bool = False
    display_name: str | None = None
    message: str | None = None
    theme: str | None = None
    receiver: str | None = None
    user_id: str | None = None
    """whose link it is: the id of a user who is signed in"""


@dataclass(frozen=True)
class Issued:
    """A new link. The owner's key ends it, and tells how often it was used; it is shown once."""

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
    """What a link is, for somebody who looks at it. Looking uses nothing up."""

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
    """Where a link leads, for somebody who was let through: a URL elsewhere, or a ticket for a file that is here."""

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
    """What the owner of a link may know."""

    expires_ms: int
    downloads: int
    max_downloads: int | None
    ready: bool


@dataclass(frozen=True)
class OwnLink:
    """A link, for the user whose it is."""

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
    """A file on its way. `start` is where its body begins, `length` how many bytes it has; `size` is the whole file.

    `tag` is the same for the same file, and for no other.
    """

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
    return SharingRefused("USED_UP", "this link was used as often as it may be; ask for a new one")


def expired(expires_ms: int) -> SharingRefused:
    return SharingRefused("EXPIRED", "this link has expired; ask for a new one", exp=expires_ms)
