"""Every page of the server, in each language, on two screens, light and dark: accessible, whole, and translated."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.accessibility import violations
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.serving import Keystead, keystead_serving

LOCALES = {"en": "en-US", "ja": "ja-JP", "ko": "ko-KR"}
PICTURES = os.environ.get("KEYSTEAD_PICTURES")
SIGNED_OUT = (
    "/",
    "/reference",
    "/keys",
    "/keys/login",
    "/login",
    "/share",
    "/share/links",
    "/receive",
    "/receive?t=nosuchlink",
    "/membership/try",
    "/teamwork",
    "/widgets",
    "/demo/patreon",
    "/nowhere",
    "/api/auth/sessions",
    "/api/auth/demo/callback?code=x&state=y",
)
SIGNED_IN = ("/account", "/login/everywhere", "/share", "/share/links", "/membership/try", "/teamwork")

# What is the same in every language: names, code, and units.
NAMES = re.compile(
    r"Demo team|Keystead|SQLite|Redis|PostgreSQL|MySQL|Python|Patreon|Discord|GitHub|Google|OpenID Connect|Prometheus"
    r"|JavaScript|Markdown|HTML|JSON|README|ZIP|API|MIT|ID|URL|UTC|TTL|PDF|MB|GB|kB|Slack|Webhook|Chrome|Headless|Linux|Demo"
    r"|Ada|Lovelace|Grace|Hopper|Alan|Turing|Katherine|Radia|Barbara|English|Light|Dark|Retro|Kawaii|Mom|Final"
    r"|login|sharing|membership|teamwork|widgets|sessiondata|console|development|default|tables|outbox|schedule"
    r"|channel|string|hash|zset|stream|list|set|nil|none|count|start|stop|min|max|field|value|id|member|score"
    r"|Page Up|Page Down|Enter|example-[a-z0-9]+|Store.scan"
    r"|WITHSCORES|GETDEL|INCRBY|EXPIRE|INCR|[NX]X|SET|CH|ms|bytes|eviction|[A-Za-z]+Keys"
)
# The text that a reader sees, without code, samples, and what says itself that it is English.
VISIBLE = """() => {
  const skipped = "code, pre, script, style, noscript, bdi, input, textarea, time, .mono, [lang=en]:not(html), " +
    "[aria-labelledby=kit-console]";  // the console has its own texts
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = [document.title];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (element.closest(skipped) || !element.checkVisibility()) continue;
    seen.push(walker.currentNode.textContent.trim());
  }
  for (const one of document.querySelectorAll("[aria-label], [placeholder], [title]")) {
    if (one.closest("code, [lang=en]:not(html), time")) continue;
    seen.push(one.getAttribute("aria-label") ?? "", one.getAttribute("title") ?? "");
  }
  return seen.filter(Boolean);
}"""
OPEN_ALL = "document.querySelectorAll('main details:not([open]) > summary').forEach((summary) => summary.click())"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("serving")) as running:
        yield running


async def sign_in(page: Page, server: Keystead) -> None:
    await page.goto(f"{server.url}/api/auth/demo/start?returnTo=/account")
    await page.get_by_role("button", name=re.compile("Ada Lovelace")).click()
    await page.wait_for_url("**/account")


def english_in(texts: list[str]) -> list[str]:
    """The texts with an English word, of three letters or more, that is not a name."""
    return [text for text in texts if re.search(r"[A-Za-z]{3,}", NAMES.sub("", re.sub(r"\S*[/:@]\S*", "", text)))]


def test_an_english_word_is_found_and_a_name_is_not() -> None:
    assert english_in(["Sign in", "サインイン with"]) == ["Sign in", "サインイン with"]
    assert english_in(["Redis と PostgreSQL", "100 MB", "sqlite:///keystead.db"]) == []


async def problems(page: Page, language: str, size: tuple[int, int], what: str) -> list[str]:
    """What is wrong with the open page, once its script has filled it; `what` names it."""
    if what.startswith("in /teamwork"):
        for heading in ("#month", "#day"):
            await expect(page.locator(heading)).not_to_be_empty()
    await page.evaluate(OPEN_ALL)
    wrong = [] if await page.evaluate("document.documentElement.lang") == language else ["not in the language"]
    if await page.evaluate("document.documentElement.scrollWidth") > size[0]:
        wrong.append("overflows")
    wrong += await violations(page)
    if language != "en":
        wrong += [f"in English: {text}" for text in english_in(await page.evaluate(VISIBLE))]
    if PICTURES:
        name = re.sub(r"\W+", "-", what).strip("-")
        await page.screenshot(path=Path(PICTURES, f"{name}.png"), full_page=True)
    return [f"{what}: {one}" for one in wrong]


@looks
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("language", LOCALES)
async def test_every_page_is_accessible_fits_and_is_in_the_language_of_the_browser(
    browser: Browser, server: Keystead, language: str, size: tuple[int, int], scheme: str
) -> None:
    wrong: list[str] = []
    async with tab(browser, size, scheme, locale=LOCALES[language]) as used:
        for path in SIGNED_OUT:
            await used.page.goto(f"{server.url}{path}")
            wrong += await problems(used.page, language, size, f"{path} {language} {size[0]} {scheme}")
        await sign_in(used.page, server)
        for path in SIGNED_IN:
            await used.page.goto(f"{server.url}{path}")
            wrong += await problems(used.page, language, size, f"in {path} {language} {size[0]} {scheme}")
    assert wrong == []


@pytest.mark.main_path
async def test_language_and_colours_are_chosen_on_any_page_without_scripts_and_kept(
    browser: Browser, server: Keystead
) -> None:
    async with tab(browser, PHONE, "light", java_script_enabled=False, locale="ko-KR") as used:
        page = used.page
        await page.goto(f"{server.url}/reference")
        light = "rgb(246, 247, 245)"
        await expect(page.locator("body")).to_have_css("background-color", light)
        await page.get_by_role("button", name="언어와 색상").click()
        await page.get_by_role("button", name="日本語").click()
        assert page.url == f"{server.url}/reference"
        await expect(page.get_by_role("heading", level=1)).to_have_text("リファレンス")
        await page.get_by_role("button", name="言語と配色").click()
        await page.get_by_role("button", name="ダーク").click()
        for path in ("/", "/login", "/keys/login", "/nowhere"):
            await page.goto(f"{server.url}{path}")
            assert await page.locator("html").get_attribute("lang") == "ja", path
            assert await page.locator("html").get_attribute("data-theme") == "dark", path
            await expect(page.locator("body")).not_to_have_css("background-color", light)
        await page.get_by_role("button", name="言語と配色").click()
        await page.get_by_role("button", name="システムに合わせる").click()
        assert await page.locator("html").get_attribute("data-theme") is None
        await expect(page.locator("body")).to_have_css("background-color", light)
