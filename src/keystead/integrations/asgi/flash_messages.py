"""Flash messages: what one response says about the next page, shown once."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex
from typing import Final

from keystead.integrations.asgi.request_session import RequestSession
from keystead.integrations.asgi.requests import HasScope, session_of

FLASHES_MAX: Final = 20
_PREFIX: Final = "_flash:"


@dataclass(frozen=True)
class Flash:
    """A message, and what it is about, such as `info` or `error`."""

    message: str
    category: str

    def __str__(self) -> str:
        return self.message


def flash(request: HasScope, message: str, category: str = "info") -> None:
    """Keep a message for the next page: `flash(request, "Saved")`. It begins a session, if there is none.

    The latest 20 are kept, for applications whose pages show none.
    """
    session = session_of(request)
    names = _flash_names(session)
    for name in names[: max(0, len(names) - FLASHES_MAX + 1)]:
        del session[name]
    # Each message is a key by itself, so that those of two requests are both kept. The number keeps their order.
    number = 1 + (_number_of(names[-1]) if names else 0)
    session[f"{_PREFIX}{number}:{token_hex(4)}"] = [message, category]


def take_flashes(request: HasScope) -> list[Flash]:
    """The messages for this page, oldest first. They are removed with this response, so they are shown once.

    Two pages that load at the same moment may both show a message.
    """
    session = session_of(request)
    return [Flash(*session.pop(name)) for name in _flash_names(session)]


def _flash_names(session: RequestSession) -> list[str]:
    """The keys of the messages, oldest first."""
    names = [name for name in session if name.startswith(_PREFIX)]
    return sorted(names, key=lambda name: (_number_of(name), name))


def _number_of(name: str) -> int:
    return int(name.split(":")[1])
