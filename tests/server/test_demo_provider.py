"""The demo provider: as strict as a real one for programs, and one click for users."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI, Request
from playwright.async_api import Browser, Page
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

import keystead
from keystead.demo.demo_keys import DemoKeys
from keystead.demo.demo_responses import DemoInProduction
from keystead.demo.demo_routes import demo_provider, demo_router
from keystead.demo.demo_service import DemoProvider
from keystead.demo.demo_site import Demo
from keystead.kits import kit
from keystead.parts.oauth import Client, Identity, ProviderRefused, Tokens, challenge_of, new_verifier
from keystead.server.error_responses import add_error_responses
from keystead.server.page_templates import add_pages, render
from keystead.server.request_layer import RequestLayer, RequestLimits
from keystead.stores import Store
from keystead.stores.store_contract import keys_of

STATIC = Path(keystead.__file__).parent / "server" / "pages" / "static"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def site_of(public_url: str, internal_url: str, *, development: bool = True) -> kit.Site:
    return kit.Site(public_url, internal_url, development, now_ms, render)


def application(store: Store, public_url: str) -> FastAPI:
    """A server with only the demo provider, and a callback page."""

    def store_of(request: Request) -> Store:
        open_store: Store = request.app.state.store
        return open_store

    async def callback() -> HTMLResponse:
        return HTMLResponse('<link rel="icon" href="/static/mark.svg"><h1>Back again</h1>')

    app = FastAPI(openapi_url=None)
    app.state.store = store
    app.add_middleware(RequestLayer, limits=RequestLimits(30, 1_000_000))
    add_error_responses(app)
    add_pages("keystead.demo", Demo.pages)
    Demo(site_of(public_url, public_url), None).add_routes(app, store_of)
    app.mount("/static", StaticFiles(directory=STATIC, packages=[("keystead.schema.docs", "pages")]))
    app.add_api_route("/callback", callback)
    return app


@asynccontextmanager
async def serving(store: Store, listening: socket.socket, public_url: str) -> AsyncIterator[None]:
    config = uvicorn.Config(application(store, public_url), log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await running


def listener() -> tuple[socket.socket, str]:
    """A listening socket, so that an early request only waits."""
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


class Site:
    """Two servers on one store: browsers use the first, programs either."""

    def __init__(self, url: str, other_url: str, store: Store, http: httpx2.AsyncClient) -> None:
        self.url = url
        self.store = store
        self.http = http
        self.redirect_uri = f"{url}/callback"
        self.client = Client(demo_provider(site_of(url, url)), http, now_ms, development=True)
        self.other = Client(demo_provider(site_of(url, other_url)), http, now_ms, development=True)

    async def keys(self, match: str = "demo:*") -> list[bytes]:
        """What the store holds."""
        return [key async for page in self.store.scan(match) for key in page]

    async def authorize_url(self, verifier: str) -> str:
        return await self.client.authorize_url(self.redirect_uri, "the-state", challenge_of(verifier), "unused")

    async def code(self, verifier: str, **choice: str) -> str:
        """Sign in as a browser does: get the page, and post its form."""
        page = await self.http.get(await self.authorize_url(verifier))
        assert page.status_code == 200
        form = {**hidden_fields(page.text), **(choice or {"person": "demo-ada"})}
        answer = await self.http.post(f"{self.url}/demo/authorize", data=form, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        back = query_of(answer.headers["location"])
        assert back["state"] == "the-state"
        return back["code"]

    async def tokens(self, **choice: str) -> Tokens:
        verifier = new_verifier()
        return await self.client.exchange(await self.code(verifier, **choice), verifier, self.redirect_uri)


def query_of(url: str) -> dict[str, str]:
    return {name: value for name, [value] in parse_qs(urlsplit(url).query, strict_parsing=True).items()}


def hidden_fields(page: str) -> dict[str, str]:
    """The hidden fields of the first form of the content of a page."""
    page = page.partition("<main")[2]
    fields: dict[str, str] = {}

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = dict(attrs)
            if tag == "input" and given.get("type") == "hidden":
                fields.setdefault(given["name"] or "", given["value"] or "")

    Reader().feed(page)
    return fields


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Started once: stopping a server takes longer than most of these tests."""
    url = f"sqlite:///{tmp_path_factory.mktemp('demo')}/demo.db"
    (first, first_url), (second, second_url) = listener(), listener()
    async with (
        keystead.connect(url) as store,
        keystead.connect(url) as other_store,
        serving(store, first, first_url),
        serving(other_store, second, first_url),
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        yield Site(first_url, second_url, store, http)


@pytest.fixture
async def site(running: Site) -> Site:
    """The servers, with an empty store."""
    if keys := await running.keys("*"):
        await running.store.run([("DEL", *keys)])
    return running


# --- as a client of OAuth 2 sees it ---------------------------------------------------------------------------


async def test_a_newcomer_signs_in_with_no_account_anywhere(site: Site) -> None:
    tokens = await site.tokens(person="demo-grace")
    assert tokens.scope == "identify"
    assert abs(tokens.expires_at_ms - now_ms() - 3_600_000) < 60_000
    assert await site.client.identity(tokens, "") == Identity("demo-grace", "Grace Hopper", None)


async def test_a_name_is_the_same_person_each_time(site: Site) -> None:
    people = [await site.client.identity(await site.tokens(name=name), "") for name in ("Zoë B", " zoë  b ", "Bob")]
    assert people[0].id == people[1].id != people[2].id
    assert [person.name for person in people] == ["Zoë B", "zoë b", "Bob"]


async def test_workers_share_codes_and_tokens(site: Site) -> None:
    verifier = new_verifier()
    tokens = await site.other.exchange(await site.code(verifier), verifier, site.redirect_uri)
    assert (await site.client.identity(tokens, "")).id == "demo-ada"
    assert (await site.other.identity(await site.client.refresh(tokens.refresh_token or ""), "")).id == "demo-ada"


@pytest.mark.parametrize("wrong", ["verifier", "redirect_uri"])
async def test_a_code_is_bound_to_its_client(site: Site, wrong: str) -> None:
    verifier = new_verifier()
    code = await site.code(verifier)
    told = {"verifier": verifier, "redirect_uri": site.redirect_uri}
    with pytest.raises(ProviderRefused) as refused:
        await site.client.exchange(code, **{**told, wrong: new_verifier()})
    assert refused.value.error == "invalid_grant"
    with pytest.raises(ProviderRefused):  # and it is spent by that
        await site.client.exchange(code, **told)


async def test_a_code_works_once_and_reuse_revokes_its_tokens(site: Site) -> None:
    verifier = new_verifier()
    code = await site.code(verifier)
    tokens = await site.client.exchange(code, verifier, site.redirect_uri)
    with pytest.raises(ProviderRefused):
        await site.other.exchange(code, verifier, site.redirect_uri)
    with pytest.raises(ProviderRefused):
        await site.client.identity(tokens, "")
    with pytest.raises(ProviderRefused):
        await site.client.refresh(tokens.refresh_token or "")


async def outcome(asked: Awaitable[Tokens]) -> Tokens | None:
    try:
        return await asked
    except ProviderRefused:
        return None


async def test_concurrent_use_of_one_code_revokes_its_tokens(site: Site) -> None:
    verifier = new_verifier()
    code = await site.code(verifier)
    clients = [site.client, site.other] * 8
    all_outcomes = await asyncio.gather(
        *(outcome(client.exchange(code, verifier, site.redirect_uri)) for client in clients)
    )
    got = [tokens for tokens in all_outcomes if tokens is not None]
    assert len(got) <= 1
    for tokens in got:
        assert await outcome(site.client.refresh(tokens.refresh_token or "")) is None


async def test_a_replay_during_an_exchange_leaves_no_live_token(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = new_verifier()
    code = await site.code(verifier)
    exchanging = DemoProvider(DemoKeys(site.store))
    replayed: list[Tokens | None] = []
    run = site.store.run

    async def run_after_the_replay(commands: Any) -> Any:
        """The first look at the grant, which comes after the code was consumed, waits for the replay."""
        if not replayed and any("demo:grant:" in str(keys_of(command)) for command in commands):
            replayed.append(None)
            replayed[0] = await outcome(site.other.exchange(code, verifier, site.redirect_uri))
        return await run(commands)

    monkeypatch.setattr(site.store, "run", run_after_the_replay)
    assert await exchanging.exchange(code, verifier, site.redirect_uri) is None
    assert replayed == [None]  # it took place, and was refused
    assert await site.keys("demo:grant:*") == []


async def test_a_refresh_token_works_once_and_its_second_use_ends_the_family(site: Site) -> None:
    first = await site.tokens()
    second = await site.client.refresh(first.refresh_token or "")
    assert second.refresh_token not in (None, first.refresh_token)
    assert (await site.client.identity(second, "")).id == "demo-ada"
    with pytest.raises(ProviderRefused) as refused:
        await site.client.refresh(first.refresh_token or "")
    assert refused.value.error == "invalid_grant"
    with pytest.raises(ProviderRefused):
        await site.client.refresh(second.refresh_token or "")
    with pytest.raises(ProviderRefused) as refused:
        await site.client.identity(second, "")
    assert refused.value.error == "invalid_token"


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
async def test_a_revoked_sign_in_is_over(site: Site, which: str) -> None:
    tokens, others = await site.tokens(), await site.tokens()
    assert await site.client.revoke(getattr(tokens, which))
    with pytest.raises(ProviderRefused):
        await site.client.identity(tokens, "")
    with pytest.raises(ProviderRefused):
        await site.client.refresh(tokens.refresh_token or "")
    assert (await site.client.identity(others, "")).id == "demo-ada"
    assert await site.client.revoke(getattr(tokens, which))


async def test_the_store_has_no_plain_code_or_token_and_every_key_expires(site: Site) -> None:
    verifier = new_verifier()
    unused = await site.code(verifier)
    tokens = await site.tokens()
    keys = await site.keys("*")
    assert {key.split(b":")[1] for key in keys} == {b"grant", b"code", b"access", b"refresh"}
    assert all(key.startswith(b"demo:") for key in keys)
    values = await site.store.run([("GET", key) for key in keys])
    secrets = [
        part for secret in (unused, tokens.access_token, tokens.refresh_token or "") for part in secret.split(".")
    ]
    stored = b"\n".join((*keys, *values))
    assert [secret for secret in secrets if secret.encode() in stored] == []
    left_ms: list[Any] = await site.store.run([("PTTL", key) for key in keys])
    assert all(0 < left <= 30 * 86_400_000 for left in left_ms)


async def test_a_code_expires_after_a_minute(site: Site) -> None:
    await site.code(new_verifier())
    for family in ("code", "grant"):
        [key] = await site.keys(f"demo:{family}:*")
        [left_ms] = await site.store.run([("PTTL", key)])
        assert 0 < left_ms <= 60_000


# --- what it refuses ------------------------------------------------------------------------------------------


@pytest.fixture
def asked(site: Site) -> dict[str, str]:
    return {
        "response_type": "code",
        "client_id": "demo",
        "redirect_uri": site.redirect_uri,
        "scope": "identify",
        "state": "s",
        "code_challenge": challenge_of(new_verifier()),
        "code_challenge_method": "S256",
    }


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "redirect_uri",
    [
        "https://evil.example.com/callback",
        "{url}.evil.example.com/callback",
        "{url}@evil.example.com/callback",
        "{url}",
        "{url}/callback#fragment",
        "{url}/call\\back",
        "{url}/call back",
        "{url}/call\nback",
        pytest.param("{url}/" + "x" * 3000, id="long"),
        "//127.0.0.1/callback",
        "javascript:alert(1)",
        "/callback",
        "",
    ],
)
async def test_a_browser_is_only_redirected_to_this_server(
    site: Site, asked: dict[str, str], method: str, redirect_uri: str
) -> None:
    asked["redirect_uri"] = redirect_uri.replace("{url}", site.url)
    sent: dict[str, Any] = {"params": asked} if method == "GET" else {"data": {**asked, "person": "demo-ada"}}
    answer = await site.http.request(
        method, f"{site.url}/demo/authorize", headers={"accept": "text/html"}, follow_redirects=False, **sent
    )
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert "evil" not in answer.text
    assert await site.keys() == []


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "spoilt",
    [
        {"response_type": "token"},
        {"code_challenge": ""},
        {"code_challenge": "short"},
        {"code_challenge_method": "plain"},
        {"state": "x" * 3000},
    ],
    ids=str,
)
async def test_a_request_without_state_or_pkce_is_redirected_with_an_error(
    site: Site, asked: dict[str, str], method: str, spoilt: dict[str, str]
) -> None:
    sent: dict[str, Any] = {"params": asked | spoilt} if method == "GET" else {"data": asked | spoilt | {"name": "A"}}
    answer = await site.http.request(method, f"{site.url}/demo/authorize", follow_redirects=False, **sent)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{site.redirect_uri}?")
    assert query_of(answer.headers["location"])["error"] == "invalid_request"


async def test_cancelling_redirects_with_access_denied(site: Site, asked: dict[str, str]) -> None:
    answer = await site.http.post(f"{site.url}/demo/authorize", data={**asked, "cancel": "1"}, follow_redirects=False)
    assert query_of(answer.headers["location"]) == {"error": "access_denied", "state": "s"}


@pytest.mark.parametrize("choice", [{}, {"name": ""}, {"name": " \t"}, {"name": "x" * 65}, {"person": "demo-nobody"}])
async def test_a_visitor_without_a_session_is_signed_out(
    site: Site, asked: dict[str, str], choice: dict[str, str]
) -> None:
    answer = await site.http.post(f"{site.url}/demo/authorize", data={**asked, **choice}, follow_redirects=False)
    assert answer.status_code == 400
    assert "Enter a name" in answer.text
    assert hidden_fields(answer.text) == asked
    assert await site.keys() == []


async def test_client_input_is_escaped_on_the_page(site: Site, asked: dict[str, str]) -> None:
    asked["state"] = '"><script>alert(1)</script>'
    answer = await site.http.get(f"{site.url}/demo/authorize", params=asked)
    assert "<script" not in answer.text
    assert hidden_fields(answer.text)["state"] == asked["state"]
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "form-action 'self'" in policy
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({"grant_type": "authorization_code", "code": "a.b"}, 400, "invalid_request"),
        (
            {"grant_type": "authorization_code", "code": "ä", "code_verifier": "v", "redirect_uri": "u"},
            400,
            "invalid_grant",
        ),
        ({"grant_type": "refresh_token"}, 400, "invalid_request"),
        ({"grant_type": "refresh_token", "refresh_token": "a.b"}, 400, "invalid_grant"),
        ({"grant_type": "refresh_token", "refresh_token": "x" * 5000}, 400, "invalid_grant"),
        ({"grant_type": "password", "username": "a"}, 400, "unsupported_grant_type"),
        ({}, 400, "unsupported_grant_type"),
        ({"grant_type": "refresh_token", "refresh_token": "a.b", "client_id": "other"}, 401, "invalid_client"),
        ({"client_id": ["demo", "demo"]}, 400, "invalid_request"),
        ({"a": "x" * 20_000}, 400, "invalid_request"),
    ],
    ids=str,
)
async def test_the_token_endpoint_uses_the_error_codes_of_oauth(
    site: Site, form: dict[str, Any], status: int, error: str
) -> None:
    answer = await site.http.post(f"{site.url}/demo/token", data={"client_id": "demo", **form})
    assert (answer.status_code, answer.json()) == (status, {"error": error})
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer a.b", "Basic a.b", "Bearer ä", "Bearer a b"])
async def test_userinfo_needs_an_access_token(site: Site, header: str | None) -> None:
    headers = {} if header is None else {b"authorization": header.encode()}
    answer = await site.http.get(f"{site.url}/demo/userinfo", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    "make", [demo_provider, lambda site: demo_router(site, lambda request: request.app.state.store)]
)
def test_production_refuses_to_load_it(make: Callable[[kit.Site], object]) -> None:
    with pytest.raises(DemoInProduction, match="runs only in development"):
        make(site_of("https://example.com", "http://127.0.0.1:8700", development=False))


# --- as a person sees it --------------------------------------------------------------------------------------


async def opened(browser: Browser, site: Site, asked: dict[str, str], width: int) -> tuple[Page, list[str]]:
    """The page, and a list of its errors."""
    page = await browser.new_page(viewport={"width": width, "height": 844})
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    await page.goto(f"{site.url}/demo/authorize?{urlencode(asked)}")
    return page, wrong


@pytest.mark.parametrize("width", [1280, 390])
async def test_one_click_signs_in_at_any_width(browser: Browser, site: Site, asked: dict[str, str], width: int) -> None:
    page, wrong = await opened(browser, site, asked, width)
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.get_by_role("button", name="Alan Turing").click()
    await page.wait_for_url(f"{site.redirect_uri}?*")
    assert await page.get_by_role("heading").inner_text() == "Back again"
    assert {"code", "state"} == query_of(page.url).keys()
    assert wrong == []


async def test_enter_signs_in_with_the_typed_name(browser: Browser, site: Site) -> None:
    verifier = new_verifier()
    page = await browser.new_page()
    await page.goto(await site.authorize_url(verifier))
    await page.get_by_label("Somebody else").fill("Zoë")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{site.redirect_uri}?*")
    tokens = await site.client.exchange(query_of(page.url)["code"], verifier, site.redirect_uri)
    assert (await site.client.identity(tokens, "")).name == "Zoë"


async def test_cancel_goes_back_without_a_code(browser: Browser, site: Site, asked: dict[str, str]) -> None:
    page, wrong = await opened(browser, site, asked, 1280)
    await page.get_by_role("button", name="Cancel").click()
    await page.wait_for_url(f"{site.redirect_uri}?*")
    assert query_of(page.url) == {"error": "access_denied", "state": "s"}
    assert wrong == []
