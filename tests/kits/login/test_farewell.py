"""Ending a session revokes its tokens once on every store, in a cluster, too."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from keystead import KeyRing, Store
from keystead.kits.login import LoginKeys, Session
from keystead.kits.login.revocation import Revocations
from keystead.parts.audit import Audit
from keystead.parts.outbox import OutboxKeys
from keystead.parts.sessions import Policy, Sessions
from keystead.schema.times import moment
from tests.parts.sessions.conftest import everywhere
from tests.schema.conftest import redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = ["redis_server", "store", "store_url", "valkey_cluster", "valkey_server"]

RING = KeyRing.from_text(f"test:{KeyRing.new_key()}")


def session(number: int) -> Session:
    return Session(
        uid="ann",
        name="Ann",
        avatar=None,
        access_token=f"access-{number}",
        refresh_token=f"refresh-{number}",
        scope="identify",
        token_type="Bearer",
        access_expires_at=moment(0),
        created_at=moment(0),
        last_seen_at=moment(0),
    )


class Provider:
    """A provider client that supports only `revoke`."""

    def __init__(self) -> None:
        self.provider = SimpleNamespace(name="discord", revokes_grant=False)
        self.revoked: list[str] = []

    async def revoke(self, token: str, kind: str) -> bool:
        self.revoked.append(token)
        return True


@everywhere
async def test_fifty_concurrent_sign_outs_are_revoked_and_audited_once_each(store: Store) -> None:
    keys = LoginKeys(store, seal=RING)
    provider = Provider()
    clients: Any = {"discord": provider}
    revocations = Revocations(keys, clients)
    sessions = Sessions(
        keys.session,
        Policy(cap=None),
        ends=keys.session_end,
        audit=Audit(keys.audit()),
        farewell=revocations.farewell,
    )
    made = [await sessions.create(session(number)) for number in range(50)]
    ended = await asyncio.gather(*(sessions.revoke(one.token) for one in made + made))
    assert ended.count(True) == 50
    await revocations.outbox.deliver_due()
    wanted = {f"{kind}-{number}" for kind in ("access", "refresh") for number in range(50)}
    assert len(provider.revoked) == 100
    assert set(provider.revoked) == wanted
    noted = [one.item for one in await keys.audit().entries()]
    assert {one.what for one in noted if one.event == "signed-out"} == {one.id for one in made}
    assert len(noted) == 100
    # Nothing secret waits any more, and nothing is to be delivered.
    assert [key.key async for key in keys.revocation.scan()] == []
    assert [key.key async for key in OutboxKeys(store).queue.scan()] == []


@everywhere
async def test_revocations_queued_by_an_operator_are_delivered_by_a_server(store: Store) -> None:
    """The program has no provider: it only adds the message."""
    keys = LoginKeys(store, seal=RING)
    operator = Sessions(keys.session, Policy(cap=None), farewell=keys.farewell)
    for number in range(3):
        await operator.create(session(number))
    assert await operator.revoke_all("ann") == 3
    provider = Provider()
    clients: Any = {"discord": provider}
    await Revocations(keys, clients).outbox.deliver_due()
    assert sorted(provider.revoked) == sorted(f"{kind}-{n}" for kind in ("access", "refresh") for n in range(3))
