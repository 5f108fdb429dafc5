"""The languages of pages, and the choice of one by `Accept-Language`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

from keystead.http.accept import preferred_language

Language: TypeAlias = Literal["en", "ja", "ko"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)


def language_of(accept_language: str) -> Language:
    """The preferred supported language of an `Accept-Language` header; English if there is none."""
    return preferred_language(accept_language, LANGUAGES)


Messages: TypeAlias = Mapping[str, tuple[str, str, str]]

# Texts of the layout of every page.
FRAME: Final[Messages] = {
    "skip": ("Skip to the content", "本文へ移動", "본문으로 이동"),
    "foot": (
        "This page loads nothing from elsewhere.",
        "このページは外部から何も読み込みません。",
        "이 페이지는 외부에서 아무것도 불러오지 않습니다.",
    ),
}


class Speaker:
    """The texts of a kit's pages in one language: `say("hello", name="Ada")`.

    messages   each text in all languages, in the order of `LANGUAGES`
    script     texts for the script of a page, which fills in `{name}` itself
    """

    def __init__(self, language: Language, messages: Messages, script: Messages | None = None) -> None:
        self.language = language
        self._index = LANGUAGES.index(language)
        self._messages = {**FRAME, **messages}
        self._script = script or {}

    def __call__(self, key: str, /, **values: object) -> str:
        text = self._messages[key][self._index]
        return text.format(**values) if values else text

    def script_words(self) -> dict[str, str]:
        return {key: texts[self._index] for key, texts in self._script.items()}

    def knows(self, key: str) -> bool:
        return key in self._messages
