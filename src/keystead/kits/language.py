"""The language of a request, and texts in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from markupsafe import Markup, escape
from starlette.requests import HTTPConnection

from keystead.catalogue import LANGUAGES, Catalogue, Language
from keystead.http.accept import preferred_language
from keystead.http.cookies import Cookie

# The choices of the switches on every page. Not secret, but the cookie attributes are right for them, too.
CHOICE_SECONDS: Final = 365 * 86_400


def language_of(accept_language: str, otherwise: Language = "en") -> Language:
    """The preferred supported language of an `Accept-Language` header; `otherwise` if there is none."""
    return preferred_language(accept_language, (otherwise, *(one for one in LANGUAGES if one != otherwise)))


def language_cookie(secure: bool) -> Cookie:
    return Cookie("language", secure)


def choose_language(connection: HTTPConnection, secure: bool, otherwise: Language = "en") -> Language:
    """The language that was chosen with the switch on a page; else the browser's, else `otherwise`."""
    chosen = language_cookie(secure).find(connection.headers)
    for language in LANGUAGES:
        if chosen == language:
            return language
    return language_of(connection.headers.get("accept-language", ""), otherwise)


Messages: TypeAlias = Mapping[str, tuple[str, str, str]]


class Speaker:
    """Texts in one language: `say("Hello, {name}", name="Ada")` for an English text of one of the catalogues.

    messages   texts by a key of their own, each in the order of `LANGUAGES`
    """

    def __init__(self, language: Language, *catalogues: Catalogue, messages: Messages | None = None) -> None:
        self.language = language
        self._catalogues = catalogues
        self._messages = messages or {}

    def __call__(self, text: str, /, **values: object) -> str:
        """The text with the values filled in. With a value that is markup, the result is markup."""
        return _fill(self._translate(text), values)

    def plural(self, one: str, many: str, count: int, /, **values: object) -> str:
        """One of two texts, by `count`, which is filled in as `{count}`."""
        found = self._find(one)
        text = found if found is not None else one if count == 1 else many
        return _fill(text, {"count": self.number(count), **values})

    def number(self, number: int) -> str:
        """With the separators of the language."""
        from babel.numbers import format_decimal

        return format_decimal(number, locale=self.language)

    def moment(self, at: datetime) -> str:
        """A date and a time to the minute."""
        from babel.dates import format_datetime

        return format_datetime(at, "medium", tzinfo=at.tzinfo, locale=self.language)

    def knows(self, text: str) -> bool:
        """Whether the text exists in this language. All exist in English."""
        return self.language == "en" or self._find(text) is not None

    def behind(self, catalogue: Catalogue) -> Speaker:
        """The same, with a further catalogue for texts that the others do not have."""
        return Speaker(self.language, *self._catalogues, catalogue, messages=self._messages)

    def script_messages(self) -> dict[str, str]:
        """The translations of the texts in the scripts of the pages, by the English text."""
        found: dict[str, str] = {}
        for catalogue in reversed(self._catalogues):
            found |= catalogue.script_messages(self.language)
        return found

    def _translate(self, text: str) -> str:
        if text in self._messages:
            return self._messages[text][LANGUAGES.index(self.language)]
        found = self._find(text)
        return text if found is None else found

    def _find(self, text: str) -> str | None:
        found = (catalogue.find(self.language, text) for catalogue in self._catalogues)
        return next((translation for translation in found if translation is not None), None)


def _fill(text: str, values: Mapping[str, Any]) -> str:
    if any(hasattr(value, "__html__") for value in values.values()):
        return Markup(escape(text)).format(**values)  # noqa: S704 - escaped here
    return text.format(**values) if values else text
