"""The page of teamwork in a real browser: notices as they come, whatever happens to the connection, and a calendar."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.browser.test_start_page import CONTRAST
from tests.serving import Keystead, free_port, keystead_serving

ADA, GRACE, ALAN = 900_000_001, 900_000_002, 900_000_003
DEMO = "/api/teamwork/demo"
LONG_MS = 40_000  # a connection that was lost comes back after a few seconds at most, and the machine may be busy


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with keystead_serving(tmp_path_factory.mktemp("teamwork"), None, "--kits", "teamwork") as running:
        yield running


class Colleague:
    """What somebody of the demo team does through the API, while another looks at the page."""

    def __init__(self, url: str, http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
        self._url = url
        self._http = http
        self._headers = headers

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._http.request(method, f"{self._url}{path}", json=body, headers=self._headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def tell(self, user: int, title: str) -> None:
        """Give somebody work that is called so."""
        item = {"refType": "WORK_REQUEST", "refId": title, "docNo": title, "title": "Print", "assigneeId": user}
        told = await self.ask("POST", "/api/events", {"kind": "assigned", "id": title, "item": item})
        assert told == {"notices": 1}


@asynccontextmanager
async def colleague(url: str, person: int = ALAN) -> AsyncIterator[Colleague]:
    async with httpx2.AsyncClient(trust_env=False, timeout=300) as http:
        answer = await http.post(f"{url}{DEMO}/sign-in", json={"person": person})
        yield Colleague(url, http, {"authorization": f"Bearer {answer.json()['token']}"})


@dataclass
class Window:
    """A window with the page, and what went wrong in it."""

    page: Page
    wrong: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if "net::" not in said.text else None)

    def entry(self, title: str) -> Locator:
        return self.page.locator("#entries li").filter(has_text=f" assigned {title} to you")

    async def shows(self, state: str) -> None:
        await expect(self.page.locator("#connection")).to_have_attribute("data-state", state, timeout=LONG_MS)

    async def titles(self) -> list[str]:
        found = await self.page.locator("#entries .title").all_inner_texts()
        return [text.removesuffix(" to you").rpartition(" assigned ")[2] for text in found]


async def opened(page: Page, url: str, person: int) -> Window:
    """The page with one of the demo team, connected and with all that it loads."""
    window = Window(page)
    window.listen()
    await page.goto(f"{url}/teamwork?as={person}")
    await window.shows("live")
    await expect(page.locator("#calendar td")).not_to_have_count(0)
    await expect(page.locator("#counted")).not_to_be_empty()
    return window


async def speak(page: Page, language: str) -> None:
    """Choose a language with the switch in the frame of the page, which loads it again."""
    await page.locator("button.display").click()
    await page.locator(f"button[name=language][value={language}]").click()
    await expect(page.locator("html")).to_have_attribute("lang", language)
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live", timeout=LONG_MS)


# --- notices -----------------------------------------------------------------------------------------------------


@pytest.mark.main_path
async def test_a_newcomer_signs_in_and_sees_what_a_colleague_does(browser: Browser, server: Keystead) -> None:
    async with tab(browser) as used:
        page = used.page
        await page.goto(f"{server.url}/")
        await page.get_by_role("link", name="Notices, deadlines and dashboard").click()
        await page.get_by_role("button", name="Grace Hopper").click()
        window = Window(page)
        await window.shows("live")
        await expect(page.get_by_role("heading", name="Notices")).to_be_focused()
        await expect(page.get_by_text("No notices yet.")).to_be_visible()
        await expect(page.get_by_role("link", name="Sign in")).to_be_hidden()  # who is signed in is not asked to
        await page.get_by_role("button", name="Fail a deployment").click()
        entry = page.locator("#entries li")
        await expect(entry).to_contain_text(re.compile(r"Ada Lovelace reports that the deployment DP-\d+ has failed"))
        await expect(entry).to_contain_text("Release of the month: in progress → failed")
        await expect(page.locator("#heard")).to_contain_text("New notice: Ada Lovelace reports")
        await expect(page.locator("#unreadNotifications")).to_have_text("1")
        await expect(page).to_have_title("(1) Teamwork · Keystead")
        # By the keyboard, and the focus does not get lost with the button.
        await entry.get_by_role("button", name="Mark as read").press("Enter")
        await expect(page.locator("#unread")).to_have_text("Nothing unread")
        await expect(page.get_by_role("heading", name="Notices")).to_be_focused()
        await expect(page.locator("#unreadNotifications")).to_have_text("0")
        await page.get_by_label("Only unread").check()
        await expect(page.get_by_text("Nothing unread.")).to_be_visible()
        # What somebody does not want to hear of does not come.
        await page.get_by_text("Notification preferences").click()
        await page.get_by_label("Deployments", exact=True).uncheck()
        await expect(page.locator("#preferences-said")).to_have_text("Saved.")
        await page.get_by_role("button", name="Fail a deployment").click()
        await expect(page.locator("#demo-told")).to_have_text("Done; no notices, because of preferences.")


async def test_older_notices_are_turned_to_and_what_comes_meanwhile_is_offered(
    browser: Browser, server: Keystead
) -> None:
    async with tab(browser) as used, colleague(server.url, GRACE) as grace:
        for number in range(25):
            await grace.tell(ALAN, f"MANY-{number}")
        page = used.page
        window = await opened(page, server.url, ALAN)
        await expect(window.entry("MANY-24")).to_be_visible()
        await page.get_by_role("button", name="Older").press("Enter")
        await expect(window.entry("MANY-4")).to_be_visible()
        await expect(page.get_by_role("heading", name="Notices")).to_be_focused()
        await grace.tell(ALAN, "MANY-25")
        await page.get_by_role("button", name="1 new notice: show").click()
        await expect(window.entry("MANY-25")).to_be_visible()
        await expect(page.locator("#above")).to_be_hidden()
        await page.get_by_label("About").select_option("Defect")
        await expect(window.entry("MANY-25")).to_have_count(0)
        await page.get_by_label("About").select_option("Work request")
        await expect(window.entry("MANY-25")).to_be_visible()
        assert window.wrong == []


async def test_two_windows_of_one_user_stay_in_step(browser: Browser, server: Keystead) -> None:
    async with tab(browser) as used, colleague(server.url) as alan:
        first = await opened(used.page, server.url, ADA)
        second = await opened(await used.page.context.new_page(), server.url, ADA)
        for title in ("STEP-1", "STEP-2", "STEP-3"):
            await alan.tell(ADA, title)
        for window in (first, second):
            await expect(window.entry("STEP-3")).to_be_visible()
            assert (await window.titles())[:3] == ["STEP-3", "STEP-2", "STEP-1"]
        await first.entry("STEP-2").get_by_role("button", name="Mark as read").click()
        await expect(second.entry("STEP-2")).not_to_have_class(re.compile("unread"))
        await expect(second.entry("STEP-3")).to_have_class(re.compile("unread"))
        await second.page.get_by_role("button", name="Mark all as read").click()
        for window in (first, second):
            await expect(window.page.locator(".entry.unread")).to_have_count(0)
            await expect(window.page.locator("#unread")).to_have_text("Nothing unread")
        # One connection serves both: when the window that holds it is closed, the other takes it over.
        await used.page.goto("about:blank")
        await alan.tell(ADA, "STEP-4")
        await expect(second.entry("STEP-4")).to_be_visible(timeout=LONG_MS)
        assert first.wrong == second.wrong == []


async def test_who_was_offline_gets_what_was_missed_once_and_in_order(browser: Browser, server: Keystead) -> None:
    async with tab(browser) as used, colleague(server.url) as alan:
        window = await opened(used.page, server.url, GRACE)
        await alan.tell(GRACE, "BEFORE-1")
        await expect(window.entry("BEFORE-1")).to_be_visible()
        await used.page.context.set_offline(True)
        await window.shows("offline")
        await expect(used.page.locator("#connection")).to_have_text("You are offline")
        for number in range(1, 6):
            await alan.tell(GRACE, f"MISSED-{number}")
        await used.page.context.set_offline(False)
        await window.shows("live")
        await expect(window.entry("MISSED-5")).to_be_visible()
        await alan.tell(GRACE, "AFTER-1")
        await expect(window.entry("AFTER-1")).to_be_visible()
        expected = ["AFTER-1", *(f"MISSED-{number}" for number in range(5, 0, -1)), "BEFORE-1"]
        assert (await window.titles())[: len(expected)] == expected
        assert window.wrong == []


async def test_a_restart_of_the_server_is_survived_with_nothing_lost(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("--kits", "teamwork", "--port", str(port))
    async with tab(browser) as used:
        with keystead_serving(tmp_path, None, *arguments) as first:
            window = await opened(used.page, url, ADA)
            async with colleague(url) as alan:
                await alan.tell(ADA, "R-1")
            await expect(window.entry("R-1")).to_be_visible()
            assert first.stop() == 0  # an open stream does not hold it up
        await window.shows("lost")
        await used.page.get_by_role("button", name="Try now").click()
        await window.shows("lost")
        await expect(window.entry("R-1")).to_be_visible()
        with keystead_serving(tmp_path, None, *arguments):
            async with colleague(url) as alan:
                await alan.tell(ADA, "R-2")
            await window.shows("live")  # by itself
            await expect(window.entry("R-2")).to_be_visible()
            assert await window.titles() == ["R-2", "R-1"]


async def test_whose_token_was_ended_is_asked_to_sign_in_again(browser: Browser, server: Keystead) -> None:
    async with tab(browser) as used, colleague(server.url, ALAN) as alan:
        window = await opened(used.page, server.url, ALAN)

        async def revoke_first(route: Route) -> None:
            """The request is on its way: now the stream cannot be the first to notice, and hide the button."""
            await alan.ask("POST", "/api/tokens/revoke-all")
            await route.continue_()

        await used.page.route(f"**{DEMO}/events", revoke_first, times=1)
        await used.page.get_by_role("button", name="Assign work").click()
        await expect(used.page.get_by_role("alert").filter(has_text="You are signed out")).to_be_visible()
        await expect(used.page.get_by_role("heading", name="Sign in as")).to_be_focused()
        assert await used.page.evaluate("sessionStorage.length") == 0
        await used.page.get_by_role("button", name="Alan Turing").click()
        await window.shows("live")
        # One that only listens finds out, too, when its connection comes back.
        await used.page.context.set_offline(True)
        await window.shows("offline")
        await _end_all(server.url, ALAN)  # while nothing can tell the page
        await used.page.context.set_offline(False)
        await expect(used.page.get_by_role("heading", name="Sign in as")).to_be_focused(timeout=LONG_MS)
        await used.page.get_by_role("button", name="Alan Turing").click()
        await window.shows("live")
        await used.page.get_by_role("button", name="Sign out").click()
        await expect(used.page.get_by_role("heading", name="Sign in as")).to_be_visible()
        await expect(used.page.get_by_role("alert")).to_have_count(0)


async def test_who_signs_out_is_not_told_that_the_session_ended(browser: Browser, server: Keystead) -> None:
    async with tab(browser) as used:
        window = await opened(used.page, server.url, ALAN)
        await window.shows("live")

        async def answer_late(route: Route) -> None:
            """The token is revoked, and the stream says so before the answer to the sign-out comes."""
            response = await route.fetch()
            await expect(used.page.get_by_role("heading", name="Sign in as")).to_be_visible()
            await route.fulfill(response=response)

        await used.page.route("**/api/tokens/revoke", answer_late, times=1)
        async with used.page.expect_response("**/api/tokens/revoke"):
            await used.page.get_by_role("button", name="Sign out").click()
        await expect(used.page.get_by_role("heading", name="Sign in as")).to_be_focused()
        await expect(used.page.get_by_role("alert")).to_have_count(0)


async def _end_all(url: str, person: int) -> None:
    async with colleague(url, person) as same:
        await same.ask("POST", "/api/tokens/revoke-all")


async def test_what_cannot_be_replayed_is_said_and_the_list_is_loaded_anew(browser: Browser, server: Keystead) -> None:
    answers = [
        {"status": 503, "headers": {"retry-after": "1"}, "body": "{}"},
        {"status": 429, "headers": {"retry-after": "2"}, "body": "{}"},
        {
            "headers": {"content-type": "text/event-stream"},
            "body": 'retry: 1000\n\nid: 1\nevent: hello\ndata: {"place": 9}\n\n'
            'id: 8\nevent: missed\ndata: {"first": 9}\n\n: a comment\n\n',
        },
    ]
    asked: list[str] = []

    async def answer(route: Route) -> None:
        headers = await route.request.all_headers()
        asked.append(headers.pop("last-event-id", ""))  # the server would say of an id that it never gave: missed
        await (route.fulfill(**answers.pop(0)) if answers else route.continue_(headers=headers))  # type: ignore[arg-type]

    async with tab(browser) as used, colleague(server.url) as alan:
        await used.page.context.route("**/api/notifications/stream?*", answer)
        await alan.tell(GRACE, "LONG-AGO")
        window = Window(used.page)
        await used.page.goto(f"{server.url}/teamwork?as={GRACE}")
        await window.shows("busy")
        await expect(window.entry("LONG-AGO")).to_be_visible()
        missed = used.page.locator("#missed")
        await expect(missed).to_be_visible(timeout=LONG_MS)
        await expect(used.page.locator("#heard")).to_contain_text("Some notices arrived while you were away")
        await window.shows("live")
        assert asked[:3] == ["", "", ""]
        assert asked[3] in ("8", "9")  # after what it could not get
        await alan.tell(GRACE, "NEXT")
        await expect(window.entry("NEXT")).to_be_visible()
        await window.entry("NEXT").get_by_role("button", name="Mark as read").click()
        await expect(missed).to_be_hidden()


async def test_where_nobody_is_a_demo_the_application_brings_the_token(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "office.py").write_text(
        "from keystead.kits.teamwork import UserSession, teamwork_kit\n"
        "async def find(user):\n"
        "    return UserSession(name='Mei', email='', role='DEVELOPER', team_id=3, team_role='MEMBER')\n"
        "KIT = teamwork_kit(load=find)\n"
    )
    seal = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
    with keystead_serving(tmp_path, None, "--kits", "office:KIT", KEYSTEAD_SEAL_KEYS=seal) as server:
        async with tab(browser) as used:
            page = used.page
            await page.goto(f"{server.url}/teamwork")
            await page.get_by_role("button", name="Open").click()
            await expect(page.get_by_role("alert")).to_have_text("Paste the access token first.")
            await page.get_by_label("Access token").fill("Bearer a.b.c")
            await page.get_by_role("button", name="Open").click()
            await expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
            await page.evaluate(
                "token => sessionStorage.setItem('keystead.teamwork.token', token)", _token(server, seal)
            )
            await page.reload()
            await Window(page).shows("live")
            await expect(page.locator("#who")).to_have_text("Mei, developer")
            await expect(page.locator("#demo")).to_have_count(0)


def _token(server: Keystead, seal: str) -> str:
    """As the application issues one: with the keys that it shares with the server."""
    from keystead import KeyRing
    from keystead.parts.jwt import AccessTokens, SigningKeys

    keys = SigningKeys.from_ring(KeyRing.from_text(seal))
    return AccessTokens(keys, issuer=server.url, audience="teamwork", lifetime="30m").issue("7").token


# --- deadlines ---------------------------------------------------------------------------------------------------


async def test_the_calendar_is_walked_and_changed_by_the_keyboard(browser: Browser, server: Keystead) -> None:
    async with tab(browser) as used, colleague(server.url) as alan:
        window = await opened(used.page, server.url, ADA)
        page, keys = used.page, used.page.keyboard
        today = date.fromisoformat((await alan.ask("GET", "/api/deadlines"))["today"])
        selected = page.locator('#calendar td[aria-selected="true"]')

        async def is_at(day: date) -> None:
            await expect(selected).to_have_attribute("data-day", day.isoformat())
            await expect(selected).to_be_focused()

        await page.get_by_role("button", name="Today", exact=True).press("Enter")
        await is_at(today)
        assert "today" in (await selected.get_attribute("aria-label") or "")
        for key, days in (("ArrowRight", 1), ("ArrowDown", 8), ("ArrowLeft", 7), ("ArrowUp", 0)):
            await keys.press(key)
            await is_at(today + timedelta(days=days))
        await keys.press("PageDown")
        await keys.press("PageUp")
        await keys.press("Shift+PageDown")
        await expect(page.locator("#month")).to_contain_text(str(today.year + 1))
        await keys.press("t")
        await is_at(today)

        # A deadline is added from the list of its day, moved, done, and put back.
        await keys.press("Enter")
        await expect(page.locator("#day")).to_be_focused()
        await page.get_by_text("Add a deadline").click()
        await page.get_by_label("Number or ID").fill("7")
        await page.get_by_role("button", name="Add", exact=True).click()
        await expect(page.locator("#add-problem")).to_have_text("Fill in a number, a title and a day.")
        await expect(page.get_by_label("Title")).to_be_focused()
        await page.get_by_label("Title").fill("Print <b>invoices</b>")
        await keys.press("Enter")
        row = page.locator("#due li").filter(has_text="WR-007")
        await expect(row).to_contain_text("Print <b>invoices</b>")
        await expect(row).to_contain_text("due today")
        await expect(selected).to_have_attribute("aria-label", re.compile("due, soon, today"))
        await expect(page.locator("#myWorkRequests")).to_have_text("1")
        later = today + timedelta(days=40)
        await row.get_by_label("New day for WR-007").fill(later.isoformat())
        await row.get_by_role("button", name="Move").press("Enter")
        await expect(selected).to_have_attribute("data-day", later.isoformat())
        await expect(row).to_contain_text("due in 40 days")
        await row.get_by_role("button", name="WR-007 is done").press("Enter")
        await expect(page.get_by_role("button", name="Undo")).to_be_focused()
        await expect(row).to_have_count(0)
        await keys.press("Enter")
        await expect(row).to_contain_text("due in 40 days")

        # What is overdue is said, not only coloured.
        body = {"due": (today - timedelta(days=2)).isoformat(), "title": "Old", "docNo": "DF-9", "assigneeId": ADA}
        await alan.ask("PUT", "/api/deadlines/DEFECT/9", body)
        await page.reload()
        await expect(page.locator("#pressing")).to_contain_text("overdue by 2 days")
        await page.get_by_role("button", name="DF-9 Old").click()
        await expect(selected).to_have_attribute("aria-label", re.compile("1 overdue"))
        assert window.wrong == []


# --- how it looks ------------------------------------------------------------------------------------------------


@looks
@pytest.mark.parametrize(("size", "scheme"), [(PHONE, "light"), (PHONE, "dark"), (DESKTOP, "dark")])
async def test_the_page_fits_the_screen_and_can_be_read_in_each_language(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    async with tab(browser, size, scheme) as used:
        page = used.page
        window = await opened(page, server.url, ALAN)
        await page.get_by_role("button", name="Add examples to the calendar").click()
        await page.get_by_role("button", name="Mention in a comment").click()
        await expect(page.locator("#entries li").filter(has_text="@Alan Turing")).not_to_have_count(0)
        await expect(page.locator("#pressing li")).not_to_have_count(0)
        for language, title in (("ja", "チームワーク"), ("ko", "팀워크"), ("en", "Teamwork")):
            await speak(page, language)
            await page.locator("#add summary").click()
            await expect(page.locator("#pressing li")).not_to_have_count(0)
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert await page.evaluate(CONTRAST) == []
            assert (
                await page.locator("button:visible:not([aria-label])").filter(has_text=re.compile(r"^\s*$")).count()
                == 0
            )
        assert window.wrong == []


def test_the_server_has_logged_no_error(server: Keystead) -> None:
    assert "Traceback" not in server.said
