"""What the page that makes widgets says: every phrase of it is there in Japanese and Korean, and none for nothing."""

import re
from pathlib import Path

import keystead
from keystead.kits.widgets.words import _PHRASES, phrases, translated

ROOT = Path(keystead.__file__).parent
SOURCES = (ROOT / "kits/widgets/pages/gallery.html", ROOT / "kits/widgets/assets/widgets-gallery.js")
PHRASE = re.compile(r'\bt\("((?:[^"\\]|\\.)*)"')


def said() -> set[str]:
    return {phrase for source in SOURCES for phrase in PHRASE.findall(source.read_text("utf-8"))}


def test_every_phrase_is_translated_and_every_translation_is_said() -> None:
    assert said() == set(_PHRASES)


def test_a_translation_names_the_same_values() -> None:
    def names(text: str) -> list[str]:
        return sorted(re.findall(r"\{(\w+)\}", text))

    for english, both in _PHRASES.items():
        assert [names(one) for one in both] == [names(english)] * 2, english
        assert all(one.strip() for one in both), english


def test_a_phrase_is_in_the_language_that_is_asked_for() -> None:
    assert translated("en", "{count} or more", count=4) == "4 or more"
    assert translated("ja", "{count} or more", count=4) == "4桁以上"
    assert translated("ko", "Copy") == "복사"
    assert phrases("en") == {}
    assert phrases("ko")["Copy"] == "복사"
