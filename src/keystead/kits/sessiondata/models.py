"""Field names of session data: a key, and a page if the value belongs to one page."""

from typing import NamedTuple


class SessionField(NamedTuple):
    """A field of a session: `ViewMode`, or `ViewMode_Items/100` for the page Items/100."""

    key: str
    page: str | None = None


class UserField(NamedTuple):
    """A field of a user's area: `User_Theme`, or `User_View_Items/200`. The key is the part after `User_`."""

    key: str
    page: str | None = None
