"""Welcome cards: content, permissions and validation."""

import asyncio
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import Owner, Widgets
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both, everywhere
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    TOKEN,
    URL,
    Kept,
    Reason,
    found_by_doctor,
    owner,
    refused,
    service_on,
)

pytestmark = pytest.mark.usefixtures("quick_hash")

PICTURE = "data:image/png;base64,iVBORw0KGgo="


async def welcome(widgets: Widgets, message: Any = "Hello!", **more: Any) -> str:
    return (await widgets.welcomes.create(URL, TOKEN, visitor=ME, message=message, **more)).id


@everywhere
async def test_the_life_of_a_welcome_card(store: Store, widgets: Widgets, kept: Kept, clock: Clock) -> None:
    clock.stand_at(clock())
    id = await welcome(widgets)
    data = await widgets.welcomes.get(id)
    assert (data.url, data.message, data.mode, data.name, data.avatar) == (URL, "Hello!", "badge", None, None)
    before = data.updated_at
    clock.stand_at(clock() + 60_000)
    more = {"message": "Two\nlines", "mode": "card", "name": "Cat", "avatar": PICTURE}
    changed = await widgets.welcomes.update(owner(), visitor=ME, **more)
    assert changed.model_dump(include=set(more)) == more
    assert changed.updated_at > before
    assert await widgets.welcomes.get(id) == changed
    assert (await widgets.welcomes.update(owner(), visitor=ME, name=None, avatar="")).message == "Two\nlines"
    assert (await widgets.welcomes.get(id)).avatar is None
    assert await widgets.welcomes.create(URL, TOKEN, visitor=ME, message="Other") == await _created(widgets)
    assert (await widgets.welcomes.get(id)).message == "Two\nlines"  # creating it again changes nothing
    assert await found_by_doctor(store) == []
    await widgets.welcomes.delete(owner(), visitor=ME)
    assert await kept.keys() == set()


async def _created(widgets: Widgets) -> Any:
    return await widgets.welcomes.create(URL, TOKEN, visitor=ME, message="x")


@both
async def test_only_the_owner_changes_a_welcome_card(widgets: Widgets) -> None:
    id = await welcome(widgets)
    stranger = Owner(OTHER_TOKEN, id=id)
    assert await refused(widgets.welcomes.update(stranger, visitor=ME, message="Mine")) == "UNAUTHORIZED"
    assert await refused(widgets.welcomes.delete(stranger, visitor=ME)) == "UNAUTHORIZED"
    assert (await widgets.welcomes.get(id)).message == "Hello!"


@both
async def test_concurrent_changes_of_a_welcome_card_do_not_mix(store: Store) -> None:
    workers = [service_on(store) for _ in range(5)]
    id = await welcome(workers[0], mode="card")
    changes = [
        workers[at % 5].welcomes.update(
            owner(), visitor=ME, **({"name": f"n{at}"} if at % 2 else {"message": f"m{at}"})
        )
        for at in range(50)
    ]
    told = await asyncio.gather(*changes, return_exceptions=True)
    assert {type(one).__name__ for one in told} <= {"WelcomeData", "WidgetRefused"}
    data = await workers[0].welcomes.get(id)
    assert (data.name or "n").startswith("n")
    assert data.message.startswith("m")


@pytest.mark.parametrize(
    ("field", "more"),
    [
        *(("message", {"message": one}) for one in ("", " ", None, 5, "x" * 21, "two\nlines", "\u202e", "😀" * 21)),
        *(("message", {"message": one, "mode": "card"}) for one in ("x" * 141, "\n".join("x" * 11))),
        *(("mode", {"mode": one}) for one in ("", "Card", None, 1)),
        *(("name", {"name": one}) for one in ("x" * 31, 5, "\x00")),
        *(
            ("avatar", {"avatar": one})
            for one in (
                *("javascript:alert(1)", "data:text/html;base64,eA==", "data:image/png,x", "/x.png", "ftp://a.example"),
                *('https://a.example/"><script>', "https://a.example/ x", "data:image/png;base64,<", 5, "https://"),
                "https://a.example/" + "x" * 2048,
                "data:image/png;base64," + "A" * 40_000,
            )
        ),
    ],
)
async def test_an_invalid_welcome_card_is_refused(memory: Store, field: str, more: dict[str, Any]) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    with Reason() as reason:
        await widgets.welcomes.create(URL, TOKEN, visitor=ME, **{"message": "Hello!", **more})
    assert (reason.word, reason.more) == ("VALIDATION_ERROR", {"field": field})
    assert await kept.keys() == set()
    await welcome(widgets)
    before = await kept.everything()
    if more not in ({"name": None}, {"avatar": None}):
        assert await refused(widgets.welcomes.update(owner(), visitor=ME, **more)) == "VALIDATION_ERROR"
    assert await kept.everything() == before


async def test_a_message_must_fit_a_changed_mode(memory: Store) -> None:
    widgets = service_on(memory)
    id = await welcome(widgets, "x" * 140, mode="card")
    assert await refused(widgets.welcomes.update(owner(), visitor=ME, mode="badge")) == "VALIDATION_ERROR"
    assert (await widgets.welcomes.update(owner(), visitor=ME, mode="badge", message="😀" * 20)).mode == "badge"
    assert (await widgets.welcomes.get(id)).message == "😀" * 20


@pytest.mark.parametrize(
    "avatar",
    [PICTURE, "https://a.example/me.png?x=1&y=2", "http://a.example/me.webp", "data:image/svg+xml;base64,PHN2Zy8+"],
)
async def test_an_avatar_is_a_url_or_a_data_url(memory: Store, avatar: str) -> None:
    widgets = service_on(memory)
    assert (await widgets.welcomes.get(await welcome(widgets, avatar=avatar))).avatar == avatar
