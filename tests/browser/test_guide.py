"""The guide: built from `docs/` without a warning, served at `/guide`, and searched in a real browser."""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.async_api import Browser, Page, expect

from keystead.http.refusals import CODES
from tests.browser.accessibility import violations
from tests.browser.tabs import DESKTOP, PHONE, tab
from tests.built_guide import build_guide
from tests.integrations.serving import Served, serving

DOCS = Path(__file__).parents[2] / "docs"
# What the theme of the generator draws: its side bars, links to headings, and tables without a heading in a column.
OF_THE_THEME = (
    *("aria-required-attr", "empty-table-header", "landmark-unique", "page-has-heading-one"),
    *("scrollable-region-focusable", "target-size"),
)
# Pages whose parts all others have, too: axe takes seconds for each.
OF_EACH_KIND = {"index.html", "sessions.html", "console.html", "ja/tutorial.html", "search.html", "reference/http.html"}
pytestmark = pytest.mark.matrix

# What people type who look for a feature of this kind, by the page that answers it.
SEARCHED = {
    "adopt": ["typed redis"],
    "audit": ["audit"],
    "backup": ["backup", "restore"],
    "cache": ["cache", "single-flight", "cache stampede"],
    "cloudflare_kv": ["cloudflare"],
    "copy": ["migrate"],
    "counters": ["leaderboard", "counter"],
    "decorators": ["idempotent", "idempotency key"],
    "deploy": ["docker", "docker compose", "kubernetes", "nginx", "systemd", "zero-downtime", "checklist", "sizing"],
    "django": ["django"],
    "erasure": ["gdpr", "erase", "right to be forgotten"],
    "flask": ["flask"],
    "gateway": ["typescript"],
    "limits": ["rate-limit", "rate limit", "throttle", "sliding window", "token bucket"],
    "lock": ["lock", "lease", "distributed lock"],
    "login": ["login", "openid", "cookie"],
    "middleware": ["csrf", "starlette"],
    "monitoring": ["prometheus", "grafana"],
    "moving_platforms": ["valkey", "move to valkey"],
    "oauth_client": ["oauth", "pkce", "sign in with google"],
    "one_time_codes": ["one-time", "magic", "magic link", "invitation"],
    "outbox": ["outbox", "queue", "transaction"],
    "procedures": ["cluster"],
    "request_session": ["fastapi", "litestar"],
    "revocation": ["revoke", "jwt"],
    "schedule": ["cron", "schedule", "background jobs"],
    "schema": ["atomic", "ttl"],
    "sessions": ["session", "logout", "session fixation", "session store"],
    "sharing": ["share link", "expire"],
    "stores": ["redis", "postgresql", "mysql", "memcached", "sqlite", "sentinel", "pub/sub"],
    "testing": ["unit test"],
    "tokens": ["token", "refresh", "refresh token rotation"],
    "troubleshooting": ["troubleshooting"],
    "upstash": ["upstash"],
    "webhooks": ["webhook"],
}
FIRST = 3  # results that people read


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guide")
    built = folder / "guide"
    build_guide(DOCS.parent, built, folder / "trees")
    with serving(folder, "guide", module="tests.browser.guide_app", built=str(built)) as served:
        yield served


async def search(page: Page, url: str, words: str) -> list[str]:
    """The pages that the search of the guide finds, best first."""
    await page.goto(f"{url}/guide/search.html?q={words}")
    await expect(page.locator(".search-summary")).to_have_text(re.compile("found|did not match"))
    found = await page.locator("ul.search > li > a").evaluate_all(
        "links => links.map(link => new URL(link.href).pathname)"
    )
    return list(dict.fromkeys(path.removeprefix("/guide/").removesuffix(".html") for path in found))


async def test_the_search_shows_the_right_page_among_the_first_for_what_people_type(
    browser: Browser, guide: Served
) -> None:
    async with tab(browser) as used:
        missed = []
        for name, typed in SEARCHED.items():
            for words in typed:
                first = (await search(used.page, guide.url, words))[:FIRST]
                missed += [] if name in first else [(words, name, first)]
        assert missed == []
        assert await search(used.page, guide.url, "nosuchwordanywhere") == []


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
async def test_every_page_of_the_guide_works_offline_under_its_content_policy_and_fits(
    browser: Browser, guide: Served, size: tuple[int, int], scheme: str
) -> None:
    async with tab(browser, size, scheme) as used:
        wrong: list[str] = []
        used.on("console", lambda message: wrong.append(message.text))
        used.on("pageerror", lambda error: wrong.append(str(error)))
        used.on("request", lambda one: None if one.url.startswith(guide.url) else wrong.append(one.url))
        built = guide.output.parent / "guide"
        paths = sorted(path.relative_to(built).as_posix() for path in built.rglob("*.html"))
        assert len(paths) > 60
        assert set(paths) >= OF_EACH_KIND
        for path in paths:
            answer = await used.page.goto(f"{guide.url}/guide/{path}")
            assert answer is not None
            assert answer.ok
            if await used.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append(f"{path} overflows")
            if path in OF_EACH_KIND:
                wrong += [f"{path}: {one}" for one in await violations(used.page) if not one.startswith(OF_THE_THEME)]
        assert not wrong, "\n".join(wrong)


async def test_a_missing_page_of_the_guide_is_not_found(browser: Browser, guide: Served) -> None:
    async with tab(browser) as used:
        answer = await used.page.goto(f"{guide.url}/guide/nothing.html")
        assert answer is not None
        assert answer.status == 404


def test_every_link_of_the_built_guide_leads_somewhere(guide: Served) -> None:
    built = guide.output.parent / "guide"
    pages = {path: path.read_text("utf-8") for path in built.rglob("*.html")}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    wrong, followed = [], 0
    for path, text in pages.items():
        for link in re.findall(r'\b(?:href|src)="([^"]*)"', text):
            address, _, part = html.unescape(link).partition("#")
            if re.match(r"[a-z]+:", address):
                continue
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            followed += 1
            if not target.is_file() or (part and target in anchors and unquote(part) not in anchors[target]):
                wrong.append(f"{path.relative_to(built)}: {link}")
    assert wrong == []
    assert followed > 1000
    codes = anchors[built / "reference" / "http.html"]
    assert [code for code in CODES if code not in codes] == [], "error pages link to them"


def test_the_guide_lists_the_relations_that_repository_browsers_draw(guide: Served) -> None:
    page = (guide.output.parent / "guide" / "keys" / "sharing.html").read_text("utf-8")
    assert re.search(r"<li>.*receive:edge:index.*\n?.* lists .*receive:edge:meta:\{id\}", page)
