"""What the document finds wrong, by its own names: five faults, five cases of the underscore, three risks.

Each test quotes what it is about, translated. Beside them stands what the document says of where things are.
"""

import asyncio
from pathlib import Path

import pytest

from keystead import Counter, Keyspace, Store, Value, sliding
from keystead.kits.sessiondata import SessionData, SessionDataKeys
from keystead.kits.sessiondata.service import guid_of
from keystead.parts.lock import HeldBy, Hold, Holder, Lock
from tests import servers
from tests.every_store import held_by, on
from tests.kits.conftest import Raw
from tests.kits.sessiondata.conftest import Begun, everywhere
from tests.kits.sharing.visiting import Clock

# --- the five faults -----------------------------------------------------------------------------------------


@everywhere
async def test_fault_1_a_key_with_an_underscore_is_not_split_into_key_and_page(session: Begun) -> None:
    """Underscores in the key-value store: "where a key has one, the page is read wrongly"."""
    await session.area.set("User_Theme", "of the key")
    await session.area.set("User", "of the page", page="Theme")
    assert await session.area.get("User_Theme") == "of the key"
    assert await session.area.get("User", "Theme") == "of the page"
    assert await session.area.get("User") is None


@everywhere
async def test_fault_2_a_removed_value_leaves_the_store(session: Begun) -> None:
    """Remove() does not know the key-value store: "when single keys are deleted, data stays behind in Redis"."""
    await session.area.set("ViewMode", "List", page="Items/100")
    await session.area.set_once("Message", "saved")
    assert await session.area.remove("ViewMode", "Items/100") is True
    assert await session.area.remove("Message") is True
    everything = await session.raw.everything()
    assert b"ViewMode" not in everything
    assert b"Message" not in everything


@on("sqlite", "redis", "redis+postgres", "postgres", "mariadb")
async def test_fault_3_old_sessions_expire_without_visitors(
    data: SessionData, keys: SessionDataKeys, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """DeleteOldSessions does not run in the background: "while no user comes, old sessions pile up".

    Nobody reads or writes here: what has expired leaves the file or the server, and the area of a user stays.
    """
    name, _, durable = request.node.callspec.params["stores"].partition("+")
    await data.user(1).set("Theme", "Dark")
    stays = 0 if durable else 1
    for _ in range(20):
        session = Begun(data, keys, await data.begin())
        await session.area.set_once("Message", "saved")
        for key in (session.plain, session.once):
            assert 0 < await session.raw.left_ms(key) <= 1440 * 60_000  # the store itself knows when
            await session.raw.ask("PEXPIRE", key, 500)
    assert held_by(name, request, tmp_path) > stays
    async with asyncio.timeout(30):
        while held_by(name, request, tmp_path) != stays:  # noqa: ASYNC110 - the server sends no signal
            await asyncio.sleep(0.05)
    assert not durable or held_by(durable, request, tmp_path) == 1
    assert await data.user(1).get("Theme") == "Dark"


@everywhere
async def test_fault_4_user_data_is_found_with_any_session_store(session: Begun, data: SessionData) -> None:
    """UserSessionData and the key-value store: "data of the user area may not be found where it is in use"."""
    await data.user(1).set("Theme", "Dark")
    assert await data.user(1).get("Theme") == "Dark"
    await session.area.clear()
    assert await data.user(1).get("Theme") == "Dark"
    assert await data.user(1).remove("Theme") is True


@everywhere
async def test_fault_5_read_once_values_are_consumed_one_by_one_on_every_store(session: Begun) -> None:
    """ReadOnce differs: "the unit of deletion is not the same in the table and in the key-value store"."""
    await session.area.set_once("Message", "first")
    await session.area.set_once("Warning", "second")
    assert await session.area.get("Message") == "first"
    assert await session.fields() == (set(), {b"Warning"})
    assert await session.area.get("Warning") == "second"


# --- the five cases of the underscore ------------------------------------------------------------------------


@everywhere
async def test_underscore_case_1_a_plain_key(session: Begun, data: SessionData) -> None:
    """Key `ViewMode`, no page: read as it was written."""
    await _is_its_own(session, data, "ViewMode", None, b"ViewMode")


@everywhere
async def test_underscore_case_2_a_plain_key_and_a_page(session: Begun, data: SessionData) -> None:
    """Key `ViewMode`, page `Items/100`: read as it was written."""
    await _is_its_own(session, data, "ViewMode", "Items/100", b"ViewMode_Items/100")


@everywhere
async def test_underscore_case_3_an_underscore_in_the_key(session: Begun, data: SessionData) -> None:
    """Key `User_Theme`, no page: "Theme" is taken for the page."""
    await _is_its_own(session, data, "User_Theme", None, b"User%5FTheme")


@everywhere
async def test_underscore_case_4_an_underscore_in_the_key_and_a_page(session: Begun, data: SessionData) -> None:
    """Key `User_Theme`, page `Items/100`: "Theme" is taken for the page."""
    await _is_its_own(session, data, "User_Theme", "Items/100", b"User%5FTheme_Items/100")


@everywhere
async def test_underscore_case_5_underscores_in_the_key_and_in_the_page(session: Begun, data: SessionData) -> None:
    """Key `My_Key`, page `Page_123`: "Key" is taken for the page."""
    await _is_its_own(session, data, "My_Key", "Page_123", b"My%5FKey_Page_123")


async def _is_its_own(session: Begun, data: SessionData, key: str, page: str | None, stored: bytes) -> None:
    """A name is stored in this form, and no similar name shares it."""
    joined = key if page is None else f"{key}_{page}"
    first, _, rest = joined.partition("_")
    others = {(joined, None), (first, rest or None), (key, None), (key, f"{page}_")} - {(key, page)}
    await session.area.set(key, "right", page)
    assert await session.fields() == ({stored}, set())
    await session.area.remove(key, page)
    for area in (session.area, data.user(1)):
        await area.set(key, "right", page)
        for other_key, other_page in others:
            assert await area.get(other_key, other_page) is None
            await area.set(other_key, "wrong", other_page)
        assert await area.get(key, page) == "right"


# --- the three risks -----------------------------------------------------------------------------------------


class TableKeys(Keyspace):
    """Tables with an exclusive lock."""

    lock = Value("table:{id:int}", Holder, lifetime=sliding("120s", touch_every="30s"), tag="id", doc="who")
    fence = Counter("table:{id:int}:fence", lifetime=sliding("400d", touch_every="1d"), tag="id", doc="its number")


@everywhere
async def test_scenario_1_a_released_lock_is_not_visible(store: Store) -> None:
    """An old exclusive lock is read: "another process may see the information of a lock that was cleared"."""
    keys = TableKeys(store)
    lock, other_process = Lock(keys.lock(7), keys.fence(7)), Lock(keys.lock(7), keys.fence(7))
    hold = await lock.acquire("user:1", "an update")
    assert isinstance(hold, Hold)
    assert await other_process.acquire("user:2") == HeldBy("user:1", hold.since_ms, "an update")
    await hold.release()
    assert await other_process.holder() is None
    after = await other_process.acquire("user:2")
    assert isinstance(after, Hold)
    assert after.fence > hold.fence


@everywhere
async def test_scenario_2_uploads_leave_nothing_behind(session: Begun) -> None:
    """Sessions of temporary files pile up: "they are deleted from the table and stay in Redis for 24 hours"."""

    async def upload(number: int) -> None:
        await session.area.set(f"TempFile_{number:032X}", "{...}")
        assert await session.area.get(f"TempFile_{number:032X}") == "{...}"
        assert await session.area.remove(f"TempFile_{number:032X}") is True

    size = len(await session.raw.everything())
    await asyncio.gather(*(upload(number) for number in range(50)))
    assert await session.fields() == (set(), set())
    assert len(await session.raw.everything()) == size


@everywhere
async def test_scenario_3_the_store_is_the_single_source_of_truth(
    session: Begun, data: SessionData, stores: dict[str, Store], clock: Clock
) -> None:
    """Table and Redis disagree when trouble is looked for: "it is hard to tell which of the two is right".

    Each value is in one store only, so no two can disagree about it.
    """
    await session.area.set("ViewMode", "List")
    await session.area.set_once("Message", "saved")
    await data.user(1).set("Theme", "Dark")
    places = {name: Raw(store) for name, store in stores.items()}
    found = {name: await place.keys() for name, place in places.items()}
    assert sorted(key for keys in found.values() for key in keys) == sorted([session.plain, session.once, "@1"])
    await session.area.clear()
    await data.user(1).clear()
    assert [await place.keys() for place in places.values()] == [set()] * len(places)


# --- the layout, read directly from the servers --------------------------------------------------------------


async def _examples(data: SessionData, keys: SessionDataKeys) -> Begun:
    """The rows that the document shows."""
    session = Begun(data, keys, await data.begin())
    await session.area.set("ViewMode", "List")
    await session.area.set("ViewMode", "Card", page="Items/100")
    await session.area.set_once("Message", "{...}")
    await data.user(1).set("Theme", "Dark")
    await data.user(1).set("View", "{...}", page="Items/200")
    return session


_AREA = {b"User_Theme": b"Dark", b"User_View_Items/200": b"{...}"}


@on("redis")
async def test_on_redis_the_layout_is_that_of_the_document(
    data: SessionData, keys: SessionDataKeys, redis_server: servers.Server
) -> None:
    """`{SessionGuid}` and `{SessionGuid}_readOnce` are hashes that live 1440 minutes; `@{UserId}` never expires."""
    session = await _examples(data, keys)
    guid = guid_of(session.id)
    assert sorted(redis_server.ask("KEYS", "*")) == sorted([guid.encode(), f"{guid}_readOnce".encode(), b"@1"])
    held = _pairs(redis_server.ask("HGETALL", guid))
    assert held.pop(b"StartTime")
    assert held == {b"ViewMode": b"List", b"ViewMode_Items/100": b"Card"}
    assert _pairs(redis_server.ask("HGETALL", f"{guid}_readOnce")) == {b"Message": b"{...}"}
    assert _pairs(redis_server.ask("HGETALL", "@1")) == _AREA
    for key in (guid, f"{guid}_readOnce"):
        assert 1439 * 60 < redis_server.ask("TTL", key) <= 1440 * 60
    assert redis_server.ask("TTL", "@1") == -1


@on("postgres", "mariadb")
async def test_in_tables_the_layout_is_that_of_the_document(
    data: SessionData, keys: SessionDataKeys, request: pytest.FixtureRequest
) -> None:
    session = await _examples(data, keys)
    name = request.node.callspec.params["stores"]
    server = request.getfixturevalue(f"{name}_server")
    prefix, key = ("keystead.", "key") if name == "postgres" else ("keystead_", "`key`")
    rows = server.query(
        f"SELECT k.{key}, f.field, f.value, k.expires_at FROM {prefix}keys k JOIN {prefix}fields f ON f.owner = k.id"
    )
    guid = guid_of(session.id).encode()
    found = {(bytes(key), bytes(field)): bytes(value) for key, field, value, _ in rows}
    assert found.pop((guid, b"StartTime"))
    assert found == {
        (guid, b"ViewMode"): b"List",
        (guid, b"ViewMode_Items/100"): b"Card",
        (guid + b"_readOnce", b"Message"): b"{...}",
        (b"@1", b"User_Theme"): b"Dark",
        (b"@1", b"User_View_Items/200"): b"{...}",
    }
    now_ms = keys.now_ms()
    for key, _, _, expires_at in rows:
        minutes = None if expires_at is None else round((expires_at - now_ms) / 60_000)
        assert minutes == (None if bytes(key) == b"@1" else 1440)


def _pairs(reply: object) -> dict[bytes, bytes]:
    """A hash, in the old form of replies or in the new one."""
    if isinstance(reply, dict):
        return reply
    assert isinstance(reply, list)
    return dict(zip(reply[::2], reply[1::2], strict=True))
