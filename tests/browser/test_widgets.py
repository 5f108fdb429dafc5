"""The components on pages of another site, in a real browser: what visitors see, press, write and hear."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.embedding import (
    CONTRAST,
    HOSTILE,
    SMALL_PHONE,
    TOKEN,
    TOO_SMALL,
    OtherSite,
    asked,
    created,
    guest,
    held_back,
    other_site,
    widgets_serving,
)
from tests.browser.tabs import DESKTOP, PHONE, looks
from tests.serving import Keystead

THEMES = ("light", "dark", "retro", "kawaii", "mom", "final")
FOCUSED = """() => {
  let at = document.activeElement;
  while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
  const outline = parseFloat(getComputedStyle(at.closest("label") ?? at).outlineWidth);
  return { name: at.ariaLabel ?? at.labels?.[0]?.innerText ?? at.innerText ?? "", outline };
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    with widgets_serving(tmp_path_factory.mktemp("widgets")) as running:
        yield running


@pytest.fixture(scope="module")
def site() -> Iterator[OtherSite]:
    with other_site() as running:
        yield running


@pytest.fixture(scope="module")
def script(server: Keystead) -> str:
    module = f"{server.url}/components/widgets.js"
    return f'<meta name=viewport content="width=device-width"><script type=module src="{module}"></script>'


def digits(counter: Locator) -> Locator:
    return counter.locator(".digits")


async def filled_board(server: Keystead, page: str, count: int = 1, **wanted: Any) -> str:
    """A board with messages of several people."""
    id = await created(server, "bbs", page, **wanted)
    for number in range(count):
        posted = await asked(
            server,
            "bbs",
            agent=f"guest {number}",
            action="post",
            id=id,
            author=f"Guest {number}",
            message=f"No. {number}",
        )
        assert posted["success"], posted
    return id


async def write_message(board: Locator, message: str) -> None:
    await board.get_by_label("Message").fill(message)
    await board.get_by_role("button", name="Post").click()


# --- welcome cards -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lang", "said"), [("en", "Welcome"), ("ja", "ようこそ"), ("ko", "환영합니다")])
async def test_a_welcome_is_a_badge_or_a_card_and_an_avatar_that_is_not_there_is_a_cat(
    browser: Browser, server: Keystead, site: OtherSite, script: str, lang: str, said: str
) -> None:
    avatar = f"{server.url}/no-such-picture.png"
    id = await created(server, "yokoso", f"welcome-{lang}", message="One\ntwo", mode="card", avatar=avatar)
    address = site.put(f"/welcome/{lang}", f"<keystead-yokoso id={id} lang={lang}></keystead-yokoso>", head=script)
    async with guest(browser) as visitor:
        page = await visitor.opens(address)
        card = page.locator("keystead-yokoso")
        await expect(card.locator(".card .name")).to_have_text(said)
        await expect(card.locator(".message")).to_have_text("One\ntwo")
        await expect(card.locator("svg.face")).to_be_visible()
        await asked(server, "yokoso", action="update", id=id, token=TOKEN, message="<b>Hi</b>", mode="badge")
        await card.evaluate("element => element.refresh()")
        await expect(card.locator(".badge .message")).to_have_text("<b>Hi</b>")
        visitor.wrong.clear()  # that the picture was not there


# --- on a page of another site -----------------------------------------------------------------------------------


async def test_a_page_with_a_strict_policy_shows_all_of_them_under_both_names(
    browser: Browser, server: Keystead, site: OtherSite
) -> None:
    ids = {service: await created(server, service, "strict") for service in ("visit", "like", "ranking", "bbs")}
    ids["yokoso"] = await created(server, "yokoso", "strict", message="Come <in>!", mode="card", name="Lucky")
    elements = {"visit": "counter", "like": "like", "ranking": "ranking", "bbs": "bbs", "yokoso": "yokoso"}
    policy = f"default-src 'none'; script-src {server.url}; connect-src {server.url}"
    both = [
        "".join(
            f"<{name}-{elements[service]} id={id} theme=dark></{name}-{elements[service]}>"
            for service, id in ids.items()
        )
        for name in ("keystead", "nostalgic")
    ]
    module = f'<script type=module src="{server.url}/components/widgets.js"></script>'
    plain = "".join(f'<script src="{server.url}/components/{service}.js"></script>' for service in ids)
    async with guest(browser) as visitor:
        for name, head, body in (("keystead", module, both[0]), ("nostalgic", plain, both[1])):
            page = await visitor.opens(site.put(f"/strict/{name}", body, policy=policy, head=head))
            await expect(digits(page.locator(f"{name}-counter"))).to_have_text("1")
            await expect(page.locator(f"{name}-like").get_by_role("button", name="Like, 0 likes")).to_be_visible()
            await expect(page.locator(f"{name}-ranking").get_by_text("No entries yet.")).to_be_visible()
            await expect(page.locator(f"{name}-bbs").get_by_role("heading", name="BBS")).to_be_visible()
            await expect(page.locator(f"{name}-yokoso .name")).to_have_text("Lucky")
            await expect(page.locator(f"{name}-yokoso .message")).to_have_text("Come <in>!")
            dark = "element => getComputedStyle(element).backgroundColor"
            assert await page.locator(f"{name}-like").get_by_role("button").evaluate(dark) == "rgb(26, 26, 26)"


async def test_a_counter_counts_a_page_once_and_shows_what_its_attributes_say(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "visit", "counted")
    await asked(server, "visit", action="set", id=id, token=TOKEN, total=41)
    address = site.put(
        "/counted",
        f"<keystead-counter id={id}></keystead-counter>"
        f"<keystead-counter id={id} type=today digits=6></keystead-counter>"
        f"<p>Visits: <keystead-counter id={id} format=text></keystead-counter>.</p>"
        f"<keystead-counter id={id} format=json></keystead-counter>",
        head=script,
    )
    sent: list[str] = []
    async with guest(browser) as visitor:
        visitor.tab.on("request", lambda request: sent.append(request.method) if "/api/" in request.url else None)
        page = await visitor.opens(address)
        first, second, third, fourth = await page.locator("keystead-counter").all()
        await expect(digits(first)).to_have_text("42")
        await expect(digits(second)).to_have_text("000001")
        await expect(third.locator(".plain")).to_have_text("42")
        assert json.loads(await fourth.locator(".plain").inner_text())["total"] == 42
        assert [method for method in sent if method != "OPTIONS"] == ["POST"]
        assert await first.locator(".unseen").first.inner_text() == "Visits: 42"
        box = await first.locator(".counter").bounding_box()
        assert box is not None
        assert (box["width"], box["height"]) == (44, 30)
        await second.evaluate(
            "element => { element.setAttribute('type', 'month'); element.setAttribute('digits', '3'); }"
        )
        await expect(digits(second)).to_have_text("001")
        await third.evaluate("element => element.setAttribute('digits', '4')")
        await expect(third.locator(".plain")).to_have_text("0042")
        await page.reload()
        await expect(digits(first)).to_have_text("42")
    async with guest(browser, user_agent="somebody else") as another:
        page = await another.opens(address)
        await expect(digits(page.locator("keystead-counter").first)).to_have_text("43")


async def test_a_press_is_shown_at_once_and_corrected_by_the_answer(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "like", "liked")
    address = site.put("/liked", f"<keystead-like id={id}></keystead-like>", head=script)
    async with guest(browser) as visitor:
        page = await visitor.opens(address)
        button = page.get_by_role("button")
        await expect(button).to_have_accessible_name("Like, 0 likes")
        async with held_back(page, "**/api/like") as let_go:
            await button.click()
            await expect(button).to_have_attribute("aria-pressed", "true")
            await expect(button).to_have_accessible_name("Like, 1 like")
            assert (await asked(server, "like", action="get", id=id))["data"]["total"] == 0
            # Somebody else likes it meanwhile: the answer says so.
            await asked(server, "like", action="toggle", id=id)
            let_go.set()
            await expect(button).to_have_accessible_name("Like, 2 likes")
        await expect(button).to_be_focused()
        await expect(page.get_by_role("status")).to_have_text("You like this.")

        # Pressed twice while the first is on its way: it ends where the last press left it.
        async with held_back(page, "**/api/like"):
            await button.dblclick()
            await expect(button).to_have_attribute("aria-pressed", "true")
        await expect(button).to_have_attribute("aria-busy", "false")
        await expect(button).to_have_accessible_name("Like, 2 likes")

        busy = {"success": False, "error": "the store does not answer; try again", "code": "TRY_AGAIN"}
        await page.route("**/api/like", lambda route: route.fulfill(status=503, json=busy, headers=CORS))
        await button.click()
        await expect(page.get_by_role("alert")).to_have_text("The store does not answer; try again.")
        await expect(button).to_have_attribute("aria-pressed", "true")
        await expect(button).to_have_accessible_name("Like, 2 likes")
        await page.unroute_all()
        await button.click()
        await expect(page.get_by_role("status")).to_have_text("You no longer like this.")
        await expect(button).to_have_accessible_name("Like, 1 like")
        await expect(page.get_by_role("alert")).to_have_count(0)
        assert (await asked(server, "like", action="get", id=id))["data"]["total"] == 1


CORS = {"access-control-allow-origin": "*", "access-control-allow-headers": "content-type"}


async def test_another_tab_shows_what_was_done_in_this_one(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    like = await created(server, "like", "tabs")
    board = await created(server, "bbs", "tabs")
    body = f"<keystead-like id={like}></keystead-like><keystead-bbs id={board}></keystead-bbs>"
    address = site.put("/tabs", body, head=script)
    async with guest(browser) as visitor:
        page = await visitor.opens(address)
        other = await visitor.another_tab(address)
        for tab in (page, other):
            await expect(tab.get_by_role("button", name="Like, 0 likes")).to_be_visible()
            await expect(tab.get_by_text("No messages yet.")).to_be_visible()
        await page.get_by_role("button", name="Like").click()
        await expect(other.get_by_role("button", name="Like, 1 like")).to_have_attribute("aria-pressed", "true")
        await other.get_by_label("Message").fill("half written")
        await write_message(page.locator("keystead-bbs"), "From the first tab")
        await expect(other.get_by_role("listitem")).to_contain_text("From the first tab")
        assert await other.get_by_label("Message").input_value() == "half written"
        # The message is of the same browser, so that tab can change it too.
        await other.get_by_role("button", name="Delete").click()
        await other.get_by_role("listitem").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No messages yet.")).to_be_visible()


# --- the board -----------------------------------------------------------------------------------------------------


async def test_whoever_wrote_a_message_edits_and_deletes_it_and_nobody_else_can(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "bbs", "written", title="Guestbook", enableSelects=True)
    address = site.put("/written", f"<keystead-bbs id={id}></keystead-bbs>", head=script)
    async with guest(browser) as author, guest(browser, user_agent="somebody else") as reader:
        page = await author.opens(address)
        board = page.locator("keystead-bbs")
        await expect(board.get_by_role("heading", name="Guestbook")).to_be_visible()
        await board.get_by_label("Name").fill("Zoë")
        await board.get_by_role("radio", name="😎").check()
        await board.get_by_label("region").select_option("Europe")
        message = board.get_by_label("Message")
        await message.fill("👍" * 3 + " hello")
        await expect(board.get_by_text("191 left")).to_be_visible()
        await board.get_by_role("button", name="Post").click()
        item = board.get_by_role("listitem")
        await expect(item).to_contain_text("👍👍👍 hello")
        await expect(item).to_contain_text("Zoë")
        await expect(item).to_contain_text("😎")
        await expect(item).to_contain_text("Europe")
        await expect(board.get_by_role("status")).to_have_text("Your message is posted.")
        await expect(board.get_by_role("button", name="Post")).to_be_focused()
        assert await message.input_value() == ""
        kept = json.loads(await page.evaluate(f"localStorage.getItem('bbs_edit_{id}')"))
        assert len(kept) == 1

        theirs = await reader.opens(address)
        await expect(theirs.get_by_role("listitem")).to_contain_text("hello")
        await expect(theirs.get_by_role("button", name="Edit")).to_have_count(0)

        await page.reload()
        await item.get_by_role("button", name="Edit").click()
        editing = item.get_by_label("Message")
        await expect(editing).to_be_focused()
        await editing.fill("")
        await item.get_by_role("button", name="Save").click()
        await expect(item.get_by_role("alert")).to_have_text("Write a message first.")
        await editing.fill("changed")
        await item.get_by_role("button", name="Save").click()
        await expect(item.get_by_role("button", name="Edit")).to_be_focused()
        await expect(item).to_contain_text("edited")
        await theirs.reload()
        await expect(theirs.get_by_role("listitem")).to_contain_text("changed")

        await item.get_by_role("button", name="Delete").click()
        await expect(item.get_by_role("button", name="Keep it")).to_be_focused()
        await item.get_by_role("button", name="Keep it").click()
        await expect(item.get_by_role("button", name="Delete")).to_be_focused()
        await item.get_by_role("button", name="Delete").click()
        await item.get_by_role("button", name="Delete").click()
        await expect(board.get_by_text("No messages yet.")).to_be_visible()
        await expect(board.get_by_role("list")).to_be_focused()
        await expect(board.get_by_role("status")).to_have_text("Your message is deleted.")
        assert await page.evaluate("localStorage.length") == 0


async def test_a_browser_that_keeps_nothing_can_still_change_what_was_just_written(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "bbs", "blocked")
    address = site.put("/blocked", f"<keystead-bbs id={id}></keystead-bbs>", head=script)
    async with guest(browser, alone=True) as author:
        await author.context.add_init_script(
            "const blocked = { get() { throw new DOMException('no', 'SecurityError'); } };"
            "Object.defineProperty(window, 'localStorage', blocked);"
        )
        board = (await author.opens(address)).locator("keystead-bbs")
        await write_message(board, "first")
        await board.get_by_role("button", name="Edit").click()
        await board.get_by_role("listitem").get_by_label("Message").fill("second")
        await board.get_by_role("button", name="Save").click()
        await expect(board.get_by_role("listitem")).to_contain_text("second")


async def test_a_cooldown_is_said_counts_down_and_loses_nothing(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "bbs", "cooling")
    address = site.put("/cooling", f"<keystead-bbs id={id}></keystead-bbs>", head=script)
    async with guest(browser, alone=True) as author:
        await author.page.clock.install()
        page = await author.opens(address)
        board, said = page.locator("keystead-bbs"), page.locator("keystead-bbs .send .said")
        await write_message(board, "one")
        await expect(board.get_by_role("listitem")).to_have_count(1)
        await write_message(board, "two")
        await expect(said).to_contain_text("more seconds")
        left = int((await said.inner_text()).split()[1])
        assert 1 <= left <= 10
        send = board.get_by_role("button", name="Post")
        await expect(send).to_have_attribute("aria-disabled", "true")
        heard = await board.get_by_role("status").inner_text()
        await page.clock.run_for(1000)
        await expect(said).to_contain_text(f"Wait {left - 1} more second")
        assert await board.get_by_role("status").inner_text() == heard, "to the ear it is said once"
        await page.clock.run_for(10_000)
        await expect(said).to_have_text("You can continue now.")
        await expect(send).not_to_have_attribute("aria-disabled", "true")
        assert await board.get_by_label("Message").input_value() == "two"


async def test_what_cannot_be_posted_is_said_beside_the_form(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "bbs", "refused")
    address = site.put("/refused", f"<keystead-bbs id={id}></keystead-bbs>", head=script)
    async with guest(browser) as author:
        page = await author.opens(address)
        board, said = page.locator("keystead-bbs"), page.locator("keystead-bbs .send .said")
        message = board.get_by_label("Message")
        await board.get_by_role("button", name="Post").click()
        await expect(said).to_have_text("Write a message first.")
        await expect(message).to_be_focused()
        await message.fill("ab" * 100 + "c")
        await expect(board.get_by_text("1 too many")).to_be_visible()
        await board.get_by_role("button", name="Post").click()
        await expect(said).to_have_text("This is too long. Shorten it.")
        await write_message(board, "see https://spam.example")
        await expect(said).to_have_text("Links are not allowed here.")
        assert await message.input_value() == "see https://spam.example"
        await expect(board.get_by_text("No messages yet.")).to_be_visible()


async def test_pages_are_turned_and_the_page_that_an_attribute_names_is_shown(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await filled_board(server, "paged", 5, messagesPerPage=2, enableIcons=False)
    address = site.put("/paged", f"<keystead-bbs id={id} page=2></keystead-bbs>", head=script)
    async with guest(browser) as reader:
        board = (await reader.opens(address)).locator("keystead-bbs")
        items = board.locator(".text")
        await expect(items).to_have_text(["No. 2", "No. 1"])
        await expect(board.get_by_text("Icon")).to_be_hidden()
        await board.get_by_role("button", name="Older").click()
        await expect(items).to_have_text(["No. 0"])
        await expect(board.get_by_role("button", name="Older")).to_be_focused()
        await expect(board.get_by_role("button", name="Older")).to_have_attribute("aria-disabled", "true")
        await expect(board.get_by_role("status")).to_have_text("Page 3 of 3")
        await board.evaluate("element => element.setAttribute('page', '9')")
        await expect(items).to_have_text(["No. 0"])
        await board.evaluate("element => element.setAttribute('page', '1')")
        await expect(items).to_have_text(["No. 4", "No. 3"])


# --- the ranking ---------------------------------------------------------------------------------------------------


async def test_a_game_sends_scores_and_the_ranking_shows_them(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "ranking", "game", title="High scores", max=50)
    for number, name in enumerate(("Ada", "Grace", "Linus")):
        await asked(server, "ranking", agent=name, action="submit", id=id, name=name, score=1000 * (number + 1))
    address = site.put("/game", f"<keystead-ranking id={id} limit=3></keystead-ranking>", head=script)
    async with guest(browser) as player:
        page = await player.opens(address)
        ranking = page.locator("keystead-ranking")
        table = ranking.get_by_role("table", name="High scores")
        rows = table.locator("tbody tr")
        await expect(rows).to_have_text(["1Linus3,000", "2Grace2,000", "3Ada1,000"])
        answer = await ranking.evaluate("element => element.submit('Zoë', 2500, '2,500 ★')")
        assert (answer["rank"], answer["improved"]) == (2, True)
        await expect(rows).to_have_text(["1Linus3,000", "2Zoë2,500 ★", "3Grace2,000"])
        await expect(ranking.get_by_text("3 of 4 entries")).to_be_visible()
        await expect(ranking.get_by_role("status")).to_have_text("Your score is submitted.")
        failure = await ranking.evaluate(
            "element => element.submit('Zoë', 9000).catch(({ kind, waitS }) => [kind, waitS])"
        )
        assert failure[0] == "cooldown"
        assert 1 <= failure[1] <= 60
        await expect(ranking.locator(".said")).to_contain_text("more seconds")
        await ranking.evaluate("element => element.setAttribute('limit', '1')")
        await expect(rows).to_have_text(["1Linus3,000"])
        await ranking.evaluate("element => element.setAttribute('format', 'text')")
        await expect(ranking.locator(".plain")).to_have_text("1. Linus 3,000")


# --- trouble -------------------------------------------------------------------------------------------------------


async def test_hostile_names_and_messages_are_shown_as_text(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    short = HOSTILE[:46]
    ranking = await created(server, "ranking", "hostile", title=short, description=HOSTILE)
    board = await created(server, "bbs", "hostile", title=HOSTILE)
    submitted = await asked(server, "ranking", action="submit", id=ranking, name=short, score=1, displayScore=HOSTILE)
    posted = await asked(server, "bbs", action="post", id=board, author="<b>bold</b>", message=HOSTILE)
    assert submitted["success"], submitted
    assert posted["success"], posted
    widgets = f"<keystead-ranking id={ranking}></keystead-ranking><keystead-bbs id={board}></keystead-bbs>"
    plain = widgets.replace("></", " format=text></")
    address = site.put("/hostile", widgets + plain, head=script)
    async with guest(browser, PHONE) as visitor:
        page = await visitor.opens(address)
        await expect(page.locator("keystead-ranking .name").first).to_have_text(short)
        await expect(page.locator("keystead-ranking .score").first).to_have_text(HOSTILE)
        await expect(page.locator("keystead-ranking h2")).to_have_text(short)
        await expect(page.locator("keystead-bbs .author").first).to_have_text("<b>bold</b>")
        await expect(page.locator("keystead-bbs .text").first).to_have_text(HOSTILE)
        await expect(page.locator("keystead-bbs .plain")).to_contain_text(HOSTILE)
        inside = "elements => elements.map((e) => e.shadowRoot.querySelectorAll('img, script, b').length)"
        assert await page.locator("keystead-ranking, keystead-bbs").evaluate_all(inside) == [0, 0, 0, 0]
        assert await page.title() == "A page"
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


async def test_one_that_does_not_exist_says_so_in_three_languages_and_can_be_tried_again(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    names = ("counter", "like", "ranking", "bbs")
    body = "".join(
        f"<keystead-{name} id=later-00000000 lang={lang}></keystead-{name}>"
        for name, lang in zip(names, ("en", "ja", "ko", "xx"), strict=True)
    )
    address = site.put("/missing", f"{body}<keystead-like></keystead-like>", head=script)
    async with guest(browser) as visitor:
        page = await visitor.opens(address)
        alerts = page.get_by_role("alert")
        await expect(alerts.locator("span")).to_have_text(
            [
                "There is no such counter.",
                "このいいねボタンは存在しません。",
                "존재하지 않는 랭킹입니다.",
                "There is no such board.",
                "The attribute id is missing.",
            ]
        )
        retry = page.locator("keystead-like").first.get_by_role("button", name="再試行")
        async with held_back(page, "**/api/like*"):
            await retry.click()
            await expect(retry).to_be_hidden()
        await expect(retry).to_be_focused()

        found = await created(server, "bbs", "later")
        await page.locator("keystead-bbs").evaluate("(element, id) => element.id = id", found)
        await expect(page.locator("keystead-bbs").get_by_role("heading", name="BBS")).to_be_visible()

        found = await created(server, "ranking", "later")
        await page.locator("keystead-ranking").evaluate("(element, id) => element.id = id", found)
        await expect(page.locator("keystead-ranking").get_by_text("아직 기록이 없습니다.")).to_be_visible()
        await asked(server, "ranking", action="delete", id=found, token=TOKEN)
        await page.locator("keystead-ranking").evaluate("element => element.refresh()")
        await expect(page.locator("keystead-ranking").get_by_role("alert")).to_contain_text("존재하지 않는 랭킹입니다.")
        await created(server, "ranking", "later")
        await page.locator("keystead-ranking").get_by_role("button", name="다시 시도").click()
        await expect(page.locator("keystead-ranking").get_by_text("아직 기록이 없습니다.")).to_be_visible()


async def test_one_whose_api_base_is_no_address_says_so_and_leaves_the_others_alone(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "like", "no-base")
    broken = "".join(
        f"<keystead-{name} id={id} api-base='https://['></keystead-{name}>" for name in ("like", "ranking")
    )
    whole = f"<keystead-like id={id}></keystead-like>" * 2
    address = site.put("/no-base", broken + whole, head=script)
    async with guest(browser) as visitor:
        page = await visitor.opens(address)
        first, second, third = await page.locator("keystead-like").all()
        ranking = page.locator("keystead-ranking")
        for element in (first, ranking):
            await expect(element.get_by_role("alert").locator("span")).to_have_text(
                "The attribute api-base is not a valid URL."
            )
            await expect(element.get_by_role("button")).to_have_count(0)
        refused = "element => element.submit('Ann', 1).catch(({ kind }) => kind)"
        assert await ranking.evaluate(refused) == "noBase"

        # The one that is broken hears of it first, and those behind it still do.
        await second.get_by_role("button").click()
        await expect(third.get_by_role("button")).to_have_accessible_name("Like, 1 like")

        await first.evaluate("(element, base) => element.setAttribute('api-base', base)", server.url)
        await expect(first.get_by_role("button")).to_have_accessible_name("Like, 1 like")


async def test_without_a_connection_it_says_so_and_goes_on_when_there_is_one(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    like = await created(server, "like", "offline")
    address = site.put("/offline", f"<keystead-like id={like}></keystead-like><main></main>", head=script)
    async with guest(browser) as visitor:
        page = await visitor.opens(address)
        button = page.locator("keystead-like").get_by_role("button")
        await expect(button).to_have_accessible_name("Like, 0 likes")
        await visitor.context.set_offline(True)
        await page.locator("main").evaluate(
            "(main, id) => main.append(Object.assign(document.createElement('keystead-counter'), { id }))", like
        )
        counter = page.locator("keystead-counter")
        await expect(counter.get_by_role("alert")).to_contain_text("You are offline.")
        await button.click()
        await expect(page.locator("keystead-like").get_by_role("alert")).to_contain_text("You are offline.")
        await expect(button).to_have_attribute("aria-pressed", "false")
        await created(server, "visit", "offline")
        await visitor.context.set_offline(False)
        await expect(digits(counter)).to_have_text("1")
        await expect(page.get_by_role("alert")).to_have_count(0)

        # A proxy that answers in the place of the server is no answer.
        await page.route("**/api/visit*", lambda route: route.fulfill(status=502, body="<html>", headers=CORS))
        await counter.evaluate("element => element.setAttribute('api-base', element.base + '/')")
        await page.locator("main").evaluate("main => main.replaceChildren(...main.childNodes)")
        await counter.evaluate("element => element.id = 'another-00000000'")
        await expect(counter.get_by_role("alert")).to_contain_text("The server cannot be reached.")


async def test_what_was_deleted_meanwhile_is_gone_when_the_tab_is_looked_at_again(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "like", "gone")
    address = site.put("/gone", f"<keystead-like id={id}></keystead-like>", head=script)
    async with guest(browser, alone=True) as visitor:
        await visitor.page.clock.install()
        page = await visitor.opens(address)
        await expect(page.get_by_role("button", name="Like, 0 likes")).to_be_visible()
        await asked(server, "like", action="delete", id=id, token=TOKEN)
        await page.clock.run_for(11_000)
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.get_by_role("alert")).to_contain_text("There is no such like button.")


# --- by hand, and to the eye ---------------------------------------------------------------------------------------


async def test_all_of_it_can_be_done_with_the_keyboard(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    like, board = await created(server, "like", "keys"), await created(server, "bbs", "keys")
    body = f"<keystead-like id={like}></keystead-like><keystead-bbs id={board}></keystead-bbs>"
    async with guest(browser) as person:
        page = await person.opens(site.put("/keys", body, head=script))
        await expect(page.get_by_text("No messages yet.")).to_be_visible()
        keyboard = page.keyboard

        async def tab_to(name: str) -> None:
            """Tab on until what has the focus has this name; each stop on the way can be seen."""
            for _ in range(20):
                await keyboard.press("Tab")
                at = await page.evaluate(FOCUSED)
                assert at["outline"] >= 2, at
                if at["name"].startswith(name):
                    return
            pytest.fail(f"no Tab leads to {name!r}")

        await tab_to("Like, 0 likes")
        await keyboard.press("Space")
        await expect(page.get_by_role("button", name="Like, 1 like")).to_have_attribute("aria-pressed", "true")
        await tab_to("Name")
        await keyboard.type("Ann")
        await tab_to("No icon")
        await keyboard.press("ArrowRight")
        await tab_to("Message")
        await keyboard.type("typed")
        await tab_to("Post")
        await keyboard.press("Enter")
        await expect(page.get_by_role("listitem")).to_contain_text("typed")
        await expect(page.get_by_role("listitem")).to_contain_text("😀")
        await tab_to("Edit")
        await keyboard.press("Enter")
        await keyboard.press("Control+A")
        await keyboard.type("typed again")
        await tab_to("Save")
        await keyboard.press("Enter")
        await expect(page.get_by_role("listitem")).to_contain_text("typed again")
        await keyboard.press("Enter")
        await keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Edit")).to_be_focused()
        await tab_to("Delete")
        await keyboard.press("Enter")
        await keyboard.press("Shift+Tab")
        await keyboard.press("Enter")
        await expect(page.get_by_text("No messages yet.")).to_be_visible()


async def every_theme(server: Keystead, site: OtherSite, script: str, page: str) -> str:
    """The address of a page with all widgets in all themes, filled, empty and missing."""
    like = await created(server, "like", page)
    visit = await created(server, "visit", page)
    ranking = await created(server, "ranking", page, title="A title that is as long as a title can be, and so", max=9)
    board = await filled_board(server, page, 1, title="W" * 90, enableSelects=True)
    for name in ("W" * 50, "Grace Hopper of the United States Navy", "n"):
        await asked(server, "ranking", agent=name, action="submit", id=ranking, name=name, score=999_999_999)
    await asked(server, "bbs", agent="x", action="post", id=board, author="W w" * 6, message="Wm" * 100)
    parts = [
        f"<keystead-counter id={visit} theme={theme} digits=9></keystead-counter> "
        f"<keystead-like id={like} theme={theme}></keystead-like> "
        f"<keystead-counter id=none-00000000 theme={theme}></keystead-counter>"
        f"<keystead-ranking id={ranking} theme={theme}></keystead-ranking>"
        f"<keystead-ranking id=none-00000000 theme={theme}></keystead-ranking>"
        f"<keystead-bbs id={board} theme={theme}></keystead-bbs>"
        for theme in THEMES
    ]
    return site.put(f"/{page}", "<hr>".join(parts), head=script)


async def settled(page: Page) -> None:
    """Wait until every widget shows something."""
    ready = """() => [...document.querySelectorAll('[id]')].filter((one) => one.localName.startsWith('keystead-'))
      .every((element) => element.shadowRoot?.querySelector('#widget')?.getAttribute('aria-busy') === 'false')"""
    await page.wait_for_function(ready)


@looks
async def test_every_theme_fits_any_width_and_can_be_read_and_pressed(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    address = await every_theme(server, site, script, "themes")
    for size in (DESKTOP, PHONE, SMALL_PHONE):
        async with guest(browser, size, has_touch=size == PHONE, is_mobile=size == PHONE) as visitor:
            page = await visitor.opens(address)
            await settled(page)
            assert await page.evaluate("document.documentElement.scrollWidth") <= size[0], size
            if size == DESKTOP:
                assert await page.evaluate(CONTRAST) == []
            if size == PHONE:
                assert await page.evaluate(TOO_SMALL) == []


async def test_without_a_theme_it_is_dark_only_where_the_page_is(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    id = await created(server, "like", "scheme")
    body = f"<keystead-like id={id}></keystead-like>"
    both = site.put("/both", body, head=f'<meta name="color-scheme" content="light dark">{script}')
    light = site.put("/light", body, head=script)
    rules = "keystead-like { --keystead-background: rgb(1, 2, 3) } keystead-like::part(button) { letter-spacing: 3px }"
    styled = site.put("/styled", f"<style>{rules}</style>{body}", head=script)
    async with guest(browser, scheme="dark") as visitor:
        for address, colour in ((both, "rgb(26, 26, 26)"), (light, "rgb(255, 255, 255)"), (styled, "rgb(1, 2, 3)")):
            button = (await visitor.opens(address)).get_by_role("button", name="Like, 0 likes")
            await expect(button).to_have_css("background-color", colour)
        await expect(button).to_have_css("letter-spacing", "3px")
        await visitor.page.locator("keystead-like").evaluate("element => element.setAttribute('theme', 'retro')")
        await expect(button).to_have_css("border-radius", "0px")


@looks
async def test_nothing_jumps_while_it_loads_and_nothing_moves_for_those_who_want_that(
    browser: Browser, server: Keystead, site: OtherSite, script: str
) -> None:
    visit, like = await created(server, "visit", "still"), await created(server, "like", "still")
    ranking, board = await created(server, "ranking", "still"), await created(server, "bbs", "still")
    body = (
        f"<keystead-counter id={visit} digits=5></keystead-counter><keystead-like id={like}></keystead-like>"
        f"<p class=below>below</p>"
        f"<keystead-ranking id={ranking}></keystead-ranking><keystead-bbs id={board}></keystead-bbs>"
    )
    moving = """() => [...document.querySelectorAll('*')]
      .flatMap((element) => element.shadowRoot?.getAnimations() ?? [])
      .map((one) => one.animationName ?? one.transitionProperty)"""
    for motion in ("no-preference", "reduce"):
        async with guest(browser, reduced_motion=motion) as visitor:
            page = visitor.page
            async with held_back(page, "**/api/**"):
                await visitor.opens(site.put("/still", body, head=script))
                await expect(digits(page.locator("keystead-counter"))).to_have_text("00000")
                before = await page.locator(".below").bounding_box()
                form = await page.locator("keystead-bbs form").bounding_box()
                assert ("waits" in await page.evaluate(moving)) == (motion == "no-preference")
            await settled(page)
            await expect(digits(page.locator("keystead-counter"))).not_to_have_text("00000")
            assert await page.locator(".below").bounding_box() == before
            after = await page.locator("keystead-bbs form").bounding_box()
            assert form is not None
            assert after is not None
            assert after["height"] == form["height"]
            await page.get_by_role("button", name="Like").click()
            if motion == "reduce":
                assert await page.evaluate(moving) == []


def test_the_server_has_logged_no_error(server: Keystead) -> None:
    assert "Traceback" not in server.said
