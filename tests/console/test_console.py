"""The console over HTTP: who gets in, what they see, and what they may do."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from keystead.console import console_service
from keystead.schema import KeyRing
from keystead.schema.browsing import scan_page
from keystead.schema.key_shapes import ShapeCounts
from keystead.server import Settings
from keystead.server.kit_loading import load_kits, split_kits
from tests.console.app_keys import AppKeys, Cart, Login
from tests.console.console_browser import HttpBrowser, opened

HOSTILE = "<script>alert(1)</script>"
SID = "abcdefghijklmnopqrstuvwxyz012345"


@pytest.fixture
async def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBrowser]:
    async with opened(tmp_path, monkeypatch) as (app, access):
        keys = AppKeys(app.state.stores["default"], seal=KeyRing({"test": bytes(32)}))
        await keys.cart("42").set(Cart(owner="ann", items=2, note=HOSTILE, api_key="a-credential"))
        await keys.draft("42").set(HOSTILE)
        await keys.cart(HOSTILE).set(Cart(owner="eve"))
        await keys.login(SID).set(Login(uid="42", token="a-sealed-credential"))
        yield HttpBrowser(app, access, keys)


def version_in(page: str) -> str:
    found = re.search(r'name="version" value="([^"]+)"', page)
    assert found is not None
    return found[1]


async def test_a_link_opens_the_console_once(browser: HttpBrowser) -> None:
    assert (await browser.get("/console")).status_code == 401
    secret = await browser.access.create_link("operator:ann", "viewer")
    await browser.get("/console/enter")
    assert (await browser.post("/console/enter", secret=secret)).status_code == 303
    assert (await browser.get("/console")).status_code == 200
    assert (await browser.post("/console/enter", secret=secret)).status_code == 403
    await browser.post("/console/leave")
    assert (await browser.get("/console")).status_code == 401


async def test_no_key_and_no_value_is_markup_and_no_credential_is_shown(browser: HttpBrowser) -> None:
    await browser.enter("admin")
    family = "/console/family/AppKeys/"
    pages = ["/console", "/console/unknown", "/console/audit", f"{family}cart", f"{family}carts", f"{family}login"]
    pages += [f"/console/key/AppKeys/{name}?key={key}" for name, key in (("cart", "cart:42"), ("draft", "draft:42"))]
    pages += [
        "/console/key/AppKeys/carts?key=carts&raw=1",
        "/console/key/AppKeys/cart/edit?key=cart:42",
        "/console/key/AppKeys/cart/delete?key=cart:42",
        "/console/key/AppKeys/logins?key=logins:42",
    ]
    for path in pages:
        page = await browser.get(path)
        assert page.status_code == 200, path
        assert HOSTILE not in page.text, path
        assert "a-credential" not in page.text, path
        assert SID not in page.text, path
        assert "script-src 'self'" in page.headers["content-security-policy"]
    links = re.findall(r'href="(/console/key/AppKeys/login\?[^"]+)"', (await browser.get(f"{family}login")).text)
    assert links
    assert (await browser.get(links[0])).status_code == 200
    assert SID not in links[0]


async def test_a_viewer_cannot_act(browser: HttpBrowser) -> None:
    await browser.enter("viewer")
    for path in ("delete", "edit", "renew"):
        assert (await browser.get(f"/console/key/AppKeys/cart/{path}?key=cart:42")).status_code == 403
        assert (await browser.post(f"/console/key/AppKeys/cart/{path}?key=cart:42")).status_code == 403
    assert (await browser.get("/console/key/AppKeys/cart?key=cart:42&raw=1")).status_code == 403
    assert (await browser.post("/console/erase", subject="user:42", again="user:42")).status_code == 403
    assert await browser.keys.cart("42").exists()


async def test_a_delete_shows_its_cascade_first_and_is_audited(browser: HttpBrowser) -> None:
    await browser.enter("operator")
    path = "/console/key/AppKeys/cart/delete?key=cart:42"
    plan = await browser.get(path)
    assert "draft:42" in plan.text
    assert (await browser.post_from_elsewhere(path)).status_code == 403
    assert await browser.keys.cart("42").exists()
    assert (await browser.post(path, again="cart:4")).status_code == 422
    assert await browser.keys.cart("42").exists()
    assert (await browser.post(path, again="cart:42")).status_code == 200
    assert not await browser.keys.draft("42").exists()
    [entry] = await browser.access.audit.latest(1)
    assert (entry.event, entry.who, entry.what) == ("console-deleted", "operator:ann", "AppKeys.cart cart:42")


async def test_of_two_people_who_edit_a_value_the_second_gets_a_conflict(browser: HttpBrowser) -> None:
    await browser.enter("operator")
    path = "/console/key/AppKeys/cart/edit?key=cart:42"
    version = version_in((await browser.get(path)).text)
    assert (await browser.post(path, version=version, **{"field.items": "many"})).status_code == 422
    assert (await browser.post(path, version=version, **{"field.items": "3"})).status_code == 303
    assert (await browser.post(path, version=version, **{"field.items": "4"})).status_code == 409
    cart = await browser.keys.cart("42").get()
    assert cart == Cart(owner="ann", items=3, note=HOSTILE, api_key="a-credential")


async def test_an_admin_renews_a_key_and_erases_a_person(browser: HttpBrowser) -> None:
    await browser.enter("admin")
    await browser.keys.draft("42").shorten(60_000)
    assert (await browser.post("/console/key/AppKeys/draft/renew?key=draft:42")).status_code == 303
    assert await browser.keys.draft("42").left_ms() > 60_000
    assert "cart:42" in (await browser.post("/console/erase", subject="user:42")).text
    assert (await browser.post("/console/erase", subject="user:42", again="user:4")).status_code == 200
    assert await browser.keys.cart("42").exists()
    erased = await browser.post("/console/erase", subject="user:42", again="user:42")
    assert erased.headers["location"] == "/console/task/erase"
    await browser.app.state.kits["console"].tasks.settle()
    assert '<dd id="fixed">1</dd>' in (await browser.get("/console/task/erase")).text
    assert not await browser.keys.cart("42").exists()
    await browser.enter("operator")
    assert (await browser.get("/console/task/erase")).status_code == 403


async def test_pages_of_a_family_hold_each_key_and_a_filter_finds_one() -> None:
    async with connect("memory://") as store:
        keys = AppKeys(store, needs_seal=False)
        for number in range(120):
            await keys.draft(str(number)).set("x")
        found: list[str] = []
        cursor = ""
        while True:
            page = await scan_page(keys.draft, {}, cursor, wanted=50)
            found += page.keys
            cursor = page.cursor
            if not cursor:
                break
        assert sorted(found) == sorted(f"draft:{number}" for number in range(120))
        assert (await scan_page(keys.draft, {"uid": "7"})).keys == ["draft:7"]
        assert (await scan_page(keys.draft, {}, "no cursor")).keys


async def test_the_one_key_of_a_family_is_listed_however_many_keys_there_are(
    browser: HttpBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_service, "PAGE_S", 0)  # a search ends after its first look, as on a large store
    await browser.keys.carts().put({f"{number}": float(number) for number in range(3)})
    for number in range(400):
        await browser.keys.draft(f"{number}").set("x")
    await browser.enter("viewer")
    page = (await browser.get("/console/family/AppKeys/carts")).text
    assert "key=carts" in page
    assert 'rel="next"' not in page
    drafts = (await browser.get("/console/family/AppKeys/draft")).text
    assert 'rel="next"' in drafts  # the search was cut


def test_keys_of_no_family_are_grouped_by_shape_without_their_secrets() -> None:
    counts = ShapeCounts()
    for key in (b"user:42:cart", b"user:7:cart", b"s:" + SID.encode()):
        counts.add(key)
    found = {one["shape"]: one["count"] for one in counts.as_json()}
    assert sorted(found.values()) == [1, 2]
    assert all(SID not in str(shape) for shape in found)


def test_the_console_is_off_in_production_and_for_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def runs(**flags: Any) -> bool:
        settings = Settings(**flags)
        return any(kit.name == "console" for kit in split_kits(settings, load_kits(settings))[0])

    assert runs()
    assert not runs(host="0.0.0.0")
    assert not runs(public_url="https://example.com")
    assert not runs(mode="production", public_url="https://example.com")
    assert runs(mode="production", public_url="https://example.com", console={"on": True})
