"""Texts: user text is stored unchanged, or refused with a message and not stored."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead import Store
from keystead.kits.widgets.service import Widgets, WidgetSettings
from keystead.kits.widgets.service.checks import check_text
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import ME, TOKEN, URL, Kept, Reason, owner, refused, service_on, somebody

pytestmark = pytest.mark.usefixtures("quick_hash")

KEPT = [
    "Ann",
    "名無しさん",
    "😀",
    "👩🏽‍🚀",  # one picture of four characters, with a joiner that cannot be seen
    "👨‍👩‍👧‍👦 & Co",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # the flag of England, with tags
    "❤️",
    "مرحبا",
    "שלום world",
    "\u200f\u05e9\u05dc\u05d5\u05dd\u200e",  # marks of direction, which turn nothing around them
    "नमस्ते",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "'; DROP TABLE users; --",
    '{"a": 1}',
    "a:b%3A{c}*",
    "\\u0000",
    "Z̷a̷l̷g̷o̷",
]
REFUSED = [
    "",
    "   ",
    "\t",
    "a\x00b",
    "a\x1b[31m",
    "a\x7f",
    "a\x85b",
    "a\nb",
    "a\u2028b",
    "a\u202eb",  # the rest would be shown right to left
    "a\u2066b",
    "a\ufeffb",
    "\ud83d",  # half a pair
    "a\udc00",
    "\u200b",  # it would look like nothing
    "\u200d\u2060",
    "\u3164",
    "\u2800",
    "x" * 51,
    "x" * 10_000,
    "😀" * 51,
    None,
    5,
    ["a"],
    b"a",
]


@both
@pytest.mark.parametrize("said", KEPT)
async def test_valid_text_is_returned_unchanged(widgets: Widgets, kept: Kept, said: str) -> None:
    ranking = (await widgets.rankings.create(URL, TOKEN, visitor=ME, title=said, description=said)).id
    data = await widgets.rankings.submit(ranking, ME, said, 5, said)
    [entry] = data.entries
    assert (data.title, data.description, entry.name, entry.display_score) == (said, said, said, said)
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME, title=said)).id
    [message] = (await widgets.boards.post(board, ME, said, said if len(said) <= 20 else None)).data.messages
    assert message.message == said
    assert message.author == (said if len(said) <= 20 else "Anonymous")


@pytest.mark.parametrize("said", REFUSED, ids=lambda said: ascii(said)[:20])
async def test_an_invalid_name_is_refused_and_nothing_is_stored(memory: Store, said: Any) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    before = await kept.everything()
    for action in (widgets.rankings.submit(id, ME, said, 5), widgets.rankings.update(owner(), said, 5, visitor=ME)):
        with Reason() as reason:
            await action
        assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": "name"})
        assert not isinstance(said, str) or len(said) < 4 or said not in reason.sentence
    assert await kept.everything() == before


@pytest.mark.parametrize("said", ["a\x00b", "a\nb", "a\u202eb", "a\ud800", "\u200b", "x" * 101, 5])
async def test_all_texts_are_validated_like_names(memory: Store, said: Any) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    ranking = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    before = await kept.everything()
    for field, action in {
        "displayScore": widgets.rankings.submit(ranking, ME, "Ann", 5, said),
        "title": widgets.rankings.update_settings(owner(), visitor=ME, title=said),
        "author": widgets.boards.post(board, ME, "hello", said),
    }.items():
        with Reason() as reason:
            await action
        assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": field})
    assert await kept.everything() == before


async def test_a_message_without_a_name_gets_the_default_author(memory: Store) -> None:
    widgets = service_on(memory, default_author="nobody")
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    for number, author in enumerate((None, "", "  ", "Ann")):
        posted = await widgets.boards.post(board, somebody(number), "hello", author)
        assert posted.data.messages[0].author == ("Ann" if author == "Ann" else "nobody")


@pytest.mark.parametrize("said", ["two\nlines", "a\tb", "\r\nwindows\r\n", "x" * 200, "👩🏽‍🚀" * 50])
async def test_a_message_can_have_several_lines_and_200_characters(memory: Store, said: str) -> None:
    widgets = service_on(memory, max_repeats=0)
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    [message] = (await widgets.boards.post(board, ME, said)).data.messages
    assert message.message == said.replace("\r\n", "\n").strip()


@pytest.mark.parametrize("said", ["x" * 201, "", " \n ", "a\x00", "a\u202e", "a\u2028b", "\u200b", "a\ud800", None, 5])
async def test_an_invalid_message_is_refused(memory: Store, said: Any) -> None:
    widgets = service_on(memory, max_repeats=0)
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    before = await Kept(memory).everything()
    with Reason() as reason:
        await widgets.boards.post(board, ME, said)
    assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": "message"})
    assert await Kept(memory).everything() == before


@both
async def test_names_are_normalized(widgets: Widgets) -> None:
    """Composed and decomposed accents."""
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    composed, apart = "Zoë", unicodedata.normalize("NFD", "Zoë")
    assert composed != apart
    await widgets.rankings.submit(id, somebody(1), apart, 5)
    data = await widgets.rankings.submit(id, somebody(2), f"  {composed} ", 7)
    assert [(one.name, one.score) for one in data.entries] == [(composed, 7)]
    assert (await widgets.rankings.remove(owner(), apart, visitor=ME)).entries == []


@given(st.text(max_size=60))
def test_accepted_names_are_one_line_of_text(said: str) -> None:
    with Reason() as reason:
        found = check_text("name", said, 1, 50)
    if reason.word:
        return
    assert 1 <= len(found) <= 50
    assert found == found.strip() == unicodedata.normalize("NFC", found)
    assert len(found.splitlines()) == 1
    assert check_text("name", found, 1, 50) == found
    assert check_text("message", found, 1, 50, multiline=True) == found
    found.encode()


# --- spam -----------------------------------------------------------------------------------------------------


async def lets_through(store: Store, said: str, **settings: Any) -> bool:
    """Whether this is accepted as a name, an author and a message: in all of them or in none."""
    await Kept(store).empty()
    widgets = service_on(store, **settings)
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    ranking = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    answers = {
        await refused(widgets.boards.post(board, somebody(1), said)),
        await refused(widgets.boards.post(board, somebody(2), "hello", said)),
        await refused(widgets.rankings.submit(ranking, somebody(3), said, 5)),
    }
    assert len(answers) == 1, answers
    return answers == {""}


@pytest.mark.parametrize(
    "said",
    [
        "http://a.example",
        "see HTTPS://a.b",
        "www.a.example",
        "a WWW.b",
        "\uff48\uff54\uff54\uff50://a.b",
        "ht\u200btp://a.b",
    ],
)
async def test_links_are_accepted_with_allow_links(memory: Store, said: str) -> None:
    assert await lets_through(memory, said) is False
    assert await lets_through(memory, said, allow_links=True) is True


async def test_words_that_look_like_links_are_accepted(memory: Store) -> None:
    for said in ("http", "awwww", "a.b.example", "https:/ /"):
        assert await lets_through(memory, said) is True, said


@pytest.mark.parametrize(
    ("said", "repeats"), [("aaaa", 4), ("aaaaa", 5), ("hmmmmmm", 6), ("!!!!!", 5), ("😀😀😀😀😀", 5)]
)
async def test_max_repeats_limits_repeated_characters(memory: Store, said: str, repeats: int) -> None:
    assert await lets_through(memory, said) is (repeats <= 4)
    assert await lets_through(memory, said, max_repeats=repeats) is True
    assert await lets_through(memory, said, max_repeats=repeats - 1) is False
    assert await lets_through(memory, said, max_repeats=0) is True


@pytest.mark.parametrize(
    "said",
    ["spam", "SPAM", "so much SpAm!", "\uff53\uff50\uff41\uff4d", "sp\u200bam", "sp\u00adam", "Straße", "STRASSE"],
)
async def test_banned_words_are_refused_in_any_spelling(memory: Store, said: str) -> None:
    assert await lets_through(memory, said) is True
    assert await lets_through(memory, said, banned_words=["Spam", "strasse"]) is False
    assert await lets_through(memory, said, banned_words="\uff33\uff30\uff21\uff2d, straße") is False
    assert await lets_through(memory, said, banned_words=["eggs"]) is True


async def test_edits_are_validated_like_posts(memory: Store) -> None:
    widgets = service_on(memory, banned_words=["spam"])
    board = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    posted = await widgets.boards.post(board, ME, "hello")
    for change in ({"message": "spam"}, {"author": "spam"}, {"message": "www.spam"}, {"message": "aaaaaaaa"}):
        edit = widgets.boards.edit(board, posted.message_id, posted.edit_token, visitor=ME, **change)
        assert await refused(edit) == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "wrong",
    [
        {"zone": "Mars/Olympus"},
        {"zone": ""},
        {"zone": "../../etc/passwd"},
        {"origins": ["example.com"]},
        {"origins": ["https://example.com/"]},
        {"banned_words": [""]},
        {"max_repeats": -1},
        {"limits": {"reads": 5}},
        {"limits": {"read": -1}},
        {"default_author": ""},
        {"unknown": 1},
    ],
)
def test_invalid_settings_stop_startup(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WidgetSettings(**wrong)
