"""The page that shows memberships, in a real browser, with the demo provider in the place of Patreon."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.embedding import CONTRAST, TOO_SMALL
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.serving import Keystead, keystead_serving, program


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("membership"), None, "--kits", "membership") as running:
        yield running


def is_meant(said: str) -> bool:
    """Whether the browser says no more than that a session has ended, or that a request was cut off."""
    return "status of 401" in said or "ERR_FAILED" in said


@asynccontextmanager
async def newcomer(
    browser: Browser, server: Keystead, size: tuple[int, int] = DESKTOP, scheme: str = "light"
) -> AsyncIterator[Page]:
    """Somebody on the page. What goes wrong in their browser fails the test."""
    async with tab(browser, size, scheme) as used:
        wrong: list[str] = []
        used.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        used.on("console", lambda message: None if is_meant(message.text) else wrong.append(f"said: {message.text}"))
        used.on(
            "request",
            lambda request: None if request.url.startswith(server.url) else wrong.append(f"outside: {request.url}"),
        )
        await used.page.goto(f"{server.url}/membership/try")
        yield used.page
        assert wrong == []


async def sign_in(page: Page, button: str, who: str = "Ada Lovelace") -> None:
    await page.get_by_role("button", name=button).click()
    await page.get_by_role("button", name=who).click()
    await expect(page.locator("#outcome")).to_contain_text(f"{who} is signed in")
    await expect(page.locator("body:not([aria-busy])")).to_be_visible()


async def press(page: Page, button: str, status: str, sentence: str) -> None:
    await page.get_by_role("button", name=button).click()
    await expect(page.locator("#outcome")).to_contain_text(sentence)
    await expect(page.locator("#status")).to_have_text(status)
    await expect(page.locator("body:not([aria-busy])")).to_be_visible()


async def pay(page: Page, amount: str, event: str) -> None:
    """To the page of the provider, and back."""
    await page.get_by_role("link", name="Change what Ada Lovelace pays").click()
    await page.get_by_role("button", name=f"{amount}, Ada Lovelace").click()
    await expect(page.get_by_role("status")).to_contain_text(f"This server accepted the webhook {event}")
    await page.get_by_role("link", name="Back to the application").click()


async def run(command: str) -> dict[str, object]:
    """What a shell says to the command that the page shows."""
    told = command.replace("curl", f"{program('curl')} -s --noproxy '*'")
    done = await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", told], capture_output=True, timeout=300, text=True)
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.main_path
async def test_a_newcomer_signs_in_presses_every_button_and_pays_another_amount(
    browser: Browser, server: Keystead
) -> None:
    async with newcomer(browser, server) as page:
        await sign_in(page, "Sign in at the demo provider")
        assert page.url == f"{server.url}/membership/try"  # the code is in no address
        await expect(page.locator("#name")).to_have_text("Ada Lovelace")
        await expect(page.locator("#name")).to_be_focused()
        await expect(page.locator("#plan")).to_have_text("Ultimate")
        await expect(page.locator("#quota-text")).to_contain_text("0 of 50,000,000 tokens used")

        await press(page, "Refresh", "not sent", "There is no refresh token yet")
        await press(page, "Sync", "200", "The provider just reported the plan Ultimate.")
        await press(page, "Get tokens", "200", "An access token for 60 minutes")
        await press(page, "Refresh", "200", "The next pair.")
        await page.locator("[data-request=validate]").click()
        await expect(page.locator("#sentence")).to_have_text("The session is valid, and the plan is Ultimate.")

        # The token is not to be seen until it is asked for, and then what the page shows works in a shell.
        hidden = await page.locator("main").inner_text()
        await page.get_by_role("button", name="Show").click()
        token = await page.locator("#token").inner_text()
        assert len(token) > 40
        assert token not in hidden
        assert (await run(await page.locator("#curl").inner_text()))["plan"] == "Ultimate"

        await pay(page, "$5", "members:pledge:update")
        await expect(page.locator("#heard")).to_have_text("The plan is now Premium. It was Ultimate.")
        await expect(page.locator("#plan")).to_have_text("Premium")
        await expect(page.locator("#quota-text")).to_contain_text("of 20,000,000")
        await pay(page, "Nothing", "members:pledge:delete")
        await expect(page.locator("#plan")).to_have_text("Free")
        await expect(page.locator("#quota-text")).to_contain_text("This plan has no tokens")
        await pay(page, "$9", "members:pledge:create")
        await expect(page.locator("#plan")).to_have_text("Ultimate")

        # One device: the sign-in on another ends this one.
        await sign_in(page, "Sign in on another device")
        devices = page.locator("#devices li")
        await expect(devices).to_contain_text(["401 SESSION_INVALID", "200 signed in"])
        await press(page, "Validate device 1", "401", "This session has ended")
        await expect(
            page.get_by_role("button", name="Validate device 1")
        ).to_be_focused()  # as whoever has no mouse needs
        await press(page, "Sign out", "200", "The session has ended")
        await expect(page.locator("#state")).to_have_text("signed out")
        await press(page, "Revoke all", "401", "This session has ended")
        await sign_in(page, "Sign in again")
        await press(page, "Revoke all", "200", "All sessions of this user have ended: 1.")


async def test_what_goes_wrong_is_said_in_a_sentence(browser: Browser, server: Keystead) -> None:
    async with newcomer(browser, server) as page:
        await page.get_by_role("button", name="Sign in at the demo provider").click()
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.get_by_role("alert")).to_have_text("You cancelled the sign-in. Nothing has changed.")
        await page.goto(f"{server.url}/membership/try?code=stolen&state=of-somebody-else")
        await expect(page.get_by_role("alert")).to_contain_text("was not started in this tab")
        await sign_in(page, "Sign in at the demo provider", "Grace Hopper")
        await page.route("**/api/**", lambda route: route.abort())
        await page.locator("[data-request=validate]").click()
        await expect(page.locator("#outcome")).to_contain_text("The server does not answer. Is it still running?")
        await page.unroute("**/api/**")


@looks
@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), ((320, 640), "light")], ids=["phone", "small"])
async def test_on_a_phone_everything_can_be_read_and_pressed(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    async with newcomer(browser, server, size, scheme) as page:

        async def fits() -> None:
            assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert await page.evaluate(CONTRAST) == []
            assert [one for one in await page.evaluate(TOO_SMALL) if not one.startswith("a ")] == []

        await fits()
        await sign_in(page, "Sign in at the demo provider", "Alan Turing")
        await page.get_by_role("button", name="Show").click()
        await press(page, "Get tokens", "200", "An access token")
        await fits()
        await page.get_by_role("link", name="Change what Alan Turing pays").click()
        await page.get_by_role("button", name="$3, Alan Turing").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Who pays what")
        await fits()


@looks
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(
    ("locale", "title", "validated"),
    [
        ("ja-JP", "メンバーシップを試す", "セッションは有効で、プランは Ultimate です。"),
        ("ko-KR", "멤버십 체험", "세션이 유효하고 플랜은 Ultimate입니다."),
    ],
)
async def test_it_is_in_the_language_of_the_browser_and_fits_its_screen(
    browser: Browser, server: Keystead, locale: str, title: str, validated: str, size: tuple[int, int]
) -> None:
    async with tab(browser, size, locale=locale) as used:
        page = used.page
        await page.goto(f"{server.url}/membership/try")
        await expect(page.get_by_role("heading", level=1)).to_have_text(title)
        await page.locator("#sign-in").click()
        await page.get_by_role("button", name="Ada Lovelace").click()
        await page.locator("[data-request=validate]").click()
        await expect(page.locator("#sentence")).to_have_text(validated)
        assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert await page.evaluate(CONTRAST) == []
