"""Work on many keys in the background: its progress is in the store, and it stops when its operator's session ends."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from keystead.console.console_keys import ConsoleKeys, ConsoleTask, TaskKind, TaskState
from keystead.errors import KeysteadError, StoreError
from keystead.schema.doctor import Progress
from keystead.schema.kinds.value import Seen
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.console")

_EVERY_S: Final = 0.5
_LOST_MS: Final = 30_000  # without a sign of life: its process is gone

# Whether whoever started a task is still signed in, with the role that it needs.
IsStillIn = Callable[[], Awaitable[bool]]

# Does the work, reports its progress, and returns its result: fields of the task.
Work = Callable[[Callable[[Progress], None]], Awaitable[Mapping[str, Any]]]


class TaskStopped(Exception):
    """The work ends early, and `why` is shown. What was done until then stays done."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class ConsoleTasks:
    """At most one task of each kind, in all processes. Another process may show it, but only this one runs it."""

    def __init__(self, keys: ConsoleKeys, wait: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
        self._keys = keys
        self._wait = wait
        self._running: set[asyncio.Task[None]] = set()

    async def read(self, kind: TaskKind) -> ConsoleTask | None:
        """The last task of this kind. One whose process is gone counts as stopped."""
        seen = await self._keys.task(kind).see()
        return None if seen is None else self._described(seen.value)

    def _described(self, task: ConsoleTask) -> ConsoleTask:
        is_lost = task.state == "running" and self._keys.now_ms() - deadline_ms(task.changed_at) > _LOST_MS
        return task.model_copy(update={"state": "stopped", "why": "server"}) if is_lost else task

    async def start(self, kind: TaskKind, what: str, who: str, is_still_in: IsStillIn, work: Work) -> bool:
        """Start a task. False: one of this kind is running."""
        record = self._keys.task(kind)
        seen: Seen[ConsoleTask] | None = await record.see()
        if seen is not None and self._described(seen.value).state == "running":
            return False
        now = moment(self._keys.now_ms())
        task = ConsoleTask(id=secrets.token_urlsafe(9), kind=kind, what=what, who=who, began_at=now, changed_at=now)
        started = await (record.add(task) if seen is None else record.replace_seen(seen, task))
        if started:
            run = asyncio.create_task(self._run(task, is_still_in, work), name=f"keystead console {kind}")
            self._running.add(run)
            run.add_done_callback(self._running.discard)
        return bool(started)

    async def close(self) -> None:
        """Stop all tasks of this process. Each step of them is complete or was not started."""
        for one in self._running:
            one.cancel()
        await self.settle()

    async def settle(self) -> None:
        """Wait until the tasks of this process have ended."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, task: ConsoleTask, is_still_in: IsStillIn, work: Work) -> None:
        latest = Progress(0, None, 0, 0)

        def report(now: Progress) -> None:
            nonlocal latest
            latest = now

        working = asyncio.ensure_future(work(report))
        why = ""
        try:
            while not working.done():
                await asyncio.wait(
                    {working, asyncio.ensure_future(self._wait(_EVERY_S))}, return_when="FIRST_COMPLETED"
                )
                if not working.done():
                    await self._write(task, latest)
                    if not await _asked(is_still_in):
                        why = "session"
                        break
        except asyncio.CancelledError:
            why = "server"
        finally:
            working.cancel()
            [result] = await asyncio.gather(working, return_exceptions=True)
            await self._end(task, latest, why, result)

    async def _end(self, task: ConsoleTask, latest: Progress, why: str, result: object) -> None:
        state: TaskState
        found: Mapping[str, Any] = {}
        match result:
            case dict():
                state, why, found = "done", "", result
            case TaskStopped():
                state, why = "stopped", result.why
            case asyncio.CancelledError():
                state = "stopped"
            case KeysteadError():
                state, why = "failed", str(result)
            case _:
                _log.error("%s failed", task.kind, exc_info=result if isinstance(result, Exception) else None)
                state, why = "failed", type(result).__name__
        await self._write(task, latest, state=state, why=why, **found)

    async def _write(self, task: ConsoleTask, latest: Progress, **changed: Any) -> None:
        """Write the progress. During an outage of the store it is not shown."""
        now = moment(self._keys.now_ms())
        after = task.model_copy(update={**asdict(latest), "changed_at": now, **changed})
        try:
            seen = await self._keys.task(task.kind).see()
            if seen is not None and seen.value.id == task.id:
                await self._keys.task(task.kind).replace_seen(seen, after)
        except StoreError as error:
            _log.warning("the progress of %s was not written: %s", task.kind, error)


async def _asked(is_still_in: IsStillIn) -> bool:
    try:
        return await is_still_in()
    except StoreError:
        return False
