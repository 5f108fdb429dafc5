"""The owner's token, as it is hashed and compared."""

from __future__ import annotations

from keystead.kits.widgets.service.outcomes import Visitor
from keystead.kits.widgets.service.refused import WidgetRefused
from keystead.parts.passwords import PasswordsBusy, hash_password


class OwnerToken:
    """The token of a new widget, and its slow hash, which is made once and only if it is needed."""

    def __init__(self, token: str, visitor: Visitor) -> None:
        self.token = token
        self.visitor = visitor
        self.fits: set[str] = set()  # hashes that it was found to fit
        self._hash: str | None = None

    async def hashed(self) -> str:
        if self._hash is None:
            try:
                self._hash = await hash_password(self.token)
            except PasswordsBusy as busy:
                raise WidgetRefused("TRY_AGAIN", str(busy), retry_after_s=1) from None
        return self._hash


def unquoted(text: str) -> str:
    """A text that may stand there as JSON."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
