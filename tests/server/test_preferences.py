"""The switches for language and colours: `POST /preferences`."""

import pytest

from keystead.kits.login import KIT as LOGIN
from keystead.kits.login.service.outcomes import UNKNOWN_VISITOR
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


async def test_the_choice_of_a_signed_in_user_holds_in_their_other_browsers_and_after_the_next_sign_in() -> None:
    async with serving([LOGIN]) as server:
        first, second = await server.sign_in(), await server.sign_in()
        stranger = await server.sign_in("demo.demo-grace", "Grace Hopper")
        korean = HTML | {"accept-language": "ko"}
        await second.post("/preferences", headers=FORM, content="language=en&theme=light&back=/account")
        await first.post("/preferences", headers=FORM, content="language=ja&theme=dark&back=/account")
        for browser, wanted in (
            (first, '<html lang="ja" data-theme="dark">'),
            (second, '<html lang="ja" data-theme="dark">'),  # although its own cookie says otherwise
            (stranger, '<html lang="ko">'),
        ):
            assert wanted in (await browser.get("/account", headers=korean)).text
        await second.post("/preferences", headers=FORM, content="theme=system&back=/account")
        assert '<html lang="ja">' in (await first.get("/account", headers=korean)).text
        login = server.app.state.kits["login"]
        live, *_ = await login.sessions.list_for("demo.demo-ada")
        await login.sessions.revoke_all("demo.demo-ada")
        again = await login.sign_ins._create_session(
            live.session.model_copy(update={"language": None, "theme": None}), None, UNKNOWN_VISITOR
        )
        assert '<html lang="ja">' in (await server.browser(again.token).get("/account", headers=korean)).text
        await first.post("/preferences", headers=FORM, content="language=en&back=/account")  # its session has ended
        assert '<html lang="ja">' in (await server.browser(again.token).get("/account", headers=korean)).text
