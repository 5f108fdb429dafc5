"""Take the pictures in docs/pictures of pages that have changed: `.venv/bin/python scripts/pictures.py`.

With names (`console`, `start`, …), it takes those. Look at them before you commit them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, async_playwright, expect

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts import picture_record
from tests.browser.console_shop import Shop, serving_shop, wait_for_task
from tests.browser.embedding import asked, created, other_site, widgets_serving
from tests.browser.tabs import DESKTOP, PHONE
from tests.browser.test_membership import press, sign_in
from tests.browser.test_teamwork import ADA, opened
from tests.browser.test_widgets import THEMES, settled
from tests.serving import Keystead, keystead_serving, program

_KEY: Final = "/key/ShopKeys/cart?key=shop:cart:1"
_STYLE: Final = "body{margin:16px;background:#f4f2ee;font-family:sans-serif;display:grid;gap:16px;"
_SCORES: Final = (("Ada", 12_800), ("Grace", 9_450), ("Katherine", 7_320))
_MESSAGES: Final = (
    ("Theo", "First!"),
    ("Yuki", "Lovely little site. I put your button on mine."),
    ("Mia", "I came by the webring, and stayed for the music.\nGreetings from Oslo!"),
)


class Camera:
    """Takes pictures of pages, as people see them on a desk or a phone."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    async def page(self, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Page:
        page = await self._browser.new_page(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if scheme == "dark" else "light",
            locale="en-US",
        )
        page.set_default_timeout(120_000)
        return page

    async def take(self, page: Page, name: str, *, full: bool = False) -> None:
        await page.evaluate("document.fonts.ready")
        await page.screenshot(path=picture_record.PICTURES / f"{name}.png", full_page=full, animations="disabled")


async def console(camera: Camera, folder: Path) -> None:
    async with serving_shop(folder) as shop:
        page = await camera.page()
        await shop.enter(page)
        await _leave_traces(shop, page)
        for name, path in (("overview", ""), ("key", _KEY), ("findings", "/findings")):
            await shop.goto(page, path)
            await camera.take(page, f"console-{name}")
        await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        await page.emulate_media(color_scheme="dark")
        await shop.goto(page, _KEY)
        await camera.take(page, "console-phone")


async def _leave_traces(shop: Shop, page: Page) -> None:
    """Trends and findings."""
    for number in range(12):
        for more in range(number * number):
            await shop.keys.draft(f"gone-{number}-{more}").set("nobody's")
        await shop.goto(page, "")
        await page.locator("[data-key=m]").click()
    await shop.goto(page, "/findings")
    await page.locator("[data-key=x]").click()
    await wait_for_task(page)


async def start(camera: Camera, folder: Path) -> None:
    with keystead_serving(folder) as server:
        page = await camera.page()
        await page.goto(server.url)
        await camera.take(page, "start")
        page = await camera.page(PHONE, "dark")
        await page.goto(server.url)
        await camera.take(page, "start-phone")


async def teamwork(camera: Camera, folder: Path) -> None:
    with keystead_serving(folder, None, "--kits", "teamwork") as server:
        page = await camera.page((1280, 1180))
        await opened(page, server.url, ADA)
        told = page.locator("#demo-told")
        for button in await page.locator("#demo button").all():
            async with page.expect_response("**/api/teamwork/demo/**"):
                await button.click()
            await expect(told).not_to_be_empty()
        for name in ("Assign work", "Change a status"):
            await page.get_by_role("button", name=name).click()
        await expect(page.locator("#unreadNotifications")).not_to_have_text("0")
        await expect(page.locator("#pressing li")).not_to_have_count(0)
        await expect(page.locator("#activeDefects")).not_to_have_text("0")
        await page.evaluate("scrollTo(0, 0)")
        await camera.take(page, "teamwork")
        await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        await page.evaluate("scrollTo(0, 0)")
        await camera.take(page, "teamwork-phone")


async def membership(camera: Camera, folder: Path) -> None:
    with keystead_serving(folder, None, "--kits", "membership") as server:
        page = await camera.page((1100, 800))
        await page.goto(f"{server.url}/membership/try")
        await sign_in(page, "Sign in at the demo provider")
        await sign_in(page, "Sign in on another device")
        await press(page, "Validate device 1", "401", "This session has ended")
        await camera.take(page, "membership-try", full=True)
        await page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        await page.get_by_role("link", name="Change what Ada Lovelace pays").click()
        await page.get_by_role("button", name="$5, Ada Lovelace").click()
        await expect(page.get_by_role("status")).to_contain_text("This server accepted the webhook")
        await camera.take(page, "membership-phone", full=True)


async def widgets(camera: Camera, folder: Path) -> None:
    with widgets_serving(folder) as server, other_site() as site:
        head = (
            '<meta name=viewport content="width=device-width">'
            f'<script type=module src="{server.url}/components/widgets.js"></script>'
        )
        page = await camera.page((960, 510))
        await page.goto(site.put("/themes", await _in_every_theme(server), head=head))
        await settled(page)
        await camera.take(page, "widgets-themes")
        page = await camera.page((1040, 640))
        await page.goto(site.put("/boards", await _boards(server), head=head))
        await settled(page)
        await camera.take(page, "widgets-boards")
        page = await camera.page((1100, 1380))
        await page.goto(f"{server.url}/widgets")
        await page.get_by_role("radio", name="Ranking").check()
        await page.get_by_label("Page URL").fill("https://example.com/")
        await page.get_by_role("button", name="Generate").click()
        await page.get_by_role("radio", name="Kawaii").check()
        await page.get_by_role("button", name="Create the ranking").click()
        await expect(page.locator("#which")).to_contain_text("Live: ")
        await page.evaluate("scrollTo(0, 0)")
        await camera.take(page, "widgets-gallery")
        page = await camera.page((PHONE[0], 1040))
        await page.goto(f"{server.url}/widgets")
        await page.get_by_role("radio", name="Board").check()
        await page.locator("[name=enableIcons]").uncheck()
        await page.get_by_role("radio", name="Mom").check()
        await page.locator(".seeing").evaluate("element => scrollTo(0, element.offsetTop - 8)")
        await camera.take(page, "widgets-phone")


async def _in_every_theme(server: Keystead) -> str:
    visit = await created(server, "visit", "pictures")
    like = await created(server, "like", "pictures")
    ranking = await created(server, "ranking", "pictures", title="High scores")
    for name, score in _SCORES:
        await asked(server, "ranking", agent=name, action="submit", id=ranking, name=name, score=score)
    token = "owner-of-it-all"  # noqa: S105 - of widgets that end with this script
    await asked(server, "visit", action="set", url="https://pictures.example/", token=token, total=12_045)
    await asked(server, "like", action="set", url="https://pictures.example/", token=token, value=41)
    parts = [
        f"<div><keystead-counter id={visit} theme={theme} digits=7></keystead-counter> "
        f"<keystead-like id={like} theme={theme}></keystead-like>"
        f"<keystead-ranking style='margin-top: 10px' id={ranking} theme={theme}></keystead-ranking></div>"
        for theme in THEMES
    ]
    return f"<style>{_STYLE}grid-template-columns:1fr 1fr 1fr}}</style>{''.join(parts)}"


async def _boards(server: Keystead) -> str:
    board = await created(server, "bbs", "pictures", title="Guestbook", messagesPerPage=2, enableIcons=False)
    for author, text in _MESSAGES:
        await asked(server, "bbs", agent=author, action="post", id=board, author=author, message=text)
    parts = [f"<keystead-bbs id={board} theme={theme}></keystead-bbs>" for theme in ("light", "kawaii", "final")]
    return f"<style>{_STYLE}grid-template-columns:1fr 1fr 1fr}}</style>{''.join(parts)}"


_TAKERS: Final[dict[str, Callable[[Camera, Path], Awaitable[None]]]] = {
    "console": console,
    "membership": membership,
    "start": start,
    "teamwork": teamwork,
    "widgets": widgets,
}


async def take(groups: list[str]) -> None:
    record = json.loads(picture_record.RECORD.read_text())
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program("chromium-headless-shell", "chromium"), args=["--no-sandbox"]
        )
        for group in groups:
            shown = picture_record.pages(group)
            with tempfile.TemporaryDirectory() as folder:
                await _TAKERS[group](Camera(browser), Path(folder))
            record[group] = {"pages": shown, "files": picture_record.files(group)}
            picture_record.RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=2) + "\n")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(take(sys.argv[1:] or list(picture_record.stale())))
