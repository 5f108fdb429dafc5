"""What a kit says no with, over HTTP."""

from collections.abc import Mapping


class Refusal(Exception):
    """An answer that is no success: its status, a stable code for programs, and a sentence for people.

    The server writes it as `{"ok": false, "error": sentence, "code": code}` with `more` beside that, or as a page where
    a browser asks for one. The sentence holds no secret and does not tell whether an id exists.
    """

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.sentence = sentence
        self.headers = dict(headers or {})
        self.more = dict(more or {})
