"""The key document of the session data kit: fields of sessions and users, by key and page."""

import time

import pytest

from keystead import Store
from keystead.errors import BadValue
from keystead.kits.sessiondata import SessionDataKeys, SessionField, UserField
from tests.kits.conftest import Raw, lifetimes, rows, rows_of
from tests.kits.writes import each_write

DOCUMENT = {
    "{SessionGuid}": "Hash",
    "{SessionGuid}_readOnce": "Hash",
    "@{UserId}": "Hash",
}
OURS = {
    "sessiondata:apikeys": "SortedSet",  # of API keys it says that there are some
    "sessiondata:apikey:{id}": "Value",
    "sessiondata:asked:{name}:{window}:{client}": "Counter",
}
GUID = "abc123def456"
VIEW_MODE = SessionField("ViewMode")
DAY_MS = 86_400_000


def in_a_day() -> int:
    return time.time_ns() // 1_000_000 + DAY_MS


@pytest.fixture
def keys(store: Store) -> SessionDataKeys:
    return SessionDataKeys(store)


def test_every_row_of_the_document_is_a_family() -> None:
    assert rows_of(SessionDataKeys) == rows(DOCUMENT | OURS)


def test_sessions_expire_and_user_data_does_not() -> None:
    assert lifetimes(SessionDataKeys) == {
        "session": "until `ends_at`, at most 400 days",  # the service gives it 1440 minutes, or what it is told
        "read_once": "until `ends_at`, at most 400 days",
        "user_area": "never expires: removed by the user, or with the user",
        "api_keys": "never expires: emptied as API keys are revoked",
        "api_key": "never expires: removed when it is revoked, or with the user",
        "asked": "1 minute 10 seconds",
    }


def test_user_data_and_api_keys_are_durable() -> None:
    durable = {name for name, family in SessionDataKeys.families.items() if family.role == "durable"}
    assert durable == {"user_area", "api_key", "api_keys"}


async def test_the_examples_of_the_document_are_stored_byte_for_byte(keys: SessionDataKeys, raw: Raw) -> None:
    await keys.session(guid=GUID).put(
        {VIEW_MODE: "List", SessionField("ViewMode", "Items/100"): "Card"}, ends_at=in_a_day()
    )
    await keys.read_once(guid=GUID).put({SessionField("Message"): "{...}"}, ends_at=in_a_day())
    await keys.user_area(userId=1).put({UserField("Theme"): "Dark", UserField("View", "Items/200"): "{...}"})
    assert await raw.ask("HGETALL", "abc123def456") == {b"ViewMode": b"List", b"ViewMode_Items/100": b"Card"}
    assert await raw.ask("HGETALL", "abc123def456_readOnce") == {b"Message": b"{...}"}
    assert await raw.ask("HGETALL", "@1") == {b"User_Theme": b"Dark", b"User_View_Items/200": b"{...}"}
    assert await raw.keys() == {"abc123def456", "abc123def456_readOnce", "@1"}


@pytest.mark.parametrize(
    ("field", "stored"),
    [
        # The five cases of the document: the simple ones stay as they are, the others can be taken apart again.
        (SessionField("ViewMode"), b"ViewMode"),
        (SessionField("ViewMode", "Items/100"), b"ViewMode_Items/100"),
        (SessionField("User_Theme"), b"User%5FTheme"),
        (SessionField("User_Theme", "Items/100"), b"User%5FTheme_Items/100"),
        (SessionField("My_Key", "Page_123"), b"My%5FKey_Page_123"),
        # Keys of the running system that have an underscore, too.
        (SessionField("TableExclusive_SiteId=7"), b"TableExclusive%5FSiteId=7"),
        (SessionField("TempFile_0A1B"), b"TempFile%5F0A1B"),
        (SessionField("100%"), b"100%25"),
    ],
)
async def test_a_field_is_read_back_with_its_own_key_and_page(
    keys: SessionDataKeys, raw: Raw, field: SessionField, stored: bytes
) -> None:
    await keys.session(guid=GUID).put({field: "x"}, ends_at=in_a_day())
    assert await raw.ask("HGETALL", GUID) == {stored: b"x"}
    assert await keys.session(guid=GUID).get() == {field: "x"}


async def test_a_key_with_an_underscore_is_not_taken_for_a_key_and_a_page(keys: SessionDataKeys) -> None:
    key = keys.session(guid=GUID)
    await key.put(
        {SessionField("User_Theme"): "key", SessionField("User", "Theme"): "key and page"}, ends_at=in_a_day()
    )
    assert await key.field(SessionField("User_Theme")) == "key"
    assert await key.field(SessionField("User", "Theme")) == "key and page"
    assert await key.count() == 2


@pytest.mark.parametrize("name", ["session", "read_once"])
async def test_a_write_sets_the_end_of_a_session(keys: SessionDataKeys, raw: Raw, name: str) -> None:
    key = getattr(keys, name)(GUID)
    await key.put({VIEW_MODE: "List"}, ends_at=in_a_day())
    assert await raw.lives(key.key, "1440m")
    assert await key.update({VIEW_MODE: "Card"}, ends_at=in_a_day() + DAY_MS)
    assert await raw.lives(key.key, "2880m")
    with pytest.raises(BadValue, match="ends_at"):
        await key.put({VIEW_MODE: "List"})


async def test_user_data_never_expires_after_any_write(keys: SessionDataKeys, raw: Raw) -> None:
    async for verb in each_write(keys.user_area(userId=1), {UserField("Theme"): "Dark"}):
        assert await raw.lives("@1", None), verb


async def test_removing_a_field_does_not_change_the_deadline(keys: SessionDataKeys, raw: Raw) -> None:
    session, once = keys.session(guid=GUID), keys.read_once(guid=GUID)
    for key in (session, once):
        await key.put({VIEW_MODE: "List", SessionField("FilterSettings"): "..."}, ends_at=in_a_day())
        await raw.ask("PEXPIRE", key.key, 72_000_000)  # 1200 of the 1440 minutes are left
    assert await keys.run(session.remove(VIEW_MODE), once.remove(VIEW_MODE)) == (1, 1)
    for key in (session, once):
        assert await raw.ask("HGETALL", key.key) == {b"FilterSettings": b"..."}
        assert await raw.lives(key.key, "1200m")


async def test_removing_the_last_field_deletes_the_key(keys: SessionDataKeys, raw: Raw) -> None:
    await keys.session(guid=GUID).put({VIEW_MODE: "List"}, ends_at=in_a_day())
    await keys.session(guid=GUID).remove(VIEW_MODE)
    assert await raw.keys() == set()


async def test_a_message_is_read_once(keys: SessionDataKeys, raw: Raw) -> None:
    message, key = SessionField("Message"), keys.read_once(guid=GUID)
    await key.put({message: "saved", SessionField("Other"): "kept"}, ends_at=in_a_day())
    assert await key.consume_field(message) == "saved"
    assert await key.consume_field(message) is None
    assert await raw.ask("HGETALL", "abc123def456_readOnce") == {b"Other": b"kept"}
    done = await keys.atomically(key.get(), key.delete())
    assert done.values == ({SessionField("Other"): "kept"}, True)
    assert await raw.keys() == set()


async def test_deleting_a_session_deletes_its_read_once_data_but_not_user_data(keys: SessionDataKeys, raw: Raw) -> None:
    await keys.session(guid=GUID).put({VIEW_MODE: "List"}, ends_at=in_a_day())
    await keys.read_once(guid=GUID).put({SessionField("Message"): "{...}"}, ends_at=in_a_day())
    await keys.session(guid="0A1B").put({VIEW_MODE: "Card"}, ends_at=in_a_day())
    await keys.user_area(userId=1).put({UserField("Theme"): "Dark"})
    assert await keys.session(guid=GUID).delete() is True
    assert await raw.keys() == {"0A1B", "@1"}
