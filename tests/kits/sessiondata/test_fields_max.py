"""The limit of values per session and per user."""

import asyncio

import pytest
from pydantic import ValidationError

from keystead.errors import BadValue
from keystead.kits.sessiondata import SessionArea, SessionData, SessionDataKeys, SessionDataSettings, TooMany, UserArea
from tests.every_store import on
from tests.kits.sessiondata.conftest import Begun, everywhere, here
from tests.servers import Server


@everywhere
async def test_a_value_beyond_fields_max_is_refused_and_existing_values_can_be_changed(keys: SessionDataKeys) -> None:
    data = SessionData(keys, SessionDataSettings(fields_max=3))
    session = Begun(data, keys, await data.begin())
    for area in (session.area, data.user(1)):
        for number in range(3):
            await area.set("Key", str(number), page=f"Items/{number}")
        with pytest.raises(TooMany, match="the limit of 3 values is reached"):
            await area.set("Key", "x")
        await area.set("Key", "changed", page="Items/2")
        assert (await area.get("Key"), await area.get("Key", "Items/2")) == (None, "changed")
        assert await area.remove("Key", "Items/0") is True
        await area.set("Key", "x")
        assert await area.get("Key") == "x"


@everywhere
async def test_read_once_values_have_their_own_limit(keys: SessionDataKeys) -> None:
    data = SessionData(keys, SessionDataSettings(fields_max=2))
    session = Begun(data, keys, await data.begin({"A": "stays", "B": "stays"}))
    for key in ("C", "D"):
        assert await session.area.set_once(key, "once") is True
    before = await session.raw.everything()
    with pytest.raises(TooMany):
        await session.area.set_once("E", "once")
    assert await session.raw.everything() == before
    assert await session.area.get("C") == "once"
    assert await session.area.set_once("E", "once") is True


@everywhere
async def test_concurrent_writers_never_exceed_fields_max(keys: SessionDataKeys) -> None:
    data = SessionData(keys, SessionDataSettings(fields_max=10))
    session = Begun(data, keys, await data.begin())

    async def write(area: SessionArea | UserArea, number: int) -> bool:
        try:
            await area.set(f"Key{number}", "x")
        except TooMany:
            return False
        return True

    for area in (session.area, data.user(1)):
        assert sum(await asyncio.gather(*(write(area, number) for number in range(100)))) == 10
    assert len((await session.fields())[0]) == 10


@everywhere
async def test_a_full_session_that_has_ended_is_not_revived(keys: SessionDataKeys) -> None:
    data = SessionData(keys, SessionDataSettings(fields_max=1))
    session = Begun(data, keys, await data.begin())
    await session.area.clear()
    assert await session.area.set("A", "x") is False
    assert await session.area.set_once("A", "x") is False
    assert await session.raw.keys() == set()


@on("redis")
async def test_a_write_does_not_copy_all_fields(keys: SessionDataKeys, redis_server: Server) -> None:
    """What may be stopped behind a write has to be undone, for which Redis copies the whole hash: a limit may not."""
    data = SessionData(keys, SessionDataSettings(fields_max=3))
    session = Begun(data, keys, await data.begin({"A": "x"}))
    redis_server.ask("CONFIG", "RESETSTAT")
    for area in (session.area, data.user(1)):
        for key in ("A", "B", "C", "A"):
            await area.set(key, "x")
        with pytest.raises(TooMany):
            await area.set("D", "x")
    for key in ("D", "E", "F", "D"):
        await session.area.set_once(key, "x")
    with pytest.raises(TooMany):
        await session.area.set_once("G", "x")
    assert "cmdstat_dump" not in str(redis_server.ask("INFO", "commandstats"))


@here
async def test_a_session_is_created_with_all_values_or_not_at_all(keys: SessionDataKeys) -> None:
    data = SessionData(keys, SessionDataSettings(fields_max=2, value_max="10"))
    session = Begun(data, keys, await data.begin({"User_A": "x", "B": "y"}))
    assert (await session.area.get("User_A"), await session.area.get("B")) == ("x", "y")
    assert await session.minutes_left() == (1440, -1)
    await session.area.clear()
    for wrong in ({"A": "x" * 11}, {"": "x"}, {"StartTime": "x"}, {"A": "x", "B": "x", "C": "x"}):
        with pytest.raises(BadValue):
            await data.begin(wrong)
    assert await session.raw.keys() == set()


@pytest.mark.parametrize("wrong", [0, -1, 100_001, "many"])
def test_fields_max_must_be_at_least_1(wrong: object) -> None:
    with pytest.raises(ValidationError):
        SessionDataSettings.model_validate({"fields_max": wrong})


@on("memory", "redis")
async def test_a_session_can_be_created_with_thousands_of_values(keys: SessionDataKeys) -> None:
    many = {f"Key{number}": str(number) for number in range(8_000)}
    data = SessionData(keys, SessionDataSettings(fields_max=len(many)))
    session_id = await data.begin(many)
    assert await data.session(session_id).get("Key7999") == "7999"
    moved = await data.move(session_id)
    assert moved is not None
    assert await data.session(moved).get("Key0") == "0"
    with pytest.raises(TooMany, match="the limit of 8000 values is reached"):
        await data.begin({**many, "OneMore": "x"})
