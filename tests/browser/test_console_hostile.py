"""What is stored never runs: every page of the console in Chromium, over a store that somebody hostile has filled."""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from playwright.async_api import Browser, Page, expect

from keystead import connect
from tests.browser.console_shop import Shop, confirm, wait_for_task
from tests.browser.tabs import tab
from tests.console.hostile_keys import PAYLOADS, HostileKeys, fill_hostile
from tests.console.shop_keys import SEAL_KEYS
from tests.serving import keystead_serving

PLACES = ("", "/findings", "/unknown", "/live", "/jobs", "/queues", "/sessions", "/audit", "/erase")
FAMILIES = ("note", "draft", "fields", "names", "queue", "lines")
CHECK = """() => ({
    broken: window.broken === undefined ? "" : "a script ran",
    title: document.title.includes("Keystead") ? "" : document.title,
    nodes: document.querySelectorAll("img[src=x], [onfocus], [onload], main script").length,
    links: [...document.querySelectorAll("[href], [action]")].filter((one) =>
        /^javascript:/i.test(one.getAttribute("href") ?? one.getAttribute("action"))).length,
})"""


class Watch:
    """Looks at each page for something that ran, or would run on a click, and at what it asks of other servers."""

    def __init__(self, shop: Shop, page: Page) -> None:
        self.shop, self.page = shop, page
        self.seen = 0
        self.wrong: list[str] = []
        self.foreign: list[str] = []

    def request(self, request: Any) -> None:
        if not request.url.startswith((self.shop.server.url, "data:")):
            self.foreign.append(request.url)

    async def look(self) -> None:
        found = await self.page.evaluate(CHECK)
        self.seen += 1
        if any(found.values()):
            self.wrong.append(f"{urlsplit(self.page.url).path}: {found}")

    async def at(self, path: str) -> None:
        await self.shop.goto(self.page, path)
        await self.look()


async def test_no_key_and_no_value_runs_on_any_page(browser: Browser, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bad.db"
    settings = {
        "KEYSTEAD_SEAL_KEYS": SEAL_KEYS,
        "KEYSTEAD_CONSOLE__KEYSPACES": "tests.console.hostile_keys:HostileKeys",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    async with connect(url) as store, tab(browser) as used:
        keys: Any = await fill_hostile(store)
        with keystead_serving(tmp_path, url, "--kits", "console", **settings) as server:
            shop, page = Shop(server, keys), used.page
            watch = Watch(shop, page)
            used.on("dialog", lambda dialog: watch.wrong.append(dialog.message))
            used.on("request", watch.request)
            await shop.enter(page, who=f"operator:{PAYLOADS[1]}")
            await _look_at_places(watch)
            for text in PAYLOADS:
                await _look_at_keys(watch, keys, text)
            await _look_at_changes(watch, keys)
            assert watch.wrong == []
            assert watch.foreign == []
            assert watch.seen > 12 * len(PAYLOADS)


async def _look_at_places(watch: Watch) -> None:
    page = watch.page
    for place, key in (("/findings", "x"), ("/unknown", "d")):
        await watch.at(place)
        await page.locator(f"[data-key={key}]").click()
        await wait_for_task(page)
        await watch.look()
    for place in PLACES:
        await watch.at(place)
    assert PAYLOADS[0] in await _text_at(watch, "/audit")
    assert PAYLOADS[0] in await _text_at(watch, "/jobs")
    assert PAYLOADS[0] in await _text_at(watch, "/queues")
    for act in ("retry", "retry_dead", "drop_dead", "drop_waiting"):
        await watch.at(f"/queues/{act}?topic=webhook&name=orders")


async def _text_at(watch: Watch, path: str) -> str:
    await watch.at(path)
    return await watch.page.locator("main").inner_text()


async def _look_at_keys(watch: Watch, keys: HostileKeys, text: str) -> None:
    """All that this text is the name of: families, keys, forms, plans, a search, sessions and a person."""
    page = watch.page
    await watch.at(f"/audit?who={quote(text)}&event={quote(text)}&text={quote(text)}")
    for family in FAMILIES:
        await watch.at(f"/family/HostileKeys/{family}?v.uid={quote(text)}&cursor={quote(text)}")
        key = keys.families[family].pattern.render({"uid": text})
        for act in ("", "/delete", *(("/edit",) if family in ("note", "draft", "fields") else ())):
            await watch.at(f"/key/HostileKeys/{family}{act}?key={quote(key)}&raw=1")
            if not act:
                assert text in await page.locator("main").inner_text()
    orphan = keys.families["draft"].pattern.render({"uid": f"gone{PAYLOADS.index(text)}{text}"})
    await watch.at(f"/findings/repair?code=orphan&key={quote(orphan)}")
    await watch.at("/sessions")
    await page.locator("#user").fill(text)
    await page.locator(".filters button").click()
    await expect(page.locator("#again")).to_be_visible()
    await watch.look()
    await page.locator("#q").fill(text)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/find")
    await watch.look()
    await watch.at("/erase")
    await page.locator("#subject").fill(f"bad:{text}")
    await page.locator("#main form button").click()
    await expect(page.locator("#again")).to_be_visible()
    await watch.look()
    await confirm(page, f"bad:{text}", by_keyboard=False)
    await wait_for_task(page)
    await watch.look()


async def _look_at_changes(watch: Watch, keys: HostileKeys) -> None:
    await watch.at("/live")
    await expect(watch.page.locator("#live-state")).to_have_text("watching")
    for number, text in enumerate(PAYLOADS):
        await keys.draft(text).set(text)
        await expect(watch.page.locator("#live tbody tr")).to_have_count(number + 1)
        await watch.look()
