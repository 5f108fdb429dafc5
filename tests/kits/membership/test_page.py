"""The try page is in English, Japanese and Korean."""

import pytest

from keystead.catalogue import LANGUAGES, Language
from tests.kits.membership.test_stand_in import serving

TITLES: dict[Language, str] = {"en": "Try a membership", "ja": "メンバーシップを試す", "ko": "멤버십 체험"}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_it_is_in_the_language_that_the_browser_asks_for(language: Language) -> None:
    async with serving() as http:
        page = (await http.get("/membership/try", headers={"accept-language": f"{language};q=0.9"})).text
    assert f'<html lang="{language}">' in page
    assert f'<h1 id="title">{TITLES[language]}</h1>' in page
