"""What a kit says no with, over HTTP."""

from collections.abc import Mapping
from typing import Final

# A key of the scope of a request: under which name its errors tell the code once more, for clients that know it so.
CODE_ALIAS: Final = "keystead.code_alias"


class Refusal(Exception):
    """An answer that is no success: its status, a stable code for programs, and a sentence for people.

    The server writes it as `{"ok": false, "error": sentence, "code": code}` with `more` beside that, or as a page where
    a browser asks for one. The sentence holds no secret and does not tell whether an id exists.

    `sign_in_helps`: whoever signs in may do it, so the page leads there. Where a key or a token of another kind is
    needed, that would be a dead end.
    """

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
        sign_in_helps: bool = False,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        self.sign_in_helps = sign_in_helps
