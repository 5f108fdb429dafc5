"""What every page promises, as a browser shows it: accessible, whole, in the language of the reader."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from tests.browser.accessibility import violations

LOCALES: Final = {"en": "en-US", "ja": "ja-JP", "ko": "ko-KR"}
PICTURES: Final = os.environ.get("KEYSTEAD_PICTURES")  # a folder for pictures of the pages, for people to look at

# What is the same in every language: names of products, people and formats, and what commands and settings are called.
NAMES: Final = re.compile(
    r"(?<![A-Za-z])(?:Keystead|SQLite|Redis|Valkey|PostgreSQL|MySQL|Python|Patreon|Discord|GitHub|Google|OpenID Connect"
    r"|Prometheus|JavaScript|Markdown|HTML|JSON|README|ZIP|API|MIT|ID|URL|UTC|TTL|PDF|Slack|Acme|Webhook|Chrome"
    r"|Headless|Linux|Demo team|Demo|Ada|Lovelace|Grace|Hopper|Alan|Turing|English|Light|Dark|Retro|Kawaii|Mom|Final"
    r"|Page Up|Page Down|Enter|login|sharing|membership|teamwork|widgets|sessiondata|console|[Gg]uestbook|development"
    r"|production|default|tables|keystead(?: [a-z]+)+|example-[a-z0-9]+|[a-z]+=[a-z]+|[A-Z][A-Za-z]+Keys)(?![A-Za-z])"
)
# What the commands of Redis call their arguments and replies: only on the page that explains them.
_OF_COMMANDS: Final = re.compile(
    r"(?<![A-Za-z])(?:nil|none|min|max|count|start|stop|field|value|member|score|string|hash|z?set|list|stream|Store.scan|WITHSCORES"
    r"|GETDEL|INCRBY|INCR|EXPIRE|NX|XX|SET|CH|eviction)(?![A-Za-z])"
)
# The text that a reader sees, without code, samples, and what says itself that it is English.
_VISIBLE: Final = """() => {
  const skipped = "code, pre, script, style, noscript, bdi, input, textarea, time, .mono, [lang=en]:not(html), " +
    "[aria-labelledby=kit-guestbook]";  // an example, in English
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
# The API reference is drawn by a program of others, whose structure is not ours; its colours are.
_OF_SWAGGER_UI: Final = ("nested-interactive", "landmark-", "heading-order", "target-size")
_OPEN_ALL: Final = (
    "document.querySelectorAll('main details:not([open]) > summary').forEach((summary) => summary.click())"
)


def english_in(texts: list[str]) -> list[str]:
    """The texts with an English word, of three letters or more, that is not a name."""
    return [text for text in texts if re.search(r"[A-Za-z]{3,}", NAMES.sub("", re.sub(r"\S*[/:@_]\S*", "", text)))]


async def problems(page: Page, language: str, what: str, *, reads: bool = True) -> list[str]:
    """What is wrong with the open page; `what` names it. `reads`: whether its words are looked at, too."""
    await page.evaluate(_OPEN_ALL)
    wrong = [] if await page.evaluate("document.documentElement.lang") == language else ["not in the language"]
    if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        wrong.append("overflows")
    structure = _OF_SWAGGER_UI if await page.locator("#api").count() else ()
    wrong += [one for one in await violations(page) if not one.startswith(structure)]
    if reads and language != "en":
        texts = await page.evaluate(_VISIBLE)
        if "/reference " in what:
            texts = [_OF_COMMANDS.sub("", text) for text in texts]
        wrong += [f"in English: {text}" for text in english_in(texts)]
    if PICTURES:
        name = re.sub(r"\W+", "-", what).strip("-")
        await page.screenshot(path=Path(PICTURES, f"{name}.png"), full_page=True)
    return [f"{what}: {one}" for one in wrong]
