"""Teams on the page of teamwork, in a real browser: invite by link, join, roles, settings, leave; in each language."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, expect

from tests import servers
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.browser.test_start_page import CONTRAST
from tests.browser.test_teamwork import colleague, speak
from tests.real_servers import redis_server
from tests.serving import Keystead, keystead_serving

__all__ = ["redis_server"]

ADA, GRACE, ALAN = 900_000_001, 900_000_002, 900_000_003
SIZES = {"desktop": DESKTOP, "phone": PHONE}


@pytest.fixture(scope="module", params=["sqlite", "redis"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    store = None
    if request.param == "redis":
        redis: servers.Server = request.getfixturevalue("redis_server")
        redis.ask("FLUSHALL")
        store = redis.url
    with keystead_serving(tmp_path_factory.mktemp("teams"), store, "--kits", "login,teamwork") as running:
        yield running


@asynccontextmanager
async def visitor(browser: Browser, size: tuple[int, int] = DESKTOP, **own: str) -> AsyncIterator[Page]:
    """Somebody with a browser of their own; the test fails where anything goes wrong in it."""
    wrong: list[str] = []
    async with tab(browser, size, **own) as used:
        used.on("pageerror", lambda error: wrong.append(str(error)))
        yield used.page
    assert wrong == []


async def sign_in(page: Page, name: str) -> None:
    await page.get_by_role("link", name=re.compile("Demo")).click()
    await page.get_by_label("Somebody else").fill(name)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def link_of(page: Page, name: str, role: str = "member") -> str:
    """A link that whoever leads the team makes on the page."""
    if not await page.locator("#invite").evaluate("one => one.open"):
        await page.locator("#invite summary").click()
    await page.get_by_label("Name of the person (optional)").fill(name)
    await page.get_by_label("Role", exact=True).select_option(role)
    await page.get_by_role("button", name="Create a link").click()
    await expect(page.locator("#invitations")).to_contain_text(name)
    return await page.get_by_label("Link", exact=True).input_value()


async def test_somebody_new_creates_a_team_and_another_joins_it_by_a_link(server: Keystead, browser: Browser) -> None:
    async with visitor(browser) as owner:
        await owner.goto(f"{server.url}/login?returnTo=/teamwork")
        await sign_in(owner, "Marie Curie")
        await owner.get_by_role("textbox", name="Team name").fill("Radium")
        await owner.locator("#create-zone").select_option("Asia/Seoul")
        await owner.get_by_role("button", name="Create", exact=True).click()
        await expect(owner.get_by_role("heading", name="Radium")).to_be_visible()
        await expect(owner.locator("#team-hint")).to_have_text("Asia/Seoul; notified 3 days before a deadline")
        link = await link_of(owner, "Pierre")

        newcomer = await (await browser.new_context()).new_page()
        await newcomer.goto(link)
        assert newcomer.url == f"{server.url}/teamwork"  # the secret is out of the address, and of the history
        await expect(newcomer.get_by_text("You are invited to a team. Sign in to join it.")).to_be_visible()
        await newcomer.locator("#sign-in").get_by_role("link", name="Sign in", exact=True).click()
        await sign_in(newcomer, "Pierre Curie")
        invitation = newcomer.locator("#invitation")
        await expect(invitation).to_contain_text("Marie Curie invites you to the team Radium, as member.")
        await newcomer.get_by_role("button", name="Join the team").click()
        await expect(newcomer.locator("#members")).to_contain_text("Pierre Curie (Me)")
        await expect(invitation).to_be_hidden()
        await expect(newcomer.locator("#invite")).to_be_hidden()  # for those who lead
        # The link is used up.
        await newcomer.goto(link)
        await expect(newcomer.locator("#invitation-text")).to_contain_text("This invitation was used")

        await owner.reload()
        row = owner.locator("#members li").filter(has_text="Pierre Curie")
        async with owner.expect_response(lambda answer: answer.request.method == "PATCH"):
            await row.get_by_label("Role of Pierre Curie").select_option("admin")
        await expect(row.get_by_label("Role of Pierre Curie")).to_have_value("ADMIN")
        await newcomer.reload()
        await expect(newcomer.locator("#invite")).to_be_visible()
        # An assignee is chosen by name.
        await owner.locator("#add").get_by_text("Add a deadline").click()
        await expect(owner.get_by_label("Assignee").locator("option")).to_have_text(["Me", "No one", "Pierre Curie"])
        # And out again: asked first.
        await row.get_by_role("button", name="Remove Pierre Curie from the team").click()
        await row.get_by_role("button", name="Really remove Pierre Curie?").click()
        await expect(row).to_have_count(0)
        await newcomer.reload()
        await expect(newcomer.get_by_role("heading", name="You are not in a team yet")).to_be_visible()
        await newcomer.context.close()


async def test_settings_slack_id_and_leaving(server: Keystead, browser: Browser) -> None:
    async with visitor(browser) as page:
        await page.goto(f"{server.url}/login?returnTo=/teamwork")
        await sign_in(page, "Lise Meitner")
        await page.get_by_role("textbox", name="Team name").fill("Fission")
        await page.get_by_role("button", name="Create", exact=True).click()
        await page.locator("#team-settings summary").click()
        await page.get_by_label("Days before a deadline").fill("seven")
        await page.locator("#team-form").get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert").filter(has_text="whole numbers")).to_be_visible()
        await page.get_by_label("Days before a deadline").fill("7, 3")
        await page.locator("#team-zone").select_option("Europe/Berlin")
        await page.locator("#team-form").get_by_role("button", name="Save").click()
        await expect(page.locator("#team-hint")).to_have_text("Europe/Berlin; notified 7, 3 days before a deadline")
        await expect(page.locator("#zone")).to_have_text("Time zone Europe/Berlin; notices from 09:00 on.")
        await page.locator("#slack-own summary").click()
        await page.get_by_label("Slack member ID").fill("not an id")
        await page.locator("#slack-form").get_by_role("button", name="Save").click()
        await expect(page.locator("#problem")).to_contain_text("looks like U012ABCDE")
        await page.get_by_label("Slack member ID").fill("U012ABCDE")
        await page.locator("#slack-form").get_by_role("button", name="Save").click()
        await expect(page.locator("#members")).to_contain_text("Slack U012ABCDE")
        await page.locator("#slack-log summary").click()
        await expect(page.get_by_text("Nothing has been sent to Slack yet.")).to_be_visible()
        await page.get_by_role("button", name="Leave the team").click()
        await expect(page.get_by_role("button", name="Stay")).to_be_focused()  # the safe answer
        await page.get_by_role("button", name="Leave", exact=True).click()
        await expect(page.get_by_role("heading", name="You are not in a team yet")).to_be_visible()


async def test_a_notice_is_in_the_language_of_its_reader_links_to_its_item_and_is_deleted(
    server: Keystead, browser: Browser
) -> None:
    async with visitor(browser) as page, colleague(server.url, GRACE) as grace:
        await page.goto(f"{server.url}/teamwork?as={ALAN}")
        await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        await grace.tell(ALAN, "A/1")
        await expect(page.locator("#heard")).to_contain_text("A/1")
        entry = page.locator("#entries li").first
        for language, title in (
            ("ko", "Grace Hopper님이 회원님을 A/1 담당자로 배정했습니다"),
            ("ja", "Grace Hopper さんがあなたを A/1 の担当にしました"),
            ("en", "Grace Hopper assigned A/1 to you"),
        ):
            await speak(page, language)
            await expect(entry.locator(".title")).to_have_text(title)
        # One that comes now, on the stream, is in the language of the page at once.
        await speak(page, "ko")
        await grace.tell(ALAN, "A/2")
        await expect(page.locator("#heard")).to_contain_text("A/2 담당자로 배정했습니다")
        await speak(page, "en")
        body = {"due": "2096-10-05", "title": "Print", "docNo": "A/2", "assigneeId": ALAN}
        await grace.ask("PUT", "/api/deadlines/WORK_REQUEST/A%2F2", body)
        await page.get_by_role("link", name="Grace Hopper assigned A/2 to you").click()
        await expect(page.locator("#about-text")).to_have_text("Only about Work request A/2.")
        await expect(page.locator("#entries li")).to_have_count(1)
        await expect(page.locator('#calendar td[aria-selected="true"]')).to_have_attribute("data-day", "2096-10-05")
        await page.get_by_role("button", name="Delete: Grace Hopper assigned A/2 to you").click()
        await expect(page.locator("#entries li")).to_have_count(0)
        await page.get_by_role("button", name="Show all").click()
        await expect(page.locator("#entries")).to_contain_text("assigned A/1 to you")
        await expect(page.locator("#entries")).not_to_contain_text("A/2")
        await page.reload()
        await expect(page.locator("#entries")).to_contain_text("assigned A/1 to you")
        await expect(page.locator("#entries")).not_to_contain_text("A/2")
        # The box of one preference changes that one alone.
        await page.get_by_text("Notification preferences").click()
        await page.get_by_label("Deployments", exact=True).uncheck()
        await expect(page.locator("#preferences-said")).to_have_text("Saved.")
        wanted = await grace.ask("GET", "/api/notifications/preferences")
        assert all(wanted.values())
        async with colleague(server.url, ALAN) as alan:
            mine = await alan.ask("GET", "/api/notifications/preferences")
            assert [name for name, is_on in mine.items() if not is_on] == ["deploy"]
            await alan.ask("PUT", "/api/notifications/preferences", {"deploy": True})


@looks
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_team_fits_the_screen_and_can_be_read_in_each_language(
    server: Keystead, browser: Browser, size: str, scheme: str
) -> None:
    async with tab(browser, SIZES[size], scheme) as used:
        page = used.page
        await page.goto(f"{server.url}/teamwork?as={ADA}")
        await expect(page.locator("#members li")).not_to_have_count(0)
        await link_of(page, "Somebody with a rather long name")
        for language, word in (("ja", "招待する"), ("ko", "초대하기"), ("en", "Invite a member")):
            await speak(page, language)
            for part in ("#team-settings", "#slack-own", "#slack-log"):
                await page.locator(f"{part} summary").click()
            await page.locator("#leave-team").click()
            await expect(page.locator("#invite summary")).to_have_text(word)
            assert await page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
            assert await page.evaluate(CONTRAST) == []
            unnamed = page.locator("#team button:visible:not([aria-label])").filter(has_text=re.compile(r"^\s*$"))
            assert await unnamed.count() == 0
        await page.locator("#stay").click()
        await page.locator("#invitations").get_by_role("button").first.click()


def test_the_server_has_logged_no_error_and_no_secret_of_a_link(server: Keystead) -> None:
    assert "Traceback" not in server.said
    assert "invitation=" not in server.said
