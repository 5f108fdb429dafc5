"""Session data: the same results on every store."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import pytest
from pydantic import ValidationError

from keystead import Store
from keystead.errors import BadValue, StoreUnavailable
from keystead.kits.sessiondata import SessionData, SessionDataKeys, SessionDataSettings, TooLong
from keystead.kits.sessiondata.service import guid_of
from keystead.stores import Outcome, Step
from tests.kits.conftest import Raw
from tests.kits.sessiondata.conftest import Begun, everywhere, here, renewed_by_writes
from tests.kits.sharing.visiting import Clock

HOSTILE = [
    "_",
    "__",
    "a_b",
    "/",
    "a/b/c",
    "%",
    "%5F",
    "{x}",
    "*",
    "[a]",
    ":",
    " ",
    "\n",
    "\x00",
    "日本語",
    "😀",
    "'\";--",
]


# --- kept values ---------------------------------------------------------------------------------------------


@everywhere
async def test_a_value_is_read_until_it_is_removed(session: Begun) -> None:
    area = session.area
    assert await area.get("ViewMode") is None
    assert await area.set("ViewMode", "List") is True
    assert await area.set("ViewMode", "Card", page="Items/100") is True
    assert (await area.get("ViewMode"), await area.get("ViewMode", "Items/100")) == ("List", "Card")
    assert await area.get("ViewMode", "Items/200") is None
    assert await area.remove("ViewMode") is True
    assert (await area.get("ViewMode"), await area.get("ViewMode", "Items/100")) == (None, "Card")
    assert await area.remove("ViewMode") is False
    assert await area.set("ViewMode", "") is True
    assert await area.get("ViewMode") == ""


@everywhere
async def test_keys_and_pages_of_any_characters_are_distinct_names(session: Begun) -> None:
    names = [(key, page) for key in HOSTILE for page in (None, *HOSTILE)]
    await asyncio.gather(*(session.area.set(key, f"{key} {page}", page) for key, page in names))
    found = await asyncio.gather(*(session.area.get(key, page) for key, page in names))
    assert found == [f"{key} {page}" for key, page in names]
    assert len((await session.fields())[0]) == len(names)


@everywhere
async def test_concurrent_writes_to_different_keys_both_survive(session: Begun, data: SessionData) -> None:
    areas = [data.session(session.id) for _ in range(20)]
    await asyncio.gather(*(area.set(f"Key{n}", str(n)) for n, area in enumerate(areas)))
    assert [await session.area.get(f"Key{n}") for n in range(20)] == [str(n) for n in range(20)]


@everywhere
async def test_sessions_are_isolated(session: Begun, data: SessionData) -> None:
    other = data.session(await data.begin())
    await session.area.set("ViewMode", "List")
    assert await other.get("ViewMode") is None
    await other.clear()
    assert await session.area.get("ViewMode") == "List"


# --- read-once values ----------------------------------------------------------------------------------------


@everywhere
async def test_one_of_fifty_readers_gets_a_read_once_value(session: Begun, data: SessionData) -> None:
    assert await session.area.set_once("Message", "saved") is True
    found = await asyncio.gather(*(data.session(session.id).get("Message") for _ in range(50)))
    assert sorted(found, key=str) == [*[None] * 49, "saved"]


@everywhere
async def test_reading_one_value_does_not_consume_others(session: Begun) -> None:
    for key, page in (("Message", None), ("Message", "Items/1"), ("Warning", None)):
        await session.area.set_once(key, f"{key} {page}", page)
    assert await session.area.get("Message") == "Message None"
    assert await session.area.get("Message") is None
    assert await session.area.get("Message", "Items/1") == "Message Items/1"
    assert await session.area.get("Warning") == "Warning None"
    assert await session.fields() == (set(), set())


@everywhere
async def test_a_name_has_one_value_kept_or_read_once(session: Begun) -> None:
    await session.area.set("Message", "stays")
    await session.area.set_once("Message", "once")
    assert await session.fields() == (set(), {b"Message"})
    assert (await session.area.get("Message"), await session.area.get("Message")) == ("once", None)
    await session.area.set_once("Message", "once")
    await session.area.set("Message", "stays")
    assert await session.fields() == ({b"Message"}, set())
    assert (await session.area.get("Message"), await session.area.get("Message")) == ("stays", "stays")


@everywhere
async def test_a_value_that_changes_between_kept_and_read_once_is_never_missed(session: Begun) -> None:
    """A name alternates between kept and read once. It may be missing only after it was read once."""
    await session.area.set("Message", "stays")
    done = asyncio.Event()

    async def write() -> None:
        for _ in range(20):
            await session.area.set_once("Message", "once")
            await session.area.set("Message", "stays")
        done.set()

    async def read() -> None:
        last = "stays"
        while not done.is_set():
            found = await session.area.get("Message")
            assert found is not None or last == "once"
            last = found or last

    await asyncio.gather(write(), read())
    assert await session.area.get("Message") == "stays"


# --- the end of a session ------------------------------------------------------------------------------------


@everywhere
async def test_clear_ends_all_of_a_session_and_nothing_else(session: Begun, data: SessionData) -> None:
    await session.area.set("ViewMode", "List")
    await session.area.set_once("Message", "saved")
    await data.user(1).set("Theme", "Dark")
    assert await session.area.clear() is True
    assert (await session.area.get("ViewMode"), await session.area.get("Message")) == (None, None)
    assert await session.raw.keys() <= {"@1"}
    assert await data.user(1).get("Theme") == "Dark"
    assert await session.area.clear() is False


@everywhere
async def test_a_write_after_clear_or_expiry_does_not_revive_the_session(
    session: Begun, data: SessionData, keys: SessionDataKeys
) -> None:
    await session.area.clear()
    expired = Begun(data, keys, await data.begin())
    await expired.area.set_once("Message", "saved")
    await expired.expire()
    for dead in (session, expired):
        assert await dead.area.set("ViewMode", "List") is False
        assert await dead.area.set_once("Message", "saved") is False
        assert await dead.area.remove("ViewMode") is False
        assert await dead.area.get("Message") is None
        assert await dead.area.exists() is False
    assert await session.raw.keys() == set()


@everywhere
async def test_a_set_racing_a_clear_never_revives_the_session(data: SessionData, keys: SessionDataKeys) -> None:
    for _ in range(10):
        session = Begun(data, keys, await data.begin())
        await asyncio.gather(
            *(data.session(session.id).set(f"Key{n}", "x") for n in range(4)),
            data.session(session.id).get("Message"),
            session.area.clear(),
            *(data.session(session.id).set_once(f"Once{n}", "x") for n in range(4)),
            data.session(session.id).remove("Key1"),
        )
        assert await session.raw.ask("EXISTS", session.plain) == 0
        assert await session.raw.ask("EXISTS", session.once) == 0


@everywhere
async def test_an_unknown_id_has_no_session(data: SessionData, store: Store) -> None:
    for guess in ("attackerchosenid", "", "@1", "\ud800", "x" * 100_000):
        area = data.session(guess)
        assert await area.set("ViewMode", "List") is False
        assert await area.get("StartTime") is None
    assert await Raw(store).keys() == set()


@everywhere
async def test_the_contents_of_the_store_grant_no_access(session: Begun, data: SessionData) -> None:
    await session.area.set("ViewMode", "List")
    assert session.id.encode() not in await session.raw.everything()
    assert guid_of(session.id).encode() in await session.raw.everything()
    assert await data.session(guid_of(session.id)).exists() is False


@here
async def test_start_time_is_read_only(session: Begun, clock: Clock) -> None:
    started = await session.area.get("StartTime")
    assert started is not None
    assert abs(datetime.fromisoformat(started).timestamp() * 1000 - clock()) < 60_000
    for change in (session.area.set("StartTime", "x"), session.area.remove("StartTime")):
        with pytest.raises(BadValue, match="StartTime"):
            await change
    with pytest.raises(BadValue, match="StartTime"):
        await session.area.set_once("StartTime", "x")
    assert await session.area.set("StartTime", "of a page", page="Items/1") is True
    assert await session.area.get("StartTime") == started


# --- renewal -------------------------------------------------------------------------------------------------


@everywhere
async def test_a_session_lives_1440_minutes_after_each_write(session: Begun) -> None:
    assert await session.minutes_left() == (1440, -1)
    await session.pass_minutes(240)
    await session.area.set_once("Message", "saved")
    assert await session.minutes_left() == (1440, 1440)
    await session.pass_minutes(240)
    await session.area.set("ViewMode", "List")
    assert await session.minutes_left() == (1440, 1440)


@everywhere
async def test_removing_does_not_renew_the_session(session: Begun) -> None:
    for key in ("ViewMode", "FilterSettings"):
        await session.area.set(key, "x")
        await session.area.set_once(f"{key}Once", "x")
    await session.pass_minutes(240)
    assert await session.area.remove("ViewMode") is True
    assert await session.area.remove("ViewModeOnce") is True
    assert await session.minutes_left() == (1200, 1200)
    assert await session.fields() == ({b"FilterSettings"}, {b"FilterSettingsOnce"})


@everywhere
async def test_a_use_renews_the_session_at_most_once_a_minute(session: Begun, clock: Clock) -> None:
    await session.area.set("ViewMode", "List")
    await session.area.set_once("Message", "saved")
    for missing in ("ViewMode", "Absent"):
        await session.pass_minutes(240)
        await session.area.get(missing)
        assert await session.minutes_left() == (1440, 1440)
    clock.move("10m")  # a renewal now would add 10 minutes
    await session.area.get("ViewMode")
    assert await session.minutes_left() == (1440, 1440)


@everywhere
async def test_with_renewed_by_write_only_a_write_renews_the_session(keys: SessionDataKeys) -> None:
    data = renewed_by_writes(keys, "60m")
    session = Begun(data, keys, await data.begin())
    await session.area.set("ViewMode", "List")
    await session.area.set_once("Message", "saved")
    await session.pass_minutes(30)
    assert await session.area.get("ViewMode") == "List"
    assert await session.area.get("Absent") is None
    assert await session.minutes_left() == (30, 30)
    await session.area.set("ViewMode", "Card")
    assert await session.minutes_left() == (60, 60)


@here
async def test_a_renewal_after_the_end_does_not_revive_the_session(session: Begun, data: SessionData) -> None:
    """The session ends between a read and the renewal that follows it."""
    await session.pass_minutes(240)
    area, run = session.area, session.area._keys.run

    async def ended(*operations: object) -> object:
        found = await run(*operations)  # type: ignore[call-overload]
        await data.session(session.id).clear()
        return found

    area._keys.run = ended  # type: ignore[method-assign, assignment]
    assert await area.get("StartTime") is not None
    assert await session.raw.keys() == set()


# --- user data -----------------------------------------------------------------------------------------------


@everywhere
async def test_user_data_is_in_the_durable_store_and_never_expires(data: SessionData, stores: dict[str, Store]) -> None:
    user = data.user(1)
    await user.set("Theme", "Dark")
    await user.set("View", "{...}", page="Items/200")
    durable = Raw(stores.get("durable", stores["default"]))
    assert await durable.ask("HGETALL", "@1") == {b"User_Theme": b"Dark", b"User_View_Items/200": b"{...}"}
    assert await durable.ask("PTTL", "@1") == -1
    if "durable" in stores:
        assert await Raw(stores["default"]).keys() == set()
    assert (await user.get("Theme"), await user.get("View", "Items/200"), await user.get("View")) == (
        "Dark",
        "{...}",
        None,
    )
    assert await data.user(2).get("Theme") is None
    assert (await user.remove("Theme"), await user.remove("Theme")) == (True, False)
    assert (await user.clear(), await user.clear()) == (True, False)
    assert await durable.keys() == set()


# --- refusals ------------------------------------------------------------------------------------------------


@here
async def test_invalid_or_too_long_names_are_refused_and_nothing_is_stored(
    session: Begun, data: SessionData, keys: SessionDataKeys
) -> None:
    before = await session.raw.everything()
    short = SessionData(keys, SessionDataSettings(value_max="10"))
    for area in (session.area, data.user(1)):
        for key, page in (("", None), ("x", ""), (None, None), ("x", 7), ("\ud800", None)):
            with pytest.raises(BadValue):
                await area.set(key, "x", page)  # type: ignore[arg-type]
        for key, page in (("x" * 257, None), ("x", "x" * 257)):
            with pytest.raises(TooLong):
                await area.set(key, "x", page)
        with pytest.raises(BadValue):
            await area.set("x", b"bytes")  # type: ignore[arg-type]
        with pytest.raises(TooLong, match="1000000 bytes"):
            await area.set("x", "x" * 2**20)
    with pytest.raises(TooLong):
        await short.session(session.id).set("x", "日本語日")
    assert await session.raw.everything() == before
    assert await short.session(session.id).set("x", "日本語x") is True
    assert await session.area.set("x" * 256, "x" * 1_000_000, "x" * 256) is True


@pytest.mark.parametrize(
    "wrong",
    [{"retention": "1440"}, {"retention": "1m"}, {"retention": "401d"}, {"renewed_by": "read"}, {"value_max": "much"}],
    ids=str,
)
def test_invalid_settings_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        SessionDataSettings.model_validate(wrong)


@here
async def test_a_store_failure_at_the_renewal_does_not_lose_a_read_once_value(
    session: Begun, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consuming and renewing are one atomic step: both take effect, or neither does."""
    await session.area.set_once("Message", "saved")
    await session.pass_minutes(30)
    steps, real = [], store.atomically

    async def one_step(given: Sequence[Step]) -> Outcome:
        steps.append(given)
        if len(steps) > 1:
            raise StoreUnavailable("the store went away")
        return await real(given)

    monkeypatch.setattr(store, "atomically", one_step)
    assert await session.area.get("Message") == "saved"
    assert await session.minutes_left() == (1440, -1)
