"""CSRF protection: only pages of this site can change something."""

import httpx2
import pytest

from tests.kits.login.browsing import ACCOUNT, BASE, HTML, Browser, Running

PATHS = [
    ("POST", "/api/auth/logout"),
    ("POST", "/api/auth/logout-all"),
    ("POST", "/api/auth/logout-others"),
    ("DELETE", "/api/auth/sessions/x"),
    ("POST", "/api/auth/sessions/x/end"),
]
EVIL = "https://evil.example"


async def asked(browser: Browser, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
    return await browser.http.request(method, path, json=body, headers=headers)


@pytest.fixture
async def victim(site: Running) -> Browser:
    browser = site.browser()
    await browser.log_in()
    return browser


async def token_of(browser: Browser) -> str:
    token: str = (await browser.get("/api/auth/csrf")).json()["token"]
    assert browser.cookie("csrf") == token
    return token


REFUSED: dict[str, dict[str, str]] = {
    "nothing": {},
    "another origin": {"origin": EVIL},
    "an origin that hides": {"origin": "null"},
    "an origin that begins the same": {"origin": f"{BASE}.evil.example"},
    "another port": {"origin": "http://127.0.0.1:8713"},
    "another scheme": {"origin": BASE.replace("http:", "https:")},
    "another referer": {"referer": f"{EVIL}/x?{BASE}/"},
    "a referer with the host as user": {"referer": f"{BASE}@evil.example/"},
    "a referer that cannot be read": {"referer": "http://[x"},
    "an own referer and another origin": {"referer": f"{BASE}/login", "origin": EVIL},
    "a wrong token from our own origin": {"origin": BASE, "x-csrf-token": "x" * 43},
    "a wrong token": {"x-csrf-token": "x" * 43},
    "an odd token": {"x-csrf-token": "é"},
}


@pytest.mark.parametrize("headers", REFUSED.values(), ids=REFUSED)
async def test_a_forged_request_is_refused(victim: Browser, headers: dict[str, str]) -> None:
    await token_of(victim)
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    for method, path in PATHS:
        answer = await victim.http.request(method, path, headers=encoded)
        assert (answer.status_code, answer.json()["code"]) == (403, "CSRF"), path
    assert await victim.is_logged_in()


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_the_right_token_from_another_origin_is_refused(victim: Browser, method: str, path: str) -> None:
    token = await token_of(victim)
    for headers in ({"origin": EVIL}, {"origin": "null"}, {"referer": f"{EVIL}/"}):
        answer = await asked(victim, method, path, {"csrf": token}, **headers)
        assert answer.json()["code"] == "CSRF"
    assert await victim.is_logged_in()


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("how", ["origin", "referer", "body", "header", "form"])
async def test_a_same_site_request_is_accepted(victim: Browser, method: str, path: str, how: str) -> None:
    token = await token_of(victim)
    ways: dict[str, dict[str, object]] = {
        "origin": {"headers": {"origin": BASE}},
        "referer": {"headers": {"referer": f"{BASE}/login?x"}},
        "body": {"json": {"csrf": token}},
        "header": {"headers": {"x-csrf-token": token}},
        "form": {"data": {"csrf": token}},
    }
    answer = await victim.http.request(method, path, **ways[how])  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["ok"]) == (200, True)


async def test_a_csrf_token_without_its_cookie_is_refused(victim: Browser) -> None:
    token = await token_of(victim)
    victim.forget("csrf")
    assert (await asked(victim, "POST", "/api/auth/logout", {"csrf": token})).status_code == 403
    # And an empty cookie does not match an empty token.
    answer = await asked(victim, "POST", "/api/auth/logout", {"csrf": ""}, cookie="csrf=")
    assert answer.status_code == 403


async def test_a_csrf_token_of_another_browser_is_refused(site: Running, victim: Browser) -> None:
    await token_of(victim)
    foreign = await token_of(site.browser())
    assert (await asked(victim, "POST", "/api/auth/logout", {"csrf": foreign})).status_code == 403


@pytest.mark.parametrize("path", ["/api/auth/csrf", "/api/discord/csrf"])
async def test_the_csrf_token_matches_its_cookie_and_is_stable(browser: Browser, path: str) -> None:
    first = (await browser.get(path)).json()
    assert first == {"ok": True, "token": browser.cookie("csrf")}
    assert (await browser.get(path)).json() == first
    assert len(first["token"]) == 43


BODIES: dict[str, tuple[str, bytes]] = {
    "no JSON": ("application/json", b"{"),
    "bytes": ("application/json", b"\xff\xfe"),
    "deep nesting": ("application/json", b"[" * 9_000),
    "many fields": ("application/x-www-form-urlencoded", b"&".join(b"a=1" for _ in range(2_000))),
    "a number": ("application/json", b'{"csrf": 1}'),
    "a list": ("application/json", b'{"csrf": ["x"]}'),
}


@pytest.mark.parametrize(("kind", "body"), BODIES.values(), ids=BODIES)
async def test_an_unreadable_body_is_refused(victim: Browser, kind: str, body: bytes) -> None:
    headers = {"content-type": kind, "origin": BASE}
    answer = await victim.http.post("/api/auth/logout", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "BAD_REQUEST")
    assert await victim.is_logged_in()


@pytest.mark.parametrize("body", [b"[]", b"null", b'"csrf"', b"{}", b'{"csrf": null}', b""])
async def test_a_body_without_a_csrf_token_is_refused(victim: Browser, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    assert (await victim.http.post("/api/auth/logout", content=body, headers=headers)).status_code == 403
    headers["origin"] = BASE
    assert (await victim.http.post("/api/auth/logout", content=body, headers=headers)).status_code == 200


async def test_invalid_unicode_is_not_a_csrf_token(victim: Browser) -> None:
    await token_of(victim)
    body = rb'{"csrf": "\ud800"}'
    answer = await victim.http.post("/api/auth/logout", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 403


async def test_a_form_redirects_back_to_its_page(victim: Browser) -> None:
    token = await token_of(victim)
    answer = await victim.http.post("/api/auth/logout", data={"csrf": token}, headers={"origin": BASE, **HTML})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert victim.cookie("sid") is None


async def test_a_get_changes_nothing(victim: Browser) -> None:
    for method, path in PATHS:
        assert (await victim.get(path)).status_code == 405, method
    assert await victim.is_logged_in()
    assert (await victim.get("/api/auth/me")).json()["user"]["id"] == ACCOUNT
