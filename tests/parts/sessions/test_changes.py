"""Changes: two requests that write different fields both succeed, and a read blocks no one."""

import asyncio
from collections.abc import Sequence

import pytest

from keystead import Store
from keystead.errors import BadValue
from keystead.parts.sessions import Gone, Live, Sessions
from tests.parts.sessions.conftest import AppSession, Clock, everywhere, in_every_order, sessions_of, switches_on
from tests.parts.sessions.relays import Actor, Gated, every_order, in_order


@everywhere
async def test_fifty_changes_of_different_fields_at_once_all_survive(store: Store, clock: Clock) -> None:
    several = [sessions_of(store, clock) for _ in range(5)]
    made = await several[0].create(AppSession(uid="ann"))

    def setting(name: str, number: int) -> object:
        return lambda session: session.model_copy(update={"fields": {**session.fields, name: number}})

    changed = await asyncio.gather(
        *(several[n % 5].change(made.token, setting(f"field {n}", n)) for n in range(50))  # type: ignore[arg-type]
    )
    assert all(changed)
    found = await several[0].read(made.token)
    assert isinstance(found, Live)
    assert found.session.fields == {f"field {n}": n for n in range(50)}


@everywhere
async def test_updates_of_different_fields_and_touches_do_not_overwrite_each_other(store: Store, clock: Clock) -> None:
    sessions = sessions_of(store, clock)
    made = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(90_000)
    await asyncio.gather(
        *(sessions.update(made.token, theme="dark") for _ in range(5)),
        *(sessions.update(made.token, seen=7) for _ in range(5)),
        *(sessions.update(made.token, provider_token="another") for _ in range(5)),
        *(sessions.touch(made.token) for _ in range(5)),
        *(sessions.read(made.token) for _ in range(5)),
    )
    found = await sessions.read(made.token)
    assert isinstance(found, Live)
    session = found.session
    assert (session.theme, session.seen, session.provider_token) == ("dark", 7, "another")
    assert round(session.last_seen_at.timestamp() * 1000) == clock.now_ms


@in_every_order
async def test_in_every_order_two_updates_of_different_fields_both_survive(ordered: Store) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        clock, gated = Clock(), Gated(ordered)
        sessions, others = sessions_of(gated, clock), sessions_of(gated, clock)
        made = await sessions.create(AppSession(uid="ann"))
        order, _ = await in_order(
            gated,
            {
                "a": lambda: sessions.update(made.token, theme="dark"),
                "b": lambda: others.update(made.token, seen=7),
            },
            first,
        )
        found = await sessions.read(made.token)
        assert isinstance(found, Live), order
        assert (found.session.theme, found.session.seen) == ("dark", 7), order
        await sessions.revoke_all("ann")
        return order

    assert await every_order(one, switches=switches_on(ordered)) >= 6


@everywhere
async def test_an_update_returns_the_new_session(sessions: Sessions[AppSession]) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    changed = await sessions.update(made.token, theme="dark")
    assert changed == await sessions.read(made.token)
    assert isinstance(changed, Live)
    assert changed.session == made.session.model_copy(update={"theme": "dark"})


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"colour": "red"}, "the session has no field 'colour'"),
        ({"seen": "many"}, "invalid values for seen of the session"),
        ({"uid": "bob"}, "'uid' of a session is read-only"),
        ({"created_at": 0}, "'created_at' of a session is read-only"),
        ({"last_seen_at": 0}, "'last_seen_at' of a session is read-only"),
    ],
)
async def test_an_invalid_update_is_refused_and_changes_nothing(
    sessions: Sessions[AppSession], fields: dict[str, object], sentence: str
) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    with pytest.raises(BadValue, match=sentence):
        await sessions.update(made.token, **fields)
    found = await sessions.read(made.token)
    assert isinstance(found, Live)
    assert found.session == made.session


@everywhere
async def test_a_change_with_a_token_from_before_a_rotation_reaches_the_session_in_the_grace(
    sessions: Sessions[AppSession],
) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    rotated = await sessions.rotate(made.token)
    assert rotated
    assert await sessions.update(made.token, theme="dark")
    found = await sessions.read(rotated.token)
    assert isinstance(found, Live)
    assert found.session.theme == "dark"


@everywhere
async def test_nothing_is_written_for_a_session_that_has_ended(store: Store, sessions: Sessions[AppSession]) -> None:
    made = await sessions.create(AppSession(uid="ann"))
    await sessions.revoke(made.token)
    assert await sessions.update(made.token, theme="dark") == Gone("unknown")
    assert [key async for page in store.scan() for key in page] == []
