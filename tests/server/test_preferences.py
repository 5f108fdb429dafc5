"""The switches for language and colours: `POST /preferences`."""

import pytest

from keystead.kits.login import KIT as LOGIN
from tests.kits.signing_in import HTML, OWN, serving

FORM = OWN | {"content-type": "application/x-www-form-urlencoded"}


async def test_a_chosen_language_precedes_that_of_the_browser() -> None:
    async with serving([LOGIN]) as server:
        browser = server.browser()
        korean = HTML | {"accept-language": "ko"}
        assert '<html lang="ko">' in (await browser.get("/login", headers=korean)).text
        chosen = await browser.post("/preferences", headers=FORM, content="language=ja&back=/login?a=b")
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/login?a=b")
        assert '<html lang="ja">' in (await browser.get("/login", headers=korean)).text
        assert '<html lang="ja">' in (await browser.get("/no-such-page", headers=korean)).text


@pytest.mark.parametrize("back", ["https://example.com/", "//example.com", "/\\example.com", "", "/a b"])
async def test_a_choice_returns_to_this_site_only(back: str) -> None:
    async with serving([LOGIN]) as server:
        chosen = await server.browser().post("/preferences", headers=FORM, content=f"theme=dark&back={back}")
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/")


async def test_another_site_and_an_unknown_choice_change_nothing() -> None:
    async with serving([LOGIN]) as server:
        foreign = FORM | {"origin": "https://example.com"}
        for headers, content, status in ((foreign, "theme=dark", 403), (FORM, "theme=pink&language=xx", 400)):
            refused = await server.browser().post("/preferences", headers=headers, content=content)
            assert refused.status_code == status
            assert "set-cookie" not in refused.headers
