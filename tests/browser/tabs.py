"""Tabs of a browser that one test after the other looks at pages in: to open one costs more than to look at several."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from playwright.async_api import Browser, Page

# How pages look on each screen, in each colour and language is looked at by `make test-matrix`; what they do, always.
looks = pytest.mark.matrix

DESKTOP, PHONE = (1280, 800), (390, 844)

_unused: WeakKeyDictionary[Browser, list[Page]] = WeakKeyDictionary()


class Tab:
    """A tab without cookies and without anything open in it, for one test."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._heard: list[tuple[str, Callable[..., None]]] = []

    def on(self, event: str, hear: Callable[..., None]) -> None:
        """Hear of an event until the test ends."""
        self.page.on(event, hear)  # type: ignore[call-overload]
        self._heard.append((event, hear))

    async def leave_nothing(self) -> None:
        for event, hear in self._heard:
            self.page.remove_listener(event, hear)
        context = self.page.context
        await self.page.unroute_all()
        await context.unroute_all()
        for further in context.pages:
            if further is not self.page:
                await further.close()
        if self.page.url.startswith("http"):
            await self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        await context.clear_cookies()
        await context.set_offline(False)
        await self.page.goto("about:blank")


@asynccontextmanager
async def tab(
    browser: Browser, size: tuple[int, int] = DESKTOP, scheme: str = "light", **own: Any
) -> AsyncIterator[Tab]:
    """A tab of this size, by day or in the dark. With options of a context of its own, it is a new one."""
    unused = _unused.setdefault(browser, [])
    again = not own
    page = (
        unused.pop() if again and unused else await (await browser.new_context(**{"locale": "en-US", **own})).new_page()
    )
    try:
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        used = Tab(page)
        yield used
        if again:
            await used.leave_nothing()
            unused.append(page)
    finally:
        if page not in unused:
            await page.context.close()
