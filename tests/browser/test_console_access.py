"""Who may use the console in Chromium: a viewer who tries to act, and operators whose session ends while they act."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.console_shop import CART, Shop, confirm, press, serving_shop, wait_for_task
from tests.browser.tabs import tab
from tests.console.wish_keys import WishKeys

_ACTS = (
    "#main :is(.danger, [data-key=e], [data-key=r], [data-key=d], [data-key=x], [data-key=u], [data-key=m])",
    "#main :is([href*='/edit?'], [href*='/delete?'], [href*='/renew?'], [href*='/reset?'], [href*='/repair?'])",
    "#main :is([href*='/jobs/run'], [href*='/queues/'], [href*='raw=1'], [action='/console/unknown/draft'])",
    "[data-go=a], [data-go=e]",
)
_PAGES = (
    *("", "/findings", "/unknown", "/live", "/jobs", "/queues", "/sessions", "/task/examine", "/task/draft"),
    *("/family/ShopKeys/cart", f"/key/ShopKeys/cart?key={CART}", "/key/ShopKeys/hits?key=shop:hits:10.0.0.1"),
)
_TYPED = (
    *("/audit", "/erase", "/findings/repair?code=orphan", "/jobs/run?name=console.measure"),
    *(f"/queues/{act}?topic=webhook&name=orders" for act in ("retry", "retry_dead", "drop_dead", "drop_waiting")),
    *(f"/key/ShopKeys/cart/{act}?key={CART}" for act in ("edit", "renew", "delete")),
    f"/key/ShopKeys/cart?key={CART}&raw=1",
    "/key/ShopKeys/hits/reset?key=shop:hits:10.0.0.1",
)
_POSTED = {
    f"/key/ShopKeys/cart/delete?key={CART}": {"again": CART},
    f"/key/ShopKeys/cart/renew?key={CART}": {},
    "/findings/examine": {},
    "/findings/repair?code=orphan": {"again": "orphan"},
    "/unknown/draft": {},
    "/measure": {},
    "/undo": {"undo": "x" * 22},
    "/jobs/run?name=console.measure": {"again": "console.measure"},
    "/queues/drop_dead?topic=webhook&name=orders": {"again": "webhook/orders"},
    "/sessions": {"user": "3", "again": "3"},
    "/erase": {"subject": "shop:1", "again": "shop:1"},
}
# A form as a page of the console would send it, with its token.
_POST = """([path, fields]) => {
    const form = document.createElement("form");
    form.method = "post";
    form.action = path;
    const csrf = document.querySelector("[name=csrf]").value;
    for (const [name, value] of Object.entries({...fields, csrf})) {
        const input = document.createElement("input");
        Object.assign(input, {type: "hidden", name, value});
        form.append(input);
    }
    document.body.append(form);
    form.submit();
}"""


async def content_of(shop: Shop) -> tuple[set[Any], Any, list[str]]:
    """All keys but those of the console, a value, and what the audit log has about acts."""
    store = shop.keys.cart.store
    [(_, found)] = await store.run([("SCAN", "0", "COUNT", 100_000)])
    events = [one.event for one in await shop.access.audit.latest(100)]
    acts = [one for one in events if one.startswith("console-") and one != "console-link-created"]
    return {key for key in found if not key.startswith(b"keystead:")}, await shop.keys.cart("1").see(), acts


async def refused(page: Page, status: int | None) -> None:
    assert status == 403, page.url
    await expect(page.locator("[role=alert]")).to_contain_text("Your role does not allow this.")


async def test_a_viewer_is_offered_no_act_and_can_do_none(browser: Browser, tmp_path: Path) -> None:
    async with serving_shop(tmp_path, keyspaces="tests.console.limited_shop:ShopKeys") as shop, tab(browser) as used:
        page = used.page
        await shop.enter(page)
        for place, key in (("/findings", "x"), ("/unknown", "d")):  # so that there is something to repair
            await shop.goto(page, place)
            await page.locator(f"[data-key={key}]").click()
            await wait_for_task(page)
        await page.context.clear_cookies()
        await shop.enter(page, "viewer", "operator:eve")
        before = await content_of(shop)
        for path in _PAGES:
            await shop.goto(page, path)
            for selector in _ACTS:
                assert await page.locator(selector).count() == 0, (path, selector)
            posts = await page.locator("#main form[method=post]").count()
            assert posts == (path == "/sessions"), path  # which only looks
            here = page.url
            await press(page, "e", "r", "d", "x", "u", "m", "b")
            assert page.url == here
        for path in _TYPED:
            answer = await page.goto(f"{shop.server.url}/console{path}")
            await refused(page, None if answer is None else answer.status)
        for path, fields in _POSTED.items():
            await shop.goto(page, "")
            async with page.expect_navigation() as sent:
                await page.evaluate(_POST, [f"/console{path}", fields])
            await refused(page, (await sent.value).status)
        assert await content_of(shop) == before


async def leave(shop: Shop, page: Page) -> None:
    await page.evaluate("document.querySelector('form[action=\"/console/leave\"]').submit()")


async def expire(shop: Shop, page: Page) -> None:
    """The session ends as it does after an hour: its key is gone. The open page learns of it when it asks again."""
    store = shop.keys.cart.store
    [(_, found)] = await store.run([("SCAN", "0", "MATCH", "keystead:console:session:*", "COUNT", 100_000)])
    await store.run([("PEXPIRE", key, 1) for key in found])
    async with asyncio.timeout(60):
        while any(await store.run([("EXISTS", key) for key in found])):
            pass


@pytest.mark.parametrize("end", [leave, expire])
async def test_a_session_that_ends_in_the_middle_of_a_repair_stops_it_and_the_page_says_what_was_done(
    browser: Browser, tmp_path: Path, end: Any
) -> None:
    async with serving_shop(tmp_path, orphans=3_000) as shop, tab(browser) as used:
        page = used.page
        await shop.enter(page)
        await shop.goto(page, "/findings")
        await page.locator("[data-key=x]").click()
        await wait_for_task(page)
        await shop.goto(page, "/findings/repair?code=orphan")
        await confirm(page, "orphan", by_keyboard=True)
        await page.wait_for_url("**/task/repair")
        await end(shop, page)
        await expect(page.locator("form#enter")).to_be_visible()
        await shop.enter(page, "viewer", "operator:eve")
        await shop.goto(page, "/task/repair")
        await wait_for_task(page, "stopped")
        await expect(page.locator("[role=alert]")).to_contain_text("the session that started it has ended")
        assert await shop.keys.draft("gone-2999").exists()
        assert await shop.keys.cart("1").exists()
        assert await page.locator("a.danger, button.danger").count() == 0  # a viewer is offered no act


async def test_an_erasure_whose_session_expires_stops_and_is_completed_by_the_next_one(
    browser: Browser, tmp_path: Path
) -> None:
    keyspaces = "tests.console.shop_keys:ShopKeys,tests.console.wish_keys:WishKeys"
    async with serving_shop(tmp_path, keyspaces=keyspaces) as shop, tab(browser) as used:
        page, wishes = used.page, 6_000
        store = shop.keys.cart.store
        keys = WishKeys(store)
        for begin in range(0, wishes, 1_000):
            await keys.run(*(keys.wish(uid="7", number=number).set("x") for number in range(begin, begin + 1_000)))
        await shop.enter(page)

        async def erase() -> None:
            await shop.goto(page, "/erase")
            await page.locator("#subject").fill("shop:7")
            await page.keyboard.press("Enter")
            await confirm(page, "shop:7", by_keyboard=True)
            await page.wait_for_url("**/task/erase")

        async def left() -> int:
            [(_, found)] = await store.run([("SCAN", "0", "MATCH", "wish:7:*", "COUNT", 100_000)])
            return len(found)

        await erase()
        await expire(shop, page)
        await expect(page.locator("form#enter")).to_be_visible()
        await shop.enter(page)
        await shop.goto(page, "/task/erase")
        await wait_for_task(page, "stopped")
        await expect(page.locator("main")).to_contain_text("Erase the same person again to continue.")
        still_there = await left()
        assert 0 < still_there <= wishes
        deleted = int((await page.locator("#fixed").inner_text()).replace(",", ""))
        assert deleted <= wishes + 4 - still_there  # it never says more than was done
        await erase()
        await wait_for_task(page)
        assert await left() == 0
        assert not await shop.keys.cart("7").exists()
        assert await shop.keys.cart("8").exists()
