"""The try page is in English, Japanese and Korean."""

import re
from pathlib import Path

import pytest

import keystead
from keystead.kits.language import FRAME, LANGUAGES, Language
from keystead.kits.membership.messages import MESSAGES, SCRIPT
from tests.kits.membership.test_stand_in import serving

SOURCE = Path(keystead.__file__).parent
TITLES: dict[Language, str] = {"en": "Try a membership", "ja": "メンバーシップを試す", "ko": "멤버십 체험"}


def test_every_text_exists_in_each_language_with_the_same_placeholders() -> None:
    for name, said in (*FRAME.items(), *MESSAGES.items(), *SCRIPT.items()):
        assert len(said) == len(LANGUAGES), name
        assert all(said), name
        assert len({frozenset(re.findall(r"\{\w+\}", text)) for text in said}) == 1, name


def test_the_page_and_its_script_use_exactly_the_defined_texts() -> None:
    page = (SOURCE / "kits/membership/pages/try.html").read_text()
    assert set(re.findall(r'\bsay\("(\w+)"', page)) == {*MESSAGES, *FRAME}
    script = (SOURCE / "kits/membership/assets/membership-try.js").read_text()
    said = {name for call in re.findall(r"\bsay\(([^()]*)", script) for name in re.findall(r'"(\w+)"', call)}
    assert said | {name for name in SCRIPT if name.endswith("_patron")} == set(SCRIPT)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_it_is_in_the_language_that_the_browser_asks_for(language: Language) -> None:
    async with serving() as http:
        page = (await http.get("/membership/try", headers={"accept-language": f"{language};q=0.9"})).text
    assert f'<html lang="{language}">' in page
    assert f'<h1 id="title">{TITLES[language]}</h1>' in page
