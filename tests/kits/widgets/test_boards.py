"""Boards: permissions, order and number of messages."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import Widgets
from keystead.stores import Outcome, Step
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    TOKEN,
    URL,
    Kept,
    Reason,
    found_by_doctor,
    owner,
    refused,
    service_on,
    somebody,
)
from tests.parts.sessions.relays import Relay

pytestmark = pytest.mark.usefixtures("quick_hash")


async def board(widgets: Widgets, **more: Any) -> str:
    return (await widgets.boards.create(URL, TOKEN, visitor=ME, **more)).id


@both
async def test_an_edit_token_works_for_its_message_only(widgets: Widgets, kept: Kept) -> None:
    id = await board(widgets)
    ann = await widgets.boards.post(id, somebody(1), "of Ann", "Ann")
    bob = await widgets.boards.post(id, somebody(2), "of Bob", "Bob")
    before = await kept.held(f"bbs:{id}:messages")
    wrong = [bob.edit_token, ann.edit_token + "x", ann.data.messages[0].user_hash, ann.message_id, TOKEN, "x"]
    for token in wrong:
        edit = widgets.boards.edit(id, ann.message_id, token, visitor=ME, message="stolen")
        assert await refused(edit) == "UNAUTHORIZED"
        assert await refused(widgets.boards.remove(id, ann.message_id, token, visitor=ME)) == "UNAUTHORIZED"
    for none in ("", None, 5):
        assert await refused(widgets.boards.remove(id, ann.message_id, none, visitor=ME)) == "VALIDATION_ERROR"
    for unknown in ("x", f"{ann.message_id}x", bob.message_id.upper()):
        assert await refused(widgets.boards.remove(id, unknown, ann.edit_token, visitor=ME)) == "NOT_FOUND"
    assert await kept.held(f"bbs:{id}:messages") == before
    data = await widgets.boards.edit(id, ann.message_id, ann.edit_token, visitor=ME, message="changed")
    assert [(one.author, one.message) for one in data.messages] == [("Bob", "of Bob"), ("Ann", "changed")]
    assert (await widgets.boards.remove(id, bob.message_id, bob.edit_token, visitor=ME)).total_messages == 1


@both
async def test_a_message_of_another_board_is_not_found_here(widgets: Widgets) -> None:
    id = await board(widgets)
    other = (await widgets.boards.create(f"{URL}/2", TOKEN, visitor=ME)).id
    posted = await widgets.boards.post(id, ME, "hello")
    assert await refused(widgets.boards.remove(other, posted.message_id, posted.edit_token, visitor=ME)) == "NOT_FOUND"
    assert await refused(widgets.boards.owner_remove(owner(f"{URL}/2"), posted.message_id, visitor=ME)) == "NOT_FOUND"


@both
async def test_no_view_reveals_the_edit_token_or_its_digest(widgets: Widgets) -> None:
    id = await board(widgets, enable_selects=True)
    posted = await widgets.boards.post(id, ME, "hello", "Ann", "😀", ["Asia", None, "😊"])
    for data in (posted.data, await widgets.boards.get(id), await widgets.boards.get(id, 1, ME)):
        [message] = data.messages
        assert message.model_dump(exclude_none=True).keys() == {
            *("id", "timestamp", "author", "message", "icon", "selects", "userHash")
        }
        assert message.selects == {"region": "Asia", "mood": "😊"}
        assert posted.edit_token not in data.model_dump_json()
    assert data.current_user_hash == message.user_hash  # by which a page knows one's own


@both
async def test_the_owner_edits_and_deletes_any_message(widgets: Widgets) -> None:
    id = await board(widgets)
    ids = [(await widgets.boards.post(id, somebody(one), f"no {one}", "Ann")).message_id for one in range(3)]
    data = await widgets.boards.owner_edit(owner(), ids[1], visitor=ME, message="(removed)")
    assert [one.message for one in data.messages] == ["no 2", "(removed)", "no 0"]
    assert (data.messages[1].author, data.messages[1].edited is not None) == ("Ann", True)
    data = await widgets.boards.owner_remove(owner(), ids[2], visitor=ME)
    assert [one.message for one in data.messages] == ["(removed)", "no 0"]
    assert await refused(widgets.boards.owner_remove(owner(), ids[2], visitor=ME)) == "NOT_FOUND"
    assert (await widgets.boards.clear(owner(), visitor=ME)).total_messages == 0


@both
async def test_an_edit_keeps_position_timestamp_and_unchanged_fields(widgets: Widgets, clock: Clock) -> None:
    id = await board(widgets, enable_selects=True)
    first = await widgets.boards.post(id, somebody(1), "one", "Ann", "😎", ["Asia"])
    await widgets.boards.post(id, somebody(2), "two")
    clock.move("5s")
    [_, before] = (await widgets.boards.get(id)).messages
    [_, after] = (await widgets.boards.edit(id, first.message_id, first.edit_token, visitor=ME, message="new")).messages
    assert (before.edited, after.edited is not None) == (None, True)
    assert after.model_copy(update={"edited": None, "message": "one"}) == before
    [_, after] = (
        await widgets.boards.edit(
            id, first.message_id, first.edit_token, visitor=ME, author="Bea", icon=None, selects=[None, "☁️"]
        )
    ).messages
    assert (after.author, after.message, after.icon, after.selects) == ("Bea", "new", None, {"weather": "☁️"})
    for wrong in ({"message": ""}, {"icon": "x"}, {"message": "https://a.example"}, {"selects": ["Mars"]}):
        edit = widgets.boards.edit(id, first.message_id, first.edit_token, visitor=ME, **wrong)
        assert await refused(edit) == "VALIDATION_ERROR"
    assert (await widgets.boards.get(id)).messages[1] == after


@both
async def test_edits_during_posts_change_the_right_message(store: Store) -> None:
    """Each new message moves the others by one place; some are cut off meanwhile."""
    one, two = service_on(store), service_on(store)
    id = await board(one, max_messages=40, messages_per_page=100)
    posted = [await one.boards.post(id, somebody(at), f"no {at}") for at in range(30)]
    edits = [
        two.boards.edit(id, mine.message_id, mine.edit_token, visitor=ME, message=f"edited {at}")
        for at, mine in enumerate(posted)
        if at % 3 == 0
    ]
    removals = [two.boards.remove(id, mine.message_id, mine.edit_token, visitor=ME) for mine in posted[1::3]]
    posts = [one.boards.post(id, somebody(100 + at), f"late {at}") for at in range(20)]
    answers = await asyncio.gather(*(refused(action) for action in (*edits, *removals, *posts)))
    assert set(answers) <= {"", "NOT_FOUND", "TRY_AGAIN"}
    done = dict(zip([f"edited {at}" for at in range(0, 30, 3)], answers, strict=False))
    gone = {f"no {at}" for at, answer in zip(range(1, 30, 3), answers[10:], strict=False) if answer == ""}
    data = await one.boards.get(id)
    said = [message.message for message in data.messages]
    late = [message for message in said if message.startswith("late")]
    assert late == [f"late {at}" for at in range(19, -1, -1)]
    assert not gone & set(said)
    old = [int(message.split()[1]) for message in said if not message.startswith("late")]
    assert old == sorted(old, reverse=True)
    # Every acknowledged edit is there, unless the message was cut off since; no other message is changed.
    edited = {message for message in said if message.startswith("edited")}
    assert edited <= {message for message, answer in done.items() if answer == ""}
    assert data.total_messages <= 40
    assert await found_by_doctor(store) == []


@both
async def test_messages_are_paginated(widgets: Widgets) -> None:
    id = await board(widgets, messages_per_page=3)
    for one in range(7):
        await widgets.boards.post(id, somebody(one), f"no {one}")
    for number, expected in ((1, [6, 5, 4]), (2, [3, 2, 1]), (3, [0]), (4, []), (10**6, [])):
        data = await widgets.boards.get(id, number)
        assert [one.message for one in data.messages] == [f"no {one}" for one in expected]
        assert (data.total_messages, data.total_pages, data.current_page) == (7, 3, number)
        assert (data.pagination.has_prev, data.pagination.has_next) == (number > 1, number < 3)
    for wrong in (0, -1, "1", None, 1.0, True):
        assert await refused(widgets.boards.get(id, wrong)) == "VALIDATION_ERROR"
    await widgets.boards.update_settings(owner(), visitor=ME, messages_per_page=5)
    assert len((await widgets.boards.get(id, 1)).messages) == 5


@both
async def test_lowering_the_maximum_deletes_the_oldest_messages(widgets: Widgets) -> None:
    id = await board(widgets, max_messages=10)
    posted = [await widgets.boards.post(id, somebody(one), f"no {one}") for one in range(10)]
    data = await widgets.boards.update_settings(owner(), visitor=ME, max_messages=4, title="Short")
    assert [one.message for one in data.messages] == ["no 9", "no 8", "no 7", "no 6"]
    assert (data.title, data.settings.max_messages) == ("Short", 4)
    oldest = posted[0]
    assert await refused(widgets.boards.remove(id, oldest.message_id, oldest.edit_token, visitor=ME)) == "NOT_FOUND"
    assert (await widgets.boards.post(id, ME, "one more")).data.total_messages == 4


@both
async def test_posting_has_a_cooldown_of_ten_seconds(widgets: Widgets, kept: Kept, clock: Clock) -> None:
    began = clock()
    clock.stand_at(began)
    id = await board(widgets)
    await widgets.boards.post(id, ME, "one")
    for later_ms, wait_s in ((0, 10), (1, 10), (1000, 9), (9999, 1), (20_000, 1)):
        clock.stand_at(began + later_ms)
        with Reason() as reason:
            await widgets.boards.post(id, ME, "two")
        assert (reason.word, reason.more) == ("COOLDOWN", {"retry_after_s": wait_s})
    [mark] = [key for key in await kept.keys() if ":post:" in key]
    await kept.ask("DEL", mark)  # as its expiry does
    assert (await widgets.boards.post(id, ME, "two")).data.total_messages == 2


async def test_a_board_of_10_000_messages_is_read_page_by_page(memory: Store) -> None:
    """A page costs the same wherever it is; a message is looked for from the newest on, some hundred at a time."""
    widgets = service_on(memory)
    id = await board(widgets, max_messages=10_000)
    first = await widgets.boards.post(id, ME, "the first of all")
    kept, key = Kept(memory), f"bbs:{id}:messages"
    text = (await kept.ask("LINDEX", key, 0)).decode()
    for at in range(0, 9_999, 1111):
        await kept.ask("LPUSH", key, *(text.replace(first.message_id, f"{at + one}") for one in range(1111)))
    assert await kept.ask("LLEN", key) == 10_000
    relay = Relay(memory)
    reading = service_on(relay)
    data = await reading.boards.get(id, 1000)
    assert (data.total_messages, data.total_pages, data.messages[-1].message) == (10_000, 1000, "the first of all")
    relay.log.clear()
    await reading.boards.get(id, 500)
    assert len(relay.log) == 1
    relay.log.clear()
    edited = service_on(relay).boards.edit(id, first.message_id, first.edit_token, visitor=ME, message="found")
    assert (await edited).total_messages == 10_000
    assert len(relay.log) < 60
    posted = await widgets.boards.post(id, somebody(1), "one more")
    assert posted.data.total_messages == 10_000
    assert await refused(widgets.boards.remove(id, first.message_id, first.edit_token, visitor=ME)) == "NOT_FOUND"


async def test_an_unreadable_message_does_not_block_edits_of_others(memory: Store) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    id = await board(widgets)
    posted = await widgets.boards.post(id, ME, "hello")
    await kept.ask("LPUSH", f"bbs:{id}:messages", "no message")
    await refused(widgets.boards.edit(id, posted.message_id, posted.edit_token, visitor=ME, message="changed"))
    assert b"changed" in await kept.ask("LINDEX", f"bbs:{id}:messages", 1)


@pytest.mark.parametrize(
    "more",
    [
        *({"max_messages": one} for one in (0, 10_001, "10", None)),
        *({"messages_per_page": one} for one in (0, 101, "10", None)),
        *({"title": one} for one in ("", "x" * 101, 5, None, "a\nb")),
    ],
)
async def test_invalid_settings_are_refused_and_store_nothing(memory: Store, more: dict[str, Any]) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    assert await refused(board(widgets, **more)) == "VALIDATION_ERROR"
    assert await kept.keys() == set()
    await board(widgets)
    before = await kept.everything()
    assert await refused(widgets.boards.update_settings(owner(), visitor=ME, **more)) == "VALIDATION_ERROR"
    assert await kept.everything() == before


async def test_icons_and_selects_are_refused_unless_enabled(memory: Store) -> None:
    widgets = service_on(memory)
    id = await board(widgets, enable_icons=False)
    assert await refused(widgets.boards.post(id, ME, "hello", None, "😀")) == "VALIDATION_ERROR"
    assert await refused(widgets.boards.post(id, ME, "hello", None, None, ["Asia"])) == "VALIDATION_ERROR"
    posted = await widgets.boards.post(id, ME, "hello", "", "", ["", None, ""])
    assert posted.data.messages[0].model_dump(exclude_none=True).keys().isdisjoint({"icon", "selects"})
    assert posted.data.messages[0].author == "Anonymous"


async def test_an_author_can_edit_a_message_after_icons_were_disabled(memory: Store) -> None:
    widgets = service_on(memory)
    id = (await widgets.boards.create(URL, TOKEN, visitor=ME)).id
    icon = ((await widgets.boards.get(id)).settings.icons or [""])[0]
    posted = await widgets.boards.post(id, ME, "Hello", "Ann", icon)
    await widgets.boards.update_settings(owner(), visitor=ME, enable_icons=False)
    changed = await widgets.boards.edit(id, posted.message_id, posted.edit_token, visitor=ME, message="Hi")
    assert [(one.message, one.author, one.icon) for one in changed.messages] == [("Hi", "Ann", icon)]
    other = widgets.boards.edit(id, posted.message_id, posted.edit_token, visitor=ME, icon="🎉")
    assert await refused(other) == "VALIDATION_ERROR"


@both
async def test_limit_sets_the_number_of_messages(widgets: Widgets) -> None:
    id = await board(widgets, messages_per_page=2, max_messages=30)
    for one in range(12):
        await widgets.boards.post(id, somebody(one), f"no {one}")
    newest = [f"no {one}" for one in range(11, -1, -1)]
    for limit, page in ((1, 1), (5, 1), (5, 2), (5, 3), (12, 1), (1000, 1)):
        data = await widgets.boards.get(id, page, limit=limit)
        assert [one.message for one in data.messages] == newest[(page - 1) * limit :][:limit]
        assert (data.total_pages, data.settings.messages_per_page) == (-(-12 // limit), 2)
    assert len((await widgets.boards.get(id)).messages) == 2
    for wrong in (0, 1001, -1, "5", 1.5):
        assert await refused(widgets.boards.get(id, limit=wrong)) == "VALIDATION_ERROR"


async def test_endless_contention_ends_with_try_again(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(Relay):
        """Another visitor posts before each step."""

        async def atomically(self, steps: Sequence[Step]) -> Outcome:
            await memory.run([("INCRBY", f"bbs:{id}:version", 1)])
            return await super().atomically(steps)

    id = await board(service_on(memory))
    monkeypatch.setattr("keystead.schema.contention.random.random", lambda: 0.0)  # no waiting
    with Reason() as reason:
        await service_on(Busy(memory)).boards.post(id, ME, "hello")
    assert (reason.word, reason.more) == ("TRY_AGAIN", {"retry_after_s": 1})
