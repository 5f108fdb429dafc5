"""Each reader of a session has a record of its own, although most reads decode none."""

import pytest
from pydantic import Field

from keystead import Keyspace, Sealed, Set, Store, Value, link, sliding
from keystead.parts.sessions import Live, Policy, SessionRecord, Sessions
from keystead.parts.sessions.session_lookup import REMEMBERED_MAX_BYTES
from keystead.schema.seal import KeyRing
from tests.parts.sessions.conftest import everywhere

pytestmark = everywhere

either = pytest.mark.parametrize("near", [None, "1s"], ids=["far", "near"])


class Cart(SessionRecord):
    name: str = ""
    items: list[str] = Field(default_factory=list)


class Vault(SessionRecord):
    secret: Sealed[str] = ""


class CartKeys(Keyspace):
    session = Value(
        "sess:{sid:token}",
        Cart,
        lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True),
        tag="sid",
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))


class VaultKeys(Keyspace):
    session = Value(
        "sess:{sid:token}",
        Vault,
        lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True),
        tag="sid",
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))


async def read(sessions: Sessions[Cart], token: str) -> Cart:
    found = await sessions.read(token)
    assert isinstance(found, Live)
    return found.session


@either
async def test_whoever_changes_their_record_changes_nobody_elses(store: Store, near: str | None) -> None:
    sessions = Sessions(CartKeys(store).session, Policy(near=near))
    token = (await sessions.create(Cart(uid="ann", items=["apple"]))).token
    for _ in range(20):
        record = await read(sessions, token)
        assert (record.name, record.items) == ("", ["apple"])
        record.name = "changed"
        record.items.append("changed")


@either
async def test_a_changed_session_is_read_as_it_is_now(store: Store, near: str | None) -> None:
    sessions = Sessions(CartKeys(store).session, Policy(near=near))
    token = (await sessions.create(Cart(uid="ann"))).token
    for number in range(20):
        await sessions.update(token, items=[str(number)])
        assert (await read(sessions, token)).items == [str(number)]
        assert (await read(sessions, token)).items == [str(number)]


async def test_large_records_are_not_remembered(store: Store) -> None:
    sessions = Sessions(CartKeys(store).session)
    token = (await sessions.create(Cart(uid="ann", name="x" * REMEMBERED_MAX_BYTES))).token
    for _ in range(3):
        assert len((await read(sessions, token)).name) == REMEMBERED_MAX_BYTES
    query = sessions._queries.for_token(token)
    assert query is not None
    assert query[2].remembered is None


@either
async def test_what_was_sealed_does_not_stay_in_memory(store: Store, near: str | None) -> None:
    sessions = Sessions(VaultKeys(store, seal=KeyRing({"test": b"k" * 32})).session, Policy(near=near))
    token = (await sessions.create(Vault(uid="ann", secret="opened"))).token
    for _ in range(3):
        found = await sessions.read(token)
        assert isinstance(found, Live)
        assert found.session.secret == "opened"
    query = sessions._queries.for_token(token)
    assert query is not None
    held = [cell.cell_contents for cell in query[2].remembered.make_record.__closure__]
    assert held
    assert "opened" not in repr(held)
