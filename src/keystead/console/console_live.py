"""Live changes of keys by family, as server-sent events for the page of one person."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from keystead.console.key_references import KeyReferences
from keystead.console.key_visibility import shown_key
from keystead.errors import KeysteadError
from keystead.http.server_sent_events import event, heartbeat
from keystead.schema import Keyspace
from keystead.schema.family import Family
from keystead.schema.watching import Change, watch

CHECK_EVERY_S: Final = 5.0
_MOST_STREAMS: Final = 10


class ConsoleLive:
    """The streams of this process. Each watches the stores by itself, and ends with its session or the server."""

    def __init__(self, keyspaces: Sequence[Keyspace]) -> None:
        self._keyspaces = keyspaces
        self._stopping = asyncio.Event()
        self._open = 0

    def stop(self) -> None:
        """End all streams: the server stops."""
        self._stopping.set()

    @property
    def is_full(self) -> bool:
        return self._open >= _MOST_STREAMS

    async def stream(
        self,
        families: Collection[Family[Any]] | None,
        references: KeyReferences,
        is_alive: Callable[[], Awaitable[bool]],
    ) -> AsyncGenerator[bytes, None]:
        """`watching`, then a `change` for each; `problem` for stores that cannot be watched; `bye` at the end."""
        self._open += 1
        try:
            async with watch(self._keyspaces, families) as changes:
                yield event("watching", json.dumps(changes.means))
                async for one in self._changes_until_end(aiter(changes), is_alive):
                    yield heartbeat() if one is None else event("change", json.dumps(_as_json(one, references)))
            yield event("bye", "{}")
        except KeysteadError as error:
            yield event("problem", json.dumps(str(error)))
        finally:
            self._open -= 1

    async def _changes_until_end(
        self, changes: Any, is_alive: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[Change | None, None]:
        """The changes; None if there was none for a while. Ends with the session, or when the server stops."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        upcoming = asyncio.ensure_future(anext(changes))
        loop = asyncio.get_running_loop()
        check_at = loop.time() + CHECK_EVERY_S
        try:
            while not stopping.done():
                left_s = max(0.0, check_at - loop.time())
                await asyncio.wait({stopping, upcoming}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if loop.time() >= check_at:
                    if not await is_alive():
                        return
                    check_at = loop.time() + CHECK_EVERY_S
                if upcoming.done():
                    yield upcoming.result()
                    upcoming = asyncio.ensure_future(anext(changes))
                else:
                    yield None
        finally:
            for one in (stopping, upcoming):
                one.cancel()
            await asyncio.gather(stopping, upcoming, return_exceptions=True)


def _as_json(one: Change, references: KeyReferences) -> dict[str, Any]:
    is_linked = one.bound is not None and one.kind == "written"
    return {
        "at": one.at_ms,
        "kind": one.kind,
        "family": one.family_name,
        "key": one.key if one.bound is None else shown_key(one.bound, one.key),
        "url": references.url(one.bound, one.key) if one.bound is not None and is_linked else "",
        "count": one.count,
    }
