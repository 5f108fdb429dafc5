"""Pages of another site that show widgets, and whoever looks at them in a real browser."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import httpx2
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Route

from tests.browser.tabs import DESKTOP, Tab, tab
from tests.serving import Keystead, keystead_serving

SMALL_PHONE = (320, 640)
TOKEN = "owner-of-it-all"
HOSTILE = "<img src=x onerror=\"document.title='gone'\"><script>document.title='gone'</script>"
LIMITS = ("read", "write", "post", "owner", "create")

# As CONTRAST of the start page, for what stands in shadow roots. Letters with an outline are read by that.
CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const above = (element) => element.parentElement ?? element.getRootNode().host;
  const background = (element) => {
    for (let e = element; e; e = above(e)) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  const look = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (node.shadowRoot) look(node.shadowRoot);
      const element = node.parentElement;
      if (node.nodeType !== 3 || !element || !node.textContent.trim() || !element.checkVisibility()) continue;
      if (element.closest("style, script, .unseen, [aria-disabled=true]")) continue;
      const style = getComputedStyle(element);
      const ink = parseFloat(style.webkitTextStrokeWidth) > 0 ? style.webkitTextStrokeColor : style.color;
      const pair = [luminance(parse(ink)), luminance(background(element))];
      const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
      if (ratio < 4.5) low.push(`${node.textContent.trim()}: ${ratio.toFixed(2)}`);
    }
  };
  look(document.body);
  return low;
}"""

TOO_SMALL = """() => {
  const found = [];
  const look = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.shadowRoot) look(element.shadowRoot);
      if (!element.matches("button, input, select, textarea, a, [role=tab]") || !element.checkVisibility()) continue;
      found.push(element);
    }
  };
  look(document);
  return found
    .filter((element) => element.tabIndex >= 0)
    .map((element) => [element, (element.closest("label") ?? element).getBoundingClientRect()])
    .filter(([, box]) => box.height < 43.5 || box.width < 24)
    .map(([element, box]) => `${element.localName} ${element.textContent.trim()} ${box.width} x ${box.height}`);
}"""
"""What a finger would miss: less than 44 px high."""


@contextmanager
def widgets_serving(folder: Path, **settings: object) -> Iterator[Keystead]:
    lines = ["[widgets]", *(f"{name} = {json.dumps(value)}" for name, value in settings.items())]
    lines += [f"limits.{name} = 0" for name in LIMITS]
    (folder / "keystead.toml").write_text("\n".join(lines))
    with keystead_serving(folder, "sqlite:///widgets.db", "--kits", "widgets") as running:
        yield running


@dataclass
class OtherSite:
    """A site on another origin, whose pages a test writes."""

    url: str
    pages: dict[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    def put(self, path: str, body: str, *, policy: str | None = None, head: str = "") -> str:
        """The address of a page with this body."""
        html = f"<!doctype html><html lang=en><head><meta charset=utf-8><title>A page</title>{head}</head><body>{body}"
        self.pages[path] = (html, {} if policy is None else {"content-security-policy": policy})
        return f"{self.url}{path}"


@contextmanager
def other_site() -> Iterator[OtherSite]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            html, headers = site.pages.get(self.path, ("", {}))
            body = html.encode()
            self.send_response(200 if body else 404)
            for name, value in {"content-type": "text/html", "content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = OtherSite(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Guest:
    """Somebody with a browser of their own, and all that went wrong in it."""

    tab: Tab
    page: Page
    wrong: list[str]

    @property
    def context(self) -> BrowserContext:
        return self.page.context

    async def opens(self, url: str) -> Page:
        await self.page.goto(url)
        return self.page

    async def another_tab(self, url: str) -> Page:
        page = await self.context.new_page()
        self.watch(page)
        await page.goto(url)
        return page

    def watch(self, page: Page) -> None:
        on = self.tab.on if page is self.page else page.on
        on("console", self._hear)
        on("pageerror", lambda error: self.wrong.append(f"error: {error}"))

    def _hear(self, message: ConsoleMessage) -> None:
        # What is refused is answered with the status of it, and a browser says so in its console.
        expected = ("responded with a status of", "ERR_INTERNET_DISCONNECTED", "ERR_CONNECTION_RESET")
        if not any(one in message.text for one in expected):
            self.wrong.append(f"console: {message.text}")


@asynccontextmanager
async def guest(
    browser: Browser,
    size: tuple[int, int] = DESKTOP,
    scheme: Literal["light", "dark"] = "light",
    *,
    alone: bool = False,
    **more: Any,
) -> AsyncIterator[Guest]:
    """`alone`: nobody uses this browser afterwards, for what the test does to it stays."""
    own = {"viewport": {"width": size[0], "height": size[1]}, **more} if alone or more else {}
    async with tab(browser, size, scheme, **own) as used:
        somebody = Guest(used, used.page, [])
        somebody.watch(used.page)
        yield somebody
        assert somebody.wrong == []


@asynccontextmanager
async def held_back(page: Page, pattern: str) -> AsyncIterator[asyncio.Event]:
    """Requests wait until the event is set, or the block is left."""
    let_go = asyncio.Event()

    async def hold(route: Route) -> None:
        await let_go.wait()
        await route.continue_()

    await page.route(pattern, hold)
    try:
        yield let_go
    finally:
        let_go.set()
        await page.unroute_all(behavior="wait")


async def asked(server: Keystead, service: str, /, *, agent: str = "a program", **fields: Any) -> Any:
    """What the API answers."""
    async with httpx2.AsyncClient(trust_env=False, headers={"user-agent": agent}) as client:
        answer = await client.post(f"{server.url}/api/{service}", json=fields)
    return answer.json()


async def created(server: Keystead, service: str, page: str, **wanted: Any) -> str:
    """The id of a new widget for `https://{page}.example/`."""
    answer = await asked(server, service, action="create", url=f"https://{page}.example/", token=TOKEN, **wanted)
    assert answer["success"], answer
    found: str = answer["data"]["id"]
    return found
