"""The return path: a path on this site, checked when the sign-in starts (promise 39)."""

import pytest

from keystead.kits.login.service import is_return_path
from tests.kits.login.browsing import ACCOUNT, HTML, Browser
from tests.oidc import log_in

GOOD = ["/", "/shop", "/shop/item?id=1&x=%20y", "/a#top", "/apis", "/x//y", "/~me", "/?next=https://x.example", "/a.b"]
BAD = [
    *("//evil.example", "///evil.example", "/\\evil.example", "\\\\evil.example", "/x\\..\\y"),
    *("https://evil.example", "https:evil.example", "http:/evil", "javascript:alert(1)", "data:text/html,x"),
    *("shop", "?x=1", "#top", " /shop", "/shop ", "evil.example", "@evil.example"),
    *("/api", "/api/", "/api/x", "/API/x", "/Api?x", "/api#x", "/%61pi/x", "/%41PI/x", "/a%70i/x"),
    *("/./api/x", "/x/../api/x", "/x/%2e%2e/api/x", "/x/%2E./api/x", "/.", "/x/.."),
    *("/x\r\nset-cookie:a=b", "/x\n", "/x\t", "/\tx", "/x\x00", "/x\x7f", "/\x0b/evil.example"),
    *("/täglich", "/日本", "/\u2028", "/\u202eevil", "/\ud83d\ude00"),
    "/" + "x" * 2048,
]


@pytest.mark.parametrize("path", GOOD)
def test_a_path_on_this_site_is_accepted(path: str) -> None:
    assert is_return_path(path)


@pytest.mark.parametrize("path", BAD)
def test_any_other_return_path_is_refused(path: str) -> None:
    assert not is_return_path(path)


@pytest.mark.parametrize("path", [one for one in BAD if one.isprintable()])
async def test_start_refuses_a_bad_return_path(browser: Browser, path: str) -> None:
    answer = await browser.http.get("/api/auth/discord/start", params={"returnTo": path})
    assert (answer.status_code, answer.json()["code"]) == (400, "BAD_RETURN_TO")
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", GOOD)
async def test_a_sign_in_redirects_to_the_path_of_its_start(browser: Browser, path: str) -> None:
    answer = await browser.log_in(returnTo=path)
    assert answer.json() == {"ok": True, "redirectTo": path, "loginContext": "browser"}


async def test_a_sign_in_without_a_path_redirects_to_the_configured_one(browser: Browser) -> None:
    assert (await browser.log_in()).json()["redirectTo"] == "/"


async def test_a_callback_cannot_choose_the_return_path(browser: Browser) -> None:
    callback = await log_in((await browser.start(returnTo="/shop"))["authorizeUrl"], ACCOUNT)
    answer = await browser.back(f"{callback}&returnTo=https://evil.example&redirectTo=//evil.example")
    assert answer.json()["redirectTo"] == "/shop"


async def test_the_callback_responds_with_a_page_that_redirects(browser: Browser) -> None:
    callback = await log_in((await browser.start(returnTo="/shop?a=\"b'&c=<d>"))["authorizeUrl"], ACCOUNT)
    page = await browser.back(callback, **HTML)
    assert page.status_code == 200
    assert "location" not in page.headers
    assert 'content="0; url=/shop?a=&#34;b&#39;&amp;c=&lt;d&gt;"' in page.text
