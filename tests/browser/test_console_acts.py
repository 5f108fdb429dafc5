"""Every act of the console by one hand alone: the keyboard, or the mouse, which types only what is text."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from keystead.console.console_keys import ConsoleKeys
from keystead.parts.outbox import OutboxKeys, QueueName
from keystead.parts.outbox.outbox_keys import StoredMessage
from keystead.parts.outbox.queue_control import QueueControl
from tests.browser.console_shop import CART, Shop, press, serving_shop, wait_for_task
from tests.browser.tabs import tab
from tests.console.shop_keys import shop_limit, shop_sessions

QUEUE = QueueName("webhook", "orders")
LIMITED = "tests.console.limited_shop:ShopKeys"


class Keyboard:
    """Somebody without a mouse. The focus is where the page or a key has put it."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def place(self, letter: str) -> None:
        await press(self.page, "g", letter)

    async def act(self, key: str) -> None:
        await press(self.page, key)

    async def up(self) -> None:
        await press(self.page, "Escape")

    async def row(self, text: str) -> None:
        for _ in range(80):
            await press(self.page, "j")
            if text in await self.page.evaluate("document.activeElement.textContent"):
                break
        await press(self.page, "Enter")

    async def family(self, name: str) -> None:
        await press(self.page, "g", "f")
        await expect(self.page.locator("#families :focus")).to_have_count(1)
        for _ in range(40):
            if await self.page.evaluate("document.activeElement.textContent") == name:
                break
            await press(self.page, "j")
        await press(self.page, "Enter")
        await self.page.wait_for_url(f"**/family/ShopKeys/{name}")

    async def filter(self, selector: str, text: str) -> None:
        await press(self.page, "f")
        await expect(self.page.locator(selector)).to_be_focused()
        await self.page.keyboard.type(text)
        await press(self.page, "Enter")

    async def fill(self, selector: str, text: str) -> None:
        """From the first field, which has the focus, on to this one."""
        await expect(self.page.locator("#main form :focus")).to_have_count(1)
        for _ in range(20):
            if await self.page.locator(f"{selector}:focus").count():
                break
            await press(self.page, "Tab")
        await press(self.page, "Control+A")
        await self.page.keyboard.type(text)

    async def save(self) -> None:
        await press(self.page, "Control+Enter")

    async def submit(self) -> None:
        await expect(self.page.locator("#main form :focus")).to_have_count(1)
        await press(self.page, "Enter")


class Mouse:
    """Somebody who clicks, and uses the keyboard for text alone."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def place(self, letter: str) -> None:
        await self.page.locator(f"[data-go={letter}]").click()

    async def act(self, key: str) -> None:
        await self.page.locator(f"[data-key={key}]").first.click()

    async def up(self) -> None:
        await self.page.locator("[data-up]").first.click()

    async def row(self, text: str) -> None:
        await self.page.locator("#main [data-row]", has_text=text).first.click()

    async def family(self, name: str) -> None:
        if not await self.page.locator("#families details[open]").count():
            await self.page.locator("#families summary").first.click()
        await self.page.locator("#families").get_by_role("link", name=name, exact=True).click()
        await self.page.wait_for_url(f"**/family/ShopKeys/{name}")

    async def filter(self, selector: str, text: str) -> None:
        await self.fill(selector, text)
        await self.page.locator(".filters button").click()

    async def fill(self, selector: str, text: str) -> None:
        await self.page.locator(selector).click(click_count=3)
        await self.page.keyboard.type(text)

    async def save(self) -> None:
        await self.page.locator("#edit-form button").click()

    async def submit(self) -> None:
        await self.page.locator("#main form:not(.undo) button:not([data-key])").last.click()


Hand = Keyboard | Mouse


async def confirm(hand: Hand, name: str) -> None:
    await expect(hand.page.locator("#again")).to_be_focused()
    await hand.fill("#again", name)
    await hand.submit()


@pytest.mark.parametrize("make", [Keyboard, Mouse])
async def test_every_act_is_done_by_mouse_and_by_keyboard_alone(
    browser: Browser, tmp_path: Path, make: type[Hand]
) -> None:
    async with serving_shop(tmp_path, keyspaces=LIMITED) as shop, tab(browser) as used:
        await shop.enter(used.page)
        hand = make(used.page)
        await _act_on_keys(shop, hand)
        await _act_on_fields_and_limits(shop, hand)
        await _repair(shop, hand)
        await _act_on_queues(shop, hand)
        await _act_on_people(shop, hand)
        await _look_on(shop, hand)


async def _act_on_keys(shop: Shop, hand: Hand) -> None:
    """Browse, look at the bytes, edit, undo, renew, undo, and delete with a cascade."""
    page, cart = hand.page, shop.keys.cart("1")
    await hand.family("cart")
    await hand.act("n")
    await page.wait_for_url("**cursor=*")
    await hand.filter("#v-uid", "1")
    await page.wait_for_url("**v.uid=1")
    await expect(page.locator("#main tbody tr")).to_have_count(1)
    await hand.row(CART)
    await page.wait_for_url("**/key/ShopKeys/cart?*")
    await hand.act("b")
    await page.wait_for_url("**raw=1*")
    await expect(page.locator("section[aria-labelledby=raw] pre")).to_contain_text('"owner":"Customer 1"')
    await hand.act("e")
    await page.wait_for_url("**/edit?*")
    await hand.fill("#field-2", "6")
    await hand.save()
    await page.wait_for_url("**undo=*")
    assert (await cart.get()).items == 6  # type: ignore[union-attr]
    await hand.act("u")
    await page.wait_for_url("**undone=yes")
    assert (await cart.get()).items == 1  # type: ignore[union-attr]
    await cart.shorten(600_000)
    await hand.act("r")
    await page.wait_for_url("**/renew?*")
    await hand.submit()
    await page.wait_for_url("**undo=*")
    assert await cart.left_ms() > 600_000
    await hand.act("u")
    await page.wait_for_url("**undone=yes")
    assert 0 < await cart.left_ms() <= 600_000
    await hand.act("d")
    await expect(page.get_by_text("shop:draft:1")).to_be_visible()
    await confirm(hand, CART)
    await expect(page.get_by_text("The key was deleted.")).to_be_visible()
    assert not await shop.keys.draft("1").exists()


async def _act_on_fields_and_limits(shop: Shop, hand: Hand) -> None:
    """The form of a hash, and a rate limit."""
    page = hand.page
    await hand.family("stock")
    await hand.filter("#v-product", "p-3")
    await page.wait_for_url("**v.product=p-3")
    await hand.row("shop:stock:p-3")
    await page.wait_for_url("**/key/ShopKeys/stock?*")
    await hand.act("e")
    await page.wait_for_url("**/edit?*")
    await hand.fill("#field-1", "77")
    await hand.fill("#new-name", "cellar")
    await hand.fill("#new-value", "5")
    await hand.save()
    await page.wait_for_url("**undo=*")
    stock = await shop.keys.stock("p-3").get() or {}
    assert (stock["cellar"], 77 in stock.values()) == (5, True)

    limit = shop_limit(shop.keys)
    await limit.hit("10.9.9.9")
    await hand.family("hits")
    await hand.filter("#v-client", "10.9.9.9")
    await page.wait_for_url("**v.client=10.9.9.9")
    await hand.row("shop:hits:10.9.9.9")
    await page.wait_for_url("**/key/ShopKeys/hits?*")
    await hand.act("x")
    await page.wait_for_url("**/reset?*")
    await confirm(hand, "shop:hits:10.9.9.9")
    await expect(page.locator(".success")).to_be_visible()
    assert (await limit.peek("10.9.9.9")).remaining == 100


async def _repair(shop: Shop, hand: Hand) -> None:
    """Examine, repair one finding and all of a code, and draft families for unknown keys."""
    page = hand.page
    await hand.place("d")
    await page.wait_for_url("**/findings")
    await hand.act("x")
    await wait_for_task(page)
    await hand.up()
    await page.wait_for_url("**/findings")
    await hand.row("Repair this one")
    await confirm(hand, "draft")
    await wait_for_task(page)
    left = [await shop.keys.draft(f"gone-{number}").exists() for number in range(4)]
    assert sum(left) == 3
    await hand.up()
    await page.wait_for_url("**/findings")
    await hand.row("Repair all")
    await confirm(hand, "orphan")
    await wait_for_task(page)
    assert not any([await shop.keys.draft(f"gone-{number}").exists() for number in range(4)])

    await hand.place("u")
    await page.wait_for_url("**/unknown")
    await hand.row("Draft a family")
    await wait_for_task(page)
    await expect(page.locator("h1")).to_contain_text("legacy:{int}:user")
    await hand.up()
    await page.wait_for_url("**/unknown")
    await hand.act("d")
    await wait_for_task(page)
    await expect(page.locator("#text")).to_contain_text("legacy:{legacy_id:int}:user")


async def _act_on_queues(shop: Shop, hand: Hand) -> None:
    """A job, and the messages of a queue: retried, dropped, and dead letters."""
    page = hand.page
    outbox = OutboxKeys(shop.keys.draft.store)
    queues = QueueControl(outbox)
    await hand.place("j")
    await page.wait_for_url("**/jobs")
    await hand.row("Run now")
    await confirm(hand, "console.measure")
    await page.wait_for_url("**/jobs")

    async def do(button: str) -> tuple[int, int, bool]:
        async with page.expect_navigation(url="**/queues"):  # also from this very page
            await hand.place("q")
        await hand.row(button)
        await confirm(hand, "webhook/orders")
        await page.wait_for_url("**/queues")
        now = await queues.state(QUEUE)
        return now.waiting, now.dead, now.trouble is not None

    assert await do("Retry now") == (1, 1, False)
    assert await do("Retry dead letters") == (2, 0, False)
    await outbox.dead(*QUEUE).append(StoredMessage(id="msg_2", created_ms=0, payload={}))
    assert await do("Drop dead letters") == (2, 0, False)
    assert await do("Drop messages") == (0, 0, False)
    await expect(page.locator("#main .blank")).to_be_visible()


async def _act_on_people(shop: Shop, hand: Hand) -> None:
    """The sessions of a user, and the data of a person."""
    page = hand.page
    await hand.place("s")
    await page.wait_for_url("**/sessions")
    await hand.fill("#user", "3")
    await hand.submit()
    await confirm(hand, "3")
    await expect(page.get_by_text("4 sessions of 3 were ended.")).to_be_visible()
    assert await shop_sessions(shop.keys).list_for("3") == []
    await hand.place("e")
    await page.wait_for_url("**/erase")
    await hand.fill("#subject", "shop:2")
    await hand.submit()
    await confirm(hand, "shop:2")
    await expect(page.locator(".success")).to_be_visible()
    assert not await shop.keys.cart("2").exists()


async def _look_on(shop: Shop, hand: Hand) -> None:
    """Pause the live changes, measure again, and find all of it in the log."""
    page = hand.page
    await hand.place("l")
    await page.wait_for_url("**/live")
    await hand.act("p")
    await expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    measures = ConsoleKeys(shop.keys.cart.store).measures()
    before = len(await measures.see_latest(100))
    await hand.place("o")
    await page.wait_for_url("**/console")
    await hand.act("m")
    await expect(page.locator(".areas")).to_be_visible()
    assert len(await measures.see_latest(100)) > before
    await hand.place("a")
    await page.wait_for_url("**/audit")
    logged = set(await page.locator("#main tbody .tag").all_inner_texts())
    assert logged >= {
        *(f"console-{one}" for one in ("edited", "undone", "renewed", "deleted", "examined", "repaired", "drafted")),
        *(f"console-{one}" for one in ("limit-reset", "job-run", "queue-retried", "queue-dropped", "erased")),
        *(f"console-{one}" for one in ("dead-letters-retried", "dead-letters-dropped", "sessions-ended")),
    }
    await hand.filter("#f-who", "ann")
    await page.wait_for_url("**who=ann*")
    await expect(page.locator("#main tbody tr").first).to_be_visible()
