"""The shop of the console's browser tests: a server with its console, links to it, and what tests do on most pages."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Page, expect

from keystead import connect
from keystead.console.console_access import ConsoleAccess
from keystead.console.console_keys import ConsoleKeys, Role
from tests.console.shop_keys import SEAL_KEYS, ShopKeys, fill
from tests.serving import Keystead, keystead_serving

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
        self.access = ConsoleAccess(ConsoleKeys(next(iter(keys.stores))))

    async def enter(self, page: Page, role: Role = "admin", who: str = "operator:ann") -> None:
        secret = await self.access.create_link(who, role)
        await page.goto(f"{self.server.url}/console/enter#{secret}")
        await page.wait_for_url("**/console")

    async def goto(self, page: Page, path: str) -> None:
        await page.goto(f"{self.server.url}/console{path}")


@asynccontextmanager
async def serving_shop(
    folder: Path, orphans: int = 4, keyspaces: str = "tests.console.shop_keys:ShopKeys"
) -> AsyncIterator[Shop]:
    url = f"sqlite:///{folder}/shop.db"
    async with connect(url) as store:
        keys = await fill(store, carts=60, orphans=orphans)
        settings = {
            "KEYSTEAD_SEAL_KEYS": SEAL_KEYS,
            "KEYSTEAD_CONSOLE__KEYSPACES": keyspaces,
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
