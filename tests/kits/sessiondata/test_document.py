"""What the document finds wrong, by its own names: five faults, five cases of the underscore, three risks."""

import asyncio
from pathlib import Path

import pytest

from keystead import Counter, Keyspace, Store, Value, sliding
from keystead.kits.sessiondata import SessionData, SessionDataKeys
from keystead.parts.lock import HeldBy, Hold, Holder, Lock
from tests.every_store import held_by, on
from tests.kits.conftest import Raw
from tests.kits.sessiondata.conftest import Begun, everywhere
from tests.kits.sharing.visiting import Clock

# --- the five faults -----------------------------------------------------------------------------------------


@everywhere
async def test_fault_1_a_key_with_an_underscore_is_not_cut_into_key_and_page(session: Begun) -> None:
    await session.area.set("User_Theme", "of the key")
    await session.area.set("User", "of the page", page="Theme")
    assert await session.area.get("User_Theme") == "of the key"
    assert await session.area.get("User", "Theme") == "of the page"
    assert await session.area.get("User") is None


@everywhere
async def test_fault_2_what_is_removed_is_gone_from_the_store(session: Begun) -> None:
    await session.area.set("ViewMode", "List", page="Items/100")
    await session.area.set_once("Message", "saved")
    assert await session.area.remove("ViewMode", "Items/100") is True
    assert await session.area.remove("Message") is True
    everything = await session.raw.everything()
    assert b"ViewMode" not in everything
    assert b"Message" not in everything


@on("sqlite", "redis", "postgres", "mariadb")
async def test_fault_3_old_sessions_go_by_themselves_with_no_visitor(
    data: SessionData, keys: SessionDataKeys, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Nobody reads or writes: what has expired leaves the file or the server, and the area of a user stays."""
    name = request.node.callspec.params["stores"]
    await data.user(1).set("Theme", "Dark")
    for _ in range(20):
        session = Begun(data, keys, await data.begin())
        await session.area.set_once("Message", "saved")
        for key in (session.plain, session.once):
            assert 0 < await session.raw.left_ms(key) <= 1440 * 60_000  # the store itself knows when
            await session.raw.ask("PEXPIRE", key, 500)
    assert held_by(name, request, tmp_path) > 1
    async with asyncio.timeout(30):
        while True:
            if held_by(name, request, tmp_path) == 1:
                break
            await asyncio.sleep(0.05)
    assert await data.user(1).get("Theme") == "Dark"


@everywhere
async def test_fault_4_what_is_kept_for_a_user_is_found_whatever_the_store_of_sessions_is(
    session: Begun, data: SessionData
) -> None:
    await data.user(1).set("Theme", "Dark")
    assert await data.user(1).get("Theme") == "Dark"
    await session.area.clear()
    assert await data.user(1).get("Theme") == "Dark"
    assert await data.user(1).remove("Theme") is True


@everywhere
async def test_fault_5_what_is_read_once_goes_one_by_one_on_every_store(session: Begun) -> None:
    await session.area.set_once("Message", "first")
    await session.area.set_once("Warning", "second")
    assert await session.area.get("Message") == "first"
    assert await session.fields() == (set(), {b"Warning"})
    assert await session.area.get("Warning") == "second"


# --- the five cases of the underscore ------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(
    ("key", "page"),
    [
        pytest.param("ViewMode", None, id="case 1: a plain key"),
        pytest.param("ViewMode", "Items/100", id="case 2: a plain key and a page"),
        pytest.param("User_Theme", None, id="case 3: an underscore in the key"),
        pytest.param("User_Theme", "Items/100", id="case 4: an underscore in the key, and a page"),
        pytest.param("My_Key", "Page_123", id="case 5: underscores in both"),
    ],
)
async def test_underscore(session: Begun, data: SessionData, key: str, page: str | None) -> None:
    joined = key if page is None else f"{key}_{page}"
    first, _, rest = joined.partition("_")
    others = {(joined, None), (first, rest or None), (key, None), (key, f"{page}_")} - {(key, page)}
    for area in (session.area, data.user(1)):
        await area.set(key, "right", page)
        for other_key, other_page in others:
            assert await area.get(other_key, other_page) is None
            await area.set(other_key, "wrong", other_page)
        assert await area.get(key, page) == "right"


# --- the three risks -----------------------------------------------------------------------------------------


class TableKeys(Keyspace):
    """Tables that one person at a time changes."""

    lock = Value("table:{id:int}", Holder, lifetime=sliding("120s", touch_every="30s"), tag="id", doc="who")
    fence = Counter("table:{id:int}:fence", lifetime=sliding("400d", touch_every="1d"), tag="id", doc="its number")


@everywhere
async def test_scenario_1_a_lock_that_was_released_is_seen_by_nobody(store: Store) -> None:
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
async def test_scenario_2_files_under_way_leave_nothing_behind(session: Begun) -> None:
    async def upload(number: int) -> None:
        await session.area.set(f"TempFile_{number:032X}", "{...}")
        assert await session.area.get(f"TempFile_{number:032X}") == "{...}"
        assert await session.area.remove(f"TempFile_{number:032X}") is True

    size = len(await session.raw.everything())
    await asyncio.gather(*(upload(number) for number in range(50)))
    assert await session.fields() == (set(), set())
    assert len(await session.raw.everything()) == size


@everywhere
async def test_scenario_3_there_is_one_place_to_look_and_it_says_what_the_kit_says(
    session: Begun, data: SessionData, stores: dict[str, Store], clock: Clock
) -> None:
    """Each value is in one store only, so no two can disagree about it."""
    await session.area.set("ViewMode", "List")
    await session.area.set_once("Message", "saved")
    await data.user(1).set("Theme", "Dark")
    places = {name: Raw(store) for name, store in stores.items()}
    found = {name: await place.keys() for name, place in places.items()}
    assert sorted(key for keys in found.values() for key in keys) == sorted([session.plain, session.once, "@1"])
    await session.area.clear()
    await data.user(1).clear()
    assert [await place.keys() for place in places.values()] == [set()] * len(places)
