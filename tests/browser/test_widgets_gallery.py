"""The page where a newcomer creates a widget, previews it and copies it, in a real browser."""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.embedding import (
    CONTRAST,
    SMALL_PHONE,
    TOKEN,
    TOO_SMALL,
    OtherSite,
    asked,
    guest,
    held_back,
    other_site,
    widgets_serving,
)
from tests.browser.tabs import DESKTOP, PHONE, looks
from tests.serving import Keystead, program

KINDS = {
    "Counter": "counter",
    "Like button": "like button",
    "Ranking": "ranking",
    "Board": "board",
    "Welcome card": "welcome card",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with widgets_serving(tmp_path_factory.mktemp("gallery")) as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[OtherSite]:
    with other_site() as running:
        yield running


async def choose(page: Page, kind: str) -> None:
    await page.get_by_role("radio", name=kind).check()


async def make(page: Page, kind: str, address: str, token: str = TOKEN) -> str:
    """Fill in the form, press the button, and return the id of the new widget."""
    await choose(page, kind)
    await page.get_by_label("Page URL").fill(address)
    await page.locator("#token").fill(token)
    if kind == "Welcome card":
        await page.locator("#welcome").fill("Come in!")
    await page.get_by_role("button", name=f"Create the {KINDS[kind]}").click()
    await expect(page.locator("#which")).to_contain_text("Live: ")
    return (await page.locator("#which").inner_text()).removeprefix("Live: ")


async def snippet(page: Page, tab: str) -> str:
    await page.get_by_role("tab", name=tab).click()
    return await page.get_by_role("tabpanel").locator("code").inner_text()


async def run(command: str) -> str:
    """What a shell says to the command of a snippet."""
    told = command.replace("curl", f"{program('curl')} -s --noproxy '*'")
    done = await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", told], capture_output=True, timeout=300, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.main_path
async def test_a_newcomer_makes_a_counter_and_what_is_copied_works_elsewhere(
    browser: Browser, server: Keystead, site: OtherSite
) -> None:
    async with guest(browser, permissions=["clipboard-read", "clipboard-write"]) as newcomer:
        page = await newcomer.opens(f"{server.url}/")
        await page.get_by_role("link", name="Create a widget").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Create a widget")
        await expect(page.locator("#stage .digits")).to_have_text("12045")
        await expect(page.locator("#which")).to_have_text("a sample, until you create yours")

        # What is missing is said beside its field, and nothing is sent.
        await page.get_by_role("button", name="Create the counter").click()
        await expect(page.get_by_role("alert")).to_have_count(2)
        await expect(page.get_by_label("Page URL")).to_be_focused()
        await page.get_by_label("Page URL").fill("http://example.com/")
        await page.get_by_role("button", name="Generate").click()
        token = await page.locator("#token").input_value()
        assert re.fullmatch(r"[a-zA-Z2-9]{16}", token)
        await page.get_by_role("button", name="Create the counter").click()
        await expect(page.get_by_role("alert")).to_have_text(
            "The URL must start with https://, as in https://example.com/."
        )

        id = await make(page, "Counter", "https://newcomer.example/", token)
        assert re.fullmatch(r"newcomer-[0-9a-f]{8}", id)
        # The confirmation is on top, visible and focused, with the snippet, the id and the token.
        await expect(page.get_by_role("heading", name="Your counter is ready.")).to_be_focused()
        done = page.get_by_role("region", name="Your counter is ready.")
        await expect(done).to_be_in_viewport(ratio=0.9)
        await expect(done.locator("#done-id")).to_have_text(id)
        await expect(done.locator("#done-token")).to_have_text(token)
        await done.get_by_role("button", name="Copy").click()
        await expect(done.get_by_role("button", name="Copied")).to_be_visible()
        copied = await page.evaluate("navigator.clipboard.readText()")
        assert copied == await done.locator("code").first.inner_text()
        assert f'<keystead-counter id="{id}" theme="light"></keystead-counter>' in copied
        await expect(page.locator("#stage .digits")).to_have_text("0")
        assert page.url.endswith(f"/widgets#visit/{id}")

        await page.get_by_role("radio", name="Retro").check()
        await page.get_by_label("Digits").select_option("6 or more")
        await expect(page.locator("#stage .digits")).to_have_text("000000")
        html = await snippet(page, "HTML")
        assert f'<keystead-counter id="{id}" theme="retro" digits="6"></keystead-counter>' in html
        await page.get_by_role("region", name="Add it to your page").get_by_role("button", name="Copy").click()
        await expect(page.locator("#copied")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == html
        picture, markdown, shell = [await snippet(page, tab) for tab in ("Picture", "Markdown", "Shell")]

        there = await newcomer.another_tab(site.put("/copied", f"{html}{picture}"))
        await expect(there.locator("keystead-counter .digits")).to_have_text("000001")
        assert (await asked(server, "visit", action="get", id=id))["data"]["total"] == 1  # here it was only looked at
        image = there.locator("img")
        await expect(image).to_have_js_property("naturalWidth", 12 * 6 + 20)
        found = re.fullmatch(r"\[!\[Visits\]\((.*)\)\]\((.*)\)", markdown)
        assert found is not None
        assert found[2] == "https://newcomer.example/"
        badge = await page.request.get(found[1])
        assert "visitors: " in await badge.text()
        read, counted = shell.split("\n\n")
        assert json.loads(await run(read))["data"]["id"] == id
        assert json.loads(await run(counted))["data"]["total"] > 1

        # The token is the newcomer's alone: it is kept nowhere, and in no address.
        assert await page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
        assert token not in page.url + html + picture + markdown + shell


@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_is_made_shown_in_every_theme_and_opened_again_by_its_address(
    browser: Browser, server: Keystead, kind: str
) -> None:
    async with guest(browser) as owner:
        page = await owner.opens(f"{server.url}/widgets")
        await choose(page, kind)
        stage = page.locator("#stage > *")
        for theme in ("Light", "Dark", "Retro", "Kawaii", "Mom", "Final"):
            await page.get_by_role("radio", name=theme).check()
            await expect(stage).to_have_attribute("theme", theme.lower())
        id = await make(page, kind, f"https://{kind.split()[0].lower()}.example/")
        await expect(page.get_by_role("region", name=f"Your {KINDS[kind]} is ready.")).to_be_visible()
        await expect(stage).to_have_attribute("id", id)
        assert f'id="{id}"' in await snippet(page, "HTML")
        assert json.loads(await run((await snippet(page, "Shell")).split("\n\n")[0]))["data"]["id"] == id
        image = await snippet(page, "Picture")
        source = re.search(r'src="([^"]*)"', image)
        assert source is not None
        answer = await page.request.get(source[1].replace("&amp;", "&"))
        assert answer.headers["content-type"].startswith("image/svg+xml")
        assert "Error" not in await answer.text()

        await page.reload()
        await expect(page.get_by_role("radio", name=kind)).to_be_checked()
        await expect(page.locator("#which")).to_have_text(f"Live: {id}")
        await page.goto(f"{server.url}/widgets")
        await choose(page, kind)
        await page.get_by_text("Open an existing widget").click()
        await page.get_by_label("Widget id").fill("nobodys-00000000")
        await page.get_by_role("button", name="Open").click()
        await expect(page.get_by_role("alert")).to_contain_text(f"There is no {KINDS[kind]} with this id.")
        await page.get_by_label("Widget id").fill(f" {id} ")
        await page.get_by_role("button", name="Open").click()
        await expect(page.locator("#which")).to_have_text(f"Live: {id}")
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_an_owner_changes_clears_and_deletes_with_the_token_only(browser: Browser, server: Keystead) -> None:
    async with guest(browser) as owner:
        page = await owner.opens(f"{server.url}/widgets")
        corner = page.get_by_role("region", name="Owner settings")
        await expect(corner).to_be_hidden()
        await make(page, "Counter", "https://owned.example/")
        await corner.get_by_label("Total").fill("777")
        await corner.get_by_label("Owner token").fill("not-the-token")
        await corner.get_by_role("button", name="Set").click()
        await expect(corner.get_by_text("This is not the owner token.")).to_be_visible()
        await corner.get_by_label("Owner token").fill(TOKEN)
        await corner.get_by_role("button", name="Set").click()
        await expect(page.locator("#stage .digits")).to_have_text("777")

        # The page has a counter already: another token does not get it.
        await page.locator("#token").fill("somebody-elses")
        await page.get_by_role("button", name="Create the counter").click()
        await expect(page.get_by_role("alert")).to_contain_text("This page already has a counter")

        id = await make(page, "Ranking", "https://owned.example/")
        await corner.get_by_label("Name", exact=True).fill("<b>Ann</b>")
        await corner.get_by_label("Score").fill("12")
        await corner.get_by_role("button", name="Save").first.click()
        await expect(page.locator("#stage .name")).to_have_text("<b>Ann</b>")
        await corner.get_by_role("button", name="Clear all entries").click()
        await corner.get_by_role("button", name="No, keep it").click()
        await expect(corner.get_by_role("button", name="Clear all entries")).to_be_focused()
        await corner.get_by_role("button", name="Clear all entries").click()
        await corner.get_by_role("button", name="Yes, clear it").click()
        await expect(page.locator("#stage").get_by_text("No entries yet.")).to_be_visible()
        await corner.get_by_role("button", name="Delete it").click()
        await corner.get_by_role("button", name="Yes, delete it").click()
        await expect(page.locator("#which")).to_have_text(f"{id} is deleted. This is a sample.")
        await expect(corner).to_be_hidden()
        assert (await asked(server, "ranking", action="get", id=id))["code"] == "NOT_FOUND"

        board = await make(page, "Board", "https://owned.example/")
        await asked(server, "bbs", action="post", id=board, author="Mallory", message="take me down")
        await page.locator("#stage keystead-bbs").evaluate("element => element.refresh()")
        await corner.get_by_label("Remove a message").select_option("Mallory: take me down")
        await corner.get_by_role("button", name="Remove").click()
        await expect(page.locator("#stage").get_by_text("No messages yet.")).to_be_visible()


async def test_what_goes_wrong_is_said_and_nothing_that_was_filled_in_is_lost(
    browser: Browser, server: Keystead
) -> None:
    async with guest(browser) as owner:
        page = await owner.opens(f"{server.url}/widgets#visit/cut%E3%8")  # within a letter
        await expect(page.get_by_role("alert")).to_contain_text("Id must have ")
        await expect(page.locator("#stage .digits")).to_have_text("12045")
        await page.goto(f"{server.url}/widgets#visit/nobodys-00000000")
        await page.reload()
        await expect(page.get_by_role("alert")).to_contain_text("There is no counter with this id.")
        await page.goto(f"{server.url}/widgets")
        await page.get_by_label("Page URL").fill("https://lost.example/")
        await page.locator("#token").fill(TOKEN)
        await owner.context.set_offline(True)
        await page.get_by_role("button", name="Create the counter").click()
        await expect(page.get_by_role("alert")).to_contain_text("You are offline.")
        await owner.context.set_offline(False)
        assert await page.get_by_label("Page URL").input_value() == "https://lost.example/"
        async with held_back(page, "**/api/visit"):
            await page.get_by_role("button", name="Create the counter").dblclick()
        await expect(page.locator("#which")).to_contain_text("Live: ")
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_tabs_go_by_the_arrow_keys(browser: Browser, server: Keystead) -> None:
    async with guest(browser) as person:
        page = await person.opens(f"{server.url}/widgets")
        await page.get_by_role("tab", name="HTML").focus()
        for key, name in (("ArrowRight", "Picture"), ("End", "Shell"), ("ArrowRight", "HTML"), ("ArrowLeft", "Shell")):
            await page.keyboard.press(key)
            await expect(page.get_by_role("tab", name=name)).to_be_focused()
            await expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
            await expect(page.get_by_role("tabpanel")).to_have_count(1)


@looks
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_every_screen_and_can_be_read(browser: Browser, server: Keystead, scheme: str) -> None:
    address = f"https://{'a-long-name-' * 4}{scheme}.example/{'and-a-long-path/' * 6}"
    id = (await asked(server, "bbs", action="create", url=address, token=TOKEN))["data"]["id"]
    for size in (DESKTOP, PHONE, SMALL_PHONE):
        is_phone = size == PHONE
        async with guest(
            browser, size, "dark" if scheme == "dark" else "light", has_touch=is_phone, is_mobile=is_phone
        ) as person:
            page = await person.opens(f"{server.url}/widgets")
            for kind in KINDS:
                await choose(page, kind)
                await page.get_by_role("button", name=f"Create the {KINDS[kind]}").click()
                assert await page.evaluate("document.documentElement.scrollWidth") <= size[0], kind
                assert await page.evaluate(CONTRAST) == [], kind
            await page.goto(f"{server.url}/widgets#bbs/{id}")
            await page.reload()
            await expect(page.locator("#which")).to_contain_text(id)
            await page.get_by_role("button", name="Delete it").click()
            assert await page.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert await page.evaluate(CONTRAST) == []
            if is_phone:
                assert [one for one in await page.evaluate(TOO_SMALL) if not one.startswith("a ")] == []


async def test_without_scripts_the_page_shows_commands_that_work(
    browser: Browser, server: Keystead, site: OtherSite
) -> None:
    async with guest(browser, java_script_enabled=False) as person:
        page = await person.opens(f"{server.url}/widgets")
        await expect(page.locator("#workshop")).to_be_hidden()
        made = json.loads(await run(await page.get_by_label("Shell example").locator("code").inner_text()))
        assert made["success"], made
        picture = await page.get_by_label("HTML example").locator("code").inner_text()
        shown = await person.opens(site.put("/plain", picture.replace("example-a1b2c3d4", made["data"]["id"])))
        await expect(shown.locator("img")).to_have_js_property("naturalWidth", 32)


async def test_the_page_runs_only_what_is_of_this_site(browser: Browser, server: Keystead) -> None:
    async with guest(browser) as person:
        outside: list[str] = []
        person.tab.on(
            "request", lambda request: None if request.url.startswith(server.url) else outside.append(request.url)
        )
        answer = await person.page.goto(f"{server.url}/widgets")
        assert answer is not None
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        await expect(person.page.locator("#stage .digits")).to_have_text("12045")
        assert outside == []


def test_the_server_has_logged_no_error(server: Keystead) -> None:
    assert "Traceback" not in server.said


@looks
@pytest.mark.parametrize(
    ("language", "title", "button", "done"),
    [
        ("en", "Create a widget", "Create the counter", "Your counter is ready."),
        ("ja", "ウィジェットを作る", "カウンターを作る", "カウンターができました。"),
        ("ko", "위젯 만들기", "카운터 만들기", "카운터를 만들었습니다."),
    ],
)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_in_each_language_that_it_is_made_is_in_sight_with_what_to_copy(
    browser: Browser, server: Keystead, size: tuple[int, int], language: str, title: str, button: str, done: str
) -> None:
    async with guest(browser, size, locale=language) as owner:
        page = await owner.opens(f"{server.url}/widgets")
        await expect(page.locator("html")).to_have_attribute("lang", language)
        await expect(page.get_by_role("heading", level=1)).to_have_text(title)
        await expect(page.locator("#done")).to_be_hidden()
        await page.locator("#url").fill(f"https://{language}-{size[0]}.example/")
        await page.locator("#token").fill(TOKEN)
        await page.get_by_role("button", name=button).click()
        await expect(page.get_by_role("heading", name=done)).to_be_focused()
        await expect(page.get_by_role("heading", name=done)).to_be_in_viewport()
        await expect(page.locator("#done-snippet button")).to_be_in_viewport()
        await expect(page.locator("#done-snippet code")).to_contain_text("<keystead-counter id=")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.locator("#done-more").click()
        await expect(page.locator("#done")).to_be_hidden()
        await expect(page.locator("#url")).to_be_focused()
