"""Sharing a file through the real pages, in a real browser: whoever sends it, and whoever receives it."""

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Download, FilePayload, Page, Route, expect

from keystead.kits.sharing.words import left_in_words, moment_in_words, size_in_words
from tests.browser.tabs import DESKTOP, PHONE, looks, tab
from tests.browser.test_start_page import CONTRAST
from tests.serving import Keystead, keystead_serving, program

HOSTILE = "<script>document.title = 'gone'</script><img src=x onerror=alert(1)>"
ISSUE_KEY = "the-issue-key-of-this-test"
BYTES = bytes(range(256)) * 1000
NO_LIMITS = dict.fromkeys(("upload", "page", "resolve", "delete", "token", "download"), 0)


def settings(folder: Path, **sharing: object) -> None:
    lines = ["[sharing]"]
    for name, value in sharing.items():
        if isinstance(value, dict):
            lines += [f"limits.{limit} = {most}" for limit, most in value.items()]
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    (folder / "keystead.toml").write_text("\n".join(lines))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    folder = tmp_path_factory.mktemp("sharing")
    settings(folder, allowed_hosts=["files.example.com"], max_upload="3MB", limits=NO_LIMITS)
    with keystead_serving(folder, "sqlite:///sharing.db", "--kits", "sharing") as running:
        yield running


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    """One where only those who have the issue key can share."""
    folder = tmp_path_factory.mktemp("closed")
    settings(folder, issue_key=ISSUE_KEY, ttl="1h", max_ttl="12h")
    with keystead_serving(folder, "sqlite:///sharing.db", "--kits", "sharing") as running:
        yield running


@dataclass
class Person:
    """Somebody with a browser of their own, all that went wrong in it, and the refusals that it was answered with."""

    server: Keystead
    context: BrowserContext
    page: Page
    wrong: list[str] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)

    async def visit(self, path: str) -> int:
        answer = await self.page.goto(path if "://" in path else f"{self.server.url}{path}")
        return 0 if answer is None else answer.status

    async def heading(self, level: int = 1) -> str:
        return await self.page.get_by_role("heading", level=level).inner_text()

    async def press(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def choose(self, name: str = "report.pdf", content: bytes = BYTES) -> None:
        chosen = FilePayload(name=name, mimeType="application/octet-stream", buffer=content)
        await self.page.locator("#file").set_input_files([chosen])

    async def share(self) -> str:
        """Upload what was chosen, and the link to it."""
        await self.press("Upload and get the link")
        await expect(self.page.get_by_role("heading", name="The link is ready")).to_be_focused(timeout=15_000)
        return await self.page.get_by_role("textbox", name="Link").input_value()

    async def download(self) -> Download:
        async with self.page.expect_download() as begun:
            await self.press("Download")
        return await begun.value

    async def downloaded(self) -> bytes:
        return (await (await self.download()).path()).read_bytes()

    async def problem(self) -> str:
        """The sentence that says what is wrong."""
        shown = self.page.get_by_role("alert")
        await expect(shown).to_have_count(1)
        return await shown.inner_text()

    async def sees(self) -> str:
        return await self.page.inner_text("main")


@asynccontextmanager
async def somebody(
    browser: Browser, server: Keystead, size: tuple[int, int] = DESKTOP, scheme: str = "light", **more: Any
) -> AsyncIterator[Person]:
    async with tab(browser, size, scheme, **more) as used:
        person = Person(server, used.page.context, used.page)
        wrong = person.wrong
        # A page that refuses something is answered with the status of it, and a browser says so in its console.
        used.on(
            "console",
            lambda message: (
                None if "responded with a status of" in message.text else wrong.append(f"console: {message.text}")
            ),
        )
        used.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        used.on(
            "request",
            lambda request: (
                None if request.url.startswith(f"{server.url}/") else wrong.append(f"outside: {request.url}")
            ),
        )
        used.on("response", lambda answer: person.refusals.append(answer.status) if answer.status >= 400 else None)
        yield person
        assert person.wrong == []


async def issued(server: Keystead, name: str = "report.pdf", password: str | None = None, **wanted: Any) -> Any:
    """A link to a file, as a program gets one."""
    headers = {} if password is None else {"x-link-password": quote(password)}
    async with httpx2.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            f"{server.url}/api/receive/upload", params={"name": name, **wanted}, content=BYTES, headers=headers
        )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def called(server: Keystead, path: str, body: dict[str, Any]) -> Any:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.post(f"{server.url}{path}", json=body)).json()


async def throttled(person: Person, bytes_a_second: int) -> None:
    session = await person.context.new_cdp_session(person.page)
    await session.send("Network.enable")
    limits = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_a_second}
    await session.send("Network.emulateNetworkConditions", limits)


# --- from one to the other ---------------------------------------------------------------------------------------


@pytest.mark.main_path
async def test_a_file_goes_from_one_browser_to_another_byte_for_byte(browser: Browser, server: Keystead) -> None:
    async with somebody(browser, server) as sender, somebody(browser, server, PHONE) as receiver:
        await sender.visit("/share")
        await sender.choose("Résumé 2026.pdf")
        await sender.page.get_by_label("Message").fill("For Friday.\nSee you!")
        await sender.page.get_by_label("Expires after").select_option("3 days")
        link = await sender.share()
        assert link.startswith(f"{server.url}/receive?t=")
        assert "Résumé 2026.pdf, 256 kB. It expires on " in await sender.sees()

        assert await receiver.visit(link) == 200
        assert await receiver.heading() == "Résumé 2026.pdf"
        seen = await receiver.sees()
        assert "256 kB" in seen
        assert "in 3 days" in seen
        assert "For Friday.\nSee you!" in seen
        assert "Downloads left" not in seen
        first = await receiver.download()
        assert first.suggested_filename == "Résumé 2026.pdf"
        assert (await first.path()).read_bytes() == BYTES
        assert await receiver.page.get_by_role("status").inner_text() == "Your download has started."
        assert await receiver.downloaded() == BYTES
        assert sender.refusals == receiver.refusals == []


async def test_a_receiver_without_scripts_gets_the_file_and_the_time_in_utc(browser: Browser, server: Keystead) -> None:
    link = await issued(server, password="open sesame", maxDownloads=1)
    async with somebody(browser, server, java_script_enabled=False) as receiver:
        await receiver.visit(link["shareUrl"])
        expires = moment_in_words(datetime.fromtimestamp(link["exp"] / 1000, UTC))
        assert expires in await receiver.sees()
        await receiver.page.get_by_label("Password").fill("open sesame")
        assert await receiver.downloaded() == BYTES
        assert await receiver.visit(link["shareUrl"]) == 410
        assert await receiver.heading() == "This link is used up"


async def test_times_are_in_the_zone_of_whoever_reads_them(browser: Browser, server: Keystead) -> None:
    at = datetime.fromtimestamp(time.time() // 60 * 60 + 86_400, UTC)
    link = await issued(server, validUntil=at.isoformat())
    async with somebody(browser, server, timezone_id="Asia/Kolkata") as receiver:
        await receiver.visit(link["shareUrl"])
        there = datetime.fromtimestamp(at.timestamp() + 5.5 * 3600, UTC)
        expected = moment_in_words(there).replace("UTC", "GMT+5:30")
        await expect(receiver.page.locator("time")).to_have_text(expected)


async def test_a_wrong_password_is_said_beside_its_field_and_the_right_one_opens(
    browser: Browser, server: Keystead
) -> None:
    link = await issued(server, password="ünlocked ✓")
    async with somebody(browser, server) as receiver:
        await receiver.visit(link["shareUrl"])
        field = receiver.page.get_by_label("Password")
        assert await field.get_attribute("aria-describedby") == "asks"
        await field.fill("locked")
        await receiver.press("Download")
        assert (await receiver.problem()).startswith("Wrong password.")
        await expect(field).to_be_focused()
        assert await field.get_attribute("aria-describedby") == "wrong"
        assert await receiver.heading() == "report.pdf"
        await field.fill("ünlocked ✓")
        assert await receiver.downloaded() == BYTES
        assert receiver.refusals == [403]


async def test_many_wrong_passwords_lock_the_link(browser: Browser, server: Keystead) -> None:
    link = await issued(server, password="right")
    wrong = {"t": link["shortToken"], "password": "wrong"}
    await asyncio.gather(*(called(server, "/api/receive/resolve", wrong) for _ in range(10)))
    async with somebody(browser, server) as receiver:
        await receiver.visit(link["shareUrl"])
        await receiver.page.get_by_label("Password").fill("right")
        await receiver.press("Download")
        await expect(receiver.page.get_by_role("heading", level=1)).to_have_text("Too many wrong passwords")
        assert receiver.refusals == [429]
        await receiver.page.get_by_role("link", name="Try again").click()
        await expect(receiver.page.get_by_role("heading", level=1)).to_have_text("report.pdf")


async def test_a_single_download_is_used_up_by_the_download_and_not_by_looking(
    browser: Browser, server: Keystead
) -> None:
    async with somebody(browser, server) as sender, somebody(browser, server) as receiver:
        await sender.visit("/share")
        await sender.choose()
        await sender.page.get_by_label("Only one download").check()
        link = await sender.share()
        assert "It can be downloaded once." in await sender.sees()
        for _ in range(3):
            assert await receiver.visit(link) == 200
        assert "Downloads left\n1" in await receiver.sees()
        assert await receiver.downloaded() == BYTES
        # The page itself says it at once, and leaves nothing to press in vain.
        await expect(receiver.page.get_by_role("status")).to_contain_text("the last one for this link")
        await expect(receiver.page.get_by_role("button", name="Download")).to_be_hidden()
        assert await receiver.visit(link) == 410
        assert await receiver.heading() == "This link is used up"


async def test_a_file_that_is_kept_elsewhere_is_fetched_from_there(browser: Browser, server: Keystead) -> None:
    """The policy of the page lets its form lead to this site only, and Chromium holds redirects to that."""
    elsewhere = "https://files.example.com/a/archive.zip"
    link = await called(server, "/api/receive/token", {"url": elsewhere, "name": "archive.zip"})

    async def give(route: Route) -> None:
        headers = {"content-disposition": 'attachment; filename="archive.zip"'}
        await route.fulfill(status=200, headers=headers, body="from elsewhere")

    async with somebody(browser, server) as receiver:
        await receiver.context.route("https://files.example.com/**", give)
        await receiver.visit(link["shareUrl"])
        assert await receiver.downloaded() == b"from elsewhere"
        assert await receiver.heading() == "Your download starts"
        assert "comes from files.example.com" in await receiver.sees()
        assert receiver.wrong == [f"outside: {elsewhere}?download=1"]
        receiver.wrong.clear()


async def test_a_page_under_another_name_of_the_site_gives_the_file_too(browser: Browser, server: Keystead) -> None:
    link = await issued(server)
    async with somebody(browser, server) as receiver:
        await receiver.visit(link["shareUrl"].replace("127.0.0.1", "localhost"))
        assert await receiver.downloaded() == BYTES
        assert all(one.startswith("outside: http://localhost:") for one in receiver.wrong)
        receiver.wrong.clear()


# --- links that do not open --------------------------------------------------------------------------------------


async def test_a_page_that_is_left_open_counts_down_and_looks_again_when_the_time_has_come(
    browser: Browser, server: Keystead
) -> None:
    link = await issued(server, validUntil=int(time.time() * 1000) + 3_600_000)
    async with somebody(browser, server, timezone_id="UTC") as receiver:
        await receiver.page.clock.install()
        await receiver.visit(link["shareUrl"])
        await receiver.page.clock.fast_forward("40:00")
        await expect(receiver.page.locator("#left")).to_have_text("20 minutes")
        await called(server, "/api/receive/delete", {"token": link["token"]})
        await receiver.page.clock.fast_forward("21:00")
        await expect(receiver.page.get_by_role("heading", level=1)).to_have_text("Link not found")


async def test_a_link_that_has_expired_says_since_when(browser: Browser, server: Keystead) -> None:
    link = await issued(server, validUntil=int(time.time() * 1000) + 2000)
    path = f"/receive?t={link['token']}"
    async with somebody(browser, server) as receiver:
        status = 200
        while status == 200:
            status = (await receiver.context.request.get(f"{server.url}{path}")).status
        assert await receiver.visit(path) == 410
        assert await receiver.heading() == "This link has expired"
        assert "It could be opened until " in await receiver.sees()


async def test_each_link_that_does_not_open_says_why_and_what_to_do(browser: Browser, server: Keystead) -> None:
    live, ended = await issued(server), await issued(server)
    await called(server, "/api/receive/delete", {"id": ended["id"], "ownerKey": ended["ownerKey"]})
    token = live["token"]
    altered = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")
    cases = {
        "": (400, "Open a link"),
        "?t=AAAAAAAAAA": (404, "Link not found"),
        f"?t={ended['shortToken']}": (404, "Link not found"),
        f"?key={ended['token']}": (410, "This link was ended"),
        f"?t={altered}": (400, "This link was altered"),
        f"?t={token[:20]}": (400, "This link is incomplete"),
        f"?t={quote(HOSTILE)}": (400, "This link is incomplete"),
    }
    async with somebody(browser, server) as receiver:
        for query, (status, heading) in cases.items():
            assert await receiver.visit(f"/receive{query}") == status, query
            assert await receiver.heading() == heading, query
            assert await receiver.page.title() == f"{heading} · Keystead"
            assert len(await receiver.page.locator("main .lead").inner_text()) > 20
            assert await receiver.page.locator("main a[href='/share']").count() == 1
        # No dead end: the whole link can be pasted.
        await receiver.page.get_by_role("textbox", name="Link").fill(f"  {live['shareUrl']} ")
        await receiver.press("Open")
        await expect(receiver.page.get_by_role("heading", level=1)).to_have_text("report.pdf")


# --- sharing -----------------------------------------------------------------------------------------------------


async def test_whoever_shared_a_file_ends_its_link(browser: Browser, server: Keystead) -> None:
    async with somebody(browser, server) as sender, somebody(browser, server) as receiver:
        await sender.visit("/share")
        await sender.choose()
        link = await sender.share()
        await sender.press("End this link")
        await sender.press("No, keep it")
        await expect(sender.page.get_by_role("button", name="End this link")).to_be_focused()
        assert await receiver.visit(link) == 200
        await sender.press("End this link")
        await sender.press("Yes, end it")
        await expect(sender.page.get_by_role("heading", name="The link has ended")).to_be_focused()
        assert await receiver.visit(link) == 404
        await sender.press("Share another")
        await expect(sender.page.locator("#file")).to_be_focused()
        assert await sender.page.locator("#file-name").inner_text() == "Choose a file"


async def test_a_link_is_ended_later_with_the_key_that_was_kept(browser: Browser, server: Keystead) -> None:
    link = await issued(server, ownerOnly=True)
    async with somebody(browser, server) as sender:
        await sender.visit("/share")
        await sender.page.get_by_text("End a link that you shared earlier").click()
        later = sender.page.locator("#end-earlier")
        await later.get_by_label("Link").fill(link["shareUrl"])
        await later.get_by_label("Owner key").fill("another key")
        await sender.press("End the link")
        assert await sender.problem() == "This owner key does not match the link, or the link does not exist."
        await later.get_by_label("Owner key").fill(link["ownerKey"])
        await sender.press("End the link")
        await expect(later.get_by_role("status")).to_have_text("The link has ended, and its file is deleted.")
        assert await sender.visit(link["shareUrl"]) == 404


async def test_a_file_that_is_too_large_or_empty_is_known_before_it_is_sent(browser: Browser, server: Keystead) -> None:
    async with somebody(browser, server) as sender:
        sent: list[str] = []
        sender.page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
        await sender.visit("/share")
        await sender.press("Upload and get the link")
        assert await sender.problem() == "Choose a file first."
        await expect(sender.page.locator("#file")).to_be_focused()
        await sender.choose("large.bin", b"x" * 3_200_000)
        assert await sender.problem() == "This file has 3.2 MB; the limit is 3 MB."
        await sender.press("Upload and get the link")
        await sender.choose("empty.txt", b"")
        assert await sender.problem() == "This file is empty. Choose another."
        await sender.press("Upload and get the link")
        assert sent == []
        await sender.choose("right.txt", b"x" * 3_000_000)
        await expect(sender.page.get_by_role("alert")).to_have_count(0)
        await sender.share()


async def test_the_bar_follows_the_upload_and_cancelling_ends_it(browser: Browser, server: Keystead) -> None:
    async with somebody(browser, server, timezone_id="UTC") as sender:
        await sender.visit("/share")
        await sender.choose("slow.bin", b"x" * 2_000_000)
        await sender.page.get_by_label("Message").fill("kept")
        await throttled(sender, 200_000)
        await sender.press("Upload and get the link")
        bar = sender.page.get_by_role("progressbar", name="Uploading slow.bin")
        await expect(sender.page.get_by_role("heading", level=2)).to_be_focused()
        parts: set[float] = set()
        while len(parts) < 3:
            parts.add(await bar.evaluate("bar => bar.value"))
        assert max(parts) < 1
        await throttled(sender, 1_000_000)
        while await bar.evaluate("bar => bar.value") < 0.4:
            pass
        assert " of 2 MB" in await sender.page.locator("#amount").inner_text()
        await expect(sender.page.get_by_role("status").filter(has_text="25 per cent uploaded")).to_have_count(1)
        await sender.press("Cancel")
        await expect(sender.page.get_by_role("button", name="Upload and get the link")).to_be_focused()
        await expect(sender.page.get_by_role("alert")).to_have_count(0)
        assert await sender.page.get_by_label("Message").input_value() == "kept"
        await throttled(sender, -1)
        await sender.share()


async def test_a_connection_that_breaks_is_said_and_nothing_that_was_filled_in_is_lost(
    browser: Browser, server: Keystead
) -> None:
    async with somebody(browser, server) as sender:
        await sender.visit("/share")
        await sender.choose()
        await sender.page.get_by_label("Password").fill("kept")
        await sender.page.route("**/api/receive/upload?**", lambda route: route.abort("connectionreset"))
        await sender.press("Upload and get the link")
        assert (await sender.problem()).startswith("The connection broke")
        await sender.page.unroute_all()
        assert await sender.page.get_by_label("Password").input_value() == "kept"
        sender.wrong.clear()  # that it broke is in the console
        await sender.share()
        assert "It requires the password." in await sender.sees()


async def test_what_a_server_or_a_proxy_refuses_is_shown_as_a_sentence(browser: Browser, server: Keystead) -> None:
    busy = {"ok": False, "error": "this file already has a link; end that link first", "code": "PATH_TAKEN"}
    slow = {"ok": False, "error": "too many requests", "code": "RATE_LIMITED", "retryAfter": 17}
    cases = [
        (409, json.dumps(busy), "This file already has a link; end that link first."),
        (429, json.dumps(slow), "Too many uploads from your network. Try again in 17 seconds."),
        (413, "<html>", "This file is too large; the limit is 3 MB."),
        (502, "Bad Gateway", "The server responded with 502. Nothing was shared; try again in a moment."),
    ]
    async with somebody(browser, server) as sender:
        await sender.visit("/share")
        await sender.choose()
        for status, body, sentence in cases:
            answer = partial(Route.fulfill, status=status, body=body)
            await sender.page.route("**/api/receive/upload?**", answer)
            await sender.press("Upload and get the link")
            assert await sender.problem() == sentence
            await sender.page.unroute_all()


async def test_only_whoever_has_the_issue_key_shares_and_the_page_keeps_it_nowhere(
    browser: Browser, closed_server: Keystead
) -> None:
    async with somebody(browser, closed_server) as sender:
        await sender.visit("/share")
        assert await sender.page.get_by_label("Expires after").locator("option").all_inner_texts() == [
            "1 hour",
            "12 hours",
        ]
        key = sender.page.get_by_label("Issue key")
        await sender.choose("large.bin", b"x" * 4_000_000)
        await sender.press("Upload and get the link")
        assert await sender.problem() == "Enter the issue key."
        await key.fill("not-the-issue-key-of-this-test")
        await sender.press("Upload and get the link")
        assert await sender.problem() == "Wrong issue key."
        await expect(key).to_be_focused()
        await key.fill(ISSUE_KEY)
        await sender.share()
        await sender.press("Share another")
        assert await key.input_value() == ISSUE_KEY
        assert await sender.page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
        await sender.page.reload()
        assert await key.input_value() == ""
        assert sender.refusals == [401]


async def test_hostile_names_and_messages_are_shown_as_text(browser: Browser, server: Keystead) -> None:
    async with somebody(browser, server) as sender, somebody(browser, server, PHONE) as receiver:
        await sender.visit("/share")
        await sender.choose(f"{HOSTILE}‮gpj.exe")
        assert await sender.page.locator("#file-name").inner_text() == f"{HOSTILE}‮gpj.exe"
        await sender.page.get_by_label("Message").fill(HOSTILE)
        link = await sender.share()
        # What a file system cannot keep, or what misleads the eye, is not in the name that others see.
        kept = "_script_document.title = 'gone'__script__img src=x onerror=alert(1)__gpj.exe"
        assert await sender.page.locator("#done-name").inner_text() == kept
        await receiver.visit(link)
        assert await receiver.heading() == kept
        assert HOSTILE in await receiver.sees()
        assert await receiver.page.title() == f"{kept} · Keystead"
        assert await receiver.page.locator("main img, main script").count() == 0
        assert (await receiver.download()).suggested_filename.endswith("__gpj.exe")


async def test_a_file_can_be_dropped_and_several_cannot(browser: Browser, server: Keystead) -> None:
    drop = """names => {
      const transfer = new DataTransfer();
      for (const name of names) transfer.items.add(new File(["dropped"], name));
      const target = document.querySelector("#drop label");
      for (const kind of ["dragenter", "dragover", "drop"]) {
        target.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
      }
    }"""
    async with somebody(browser, server) as sender:
        await sender.visit("/share")
        await sender.page.evaluate(drop, ["a.txt", "b.txt"])
        assert "as a ZIP file" in await sender.problem()
        await sender.page.evaluate(drop, ["a.txt"])
        await expect(sender.page.get_by_role("alert")).to_have_count(0)
        link = await sender.share()
        await sender.visit(link)
        assert await sender.downloaded() == b"dropped"


async def test_all_of_it_can_be_done_with_the_keyboard(browser: Browser, server: Keystead, tmp_path: Path) -> None:
    (tmp_path / "by-hand.txt").write_bytes(b"typed")
    async with somebody(browser, server, permissions=["clipboard-read", "clipboard-write"]) as person:
        keyboard, page = person.page.keyboard, person.page

        async def tab_to(name: str) -> None:
            """Tab on until what has the focus has this label."""
            label = """() => {
              const at = document.activeElement;
              return at.ariaLabel ?? at.labels?.[0]?.innerText ?? at.innerText ?? "";
            }"""
            for _ in range(20):
                await keyboard.press("Tab")
                if (await page.evaluate(label)).startswith(name):
                    return
            pytest.fail(f"no Tab leads to {name!r}")

        # Chromium is told early that choosers are of interest: told at the last moment, it may be too late.
        page.on("filechooser", lambda _: None)
        await person.visit("/share")
        await tab_to("Choose a file")
        async with page.expect_file_chooser() as chooser:
            await keyboard.press("Enter")
        await (await chooser.value).set_files(tmp_path / "by-hand.txt")
        await tab_to("Only one download")
        await keyboard.press("Space")
        await tab_to("Upload and get the link")
        await keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="The link is ready")).to_be_focused()
        await tab_to("Copy the link")
        await keyboard.press("Enter")
        await expect(page.get_by_role("status").filter(has_text="Link copied")).to_have_count(1)
        link = await page.evaluate("navigator.clipboard.readText()")
        assert link == await page.get_by_role("textbox", name="Link").input_value()

        await person.visit(link)
        await tab_to("Download")
        async with page.expect_download() as begun:
            await keyboard.press("Enter")
        assert (await (await begun.value).path()).read_bytes() == b"typed"
        await expect(page.get_by_role("status")).to_be_focused()


async def test_without_scripts_the_page_shows_a_command_that_shares(
    browser: Browser, closed_server: Keystead, server: Keystead, tmp_path: Path
) -> None:
    (tmp_path / "report.pdf").write_bytes(BYTES)
    async with somebody(browser, server, java_script_enabled=False) as sender:
        await sender.visit("/share")
        assert await sender.page.locator("form").first.is_hidden()
        command = await sender.page.locator("pre code").inner_text()
        done = await asyncio.to_thread(
            subprocess.run,
            ["/bin/sh", "-c", command.replace("curl", f"{program('curl')} -s --noproxy '*'", 1)],
            cwd=tmp_path,
            capture_output=True,
            timeout=300,
        )
        link = json.loads(done.stdout)["shareUrl"]
        await sender.visit(link)
        assert await sender.downloaded() == BYTES
    async with somebody(browser, closed_server, java_script_enabled=False) as sender:
        await sender.visit("/share")
        assert "Authorization: Bearer" in await sender.page.locator("pre code").inner_text()


# --- how they look -----------------------------------------------------------------------------------------------


@looks
@pytest.mark.parametrize(
    ("size", "scheme"),
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), ((320, 640), "dark")],
    ids=["desktop", "desktop in the dark", "phone", "small phone in the dark"],
)
async def test_every_page_fits_the_screen_and_can_be_read(
    browser: Browser, server: Keystead, size: tuple[int, int], scheme: str
) -> None:
    long_name = "a-name-that-is-much-longer-than-names-are-and-has-no-spaces-" * 2 + ".tar.gz"
    link = await issued(server, long_name, password="x", maxDownloads=2, message="W" * 500)
    async with somebody(browser, server, size, scheme) as person:
        page = person.page

        async def looks_right(where: str) -> None:
            assert await page.evaluate("document.documentElement.scrollWidth") <= size[0], where
            assert await page.evaluate(CONTRAST) == [], where

        await person.visit("/share")
        await page.get_by_text("End a link that you shared earlier").click()
        await person.press("End the link")
        await person.press("Upload and get the link")
        await looks_right("a form with what is wrong")
        await person.choose("x" * 200 + ".pdf")
        await looks_right("a file was chosen")
        await person.page.get_by_label("Only one download").check()
        await person.share()
        await person.press("End this link")
        await looks_right("the link")
        await person.press("Yes, end it")
        await expect(page.get_by_role("heading", name="The link has ended")).to_be_visible()
        await looks_right("the end")
        await person.visit(link["shareUrl"])
        await page.get_by_label("Password").fill("wrong")
        await person.press("Download")
        await person.problem()
        await looks_right("the page of a link")
        await page.get_by_label("Password").fill("x")
        await person.download()
        await looks_right("a download")
        await person.visit("/receive")
        await looks_right("a refusal")


async def test_no_page_can_be_framed_or_runs_what_is_not_of_this_site(browser: Browser, server: Keystead) -> None:
    link = await issued(server)
    async with somebody(browser, server) as person:
        for path in ("/share", f"/receive?t={link['shortToken']}", "/receive"):
            answer = await person.page.goto(f"{server.url}{path}")
            assert answer is not None
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "form-action 'self';" in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"


async def test_scripts_and_pages_say_sizes_and_times_in_the_same_words(browser: Browser, server: Keystead) -> None:
    sizes = [1, 2, 999, 1000, 1049, 1051, 99_949, 99_951, 999_499, 999_501, 3_000_000, 10**9, 7 * 10**12, 10**16]
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    lefts = [0, 1, minute - 1, minute, hour, hour + minute, day - 1, day, day + hour, 2 * day - 1, 14 * day]
    said = """async ([sizes, lefts, at]) => {
      const words = await import("/assets/sharing/sharing-words.js");
      return [sizes.map(words.sizeInWords), lefts.map(words.leftInWords), words.momentInWords(at)];
    }"""
    async with somebody(browser, server, timezone_id="UTC") as person:
        await person.visit("/share")
        by_script = await person.page.evaluate(said, [sizes, lefts, 1_767_225_540_000])
        moment = datetime.fromtimestamp(1_767_225_540, UTC)
        assert by_script == [
            [size_in_words(size) for size in sizes],
            [left_in_words(left) for left in lefts],
            moment_in_words(moment),
        ]
        assert moment_in_words(moment) == "Wednesday 31 December 2025 at 23:59 UTC"


async def test_the_start_page_leads_to_it(browser: Browser, server: Keystead) -> None:
    async with somebody(browser, server) as person:
        await person.visit("/")
        await person.page.get_by_role("link", name="Share a file").click()
        await expect(person.page.get_by_role("heading", level=1)).to_have_text("Share a file")


@pytest.mark.main_path
def test_the_servers_have_logged_no_error(server: Keystead, closed_server: Keystead) -> None:
    assert "Traceback" not in server.said + closed_server.said
