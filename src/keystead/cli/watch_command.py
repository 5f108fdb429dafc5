"""`keystead watch`: the changes of a store by family, as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated, Any, Final, NoReturn

import typer

from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import json_text, one_line, shorten
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import (
    Json,
    MoreKeyspaces,
    Stores,
    Targets,
    find_family,
    keyspaces,
    open_keyspaces,
    run,
)
from keystead.cli.name_hints import complete_family
from keystead.cli.terminal_language import say
from keystead.errors import StoreUnavailable
from keystead.schema import Family, Keyspace
from keystead.schema.survey import survey_of
from keystead.schema.watching import Change
from keystead.schema.watching import watch as watch_keys

_FAMILY_HELP = "Only changes of this family, such as session or AppKeys.session. Repeat it for several."
_UNKNOWN_HELP = "Also changes of keys that belong to no family."
_VALUES_HELP = "Also read and show what was written; sealed fields are hidden."
_PAUSE_S: Final = 1.0  # before connecting again

FamilyNames = Annotated[
    list[str] | None,
    typer.Option("--family", metavar="NAME", help=_FAMILY_HELP, show_default=False, autocompletion=complete_family),
]
Unknown = Annotated[bool, typer.Option("--unknown", metavar=NO_VALUE, help=_UNKNOWN_HELP)]
Values = Annotated[bool, typer.Option("--values", metavar=NO_VALUE, help=_VALUES_HELP)]


def watch(
    targets: Targets = None,
    more: MoreKeyspaces = None,
    family: FamilyNames = None,
    store: Stores = None,
    unknown: Unknown = False,
    values: Values = False,
    as_json: Json = False,
) -> None:
    """Show the changes of keys by family, as they happen, whoever makes them. Ctrl-C ends it.

    Each change is written (created or changed) or gone (deleted or expired). Redis and Valkey report changes by
    themselves and need no configuration. Other stores are read again every second, and refused if they have many keys
    or charge for it. Nothing is changed. With --json, each line is one change.

    [bold]Examples[/bold]

      keystead watch myapp.keys:AppKeys --store redis://localhost:6379/0

      keystead watch myapp.keys --family session --family user_sessions --values

      keystead watch myapp.keys --unknown --json
    """
    classes = keyspaces(targets, more)
    families = None if not family else {find_family(name, classes) for name in family}
    if families and unknown:
        fail(say("--unknown shows keys of no family; leave out --family"), USAGE_ERROR)
    for one in families or ():
        if one.kind == "channel":
            fail(say("{place} is a Channel, which stores nothing to watch", place=one.place), USAGE_ERROR)

    async def work() -> int:
        ended: list[bool] = []
        task = asyncio.current_task()

        def end() -> bool:
            ended.append(True)
            return task is not None and task.cancel()

        with stop_on_signals(lambda: say("stopped"), handle_gently=end):
            try:
                async with open_keyspaces(classes, store) as bound_keys:
                    await _Printer(bound_keys, families, unknown, values, as_json).follow()
            except asyncio.CancelledError:
                if not ended or task is None:
                    raise
                task.uncancel()
        return 0

    run(work)


class _Printer:
    def __init__(
        self,
        keyspaces: Sequence[Keyspace],
        families: Collection[Family[Any]] | None,
        unknown: bool,
        values: bool,
        as_json: bool,
    ) -> None:
        self._keyspaces = keyspaces
        self._families = families
        self._unknown = unknown
        self._values = values
        self._as_json = as_json
        self._width = 0

    async def follow(self) -> NoReturn:
        """Print changes for ever. After a connection was lost, say so, and watch again."""
        has_begun = False
        while True:
            try:
                async with AsyncExitStack() as stack:
                    changes = await stack.enter_async_context(
                        watch_keys(self._keyspaces, self._families, unknown=self._unknown)
                    )
                    has_begun = True
                    for url, means in changes.means.items():
                        typer.echo(say("watching {url}: {means}", url=url, means=means), err=True)
                    async for change in changes:
                        await self._print(change)
            except StoreUnavailable as error:
                if not has_begun:
                    raise
                typer.echo(f"keystead: {error}", err=True)
                await asyncio.sleep(_PAUSE_S)

    async def _print(self, change: Change) -> None:
        value: Any = None
        if self._values and change.kind == "written" and change.bound is not None:
            found = await survey_of(self._keyspaces, [change.key])
            value = next((sample.value for one in found.families for sample in one.samples), None)
        if self._as_json:
            line = {"at_ms": change.at_ms, "family": change.family_name or None, "kind": change.kind}
            line |= {"key": change.key or None, "count": change.count}
            typer.echo(json_text(line | ({"value": value} if self._values else {})))
            return
        time = datetime.fromtimestamp(change.at_ms / 1000).strftime("%H:%M:%S")
        name = change.family_name or say("(no family)")
        match change.kind:
            case "flushed":
                typer.echo(f"{time}  {say('all keys of the store were deleted at once')}")
            case "missed":
                typer.echo(f"{time}  {say('{count} more changes were too many to show', count=f'{change.count:,}')}")
            case _:
                self._width = max(self._width, len(name))
                typer.echo(f"{time}  {name:<{self._width}}  {change.kind:<7}  {one_line(change.key)}")
        if value is not None:
            typer.echo(f"          {shorten(value)}")
