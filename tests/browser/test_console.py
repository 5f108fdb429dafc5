"""The console in a real browser: opened by the printed link, used by mouse and by keyboard, on desk and phone."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.accessibility import violations
from tests.browser.console_shop import CART, EVERY_PAGE, confirm, press, serving_shop, wait_for_task
from tests.browser.tabs import DESKTOP, PHONE, tab
from tests.console.shop_keys import HOSTILE
from tests.serving import keystead_serving

FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.mark.main_path
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_a_printed_link_opens_the_console_and_the_keyboard_leads_to_a_key_and_edits_it(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser, size, scheme) as used:
        link = re.search(r"http\S+/console/enter#\S+", shop.server.said)
        assert link is not None
        wrong: list[str] = []
        used.on("console", lambda message: wrong.append(message.text))
        used.on("pageerror", lambda error: wrong.append(str(error)))
        page = used.page
        await page.goto(link[0])
        await page.wait_for_url("**/console")
        assert await page.evaluate(FITS)
        await press(page, "?")
        await expect(page.locator("#help")).to_be_visible()
        await press(page, "Escape", "/")
        await page.keyboard.type("ShopKeys.cart")
        await press(page, "Enter")
        await page.wait_for_url("**/console/find")
        await press(page, "j", "j", "k", "j", "Enter")
        await page.wait_for_url("**/family/ShopKeys/cart")
        await press(page, "j", "j", "Enter")
        await page.wait_for_url("**/key/ShopKeys/cart?*")
        await press(page, "e")
        await page.wait_for_url("**/edit?*")
        await page.locator("#field-2").fill("5")
        await press(page, "Control+Enter")
        await page.wait_for_url("**undo=*")
        assert await page.evaluate(FITS)
        await press(page, "u")
        await page.wait_for_url("**undone=yes")
        await press(page, "t")
        other = "dark" if scheme == "light" else "light"
        await expect(page.locator("html")).to_have_attribute("data-theme", other)
        for path in ("/console", "/reference"):
            await page.goto(f"{shop.server.url}{path}")
            await expect(page.locator("html")).to_have_attribute("data-theme", other)
        assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_every_page_follows_the_rules_of_accessibility_and_shows_hostile_keys_as_text(
    browser: Browser, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser, size, scheme) as used:
        page, wrong = used.page, []
        used.on("pageerror", lambda error: wrong.append(str(error)))
        await page.goto(f"{shop.server.url}/console/enter")
        assert await violations(page) == []
        await shop.enter(page)
        await shop.goto(page, "/findings")
        await page.locator("[data-key=x]").click()
        await wait_for_task(page)
        await shop.goto(page, "/unknown")
        await page.locator("[data-key=d]").click()
        await wait_for_task(page)
        hostile = [f"/family/ShopKeys/{family}?v.uid={HOSTILE}" for family in ("cart", "draft")]
        for path in (*EVERY_PAGE, *hostile):
            await shop.goto(page, path)
            assert await page.evaluate(FITS), path
            assert await violations(page) == [], path
            assert await page.locator("img[src=x]").count() == 0, path
        await page.locator("[data-row]").first.click()
        assert HOSTILE in await page.locator("main").inner_text()
        await press(page, "?")
        assert await violations(page) == []
        await press(page, "Escape")
        if size == PHONE:
            await page.locator("#menu").click()
            assert await violations(page) == []
        assert wrong == []
        assert await page.title() != "broken"


async def test_of_two_operators_who_edit_one_value_the_second_is_told_and_sees_what_the_first_wrote(
    browser: Browser, tmp_path: Path
) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser) as ann, tab(browser, locale="ja-JP") as eve:
        path = f"/key/ShopKeys/cart/edit?key={CART}"
        for who, used in (("ann", ann), ("eve", eve)):
            await shop.enter(used.page, "operator", f"operator:{who}")
            await shop.goto(used.page, path)
        await ann.page.locator("#field-2").fill("3")
        await ann.page.locator("#edit-form button").click()
        await ann.page.wait_for_url("**undo=*")
        await eve.page.locator("#field-2").fill("4")
        await eve.page.locator("#edit-form button").click()
        await expect(eve.page.locator("[role=alert]")).to_contain_text("別の人がこの値を変更した")
        assert await eve.page.locator("#field-2").input_value() == "3"
        # What Ann did is not undone over what Eve saves now.
        await eve.page.locator("#field-2").fill("4")
        await eve.page.locator("#edit-form button").click()
        await eve.page.wait_for_url("**undo=*")
        await ann.page.locator("[data-key=u]").click()
        await ann.page.wait_for_url("**undone=no")
        assert (await shop.keys.cart("1").get()).items == 4  # type: ignore[union-attr]


async def test_changes_appear_while_they_happen(browser: Browser, tmp_path: Path) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser) as used:
        await shop.enter(used.page, "viewer")
        await shop.goto(used.page, "/live?family=ShopKeys.draft")
        await expect(used.page.locator("#live-state")).to_have_text("watching")
        await shop.keys.draft("new").set(HOSTILE)
        await expect(used.page.locator("#live tbody tr")).to_have_count(1)
        await expect(used.page.locator("#live tbody")).to_contain_text("shop:draft:new")
        await expect(used.page.locator("#live-counts")).to_contain_text("ShopKeys.draft 1")
        await shop.keys.draft("new").delete()
        await expect(used.page.locator("#live tbody tr").first).to_contain_text("gone")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_one_finding_is_repaired_and_the_others_are_left(browser: Browser, tmp_path: Path, scheme: str) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser, PHONE, scheme) as used:
        page = used.page
        await shop.enter(page)
        await shop.goto(page, "/findings")
        await page.locator("[data-key=x]").click()
        await wait_for_task(page)
        await shop.goto(page, "/findings")
        await page.locator("#main li", has_text="shop:draft:gone-1").get_by_role("link", name="Repair").click()
        await expect(page.locator("#again")).to_be_focused()
        assert await violations(page) == []
        await confirm(page, "draft", by_keyboard=False)
        await wait_for_task(page)
        await expect(page.locator("#fixed")).to_have_text("1")
        assert [await shop.keys.draft(f"gone-{number}").exists() for number in range(4)] == [True, False, True, True]


async def test_a_user_on_the_list_signs_in_at_the_provider_and_resets_a_limit_until_they_sign_out(
    browser: Browser, tmp_path: Path
) -> None:
    settings = {"KEYSTEAD_CONSOLE__OPERATORS": "login:demo.demo-ada"}
    with keystead_serving(tmp_path, None, **settings) as server:
        async with tab(browser) as used:
            page = used.page

            async def sign_in(person: str) -> None:
                await page.goto(f"{server.url}/console")
                await page.locator("#main").get_by_role("link", name="Sign in", exact=True).click()
                await page.get_by_role("link", name=re.compile("Demo")).click()
                await page.get_by_role("button", name=person).click()
                await page.wait_for_url("**/console/enter")

            await sign_in("Grace Hopper")
            assert await page.locator("form[action='/console/enter/signed-in']").count() == 0
            await page.context.clear_cookies()
            await sign_in("Ada Lovelace")
            await expect(page.locator("form[action='/console/enter/signed-in'] button")).to_be_focused()
            await press(page, "Enter")
            await page.wait_for_url("**/console")
            assert await page.locator("[data-go=e]").count() == 0  # an operator erases nobody
            await page.goto(f"{server.url}/console/unknown")
            await expect(page.locator("#main .blank")).to_be_visible()  # the provider's keys are the server's own
            await page.goto(f"{server.url}/console/family/LoginKeys/guesses")
            await page.locator("#main [data-row]").first.click()
            await page.wait_for_url("**/key/**")
            await press(page, "x")
            await page.wait_for_url("**/reset?*")
            await confirm(page, await page.locator("label[for=again] code").inner_text(), by_keyboard=True)
            await expect(page.locator(".success")).to_be_visible()
            async with await page.context.new_page() as other:
                await other.goto(f"{server.url}/account")
                await other.get_by_role("button", name="Sign out", exact=True).first.click()
                await other.wait_for_load_state()
            await page.goto(f"{server.url}/console")
            await expect(page.locator("#enter")).to_be_visible()
            assert await page.locator("#families").count() == 0


async def test_a_filter_shows_one_key_and_next_shows_the_rest(browser: Browser, tmp_path: Path) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser) as used:
        page = used.page
        await shop.enter(page, "viewer")
        await shop.goto(page, "/family/ShopKeys/cart?v.uid=42")
        rows = page.locator("#main tbody [data-row]")
        assert await rows.all_inner_texts() == ["shop:cart:42"]
        await shop.goto(page, "/family/ShopKeys/cart")
        first = await rows.all_inner_texts()
        await page.locator("[rel=next]").click()
        await page.wait_for_url("**cursor=*")
        second = await rows.all_inner_texts()
        assert await page.locator("[rel=next]").count() == 0
        assert set(first) | set(second) == {f"shop:cart:{number}" for number in range(60)} | {f"shop:cart:{HOSTILE}"}
        await page.get_by_role("link", name="First page").click()
        await page.wait_for_url("**/family/ShopKeys/cart")


async def test_a_key_shows_its_declared_and_its_real_lifetime_its_bytes_and_leads_to_what_it_is_related_to(
    browser: Browser, tmp_path: Path
) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser) as used:
        page = used.page
        await shop.keys.cart("1").shorten(7_200_500)
        await shop.enter(page, "operator")
        await shop.goto(page, f"/key/ShopKeys/cart?key={CART}")
        facts = page.locator(".facts")
        await expect(facts).to_contain_text(re.compile(r"Declared lifetime\s*7 days"))
        await expect(facts).to_contain_text(re.compile(r"Time left\s*(2 hours|1 hour 59 minutes)"))

        async def follow(kind: str, key: str) -> None:
            node = page.locator(".graph .node", has=page.get_by_role("heading", name=kind))
            await node.get_by_role("link").filter(has_text=re.compile(rf"{re.escape(key)}$")).click()
            await expect(page.locator("h1")).to_have_text(key)

        await follow("Owns", "shop:draft:1")
        await follow("Owned by", CART)
        await follow("Listed in", "shop:carts")
        await follow("Lists", CART)
        await follow("Owns", "shop:seen:1")
        await page.locator("[data-key=b]").click()
        assert sorted(await page.locator("section[aria-labelledby=raw] pre").all_inner_texts()) == ["p-1", "p-7"]
        await shop.keys.cart("1").delete()
        await shop.keys.draft("1").set("left behind")
        await shop.goto(page, "/key/ShopKeys/draft?key=shop:draft:1")
        await expect(page.locator(".graph li", has_text=CART)).to_contain_text("missing")
