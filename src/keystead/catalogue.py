"""Message catalogues: English in the code, translations beside it in `locale/ja.po` and `locale/ko.po` (gettext).

`scripts/messages.py` collects the messages of templates, Python and scripts, and brings the files up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

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
    # Imported with the first text that is not in English.
    from babel.messages.pofile import read_po

    if not path.is_file():
        return _Translations({}, ())
    with path.open("rb") as file:
        entries = [entry for entry in read_po(file) if entry.id and entry.string and not entry.fuzzy]
    texts = {_first(entry.id): _first(entry.string or "") for entry in entries}
    return _Translations(
        {text: translation for text, translation in texts.items() if translation},
        [_first(entry.id) for entry in entries if any(name.endswith(".js") for name, _ in entry.locations)],
    )


def _first(forms: str | Sequence[str]) -> str:
    return forms if isinstance(forms, str) else forms[0]
