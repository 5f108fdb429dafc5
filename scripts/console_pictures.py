"""Take the pictures of the console in docs/pictures: `.venv/bin/python scripts/console_pictures.py`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.console_shop import Shop, serving_shop, wait_for_task  # noqa: E402
from tests.serving import program  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
KEY = "/key/ShopKeys/cart?key=shop:cart:1"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with serving_shop(Path(folder)) as shop, async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=program("chromium-headless-shell", "chromium"), args=["--no-sandbox"]
            )
            page = await browser.new_page(viewport={"width": 1280, "height": 800})
            await shop.enter(page)
            await _act(shop, page)
            for name, path in (("overview", ""), ("key", KEY), ("findings", "/findings")):
                await shop.goto(page, path)
                await page.screenshot(path=PICTURES / f"console-{name}.png")
            await page.set_viewport_size({"width": 390, "height": 844})
            await page.emulate_media(color_scheme="dark")
            await shop.goto(page, KEY)
            await page.screenshot(path=PICTURES / "console-phone.png")
            await browser.close()


async def _act(shop: Shop, page: Page) -> None:
    """What leaves something to see: trends and findings."""
    for number in range(12):
        for more in range(number * number):
            await shop.keys.draft(f"gone-{number}-{more}").set("nobody's")
        await shop.goto(page, "")
        await page.locator("[data-key=m]").click()
    await shop.goto(page, "/findings")
    await page.locator("[data-key=x]").click()
    await wait_for_task(page)


if __name__ == "__main__":
    asyncio.run(main())
