"""Owners: the store contains only a slow hash of the token, and no other secret."""

import asyncio
import re
from typing import Any

import pytest

from keystead import Store
from keystead.kits.widgets.service import Owner, Widgets
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import (
    ME,
    OTHER_TOKEN,
    SERVICES,
    TOKEN,
    URL,
    Kept,
    owner,
    refused,
    service_of,
    service_on,
    somebody,
    used,
)

HOOK = "https://discord.example/api/webhooks/1234/the-secret-part-of-it"


@both
async def test_no_secret_is_in_the_store(widgets: Widgets, kept: Kept) -> None:
    """Neither owner tokens, edit tokens, webhook URLs, nor signing secrets."""
    secrets = [TOKEN, HOOK, "the-secret-part-of-it", somebody(0).address, "a browser"]
    for name in SERVICES:
        service = service_of(widgets, name)
        created = await service.create(URL, TOKEN, visitor=ME, webhook_url=HOOK)
        secrets.append(created.webhook_secret)
        await used(widgets, name, created.id, 2)
        changed = await service.update_settings(owner(), visitor=ME, webhook_url=f"{HOOK}-2")
        assert changed.webhook_secret not in secrets
        secrets.append(changed.webhook_secret)
    posted = await widgets.boards.post(created.id, somebody(9), "hello")
    await widgets.boards.edit(created.id, posted.message_id, posted.edit_token, visitor=ME, message="changed")
    secrets.append(posted.edit_token)
    everything = await kept.everything()
    assert len(secrets) == 5 + 8 + 1
    assert [one for one in secrets if one in everything or one.encode().hex() in everything] == []
    hashes = re.findall(r"scrypt\.([0-9a-f]{32})\.([0-9a-f]{64})", everything)
    assert len(hashes) == 4
    assert len({salt for salt, _ in hashes}) == len({digest for _, digest in hashes}) == 4  # each with its own salt


async def test_reprs_contain_no_secret(memory: Store) -> None:
    widgets = service_on(memory)
    created = await widgets.boards.create(URL, TOKEN, visitor=ME)
    posted = await widgets.boards.post(created.id, ME, "hello")
    assert TOKEN not in repr(owner())
    assert posted.edit_token not in repr(posted)
    assert "editDigest" not in posted.data.model_dump_json()
    assert "webhook" not in posted.data.model_dump_json(exclude_none=True)


@pytest.mark.parametrize(
    "token", ["Bob+likes-milk", "ann+likes-tea", "Ann+likes-te", "Ann+likes-tea ", "", "x" * 17, None, 5]
)
@pytest.mark.usefixtures("quick_hash")
async def test_a_wrong_token_changes_nothing(memory: Store, token: Any) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    for name in SERVICES:
        id = (await service_of(widgets, name).create(URL, TOKEN, visitor=ME)).id
        await used(widgets, name, id, 2)
    [message, _] = (await widgets.boards.get(id)).messages
    before = await kept.everything()
    wrong = owner(token=token)
    for action in (
        widgets.counters.set(wrong, 5, visitor=ME),
        widgets.counters.update_settings(wrong, visitor=ME, webhook_url=None),
        widgets.likes.set(wrong, 5, visitor=ME),
        widgets.likes.update_settings(wrong, visitor=ME, icon="star"),
        widgets.rankings.update(wrong, "Ann", 5, visitor=ME),
        widgets.rankings.remove(wrong, "player 0", visitor=ME),
        widgets.rankings.clear(wrong, visitor=ME),
        widgets.rankings.update_settings(wrong, visitor=ME, title="x"),
        widgets.boards.owner_edit(wrong, message.id, visitor=ME, message="x"),
        widgets.boards.owner_remove(wrong, message.id, visitor=ME),
        widgets.boards.clear(wrong, visitor=ME),
        widgets.boards.update_settings(wrong, visitor=ME, title="x"),
        *(service_of(widgets, name).delete(wrong, visitor=ME) for name in SERVICES),
    ):
        assert await refused(action) == "UNAUTHORIZED"
    assert await kept.everything() == before


@pytest.mark.parametrize("token", ["1234567", "x" * 17, "", None, 12345678, ["12345678"], "1234567\ud800"])
async def test_an_invalid_token_creates_nothing(memory: Store, token: Any) -> None:
    for name in SERVICES:
        service = service_of(service_on(memory), name)
        assert await refused(service.create(URL, token, visitor=ME)) == "VALIDATION_ERROR"
    assert await Kept(memory).keys() == set()


@pytest.mark.parametrize("token", ["12345678", "x" * 16, "пароль-1", "🔑" * 8, "a b c d e", "\x00" * 8, "éééééééé"])
async def test_a_token_has_8_to_16_characters_of_any_kind(memory: Store, token: str) -> None:
    widgets = service_on(memory)
    await widgets.counters.create(URL, token, visitor=ME)
    assert (await widgets.counters.set(owner(token=token), 1, visitor=ME)).total == 1


@pytest.mark.usefixtures("quick_hash")
async def test_an_invalid_hash_matches_no_token(memory: Store) -> None:
    widgets, kept = service_on(memory), Kept(memory)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    for stored in (TOKEN, "", "scrypt..", "scrypt.00.", f"md5.00.{TOKEN}", "scrypt.zz.zz"):
        await kept.ask("SET", f"counter:{id}:owner", stored)
        assert await refused(widgets.counters.set(owner(), 1, visitor=ME)) == "UNAUTHORIZED", stored
    await kept.ask("DEL", f"counter:{id}:owner")
    assert await refused(widgets.counters.set(owner(), 1, visitor=ME)) == "UNAUTHORIZED"


async def test_too_many_concurrent_tokens_get_try_again(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow hashes take time: a process that has too many to do refuses more, instead of hanging."""
    monkeypatch.setattr("keystead.parts.passwords._WAITING_MAX", 4)
    widgets = service_on(memory)
    await widgets.counters.create(URL, TOKEN, visitor=ME)
    answers = await asyncio.gather(*(refused(widgets.counters.set(owner(), 1, visitor=ME)) for _ in range(10)))
    assert set(answers) == {"", "TRY_AGAIN"}


@pytest.mark.usefixtures("quick_hash")
async def test_a_token_works_for_its_widget_only(memory: Store) -> None:
    widgets = service_on(memory)
    first = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    second = (await widgets.counters.create(f"{URL}/2", OTHER_TOKEN, visitor=ME)).id
    await widgets.likes.create(URL, OTHER_TOKEN, visitor=ME)
    assert await refused(widgets.counters.set(Owner(TOKEN, id=second), 1, visitor=ME)) == "UNAUTHORIZED"
    assert await refused(widgets.likes.set(owner(), 1, visitor=ME)) == "UNAUTHORIZED"
    assert (await widgets.counters.set(Owner(TOKEN, id=first), 1, visitor=ME)).total == 1


@pytest.mark.usefixtures("quick_hash")
@pytest.mark.parametrize("number", [-1, 1_000_000_000, 2**63, 1.0, float("nan"), "5", True, None, -0.0])
async def test_an_invalid_number_is_refused(memory: Store, number: Any) -> None:
    widgets = service_on(memory)
    for name in ("counter", "like", "ranking"):
        await service_of(widgets, name).create(URL, TOKEN, visitor=ME)
    id = (await widgets.rankings.create(URL, TOKEN, visitor=ME)).id
    before = await Kept(memory).everything()
    for action in (
        widgets.counters.set(owner(), number, visitor=ME),
        widgets.likes.set(owner(), number, visitor=ME),
        widgets.rankings.submit(id, ME, "Ann", number),
        widgets.rankings.update(owner(), "Ann", number, visitor=ME),
    ):
        assert await refused(action) == "VALIDATION_ERROR"
    assert await Kept(memory).everything() == before
