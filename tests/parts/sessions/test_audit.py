"""The audit entries and farewells of sessions: in the step that ends a session, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from keystead import Log, Store, Value, after, sliding
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.sessions import Act, Policy, Sessions
from keystead.schema.operation import Operation
from tests.parts.sessions.conftest import RING, AppKeys, AppSession, Clock, everywhere, in_one_step
from tests.parts.sessions.relays import Relay


class AuditedKeys(AppKeys):
    """Sessions with an audit log, and what is left of those that have ended."""

    audit = Log("audit:app", AuditEntry, keep=1000, lifetime=sliding("90d", touch_every="1h"))
    farewell = Value("farewell:{sid:token}", str, lifetime=after("1d"), tag="sid")


def audited(store: Store, clock: Clock, policy: Policy | None = None) -> tuple[Sessions[AppSession], AuditedKeys]:
    keys = AuditedKeys(store, seal=RING, now_ms=clock)

    async def farewell(id: str, session: Any) -> Sequence[Operation[Any]]:
        return [keys.farewell(id).set(session.uid)]

    sessions = Sessions(keys.session, policy, ends=keys.end, audit=Audit(keys.audit()), farewell=farewell)
    return sessions, keys


async def noted(keys: AuditedKeys) -> list[tuple[str, str | None, str | None]]:
    return [(one.item.event, one.item.who, one.item.what) for one in await keys.audit().entries()]


async def greeted(keys: AuditedKeys) -> set[str]:
    return {str(key.values["sid"]) async for key in keys.farewell.scan()}


@everywhere
async def test_sign_ins_sign_outs_and_revocations_are_audited_with_their_actor(store: Store, clock: Clock) -> None:
    sessions, keys = audited(store, clock)
    one, two, three = [await sessions.create(AppSession(uid="ann"), Act(where="10.0.0.1")) for _ in range(3)]
    assert await sessions.revoke(one.token, Act(where="10.0.0.1"))
    assert not await sessions.revoke(one.token)
    assert await sessions.revoke_id("ann", two.id, Act(who="operator:root", where="host"))
    assert not await sessions.revoke_id("ann", two.id)
    assert not await sessions.revoke_id("ann", "no id")
    assert await sessions.revoke_all("ann", Act(who="operator:root")) == 1
    assert await sessions.revoke_all("ann") == 0
    assert await noted(keys) == [
        *(("signed-in", "user:ann", made.id) for made in (one, two, three)),
        ("signed-out", "user:ann", one.id),
        ("session-revoked", "operator:root", two.id),
        ("all-sessions-revoked", "operator:root", "user:ann"),
    ]
    assert await greeted(keys) == {one.id, two.id, three.id}


@everywhere
async def test_an_eviction_and_the_sign_in_that_caused_it_are_noted(store: Store, clock: Clock) -> None:
    sessions, keys = audited(store, clock, Policy(cap=1))
    one = await sessions.create(AppSession(uid="ann"))
    clock.pass_ms(1)
    two = await sessions.create(AppSession(uid="ann"))
    assert await noted(keys) == [
        ("signed-in", "user:ann", one.id),
        ("session-evicted", "user:ann", one.id),
        ("signed-in", "user:ann", two.id),
    ]
    assert await greeted(keys) == {one.id}


@everywhere
async def test_the_end_of_all_others_is_noted_and_the_one_that_stays_is_not_greeted(store: Store, clock: Clock) -> None:
    sessions, keys = audited(store, clock)
    made = [await sessions.create(AppSession(uid="ann")) for _ in range(3)]
    assert await sessions.revoke_others(made[0].token) == 2
    assert (await noted(keys))[3:] == [("other-sessions-revoked", "user:ann", "user:ann")]
    assert await greeted(keys) == {made[1].id, made[2].id}
    assert await sessions.read(made[0].token)


@everywhere
async def test_the_end_of_everybody_is_two_entries_however_many_there_were(store: Store, clock: Clock) -> None:
    sessions, keys = audited(store, clock)
    for user in ("ann", "bob", "cid"):
        await sessions.create(AppSession(uid=user))
    async for _ in sessions.revoke_everyone(Act(who="operator:root", where="host")):
        pass
    found = [one.item for one in await keys.audit().entries()][3:]
    assert [(one.event, one.who, one.where, one.why) for one in found] == [
        ("everyone-revoked", "operator:root", "host", "begins"),
        ("everyone-revoked", "operator:root", "host", "3 sessions of 3 users have ended"),
    ]
    assert len(await greeted(keys)) == 3


@everywhere
async def test_a_rotation_is_not_audited_as_an_end(store: Store, clock: Clock) -> None:
    sessions, keys = audited(store, clock)
    made = await sessions.create(AppSession(uid="ann"))
    assert await sessions.rotate(made.token)
    assert len(await noted(keys)) == 1
    assert await greeted(keys) == set()


@everywhere
async def test_fifty_concurrent_ends_of_one_session_are_audited_once(store: Store, clock: Clock) -> None:
    sessions, keys = audited(store, clock)
    made = await sessions.create(AppSession(uid="ann"))
    ended = await asyncio.gather(*(sessions.revoke(made.token) for _ in range(50)))
    assert ended.count(True) == 1
    assert await noted(keys) == [("signed-in", "user:ann", made.id), ("signed-out", "user:ann", made.id)]


@in_one_step
async def test_a_sign_out_its_note_and_its_farewell_are_one_atomic_step(store: Store, clock: Clock) -> None:
    """So no crash leaves an ended session without an audit entry."""
    relay = Relay(store)
    sessions, _keys = audited(relay, clock)
    made = await sessions.create(AppSession(uid="ann"))
    relay.log.clear()
    await sessions.revoke(made.token)
    first = next(str(one) for one in relay.log if "SREM" in str(one))
    assert [name for name in ("SREM", "XADD", "farewell:") if name not in first] == []
