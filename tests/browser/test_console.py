"""The console in a real browser: opened by the printed link, used by mouse and by keyboard, on desk and phone."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from keystead import connect
from keystead.console.console_access import ConsoleAccess
from keystead.console.console_keys import ConsoleKeys, Role
from tests.browser.accessibility import violations
from tests.browser.tabs import DESKTOP, PHONE, tab
from tests.console.shop_keys import HOSTILE, SEAL_KEYS, ShopKeys, fill, shop_limit, shop_sessions
from tests.serving import Keystead, keystead_serving

FITS = "document.documentElement.scrollWidth <= innerWidth"
CART = "shop:cart:1"
EVERY_PAGE = (
    *("", "/findings", "/unknown", "/live", "/jobs", "/queues", "/sessions", "/audit", "/erase"),
    *("/task/examine", "/task/draft", "/findings/repair?code=orphan", "/queues/drop_dead?topic=webhook&name=orders"),
    *("/jobs/run?name=console.measure", "/family/ShopKeys/cart", "/family/ShopKeys/visit", "/family/ShopKeys/nothing"),
    *(f"/key/ShopKeys/cart?key={CART}", "/key/ShopKeys/carts?key=shop:carts&raw=1", "/key/ShopKeys/cart?key=x"),
    *(f"/key/ShopKeys/cart{act}?key={CART}" for act in ("/edit", "/renew", "/delete")),
    "/key/ShopKeys/hits/reset?key=shop:hits:10.0.0.1",
)


class Shop:
    """A server with the console for a shop, and links to it."""

    def __init__(self, server: Keystead, keys: ShopKeys) -> None:
        self.server, self.keys = server, keys
        self.access = ConsoleAccess(ConsoleKeys(keys.cart.store))

    async def enter(self, page: Page, role: Role = "admin", who: str = "operator:ann") -> None:
        secret = await self.access.create_link(who, role)
        await page.goto(f"{self.server.url}/console/enter#{secret}")
        await page.wait_for_url("**/console")

    async def goto(self, page: Page, path: str) -> None:
        await page.goto(f"{self.server.url}/console{path}")


@asynccontextmanager
async def serving_shop(folder: Path, orphans: int = 4) -> AsyncIterator[Shop]:
    url = f"sqlite:///{folder}/shop.db"
    async with connect(url) as store:
        keys = await fill(store, carts=60, orphans=orphans)
        settings = {
            "KEYSTEAD_SEAL_KEYS": SEAL_KEYS,
            "KEYSTEAD_CONSOLE__KEYSPACES": "tests.console.shop_keys:ShopKeys",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        with keystead_serving(folder, url, "--kits", "console", **settings) as running:
            yield Shop(running, keys)


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def confirm(page: Page, name: str, *, by_keyboard: bool) -> None:
    """Type the name that the page asks for; its field has the focus."""
    if by_keyboard:
        await expect(page.locator("#again")).to_be_focused()
        await page.keyboard.type(name)
        await page.keyboard.press("Enter")
    else:
        await page.locator("#again").fill(name)
        await page.locator(".sure .danger").click()


async def wait_for_task(page: Page, state: str = "done") -> None:
    await expect(page.locator(f"#progress[data-state={state}]")).to_be_visible()


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


@pytest.mark.parametrize("by_keyboard", [True, False], ids=["keyboard", "mouse"])
async def test_every_act_is_done_by_mouse_and_by_keyboard_alone(
    browser: Browser, tmp_path: Path, by_keyboard: bool
) -> None:
    async with serving_shop(tmp_path) as shop, tab(browser) as used:
        page, keys = used.page, shop.keys
        await shop.enter(page)

        async def choose(key: str, selector: str) -> None:
            if by_keyboard:
                await press(page, *key.split(" "))
            else:
                await page.locator(selector).first.click()

        async def open_row(text: str, hops: int = 40) -> None:
            """Choose a row by its text."""
            if not by_keyboard:
                await page.locator("[data-row]", has_text=text).first.click()
                return
            for _ in range(hops):
                await press(page, "j")
                if text in await page.evaluate("document.activeElement.textContent"):
                    break
            await press(page, "Enter")

        # A key: edit, undo, renew, delete with its cascade.
        await choose("g f", "#families summary")
        if by_keyboard:
            await page.keyboard.type("")
        await shop.goto(page, f"/key/ShopKeys/cart?key={CART}")
        await choose("e", "[data-key=e]")
        await page.wait_for_url("**/edit?*")
        if by_keyboard:
            await page.locator("#field-1").focus()
            await press(page, "Tab", "Control+A")
            await page.keyboard.type("6")
            await press(page, "Control+Enter")
        else:
            await page.locator("#field-2").fill("6")
            await page.locator("#edit-form button").click()
        await page.wait_for_url("**undo=*")
        assert (await keys.cart("1").get()).items == 6  # type: ignore[union-attr]
        await choose("u", "[data-key=u]")
        await page.wait_for_url("**undone=yes")
        await keys.cart("1").shorten(600_000)
        await choose("r", "[data-key=r]")
        await page.wait_for_url("**/renew?*")
        if by_keyboard:
            await press(page, "Enter")
        else:
            await page.locator("main form.actions button").click()
        await page.wait_for_url("**undo=*")
        assert await keys.cart("1").left_ms() > 600_000
        await choose("d", "[data-key=d]")
        await expect(page.get_by_text("shop:draft:1")).to_be_visible()
        await confirm(page, CART, by_keyboard=by_keyboard)
        await expect(page.get_by_text("The key was deleted.")).to_be_visible()
        assert not await keys.draft("1").exists()

        # Findings: examine, repair one, repair all of a code.
        await choose("g d", "[data-go=d]")
        await page.wait_for_url("**/findings")
        await choose("x", "[data-key=x]")
        await wait_for_task(page)
        await choose("Escape", "[data-up]")
        await page.wait_for_url("**/findings")
        await open_row("Repair all")
        await confirm(page, "orphan", by_keyboard=by_keyboard)
        await wait_for_task(page)
        assert not await keys.draft("gone-0").exists()

        # Unknown keys: a draft.
        await choose("g u", "[data-go=u]")
        await page.wait_for_url("**/unknown")
        await choose("d", "[data-key=d]")
        await wait_for_task(page)
        await expect(page.locator("#text")).to_contain_text("legacy:{legacy_id:int}:user")

        # A job, a queue, a rate limit, the sessions of a user, a person.
        await choose("g j", "[data-go=j]")
        await page.wait_for_url("**/jobs")
        await open_row("Run now")
        await confirm(page, "console.measure", by_keyboard=by_keyboard)
        await page.wait_for_url("**/jobs")
        await choose("g q", "[data-go=q]")
        await page.wait_for_url("**/queues")
        await open_row("Drop dead letters")
        await confirm(page, "webhook/orders", by_keyboard=by_keyboard)
        await page.wait_for_url("**/queues")
        await expect(page.get_by_text("undeliverable")).to_have_count(0)
        await open_row("Retry now")
        await confirm(page, "webhook/orders", by_keyboard=by_keyboard)
        await page.wait_for_url("**/queues")
        await expect(page.get_by_text("the receiver is down")).to_have_count(0)
        limit = shop_limit(keys)
        await limit.hit("10.0.0.1")
        await shop.goto(page, "/key/ShopKeys/hits?key=shop:hits:10.0.0.1")
        assert await page.locator("[data-key=x]").count() == 0  # the limit is not in the server's process
        await choose("g s", "[data-go=s]")
        await page.wait_for_url("**/sessions")
        if by_keyboard:
            await expect(page.locator("#user")).to_be_focused()
            await page.keyboard.type("3")
            await press(page, "Enter")
        else:
            await page.locator("#user").fill("3")
            await page.locator(".filters button").click()
        await confirm(page, "3", by_keyboard=by_keyboard)
        await expect(page.get_by_text("4 sessions of 3 were ended.")).to_be_visible()
        assert await shop_sessions(keys).list_for("3") == []
        await press(page, "Escape")
        await choose("g e", "[data-go=e]")
        await page.wait_for_url("**/erase")
        await page.locator("#subject").focus()
        await page.keyboard.type("shop:2")
        await press(page, "Enter")
        await confirm(page, "shop:2", by_keyboard=by_keyboard)
        await expect(page.locator(".success")).to_be_visible()
        assert not await keys.cart("2").exists()

        # All of it is in the log, with who did it.
        await choose("g a", "[data-go=a]")
        await page.wait_for_url("**/audit")
        for event in ("edited", "undone", "renewed", "deleted", "examined", "repaired", "drafted", "job-run"):
            await expect(page.get_by_text(f"console-{event}", exact=True).first).to_be_visible()


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


async def test_a_session_that_ends_in_the_middle_of_a_repair_stops_it_and_the_page_says_what_was_done(
    browser: Browser, tmp_path: Path
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
        await page.evaluate("document.querySelector('form[action=\"/console/leave\"]').submit()")
        await page.wait_for_url("**/console/enter")
        await shop.enter(page, "viewer", "operator:eve")
        await shop.goto(page, "/task/repair")
        await wait_for_task(page, "stopped")
        await expect(page.locator("[role=alert]")).to_contain_text("the session that started it has ended")
        assert await shop.keys.draft("gone-2999").exists()
        assert await shop.keys.cart("1").exists()
        assert await page.locator("a.danger, button.danger").count() == 0  # a viewer is offered no act


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
            await expect(page.locator("[role=alert]")).to_be_visible()
            assert await page.locator("#families").count() == 0
