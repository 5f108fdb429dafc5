"""The names of the fields of session data: a key, and a page if the value is for one page only."""

from typing import NamedTuple


class SessionField(NamedTuple):
    """A field of a session: `ViewMode`, or `ViewMode_Items/100` for the page Items/100."""

    key: str
    page: str | None = None


class UserField(NamedTuple):
    """A field of a user's area: `User_Theme`, or `User_View_Items/200`. The key is what stands behind `User_`."""

    key: str
    page: str | None = None
