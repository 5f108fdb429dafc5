"""Phrases of the page that creates widgets, and their translations."""

import re
from pathlib import Path

import keystead
from keystead.kits.widgets.words import _PHRASES, phrases, translate

ROOT = Path(keystead.__file__).parent
KIT = ROOT / "kits/widgets"
SOURCES = (KIT / "pages/gallery.html", KIT / "assets/widgets-gallery.js", KIT / "assets/widgets-kinds.js")
PHRASE = re.compile(r'\bt\("((?:[^"\\]|\\.)*)"')


def used_phrases() -> set[str]:
    return {phrase for source in SOURCES for phrase in PHRASE.findall(source.read_text("utf-8"))}


def test_every_phrase_is_translated_and_no_translation_is_unused() -> None:
    assert used_phrases() == set(_PHRASES)


def test_translations_have_the_same_placeholders() -> None:
    def names(text: str) -> list[str]:
        return sorted(re.findall(r"\{(\w+)\}", text))

    for english, both in _PHRASES.items():
        assert [names(one) for one in both] == [names(english)] * 2, english
        assert all(one.strip() for one in both), english


def test_translate_returns_the_requested_language() -> None:
    assert translate("en", "{count} or more", count=4) == "4 or more"
    assert translate("ja", "{count} or more", count=4) == "4桁以上"
    assert translate("ko", "Copy") == "복사"
    assert phrases("en") == {}
    assert phrases("ko")["Copy"] == "복사"
