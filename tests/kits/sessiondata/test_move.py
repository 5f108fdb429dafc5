"""A session gets a new id at login, which protects against session fixation."""

import asyncio

from keystead.kits.sessiondata import SessionData, SessionDataKeys, SessionDataSettings
from tests.kits.sessiondata.conftest import Begun, everywhere, here


@everywhere
async def test_move_keeps_all_values_and_invalidates_the_old_id(
    session: Begun, data: SessionData, keys: SessionDataKeys
) -> None:
    await session.area.set("ViewMode", "List")
    await session.area.set("My_Key", "Card", page="Page_123")
    await session.area.set_once("Message", "saved")
    await session.pass_minutes(240)
    started = await session.raw.ask("HGET", session.plain, "StartTime")
    new_id = await data.move(session.id)
    assert new_id is not None
    assert new_id != session.id
    moved = Begun(data, keys, new_id)
    assert await moved.minutes_left() == (1440, 1440)
    assert await session.raw.keys() == {moved.plain, moved.once}
    assert await session.raw.ask("HGET", moved.plain, "StartTime") == started
    assert await session.area.set("ViewMode", "of a thief") is False
    assert await session.area.set_once("Message", "of a thief") is False
    assert await session.area.get("ViewMode") is None
    assert (await moved.area.get("ViewMode"), await moved.area.get("My_Key", "Page_123")) == ("List", "Card")
    assert (await moved.area.get("Message"), await moved.area.get("Message")) == ("saved", None)


@everywhere
async def test_move_works_without_read_once_values_and_returns_none_for_no_session(
    session: Begun, data: SessionData, keys: SessionDataKeys
) -> None:
    new_id = await data.move(session.id)
    assert new_id is not None
    assert await session.raw.keys() == {Begun(data, keys, new_id).plain}
    for nobody in (session.id, "", "attackerchosenid"):
        assert await data.move(nobody) is None
    assert await session.raw.keys() == {Begun(data, keys, new_id).plain}


@everywhere
async def test_of_concurrent_moves_one_gets_an_id_and_no_copy_is_left(
    session: Begun, data: SessionData, keys: SessionDataKeys
) -> None:
    await session.area.set_once("Message", "saved")
    found = [one for one in await asyncio.gather(*(data.move(session.id) for _ in range(8))) if one is not None]
    assert len(found) == 1
    moved = Begun(data, keys, found[0])
    assert await session.raw.keys() == {moved.plain, moved.once}


@everywhere
async def test_a_concurrent_write_is_moved_or_refused_and_never_lost(
    session: Begun, data: SessionData, keys: SessionDataKeys
) -> None:
    """Each write that returned True is under the new id; each that returned False is nowhere."""

    async def write(number: int) -> bool:
        area = data.session(session.id)
        return await (area.set_once if number % 3 == 0 else area.set)(f"Key{number}", str(number))

    *told, new_id = await asyncio.gather(*(write(number) for number in range(30)), data.move(session.id))
    assert isinstance(new_id, str)
    moved = Begun(data, keys, new_id)
    there = [await moved.area.get(f"Key{number}") is not None for number in range(30)]
    assert there == told
    assert await session.raw.ask("EXISTS", session.plain, session.once) == 0


@everywhere
async def test_a_read_once_value_is_read_once_during_a_move(session: Begun, data: SessionData) -> None:
    await session.area.set_once("Message", "saved")
    *read, new_id = await asyncio.gather(
        *(data.session(session.id).get("Message") for _ in range(10)), data.move(session.id)
    )
    assert isinstance(new_id, str)
    read.append(await data.session(new_id).get("Message"))
    assert read.count("saved") == 1


@everywhere
async def test_a_full_session_is_moved(session: Begun, data: SessionData) -> None:
    await asyncio.gather(*(session.area.set(f"Key_{number}", "x" * number) for number in range(500)))
    new_id = await data.move(session.id)
    assert new_id is not None
    assert await data.session(new_id).get("Key_499") == "x" * 499
    assert len(await session.raw.keys()) == 1


@here
async def test_a_write_between_copy_and_delete_is_copied_again(session: Begun, data: SessionData) -> None:
    begun: list[str] = []
    session_of = data.session

    def seen(session_id: str) -> object:
        begun.append(session_id)
        return session_of(session_id)

    old = session_of(session.id)
    end_if = type(old)._end_if

    async def late(self: object, *held: object) -> bool:
        if len(begun) < 3:  # the old one, and the first copy
            assert await session.area.set("Late", "x") is True
        return await end_if(self, *held)  # type: ignore[arg-type]

    data.session = seen  # type: ignore[method-assign, assignment]
    type(old)._end_if = late  # type: ignore[method-assign, assignment]
    try:
        new_id = await data.move(session.id)
    finally:
        type(old)._end_if = end_if  # type: ignore[method-assign]
    assert new_id is not None
    assert await session_of(new_id).get("Late") == "x"
    assert len(await session.raw.keys()) == 1  # the first copy is gone


@everywhere
async def test_a_session_of_any_size_is_moved(keys: SessionDataKeys) -> None:
    """A command has a limit of arguments; a session that grew beyond it is moved, too."""
    data = SessionData(keys, SessionDataSettings(fields_max=4000))
    names = [f"Key{number}" for number in range(4000)]
    session = Begun(data, keys, await data.begin(dict.fromkeys(names[:2000], "x")))
    await session.raw.ask("HSET", session.plain, *(part for name in names[2000:] for part in (name, "x")))
    new_id = await data.move(session.id)
    assert new_id is not None
    moved = Begun(data, keys, new_id)
    assert (await moved.fields())[0] == {name.encode() for name in names}
    assert await moved.minutes_left() == (1440, -1)
    assert await session.area.exists() is False
