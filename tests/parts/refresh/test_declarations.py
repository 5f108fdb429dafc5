"""The families of refresh tokens, and what is refused at startup."""

from __future__ import annotations

# ruff: noqa: N815 - fields are named as they are stored
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from keystead import Keyspace, Set, Store, Value, after, connect, link, sliding
from keystead.errors import BadDeclaration, BadValue, DoesNotFit
from keystead.parts.refresh import RefreshRecord, RefreshTokens, Rotated, RotationRefused
from keystead.schema import VALUE
from keystead.stores import Guarantees
from tests.parts.refresh.conftest import RING, App, Clock, RefreshToken, TokenKeys, everywhere, here
from tests.parts.sessions.relays import Relay


class Camel(RefreshRecord):
    """The record of the key document, with the names that it has there."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    userId: str
    sessionToken: UUID


class DocumentKeys(Keyspace):
    """The two rows of the key document that refresh tokens need."""

    session = Value("{sessionToken:uuid}", str, lifetime=after("30d"), tag="sessionToken")
    refresh = Value(
        "refresh:{refreshToken:token}", Camel, lifetime=after("30d"), leads_to=session, member_of="user:{userId}"
    )


@everywhere
async def test_the_row_of_the_document_is_there_with_its_fields_and_its_lifetime(store: Store, clock: Clock) -> None:
    keys = DocumentKeys(store, seal=RING, now_ms=clock)
    session = UUID("3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f")
    await keys.session(session).set("ann")
    tokens = RefreshTokens(keys.refresh)
    begun = await tokens.begin(Camel(userId="123", sessionToken=session))
    assert isinstance(await tokens.rotate(begun.token), Rotated)
    key = keys.refresh(begun.id)
    assert key.key.startswith("refresh:")
    [raw, kind] = await store.run([("GET", key.key), ("TYPE", key.key)])
    assert kind == b"string"
    stored = json.loads(raw)
    assert (
        stored.items()
        >= {
            "userId": "123",
            "sessionToken": str(session),
            "createdAt": clock(),
            "expiresAt": clock() + 30 * 86_400_000,
            "isUsed": False,
        }.items()
    )
    left = await key.remaining()
    assert left is not None
    assert timedelta(days=29) < left <= timedelta(days=30)
    await keys.session(session).delete()
    assert await tokens.rotate(begun.token) == RotationRefused("session")
    assert await store.run([("EXISTS", key.key)]) == [0]


def refused(family: Any, **options: Any) -> str:
    with pytest.raises((BadDeclaration, DoesNotFit)) as caught:
        RefreshTokens(family, **options)
    return str(caught.value)


@here
async def test_families_of_another_shape_are_refused_with_the_reason(store: Store) -> None:
    class Bare(RefreshRecord):
        uid: str

    class OddKeys(Keyspace):
        session = Value("session:{sid:token}", str, lifetime=after("30d"))
        listed = Value(
            "listed:{sid:token}", RefreshToken, lifetime=after("30d"), listed_in=link("user_sessions", admits=True)
        )
        user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))
        text = Value("text:{token:token}", str, lifetime=after("30d"), leads_to=link("session", sid=VALUE))
        slides = Value("slides:{token:token}", RefreshToken, lifetime=sliding("30d", touch_every="1m"))
        no_session = Value("alone:{token:token}", Bare, lifetime=after("30d"))
        two_names = Value("two:{uid}:{token:token}", RefreshToken, lifetime=after("30d"), leads_to=session)
        number = Value("number:{token:int}", RefreshToken, lifetime=after("30d"), leads_to=session)
        by_index = Value("index:{token:token}", RefreshToken, lifetime=after("30d"), leads_to=listed)
        by_key = Value("key:{sid:token}", RefreshToken, lifetime=after("30d"), leads_to=session)

    keys = OddKeys(store, seal=RING)
    assert "RefreshTokens(keys.refresh)" in refused(keys)
    assert "RefreshTokens(keys.refresh)" in refused(keys.user_sessions)
    assert "subclass RefreshRecord" in refused(keys.text)
    assert 'after("30d")' in refused(keys.slides)
    assert "leads_to=session" in refused(keys.no_session)
    assert "the only placeholder" in refused(keys.two_names)
    assert "43 base64url characters" in refused(keys.number)
    assert "alive=lambda" in refused(keys.by_index)
    assert "a field of the model must name its session" in refused(keys.by_key)
    assert "key ring" in refused(OddKeys(store, needs_seal=False).by_index, alive=lambda record: None)
    assert "grace" in refused(TokenKeys(store, seal=RING).refresh, grace="30d")
    assert "unit" in refused(TokenKeys(store, seal=RING).refresh, grace=30)


@here
async def test_a_store_that_cannot_keep_the_promises_is_refused(store: Store) -> None:
    keys = TokenKeys(store, seal=RING)
    for guarantees, why in (
        (Guarantees(atomic="one key"), "needs an atomic step"),
        (Guarantees(consistency="eventual"), "may miss an acknowledged logout"),
    ):
        weak = Relay(store)
        keys.refresh.store = weak
        weak.guarantees = guarantees
        assert why in refused(keys.refresh)


async def test_a_cache_server_is_refused_when_the_keyspace_is_bound() -> None:
    async with connect("memory://") as store:
        weak = Relay(store)
        weak.guarantees = Guarantees(atomic="nothing", evicts=True)
        with pytest.raises(DoesNotFit):
            TokenKeys(weak, seal=RING)


class IndexedKeys(Keyspace):
    """Sessions that count only while a Set names them."""

    session = Value(
        "session:{sid:token}", RefreshToken, lifetime=after("30d"), listed_in=link("user_sessions", admits=True)
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))
    refresh = Value("refresh:{token:token}", RefreshToken, lifetime=after("30d"), leads_to=session)


@everywhere
async def test_the_session_check_can_be_replaced(store: Store, clock: Clock) -> None:
    keys = IndexedKeys(store, seal=RING, now_ms=clock)
    tokens = RefreshTokens(keys.refresh, alive=lambda record: keys.user_sessions(record.uid).has(record.sid))
    await keys.session("s1").set(RefreshToken(uid="ann", sid="s1"))
    begun = await tokens.begin(RefreshToken(uid="ann", sid="s1"))
    found = await tokens.rotate(begun.token)
    assert isinstance(found, Rotated)
    await keys.user_sessions("ann").delete()  # ends all sessions of a user, though their records are still there
    assert await tokens.rotate(found.token) == RotationRefused("session")


class MaybeSession(RefreshRecord):
    sid: str | None = None


class MaybeKeys(Keyspace):
    """Refresh tokens that may name no session."""

    session = Value("session:{sid:token}", str, lifetime=after("30d"))
    refresh = Value("refresh:{token:token}", MaybeSession, lifetime=after("30d"), leads_to=session)


@here
async def test_a_token_that_belongs_to_no_session_is_not_begun(store: Store) -> None:
    with pytest.raises(BadValue, match="needs a session"):
        await RefreshTokens(MaybeKeys(store, seal=RING).refresh).begin(MaybeSession())


@here
async def test_fields_set_by_the_part_ignore_caller_values(app: App) -> None:
    odd = RefreshToken(uid="ann", sid="the-session", generation=7, is_used=True)
    begun = await app.tokens.begin(odd)
    assert (begun.record.generation, begun.record.is_used) == (0, False)
    assert await app.works(begun.token)


@here
async def test_sessions_may_live_in_another_store(store: Store, clock: Clock) -> None:
    class ApartKeys(Keyspace):
        session = Value("session:{sid:token}", str, lifetime=after("30d"), role="durable")
        refresh = Value("refresh:{token:token}", RefreshToken, lifetime=after("30d"), leads_to=session)

    async with connect("memory://") as durable:
        keys = ApartKeys(store, durable=durable, seal=RING, now_ms=clock)
        tokens = RefreshTokens(keys.refresh)
        await keys.session("s").set("ann")
        begun = await tokens.begin(RefreshToken(uid="ann", sid="s"))
        rotated = await tokens.rotate(begun.token)
        assert isinstance(rotated, Rotated)
        await keys.session("s").delete()
        assert await tokens.rotate(rotated.token) == RotationRefused("session")
        assert not await keys.refresh(begun.id).exists()
