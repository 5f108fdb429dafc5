"""Sessions, queues and rate limits, for operators: found by the shape of families, for any keyspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from keystead.errors import BadKey
from keystead.parts.audit import Audit, audit_of
from keystead.parts.limit.limited_families import is_limited
from keystead.parts.outbox.outbox_keys import OutboxKeys, QueueName
from keystead.parts.outbox.queue_control import ListedQueue, QueueControl
from keystead.parts.sessions import Act, Live
from keystead.parts.sessions.session_families import holds_sessions, sessions_of
from keystead.schema import Keyspace
from keystead.schema.family import Bound

_SHOWN: Final = 200


class ConsoleOperations:
    def __init__(self, keyspaces: Sequence[Keyspace], audit: Audit) -> None:
        self._keyspaces = keyspaces
        self._audit = audit
        self.session_families: list[Bound[Any]] = [
            bound for keys in keyspaces for bound in keys.bounds() if holds_sessions(bound)
        ]
        found = next((keys for keys in keyspaces if isinstance(keys, OutboxKeys)), None)
        self.queues = None if found is None else QueueControl(found)

    def session_family(self, name: str) -> Bound[Any] | None:
        """A family of sessions, as `LoginKeys.session`; by default the first."""
        families = {f"{type(one.keyspace).__name__}.{one.family.name}": one for one in self.session_families}
        return families.get(name) if name else next(iter(families.values()), None)

    async def sessions(self, bound: Bound[Any], user: str) -> list[Live[Any]]:
        """The sessions of a user. A name that cannot be a user's has none."""
        try:
            return list(await sessions_of(bound, None).list_for(user))[:_SHOWN]
        except BadKey:
            return []

    async def end_sessions(self, bound: Bound[Any], user: str, act: Act) -> int:
        """End all sessions of a user, as `keystead sessions end` does. Returns how many."""
        return await sessions_of(bound, audit_of(bound.keyspace)).revoke_all(user, act)

    async def listed_queues(self) -> list[ListedQueue]:
        return [] if self.queues is None else await self.queues.list()

    async def queue(self, topic: str, name: str) -> ListedQueue | None:
        """A queue; None: it is empty, or cannot be one."""
        if self.queues is None:
            return None
        try:
            found = await self.queues.state(QueueName(topic, name))
        except BadKey:
            return None
        return found if found.waiting or found.trouble is not None or found.given_up or found.dead else None

    def is_limit(self, bound: Bound[Any]) -> bool:
        return is_limited(bound)
