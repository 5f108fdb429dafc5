"""The message catalogues: complete, without leftovers, and with the same placeholders in every language."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from keystead.catalogue import LANGUAGES, Catalogue, Speaker, language_of_environment
from scripts import messages
from tests.servers.node_packages import node_with

PLACEHOLDER = re.compile(r"\{\w*\}")
TRANSLATED = [one for one in LANGUAGES if one != "en"]
KITS = messages.PACKAGE / "kits"
# The texts of widgets, which run on pages of other sites.
WIDGET_TEXTS = KITS / "widgets/components/words.js"


# The folders whose code speaks to people.
TRANSLATED_FOLDERS = {
    "cli",
    "console",
    "demo",
    "kits/login",
    "kits/membership",
    "kits/sessiondata",
    "kits/sharing",
    "kits/teamwork",
    "kits/widgets",
    "schema/docs",
    "server",
}


def placeholders(text: str) -> list[str]:
    return sorted(PLACEHOLDER.findall(text))


def test_every_folder_that_speaks_to_people_has_a_catalogue() -> None:
    assert {one.relative_to(messages.PACKAGE).as_posix() for one in messages.folders()} == TRANSLATED_FOLDERS


def test_every_message_of_the_code_is_translated_and_no_translation_is_unused() -> None:
    offenders = []
    for folder in messages.folders():
        wanted = {messages.first_form(entry.id) for entry in messages.messages_of(folder) if entry.id}
        assert wanted, folder
        for language in TRANSLATED:
            path = folder / "locale" / f"{language}.po"
            known = {messages.first_form(one.id): one for one in messages.read_catalogue(path) if one.id}
            name = path.relative_to(messages.PACKAGE)
            offenders += [f"{name}: missing, run scripts/messages.py: {text}" for text in wanted - known.keys()]
            offenders += [f"{name}: unused, run scripts/messages.py: {text}" for text in known.keys() - wanted]
            offenders += [
                f"{name}: not translated: {text}"
                for text, one in known.items()
                if not messages.first_form(one.string or "") or one.fuzzy
            ]
    assert offenders == []


def test_translations_have_the_placeholders_of_the_english_text() -> None:
    offenders = []
    for folder in messages.folders():
        for language in TRANSLATED:
            path = folder / "locale" / f"{language}.po"
            for one in messages.read_catalogue(path):
                if not one.id:
                    continue
                english = one.id if isinstance(one.id, str) else one.id[-1]
                if placeholders(messages.first_form(one.string or "")) != placeholders(english):
                    offenders.append(f"{path.relative_to(messages.PACKAGE)}: {english}")
    assert offenders == []


def test_widgets_have_the_same_texts_in_each_language() -> None:
    """Each text in all languages, of the same shape: text, function or table."""
    look = """
      const [path] = process.argv.slice(1);
      const { wordsOf } = await import(path);
      const shape = (words) => Object.fromEntries(Object.entries(words).map(([name, text]) =>
        [name, text !== null && typeof text === "object" && !Array.isArray(text) ? shape(text) : typeof text]));
      process.stdout.write(JSON.stringify(["en", "ja", "ko"].map((one) => shape(wordsOf(one)))));
    """
    node, _ = node_with("oidc")
    out = subprocess.check_output([node, "--input-type=module", "--eval", look, WIDGET_TEXTS.as_uri()], text=True)
    english, japanese, korean = json.loads(out)
    assert len(english) > 20
    assert japanese == english
    assert korean == english


def test_a_catalogue_is_read_as_by_babel() -> None:
    for folder in messages.folders():
        for language in LANGUAGES[1:]:
            entries = [one for one in messages.read_catalogue(folder / "locale" / f"{language}.po") if one.id]
            catalogue = Catalogue(folder)
            assert {
                one: catalogue.find(language, one) for one in (messages.first_form(each.id) for each in entries)
            } == {messages.first_form(one.id): messages.first_form(one.string or "") for one in entries}, folder


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "ja_JP.UTF-8"}, "ja"),
        ({"LANG": "ko"}, "ko"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "jam_JM"}, "en"),
        ({"LANG": "ja_JP.UTF-8", "LC_MESSAGES": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ja_JP.UTF-8", "LC_MESSAGES": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LC_ALL": "C.UTF-8", "KEYSTEAD_LANGUAGE": "ja"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LC_ALL": "", "KEYSTEAD_LANGUAGE": ""}, "ja"),
    ],
)
def test_a_terminal_has_the_language_of_the_setting_and_else_of_the_locale(
    environment: dict[str, str], language: str
) -> None:
    assert language_of_environment(environment) == language


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    (tmp_path / "locale").mkdir()
    (tmp_path / "locale/ja.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
        'msgid "Hello, {name}"\nmsgstr "こんにちは、{name} さん"\n\n'
        'msgid "{count} key"\nmsgid_plural "{count} keys"\nmsgstr[0] "{count} 個のキー"\n\n'
        '#: assets/a.js\nmsgid "Copy"\nmsgstr "コピー"\n\n'
        'msgid "Empty"\nmsgstr ""\n'
    )
    return Catalogue(tmp_path)


def test_texts_plurals_and_numbers_follow_the_language(catalogue: Catalogue) -> None:
    say, english = Speaker("ja", catalogue), Speaker("en", catalogue)
    assert say("Hello, {name}", name="Ada") == "こんにちは、Ada さん"
    assert say.plural("{count} key", "{count} keys", 1200) == "1,200 個のキー"
    assert [english.plural("{count} key", "{count} keys", n) for n in (0, 1, 1200)] == ["0 keys", "1 key", "1,200 keys"]
    assert say("Empty") == say.plural("Empty", "Empties", 1) == "Empty"
    assert (say.knows("Empty"), say.knows("Copy"), english.knows("anything")) == (False, True, True)
    assert say.script_messages() == {"Copy": "コピー"}
    assert english.script_messages() == {}
    assert Speaker("ko", catalogue)("Copy") == "Copy"
