"""`keystead audit`: the entries of all audit logs, merged."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NoReturn, TypeVar

import typer
from rich.cells import cell_len

from keystead.catalogue import message
from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import json_text
from keystead.cli.keyspace_arguments import Json, MoreKeyspaces, Stores, Targets, keyspaces, open_keyspaces, run
from keystead.cli.terminal_language import say
from keystead.errors import BadDeclaration, StoreUnavailable, printable
from keystead.parts.audit import AuditEntry
from keystead.schema import Keyspace, Log
from keystead.schema.family_lookup import name_of
from keystead.schema.kinds import LogEntry, LogKey
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import deadline_ms, moment

T = TypeVar("T")

_PAGE: Final = 500
_BEGINNING: Final = "0-0"
_POLL_EVERY_S: Final = 0.5
_SCAN_EVERY_POLLS: Final = 20  # keys of patterns are found by a scan
_CLOCK_SKEW_MAX_MS: Final = 3_600_000  # between the store, which makes ids, and the writer of an entry
_LATEST_MS: Final = deadline_ms(datetime.max.replace(tzinfo=UTC))  # that can be shown
_COLUMNS: Final = (
    message("time (UTC)"),
    message("event"),
    message("who"),
    message("what"),
    message("where"),
    message("why"),
)

Event = Annotated[str | None, typer.Option("--event", metavar="WORD", help="Only this event, such as link-issued.")]
Who = Annotated[str | None, typer.Option("--who", metavar="TEXT", help="Only entries whose actor contains this.")]
What = Annotated[str | None, typer.Option("--what", metavar="TEXT", help="Only entries whose object contains this.")]
Since = Annotated[str | None, typer.Option("--since", metavar="DURATION", help="The maximum age: 30m, 1d, 2w.")]
Limit = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, help="The number of newest entries to show.")]
Follow = Annotated[
    bool, typer.Option("--follow", metavar=NO_VALUE, help="Show new entries as they are written, until Ctrl-C.")
]


def audit(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    event: Event = None,
    who: Who = None,
    what: What = None,
    since: Since = None,
    limit: Limit = 50,
    follow: Follow = False,
    store: Stores = None,
    as_json: Json = False,
) -> None:
    """Show who did what, when and from where: the entries of all audit logs, newest last.

    With [bold]--json[/bold] each entry is a line of JSON. [bold]--follow[/bold] retries during store outages.

    [bold]Examples[/bold]

      keystead audit

      keystead audit sharing --event link-refused --since 1d

      keystead audit myapp.keys:AppKeys --who user:42 --follow --json
    """
    classes = [cls for cls in keyspaces(targets, more) if any(map(_is_audit, cls.families.values()))]
    if not classes:
        fail(say("none of these keyspaces has an audit log: Log(..., AuditEntry, ...)"), USAGE_ERROR)
    wanted = _Wanted(event, who, what, _since_ms(since))
    shown_as = _Lines() if as_json else _Table()

    async def work() -> int:
        if follow:
            _cancel_on_ctrl_c()
        try:
            async with open_keyspaces(classes, store) as bound_keys:
                trails = _Trails(bound_keys, wanted)
                shown_as.show(await trails.latest(limit), following=follow)
                if follow:
                    await _follow(trails, shown_as)
        except asyncio.CancelledError:
            if not follow:
                raise
            return 130  # Ctrl-C is the normal end of --follow, so no message
        return 0

    run(work)


async def _follow(trails: _Trails, shown_as: _Lines | _Table) -> NoReturn:
    """Show new entries until cancelled. A store outage is reported once and waited out."""
    is_down = False
    while True:
        await asyncio.sleep(_POLL_EVERY_S)
        try:
            found = await trails.newer()
        except StoreUnavailable as error:
            if not is_down:
                typer.echo(f"keystead: {say('{error}; retrying until it answers', error=error)}", err=True)
            is_down = True
            continue
        if is_down:
            typer.echo(f"keystead: {say('the store is back')}", err=True)
        is_down = False
        shown_as.show(found, following=True)


def _since_ms(since: str | None) -> int:
    if since is None:
        return 0
    try:
        return time.time_ns() // 1_000_000 - duration_ms(since, "--since")
    except BadDeclaration as error:
        fail(str(error), USAGE_ERROR)


def _is_audit(family: Any) -> bool:
    return isinstance(family, Log) and family.item.type is AuditEntry


# --- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """An entry and its location; `entry` is None if it cannot be decoded."""

    at_ms: int
    id: str
    key: str
    family: str
    entry: AuditEntry | None


@dataclass(frozen=True)
class _Wanted:
    event: str | None
    who: str | None
    what: str | None
    since_ms: int

    def fits(self, found: _Found) -> bool:
        if found.at_ms < self.since_ms:
            return False
        if found.entry is None:  # shown only without filters
            return (self.event, self.who, self.what) == (None, None, None)
        return (
            self.event in (None, found.entry.event)
            and (self.who or "") in (found.entry.who or "")
            and (self.what or "") in (found.entry.what or "")
        )

    def may_fit_before(self, id: str) -> bool:
        """Whether an entry written before this id can be recent enough."""
        return _time_of_id(id) + _CLOCK_SKEW_MAX_MS >= self.since_ms


@dataclass
class _Trail:
    """One log, and the position up to which it was read."""

    log: LogKey[AuditEntry]
    last: str = _BEGINNING
    unshown: list[_Found] = field(default_factory=list)

    def _locate(self, seen: LogEntry[AuditEntry | None]) -> _Found:
        at_ms = _time_of_id(seen.id) if seen.item is None else deadline_ms(seen.item.at)
        return _Found(at_ms, seen.id, self.log.key, name_of(self.log.bound.family), seen.item)

    async def latest(self, wanted: _Wanted, limit: int) -> list[_Found]:
        """The newest wanted entries. `newer` continues after them."""
        fitting: list[_Found] = []
        page = await self.log.see_latest(_PAGE)
        if page:
            self.last = page[0].id
        while page:
            fitting += filter(wanted.fits, map(self._locate, page))
            oldest = page[-1].id
            if len(fitting) >= limit or len(page) < _PAGE or not wanted.may_fit_before(oldest):
                break
            page = await self.log.see_latest(_PAGE, before=oldest)
        return fitting[:limit]

    async def read_on(self, wanted: _Wanted) -> None:
        """Read newer entries into `unshown`, so that a store outage loses none."""
        if await self._has_restarted():
            self.last = _BEGINNING
        while page := await self.log.see(after=self.last, limit=_PAGE):
            self.last = page[-1].id
            self.unshown += filter(wanted.fits, map(self._locate, page))

    async def _has_restarted(self) -> bool:
        """Whether all entries are older than the last one read: the log was deleted or restored."""
        newest = await self.log.see_latest(1)
        return bool(newest) and _order(newest[0].id) < _order(self.last)

    def take_unshown(self) -> list[_Found]:
        found, self.unshown = self.unshown, []
        return found


def _cancel_on_ctrl_c() -> None:
    """Ctrl-C cancels this task, even if the parent process ignores SIGINT, as a shell script does."""
    task = asyncio.current_task()
    if task is not None:
        with suppress(NotImplementedError):  # on Windows, Ctrl-C still ends the program
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)


@dataclass
class _Trails:
    """All audit logs of these keyspaces."""

    keys: Sequence[Keyspace]
    wanted: _Wanted
    _known: dict[str, _Trail] = field(default_factory=dict)
    _polls: int = 0

    async def latest(self, limit: int) -> list[_Found]:
        """The newest entries of all logs, newest last."""
        await self._find()
        return _merge(await self._read_all(lambda trail: trail.latest(self.wanted, limit)))[-limit:]

    async def newer(self) -> list[_Found]:
        """The entries written since. If this raises, the next call has them all."""
        self._polls += 1
        if self._polls % _SCAN_EVERY_POLLS == 0:
            await self._find()
        await self._read_all(lambda trail: trail.read_on(self.wanted))
        return _merge([trail.take_unshown() for trail in self._known.values()])

    async def _read_all(self, read: Callable[[_Trail], Awaitable[T]]) -> list[T]:
        """The results of all reads. All finish, even if one fails, so none overlaps the next poll."""
        reads = [asyncio.ensure_future(read(trail)) for trail in self._known.values()]
        await asyncio.gather(*reads, return_exceptions=True)
        return [one.result() for one in reads]

    async def _find(self) -> None:
        for bound_family in [one for keys in self.keys for one in keys.bounds() if _is_audit(one.family)]:
            if not bound_family.family.pattern.names:
                self._add_trail(bound_family())
                continue
            async for log in bound_family.scan():
                self._add_trail(log)

    def _add_trail(self, log: LogKey[AuditEntry]) -> None:
        self._known.setdefault(f"{id(log.bound.store)} {log.key}", _Trail(log))


def _merge(pages: Iterable[list[_Found]]) -> list[_Found]:
    return sorted((one for page in pages for one in page), key=lambda one: (one.at_ms, _order(one.id)))


def _time_of_id(id: str) -> int:
    return min(_order(id)[0], _LATEST_MS)  # a writer may give an entry any id


def _order(id: str) -> tuple[int, int]:
    ms, _, number = id.partition("-")
    return int(ms), int(number)


# --- printing ----------------------------------------------------------------------------------------------


class _Lines:
    """One line of JSON per entry."""

    def show(self, found: Iterable[_Found], *, following: bool) -> None:
        for one in found:
            place = {"family": one.family, "key": one.key, "id": one.id}
            entry = {"unreadable": True} if one.entry is None else one.entry.model_dump(mode="json")
            typer.echo(json_text({**entry, **place}))


class _Table:
    """Columns as wide as the first page needs; a later wide value shifts only its own line."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def show(self, found: Sequence[_Found], *, following: bool) -> None:
        rows = [_row(one) for one in found]
        if not self._widths:
            if not rows and not following:
                typer.echo(say("there are no such entries"))
                return
            rows.insert(0, tuple(map(say, _COLUMNS)))
            self._widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (text + " " * (width - cell_len(text)) for text, width in zip(row, self._widths, strict=True))
            typer.echo("  ".join(cells).rstrip())


def _row(found: _Found) -> tuple[str, ...]:
    when = f"{moment(found.at_ms):%Y-%m-%d %H:%M:%S}"
    if found.entry is None:
        return (when, say("(unreadable)"), "", printable(found.key), "", say("run keystead doctor"))
    entry = found.entry
    # Other programs can write to the log, so escape terminal control characters.
    return (when, *(printable(text or "") for text in (entry.event, entry.who, entry.what, entry.where, entry.why)))
