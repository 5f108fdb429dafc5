"""The owner token of a new widget, and its hash."""

from __future__ import annotations

from keystead.kits.widgets.service.outcomes import Visitor
from keystead.kits.widgets.service.refused import try_again
from keystead.parts.passwords import PasswordsBusy, hash_password


class OwnerToken:
    """An owner token, hashed (slowly) at most once, and only when needed."""

    def __init__(self, token: str, visitor: Visitor) -> None:
        self.token = token
        self.visitor = visitor
        self.matching: set[str] = set()  # stored hashes that the token was found to match
        self._hash: str | None = None

    async def hash(self) -> str:
        """Raises WidgetRefused if too many tokens are being hashed."""
        if self._hash is None:
            try:
                self._hash = await hash_password(self.token)
            except PasswordsBusy as busy:
                raise try_again(str(busy)) from None
        return self._hash


def strip_quotes(text: str) -> str:
    """The text without JSON quotes, which the original system writes around some values."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
