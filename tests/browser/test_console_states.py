"""The pages of the console in all their states: accessible, and not wider than the screen, in every language."""

from datetime import timedelta
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from keystead.console.console_keys import ConsoleKeys, ConsoleTask, TaskState
from keystead.schema.times import moment, now_ms
from tests.browser.accessibility import violations
from tests.browser.console_shop import CART, Shop, press, serving_shop
from tests.browser.tabs import DESKTOP, PHONE, tab
from tests.console.shop_keys import Cart

_FITS = "document.documentElement.scrollWidth <= innerWidth"


class Looker:
    """Somebody who goes from state to state, and looks at each."""

    def __init__(self, shop: Shop, page: Page) -> None:
        self.shop, self.page = shop, page
        self.wrong: list[str] = []

    async def look(self, state: str) -> None:
        if not await self.page.evaluate(_FITS):
            self.wrong.append(f"{state}: wider than the screen")
        self.wrong += [f"{state}: {one}" for one in await violations(self.page)]

    async def goto(self, path: str) -> None:
        await self.shop.goto(self.page, path)

    async def type(self, selector: str, text: str) -> None:
        await self.page.locator(selector).fill(text)
        await self.page.locator(selector).press("Enter")


@pytest.mark.parametrize(
    ("size", "scheme", "locale"),
    [
        (DESKTOP, "light", "en-US"),
        (PHONE, "dark", "en-US"),
        (DESKTOP, "dark", "ja-JP"),
        (PHONE, "light", "ja-JP"),
        (PHONE, "light", "ko-KR"),
    ],
    ids=["desktop-light-en", "phone-dark-en", "desktop-dark-ja", "phone-light-ja", "phone-light-ko"],
)
async def test_every_state_of_a_page_follows_the_rules_of_accessibility_and_fits(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str, locale: str
) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser, size, scheme, locale=locale) as used:
        looker = Looker(shop, used.page)
        await shop.enter(used.page)
        await expect(used.page.locator("html")).to_have_attribute("lang", locale[:2])
        await _overview_and_lists(looker)
        await _forms(looker)
        await _tasks(looker)
        await _refusals(looker)
        assert looker.wrong == []


async def _overview_and_lists(looker: Looker) -> None:
    page, shop = looker.page, looker.shop
    await looker.goto("")
    await looker.look("the first measure")
    await shop.keys.draft("9").set("x")
    await page.locator("[data-key=m]").click()
    await expect(page.locator(".areas")).to_be_visible()
    await page.locator(".store summary").click()
    await looker.look("charts with a trend")
    await looker.goto("/sessions")
    await looker.type("#user", "3")
    await expect(page.locator("#again")).to_be_visible()
    await looker.look("sessions with rows")
    await looker.type("#again", "4")
    await expect(page.locator("[role=alert]")).to_be_visible()
    await looker.look("another name typed")
    if await page.locator("#q").is_visible():
        await looker.type("#q", "cart")
        await page.wait_for_url("**/find")
        await looker.look("found")
    await looker.goto("/erase")
    await looker.type("#subject", "nobody")
    await expect(page.locator("[role=alert]")).to_be_visible()
    await looker.look("no subject")
    await looker.type("#subject", "shop:1")
    await expect(page.locator("#again")).to_be_visible()
    await looker.look("the plan of an erasure")
    await looker.goto("/live")
    await expect(page.locator("#live-state")).to_have_class("state good")
    await shop.keys.draft("2").set("x")
    await expect(page.locator("#live tbody tr", has_text="shop:draft:2")).to_be_visible()
    await looker.look("live with rows")
    await looker.goto("/family/ShopKeys/orders?v.day=never")
    await looker.look("a filter that is no value")


async def _forms(looker: Looker) -> None:
    page, keys = looker.page, looker.shop.keys
    edit = f"/key/ShopKeys/cart/edit?key={CART}"
    await looker.goto(edit)
    await expect(page.locator("#field-1")).to_be_focused()
    await page.locator("#field-2").fill("many")
    await press(page, "Control+Enter")
    await expect(page.locator("[role=alert]")).to_be_visible()
    await looker.look("a form with an error")
    await looker.goto(edit)
    await keys.cart("1").set(Cart(owner="the application"))
    await page.locator("#field-2").fill("3")
    await press(page, "Control+Enter")
    await expect(page.locator("[role=alert]")).to_be_visible()
    await looker.look("a form after a conflict")
    await looker.goto("/key/ShopKeys/stock/edit?key=shop:stock:p-1")
    await looker.look("the form of a hash")
    await looker.goto(f"/key/ShopKeys/cart/renew?key={CART}")
    await page.locator("main form button").click()
    await page.wait_for_url("**undo=*")
    await looker.look("an undo notice")
    await page.locator("[data-key=u]").click()
    await page.wait_for_url("**undone=yes")
    await looker.look("undone")
    await looker.goto("/key/ShopKeys/draft/delete?key=shop:draft:1")
    await looker.type("#again", "shop:draft:1")
    await expect(page.locator(".success")).to_be_visible()
    await looker.look("done")


async def _tasks(looker: Looker) -> None:
    keys = ConsoleKeys(looker.shop.keys.cart.store)
    now = moment(now_ms())
    states: tuple[tuple[TaskState, str], ...] = (("running", ""), ("stopped", "session"), ("failed", "no space left"))
    for state, why in states:
        task = ConsoleTask(
            id="a",
            kind="repair",
            what="orphan",
            who="operator:ann",
            state=state,
            why=why,
            examined=30,
            total=90,
            fixed=3,
            began_at=now,
            changed_at=now,
        )
        await keys.task("repair").set(task)
        await looker.goto("/task/repair")
        await expect(looker.page.locator(f"#progress[data-state={state}]")).to_be_visible()
        if state == "running":  # its page follows it
            await keys.task("repair").set(task.model_copy(update={"examined": 60}))
            await expect(looker.page.locator("#progress dl")).to_contain_text("60 / 90")
        await looker.look(f"a task, {state}")
    await keys.task("repair").delete()


async def _refusals(looker: Looker) -> None:
    page, shop = looker.page, looker.shop
    keys = ConsoleKeys(shop.keys.cart.store)
    [(_, found)] = await shop.keys.cart.store.run([("SCAN", "0", "MATCH", "keystead:console:session:*", "COUNT", 999)])
    for raw in found:  # they signed in an hour ago
        session = keys.session(raw.decode().rpartition(":")[2])
        held = await session.get()
        assert held is not None
        await session.set(held.model_copy(update={"proven_at": moment(now_ms()) - timedelta(hours=1)}))
    await looker.goto("/erase")
    await expect(page.locator("[role=alert]")).to_be_visible()
    await looker.look("stale")
    await page.context.clear_cookies()
    await shop.enter(page, "viewer", "operator:eve")
    await looker.goto("/erase")
    await expect(page.locator("[role=alert]")).to_be_visible()
    await looker.look("forbidden")
    await looker.goto("/findings")
    await looker.look("the findings of a viewer")
    await looker.goto("/nothing")
    await looker.look("no such page")
    await page.context.clear_cookies()
    await looker.goto("/audit")
    await looker.look("the entrance")
