"""Every page of the server, in each language, on two screens, light and dark: accessible, whole, and translated."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, FilePayload, Page, expect

from tests.browser.console_shop import EVERY_PAGE, serving_shop
from tests.browser.page_checks import LOCALES, english_in, problems
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.serving import Keystead, keystead_serving

PACKAGE = Path(__file__).parents[2] / "src" / "keystead"
EXAMPLES = Path(__file__).parents[2] / "examples"
SIGN_IN = "/api/auth/demo/start?returnTo=/account"
EXAMPLE = "/guestbook"  # of an application, in English
SIGNED_OUT = (
    "/",
    "/reference",
    "/keys",
    "/keys/login",
    "/docs",
    "/guide/",
    "/console",
    "/login",
    SIGN_IN,
    "/share",
    "/share/links",
    "/receive",
    "/receive?t=nosuchlink",
    "/membership/try",
    "/teamwork",
    "/widgets",
    EXAMPLE,
    "/demo/patreon",
    "/nowhere",
    "/api/auth/sessions",
    "/api/auth/demo/callback?code=x&state=y",
)
SIGNED_IN = ("/account", "/login/everywhere", "/share", "/share/links", "/membership/try", "/teamwork", EXAMPLE)
IN_PRODUCTION = ("/", "/docs", "/login", "/share", "/receive", "/widgets", "/console", "/nowhere")
# Pages with parts that stay in English: what developers declare, and a program of others.
IN_ENGLISH = {
    "console/pages/edit.html": 1,
    "console/pages/family.html": 1,
    "console/pages/findings.html": 1,
    "console/pages/jobs.html": 1,
    "console/pages/problem.html": 1,
    "schema/docs/pages/document.html": 31,
    "schema/docs/pages/index.html": 4,
    "server/pages/api.html": 1,
    "server/pages/error.html": 1,
    "server/pages/start.html": 1,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    """All kits, and one of an application."""
    kits = "login,sharing,membership,teamwork,widgets,sessiondata,console,guestbook.kit:KIT"
    path = {"PYTHONPATH": str(EXAMPLES / "guestbook")}
    with keystead_serving(tmp_path_factory.mktemp("serving"), None, "--kits", kits, **path) as running:
        yield running


@pytest.fixture(scope="module")
def in_production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    folder = tmp_path_factory.mktemp("production")
    settings = {
        "KEYSTEAD_MODE": "production",
        "KEYSTEAD_SEAL_KEYS": "k1:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s",
        "KEYSTEAD_PUBLIC_URL": "http://127.0.0.1:8700",
        "KEYSTEAD_CONSOLE__ON": "true",
        "KEYSTEAD_SHARING__OPEN": "true",
    }
    with keystead_serving(
        folder, f"sqlite:///{folder}/p.db", "--kits", "login,sharing,widgets,console", **settings
    ) as it:
        yield it


async def sign_in(page: Page, server: Keystead) -> None:
    await page.goto(f"{server.url}{SIGN_IN}")
    await page.get_by_role("button", name=re.compile("Ada Lovelace")).click()
    await page.wait_for_url("**/account")


async def loaded(page: Page, path: str) -> None:
    """Wait until the scripts of a page have filled it."""
    if path == "/docs":
        await page.locator(".opblock").first.wait_for()
    if path == "/teamwork" and await page.locator("#sign-in").is_hidden():
        for heading in ("#month", "#day"):
            await expect(page.locator(heading)).not_to_be_empty()


def test_an_english_word_is_found_and_a_name_is_not() -> None:
    assert english_in(["Sign in", "サインイン with"]) == ["Sign in", "サインイン with"]
    assert english_in(["Reset list", "starts", "counted"]) == ["Reset list", "starts", "counted"]
    assert english_in(["Redis と PostgreSQL", "100 MB", "sqlite:///keystead.db"]) == []


def test_only_these_parts_of_pages_are_in_english_in_every_language() -> None:
    found = {
        str(path.relative_to(PACKAGE)): count
        for path in PACKAGE.rglob("*")
        if path.suffix in (".html", ".js", ".py") and "guide" not in path.parts
        if (count := len(re.findall(r'(?<!<html )lang="en"', path.read_text())))
    }
    assert found == IN_ENGLISH


@looks
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("language", LOCALES)
async def test_every_page_is_accessible_fits_and_is_in_the_language_of_the_browser(
    browser: Browser,
    server: Keystead,
    in_production: Keystead,
    language: str,
    size: tuple[int, int],
    scheme: str,
) -> None:
    wrong: list[str] = []
    look = f"{language} {size[0]} {scheme}"
    async with tab(browser, size, scheme, locale=LOCALES[language]) as used:
        page = used.page
        for path in SIGNED_OUT:
            await page.goto(f"{server.url}{path}")
            await loaded(page, path)
            wrong += await problems(page, language, f"{path} {look}", reads=path != EXAMPLE)
        await sign_in(page, server)
        wrong += await problems_of_a_link(page, server, language, look)
        for path in SIGNED_IN:
            await page.goto(f"{server.url}{path}")
            await loaded(page, path)
            wrong += await problems(page, language, f"in {path} {look}", reads=path != EXAMPLE)
        for path in IN_PRODUCTION:
            await page.goto(f"{in_production.url}{path}")
            await loaded(page, path)
            wrong += await problems(page, language, f"production {path} {look}")
    assert not wrong, "\n".join(wrong)


async def problems_of_a_link(page: Page, server: Keystead, language: str, look: str) -> list[str]:
    """Of the pages from a shared file to its receiver: the link, the password, and a wrong password."""
    await page.goto(f"{server.url}/share")
    file = FilePayload(name="2026.7z", mimeType="text/plain", buffer=b"text")
    await page.locator("#file").set_input_files([file])
    await page.locator("#password").fill("a password")
    await page.locator("#choose button.main").click()
    link = page.locator("#link")
    await expect(link).not_to_have_value("")
    wrong = await problems(page, language, f"shared {look}")
    await page.goto(await link.input_value())
    wrong += await problems(page, language, f"password {look}")
    await page.locator("#password").fill("another")
    await page.locator("#download button.main").click()
    await expect(page.get_by_role("alert")).not_to_be_empty()
    return wrong + await problems(page, language, f"wrong password {look}")


@looks
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("language", ["ja", "ko"])
async def test_every_page_of_the_console_fits_and_is_accessible_in_the_language_of_the_browser(
    browser: Browser, tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    wrong: list[str] = []
    async with serving_shop(tmp_path) as shop, tab(browser, size, "dark", locale=LOCALES[language]) as used:
        await shop.enter(used.page)
        for path in EVERY_PAGE:
            await shop.goto(used.page, path)
            # Most words are names of the application's own keys.
            wrong += await problems(used.page, language, f"console {path} {language} {size[0]}", reads=False)
    assert not wrong, "\n".join(wrong)


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
