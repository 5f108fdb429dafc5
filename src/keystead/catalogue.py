"""Message catalogues: English in the code, translations beside it in `locale/ja.po` and `locale/ko.po` (gettext).

`scripts/messages.py` collects the messages of templates, Python and scripts, and brings the files up to date.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from datetime import datetime

Language: TypeAlias = Literal["en", "ja", "ko"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
NAMES: Final[Mapping[Language, str]] = {"en": "English", "ja": "日本語", "ko": "한국어"}


def message(text: str) -> str:
    """Marks a text that is translated where it is used, such as one in a table of constants."""
    return text


@dataclass(frozen=True)
class _Translations:
    """The translations of one language, by the English text.

    A message with a plural has one translation: Japanese and Korean have one form for every number.
    """

    texts: Mapping[str, str]
    in_scripts: Sequence[str]


class Catalogue:
    """The messages of the code in one folder, which has its translations in `locale`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, language: Language, text: str) -> str | None:
        """The translation of a text, or of its singular; None if there is none."""
        return None if language == "en" else self._translations(language).texts.get(text)

    def script_messages(self, language: Language) -> dict[str, str]:
        """The translations of the messages in scripts, by the English text; empty for English."""
        if language == "en":
            return {}
        known = self._translations(language)
        return {text: known.texts[text] for text in known.in_scripts}

    def _translations(self, language: Language) -> _Translations:
        return _load(self.folder / "locale" / f"{language}.po")


@lru_cache(maxsize=128)
def _load(path: Path) -> _Translations:
    """Read a file as `scripts/messages.py` writes it. This is fast, so that help in any language is."""
    if not path.is_file():
        return _Translations({}, ())
    texts, in_scripts = {}, []
    for entry in path.read_text("utf-8").split("\n\n")[1:]:
        fields = {name: "".join(map(json.loads, _STRING.findall(lines))) for name, lines in _FIELD.findall(entry)}
        text, translation = fields.get("msgid", ""), fields.get("msgstr", "")
        if not text or not translation or "#, fuzzy" in entry:
            continue
        texts[text] = translation
        if _SCRIPT.search(entry):
            in_scripts.append(text)
    return _Translations(texts, in_scripts)


# A translation of a message with a plural is `msgstr[0]`, as Japanese and Korean have one form.
_FIELD: Final = re.compile(r'^(msgid|msgstr)(?:\[0\])? ((?:"[^\n]*"\n?)+)', re.MULTILINE)
_STRING: Final = re.compile(r'^"[^\n]*"$', re.MULTILINE)
_SCRIPT: Final = re.compile(r"^#: .*\.js\b", re.MULTILINE)


def language_of_environment(environment: Mapping[str, str]) -> Language:
    """The language of a terminal: KEYSTEAD_LANGUAGE, else the locale; English for all others."""
    for name in ("KEYSTEAD_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        if chosen := environment.get(name):
            return next((one for one in LANGUAGES if re.match(rf"{one}\b|{one}_", chosen, re.IGNORECASE)), "en")
    return "en"


class Speaker:
    """Texts in one language: `say("Hello, {name}", name="Ada")` for an English text of one of the catalogues."""

    def __init__(self, language: Language, *catalogues: Catalogue) -> None:
        self.language = language
        self._catalogues = catalogues

    def __call__(self, text: str, /, **values: object) -> str:
        """The text with the values filled in. With a value that is markup, the result is markup."""
        return _fill(self._translate(text), values)

    def plural(self, one: str, many: str, count: int, /, **values: object) -> str:
        """One of two texts, by `count`, which is filled in as `{count}`."""
        found = self._find(one)
        text = found if found is not None else one if count == 1 else many
        return _fill(text, {"count": self.number(count), **values})

    def number(self, number: int) -> str:
        """With separators, which are the same in all of these languages."""
        return f"{number:,}"

    def moment(self, at: datetime) -> str:
        """A date and a time to the minute."""
        from babel.dates import format_datetime

        return format_datetime(at, "medium", tzinfo=at.tzinfo, locale=self.language)

    def knows(self, text: str) -> bool:
        """Whether the text exists in this language. All exist in English."""
        return self.language == "en" or self._find(text) is not None

    def behind(self, catalogue: Catalogue) -> Speaker:
        """The same, with a further catalogue for texts that the others do not have."""
        return Speaker(self.language, *self._catalogues, catalogue)

    def script_messages(self) -> dict[str, str]:
        """The translations of the texts in the scripts of the pages, by the English text."""
        found: dict[str, str] = {}
        for catalogue in reversed(self._catalogues):
            found |= catalogue.script_messages(self.language)
        return found

    def _translate(self, text: str) -> str:
        found = self._find(text)
        return text if found is None else found

    def _find(self, text: str) -> str | None:
        found = (catalogue.find(self.language, text) for catalogue in self._catalogues)
        return next((translation for translation in found if translation is not None), None)


def _fill(text: str, values: Mapping[str, Any]) -> str:
    if any(hasattr(value, "__html__") for value in values.values()):
        from markupsafe import Markup, escape  # only pages need it

        return Markup(escape(text)).format(**values)  # noqa: S704 - escaped here
    return text.format(**values) if values else text
