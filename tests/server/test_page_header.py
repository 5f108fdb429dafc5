"""The page header shows the signed-in user, also on the server's own pages and error pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import keystead
from keystead.errors import StoreUnavailable
from keystead.kits.kit import Kit
from keystead.kits.login import KIT as LOGIN
from keystead.kits.membership import KIT as MEMBERSHIP
from keystead.kits.sessiondata import KIT as SESSIONDATA
from keystead.kits.sharing import KIT as SHARING
from keystead.kits.teamwork import KIT as TEAMWORK
from keystead.kits.widgets import KIT as WIDGETS
from tests.kits.signing_in import HTML, OWN, serving

PAGES = (
    "/",
    "/docs",
    "/reference",
    "/keys",
    "/keys/login",
    "/teamwork",
    "/share",
    "/account",
    "/login",
    "/nowhere",
    "/api/nowhere?x=1",
)
KITS = [LOGIN, SHARING, TEAMWORK]
SIGN_OUT = '<form method="post" action="/api/auth/logout">'


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return {"files": str(tmp_path / "files")}


def header_of(page: str) -> str:
    return page.partition("<header>")[2].partition("</header>")[0]


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_shows_the_signed_in_user(path: str, files: dict[str, str]) -> None:
    async with serving(KITS, sharing=files) as server:
        ada = await server.sign_in("42", "Ada <b>&amp;</b> Lovelace")
        answer = await ada.get(path, headers=HTML)
        header = header_of(answer.text)
        assert "<bdi>Ada &lt;b&gt;&amp;amp;&lt;/b&gt; Lovelace</bdi>" in header
        assert SIGN_OUT in header
        assert "form-action 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "strict-origin"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [one for one in PAGES if one != "/account"])
async def test_a_signed_out_visitor_is_linked_to_the_sign_in_and_back(path: str, files: dict[str, str]) -> None:
    async with serving(KITS, sharing=files) as server:
        header = header_of((await server.browser().get(path, headers=HTML)).text)
        back = re.search(r'href="/login(\?returnTo=[^"]*)?" data-word="signIn">Sign in</a>', header)
        assert back is not None, header
        # An address with a query may open something, and one of the API is no page.
        expected = None if path.startswith(("/api/", "/login")) else f"?returnTo={path}"
        assert back[1] == expected


@pytest.mark.parametrize(("kit", "path"), [(WIDGETS, "/widgets"), (SHARING, "/share"), (TEAMWORK, "/teamwork")])
async def test_a_header_changes_nothing_else_on_a_page(kit: Kit, path: str, files: dict[str, str]) -> None:
    tables: dict[str, Any] = {"sharing": files} if kit is SHARING else {}
    words = []
    for kits in ([kit], [LOGIN, kit]):
        async with serving(kits, **tables) as server:
            answer = await server.browser().get(path, headers=HTML)
            assert answer.status_code == 200
            words.append(re.findall(r'data-[a-z-]*words="[^"]*"', answer.text))
    assert words[0] == words[1]


async def test_an_odd_path_cannot_inject_into_the_link() -> None:
    async with serving([LOGIN]) as server:
        for path in ('/"><script>alert(1)</script>', "//elsewhere.example", "/%0d%0aset-cookie:x", "/é", "/\\\\x"):
            answer = await server.browser().get(path, headers=HTML)
            assert "<script>alert" not in answer.text
            for link in re.findall(r'href="(/login[^"]*)"', answer.text):
                led = await server.browser().get(link.replace("&amp;", "&"), headers=HTML)
                assert led.status_code == 200, link
                assert "elsewhere.example" not in led.text or "returnTo=/login" in led.text


async def test_without_the_login_kit_there_is_nothing_to_sign_in_to(files: dict[str, str]) -> None:
    async with serving([SHARING], sharing=files) as server:
        page = (await server.browser().get("/share", headers=HTML)).text
        assert "signed-in" not in header_of(page)


async def test_a_store_outage_does_not_look_like_signed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving([LOGIN]) as server:
        ada = await server.sign_in()

        async def away(*_: object) -> None:
            raise StoreUnavailable("away")

        monkeypatch.setattr(server.app.state.kits["login"].sessions, "read", away)
        answer = await ada.get("/login", headers=HTML)
        assert answer.status_code == 503
        assert "Sign in" not in header_of(answer.text)
        assert "Ada" not in header_of(answer.text)


async def test_json_requests_are_not_identified_before_the_route(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving([LOGIN]) as server:
        ada = await server.sign_in()
        monkeypatch.setattr(server.app.state.kits["login"].sessions, "read", None)
        for path in ("/healthz", "/static/pages.css"):
            assert (await ada.get(path)).status_code == 200


async def test_signing_out_in_the_header_takes_effect_on_the_next_page(files: dict[str, str]) -> None:
    async with serving(KITS, sharing=files) as server:
        ada = await server.sign_in()
        form = {"content-type": "application/x-www-form-urlencoded"}
        answer = await ada.post("/api/auth/logout", headers=HTML | OWN | form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert "Ada" not in (await ada.get("/teamwork", headers=HTML)).text.partition("<main")[0]
        foreign = await (await server.sign_in()).post("/api/auth/logout", headers=HTML | form | {"origin": "null"})
        assert foreign.status_code == 403


@pytest.mark.parametrize("path", ["/api/deadlines", "/api/me", "/api/auth/sessions", "/api/auth/me"])
async def test_error_pages_link_to_a_sign_in_that_helps(path: str) -> None:
    async with serving([LOGIN, TEAMWORK]) as server:
        refused = await server.browser().get(path, headers=HTML)
        assert refused.status_code == 401
        main = refused.text.partition("<main")[2]
        assert "You are not signed in." in main
        assert '<a class="button" href="/login">Sign in</a>' in main
        assert (await (await server.sign_in()).get(path, headers=HTML)).status_code == 200


@pytest.mark.parametrize("path", ["/api/quota/status", "/api/patreon/license-status", "/api/sessions/x"])
async def test_error_pages_link_to_the_sign_in_only_if_it_helps(path: str) -> None:
    async with serving([LOGIN, MEMBERSHIP, SESSIONDATA]) as server:
        for browser in (server.browser(), await server.sign_in()):
            refused = await browser.get(path, headers=HTML)
            main = refused.text.partition("<main")[2]
            assert refused.status_code in (400, 401, 404)
            assert "Sign in" not in main
            assert "not signed in" not in main


@pytest.mark.parametrize(
    ("language", "come", "go"),
    [("en", "Sign in", "Sign out"), ("ja", "サインイン", "サインアウト"), ("ko", "로그인", "로그아웃")],
)
@pytest.mark.parametrize("path", ["/login", "/teamwork"])
async def test_the_header_is_in_the_language_of_its_page(path: str, language: str, come: str, go: str) -> None:
    async with serving([LOGIN, TEAMWORK]) as server:
        headers = HTML | {"accept-language": language}
        nobody = (await server.browser().get(path, headers=headers)).text
        assert f'<html lang="{language}">' in nobody
        assert f">{come}</a>" in header_of(nobody)
        assert f">{go}</button>" in header_of((await (await server.sign_in()).get(path, headers=headers)).text)


# What people read: "Sign in" and "Sign out", and no other word for it.
OTHER_WORDS = re.compile(r"\b[Ll]og(?:ged|ging|s)?[ -](?:in|out)\b|ログイン|ログアウト|ログオン|サイン・")
ROOT = Path(keystead.__file__).parent


def test_pages_and_scripts_say_sign_in() -> None:
    pages = [
        *ROOT.glob("server/pages/*.html"),
        *ROOT.glob("server/pages/static/*.js"),
        *ROOT.glob("kits/*/assets/*.js"),
        *ROOT.glob("kits/*/pages/*.html"),
        *ROOT.glob("**/locale/*.po"),
    ]
    assert len(pages) > 20
    offenders = {
        str(path.relative_to(ROOT)): found for path in pages if (found := OTHER_WORDS.findall(path.read_text()))
    }
    assert offenders == {}


async def test_the_api_says_sign_in(files: dict[str, str]) -> None:
    async with serving([LOGIN, SHARING, MEMBERSHIP, TEAMWORK, SESSIONDATA], sharing=files) as server:
        document = (await server.browser().get("/openapi.json")).text
        assert OTHER_WORDS.findall(document) == []
