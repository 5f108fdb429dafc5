"""My links in a real browser: a user shares a file, and copies, extends and ends its link, in three languages."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, Page, expect

from keystead.catalogue import LANGUAGES, Catalogue, Language
from keystead.kits import sharing
from keystead.kits.language import Speaker
from tests import servers
from tests.browser.tabs import DESKTOP, PHONE
from tests.browser.test_sharing import BYTES, NO_LIMITS, Person, settings, somebody
from tests.browser.test_start_page import CONTRAST
from tests.real_servers import redis_server
from tests.serving import Keystead, keystead_serving

__all__ = ["redis_server"]

SIZES: Final = {"desktop": DESKTOP, "phone": PHONE}
# Where pictures of the pages are put, for people.
PICTURES: Final = os.environ.get("KEYSTEAD_PICTURES")


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    folder = tmp_path_factory.mktemp("links")
    settings(folder, limits=NO_LIMITS)
    with keystead_serving(folder, "sqlite:///links.db", "--kits", "login,sharing") as running:
        yield running


@pytest.fixture(scope="module")
def on_redis(tmp_path_factory: pytest.TempPathFactory, redis_server: servers.Server) -> Iterator[Keystead]:
    folder = tmp_path_factory.mktemp("links-on-redis")
    settings(folder, limits=NO_LIMITS)
    redis_server.ask("FLUSHALL")
    with keystead_serving(folder, redis_server.url, "--kits", "login,sharing") as running:
        yield running


@pytest.fixture(params=["on_sqlite", "on_redis"])
def server(request: pytest.FixtureRequest) -> Keystead:
    found: Keystead = request.getfixturevalue(request.param)
    return found


async def sign_in(person: Person) -> None:
    await person.visit("/api/auth/demo/start?returnTo=/share")
    await person.page.get_by_role("button").first.click()
    await person.page.wait_for_url("**/share")


async def picture(page: Page, name: str) -> None:
    if PICTURES:
        await page.screenshot(path=Path(PICTURES, f"{name}.png"), full_page=True)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", SIZES)
async def test_a_user_shares_copies_extends_and_ends(
    browser: Browser, server: Keystead, size: str, language: Language
) -> None:
    said = Speaker(language, Catalogue(Path(sharing.__file__).parent))

    scheme = "dark" if language == "ja" else "light"
    async with somebody(
        browser,
        server,
        SIZES[size],
        scheme,
        locale=language,
        permissions=["clipboard-read", "clipboard-write"],
        timezone_id="Asia/Tokyo",
    ) as person:
        page, name = person.page, f"{language}-{size}"

        async def looks_right(where: str) -> None:
            assert await page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0], where
            assert await page.evaluate(CONTRAST) == [], where
            await picture(page, f"{name}-{where}")

        await person.visit("/share/links")
        await expect(page.get_by_text(said("Sign in to see your links."))).to_be_visible()
        await looks_right("nobody")
        await sign_in(person)
        assert await page.evaluate("document.documentElement.lang") == language
        await expect(page.get_by_role("heading", level=1)).to_have_text(said("Share a file"))
        await person.choose(f"{name} 🫩.pdf", BYTES)
        await page.get_by_label(said("Recipient")).fill("Eve")
        await page.get_by_label(said("Only one download")).check()
        await looks_right("share")
        await person.press(said("Upload and get the link"))
        await expect(page.get_by_role("heading", name=said("The link is ready"))).to_be_focused(timeout=15_000)
        await looks_right("ready")
        link = await page.locator("#link").input_value()

        await page.get_by_role("link", name=said("You can find it again under My links.")).click()
        own = page.get_by_role("listitem").filter(has_text=f"{name} 🫩.pdf")
        await expect(own).to_contain_text(said("{count} of {most}", count=0, most=1))
        await expect(own).to_contain_text("Eve")
        await looks_right("links")
        await own.get_by_role("button", name=said("Copy"), exact=True).click()
        assert await page.evaluate("navigator.clipboard.readText()") == link
        await own.get_by_role("combobox").select_option(index=0)
        await own.get_by_role("button", name=said("Extend"), exact=True).click()
        await page.wait_for_load_state()
        assert page.url.endswith("/share/links")

        await person.visit(link)
        await expect(page.get_by_text(said("A file for {name}", name="Eve"))).to_be_visible()
        await looks_right("receive")
        async with page.expect_download() as begun:
            await person.press(said("Download"))
        assert (await (await begun.value).path()).read_bytes() == BYTES
        started = said("Your download has started. It was the last one for this link.")
        await expect(page.get_by_text(started)).to_be_visible()
        await person.visit(link)
        await expect(page.get_by_role("heading", level=1)).to_have_text(said("This link is used up"))
        await looks_right("used-up")

        await person.visit("/share/links")
        await expect(own).to_contain_text(said("{count} of {most}", count=1, most=1))
        await own.get_by_text(said("End"), exact=True).click()
        await looks_right("ending")
        await own.get_by_role("button", name=said("Yes, end it")).click()
        await expect(own).to_have_count(0)
        await person.visit(link)
        await expect(page.get_by_role("heading", level=1)).to_have_text(said("Link not found"))
        await looks_right("ended")


async def test_the_page_of_links_works_without_scripts(browser: Browser, on_sqlite: Keystead) -> None:
    async with somebody(browser, on_sqlite, java_script_enabled=False) as person:
        await sign_in(person)
        answer = await person.context.request.post(
            f"{on_sqlite.url}/api/receive/upload?name=plain.txt", data=b"plain", headers={"origin": on_sqlite.url}
        )
        assert answer.ok
        await person.visit("/share/links")
        own = person.page.get_by_role("listitem").filter(has_text="plain.txt")
        await expect(own.get_by_role("textbox")).to_have_value((await answer.json())["shareUrl"])
        await expect(own.get_by_role("button", name="Copy")).to_have_count(0)
        await own.get_by_text("End", exact=True).click()
        await own.get_by_role("button", name="Yes, end it").click()
        await expect(own).to_have_count(0)


async def test_a_new_emoji_in_a_name_stays_and_what_turns_the_direction_does_not(
    browser: Browser, on_sqlite: Keystead
) -> None:
    async with somebody(browser, on_sqlite) as person:
        for given, kept in (
            ("tired \U0001fae9.txt", "tired \U0001fae9.txt"),
            (
                "family \U0001f468\u200d\U0001f469\u200d\U0001f467.txt",
                "family \U0001f468\u200d\U0001f469\u200d\U0001f467.txt",
            ),
            ("annexe\u202egpj.exe", "annexe_gpj.exe"),
        ):
            await person.visit("/share")
            await person.choose(given)
            link = await person.share()
            await person.visit(link)
            assert await person.heading() == kept
