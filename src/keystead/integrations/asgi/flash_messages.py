"""Flash messages: what one response says about the next page, shown once."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from keystead.integrations.asgi.requests import HasScope, session_of

_PREFIX: Final = "_flash:"


@dataclass(frozen=True)
class Flash:
    """A message, and what it is about, such as `info` or `error`."""

    message: str
    category: str

    def __str__(self) -> str:
        return self.message


def flash(request: HasScope, message: str, category: str = "info") -> None:
    """Keep a message for the next page: `flash(request, "Saved")`. It begins a session, if there is none."""
    session = session_of(request)
    # Each message is a key by itself, so that those of two requests are both kept. The number keeps their order.
    number = 1 + max((int(name.split(":")[1]) for name in session if name.startswith(_PREFIX)), default=0)
    session[f"{_PREFIX}{number}:{token_hex(4)}"] = [message, category]


def take_flashes(request: HasScope) -> list[Flash]:
    """The messages for this page, oldest first. They are removed with this response, so they are shown once.

    Two pages that load at the same moment may both show a message.
    """
    session = session_of(request)
    names = [name for name in session if name.startswith(_PREFIX)]
    names.sort(key=lambda name: (int(name.split(":")[1]), name))
    return [Flash(*session.pop(name)) for name in names]
