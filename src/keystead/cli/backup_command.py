"""`keystead backup`: save every key of a store, with value and expiry, in one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from keystead import connect
from keystead.cli.billing import announce_reading
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import print_json
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import Json, require_database, run
from keystead.cli.priority import lower_priority
from keystead.cli.terminal_language import plural, say
from keystead.cli.transfers import (
    Display,
    Match,
    StoreUrl,
    print_problem,
    store_url,
    with_timeout,
)
from keystead.errors import Contended, StoreError
from keystead.server import Settings
from keystead.stores.backup import Saved, part_of
from keystead.stores.backup import backup as save

_FILE_HELP = "The file to write, readable only by you: it holds all data of the store."
_RESUME_HELP = "Continue an interrupted backup. Saved keys are not read again."
_OVERWRITE_HELP = "Overwrite an existing file, and the partial file of an interrupted backup."

File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE_HELP, show_default=False)]
Resume = Annotated[bool, typer.Option("--resume", metavar=NO_VALUE, help=_RESUME_HELP)]
Overwrite = Annotated[bool, typer.Option("--overwrite", metavar=NO_VALUE, help=_OVERWRITE_HELP)]


def backup(
    file: File,
    store: StoreUrl = None,
    match: Match = "*",
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Save every key of a store in one file: all kinds, with values and exact expiry times.

    It runs beside the application without blocking it. Each key is read with its expiry in one step; the backup as a
    whole is not a snapshot. The file is written as FILE.part and renamed when complete. Sealed values stay sealed, so
    back up KEYSTEAD_SEAL_KEYS too. Keys that could never be restored are left out and listed, with exit code 1. See
    `keystead guide backup`.

    [bold]Examples[/bold]

      keystead backup keys.backup

      keystead backup sessions.backup --store redis://localhost:6379/0 --match 'sess:*'

      keystead backup keys.backup --resume
    """
    if resume and overwrite:
        fail(say("--resume continues a backup, and --overwrite starts over; use one of them"), USAGE_ERROR)
    url = store_url(store)
    require_database(url)
    began = time.monotonic()

    async def work() -> int:
        lower_priority()
        with stop_on_signals(lambda: say("stopped; {advice}", advice=_advice(file))), Display() as display:
            async with connect(with_timeout(url)) as opened:
                await announce_reading(opened, part=match != "*")
                try:
                    saved = await save(
                        opened, file, match=match, overwrite=overwrite, resume=resume, on_progress=display.bar
                    )
                except (StoreError, Contended) as error:
                    fail(f"{error}; {_advice(file)}")
        if as_json:
            print_json(saved.as_json())
        else:
            _print(saved, time.monotonic() - began)
        if store is None:
            _name_other_stores(url)
        return FAILED if saved.left_out.count else 0

    run(work)


def _advice(file: Path) -> str:
    """What to do after an interruption."""
    if part_of(file).exists():
        return say("the keys saved so far are in {file}; --resume continues", file=part_of(file))
    return say("nothing was saved")


def _print(saved: Saved, took_s: float) -> None:
    typer.echo(
        say(
            "saved {keys} of {store} in {file}",
            keys=plural("{count} key", "{count} keys", saved.keys),
            store=saved.header.store,
            file=saved.file,
        )
    )
    if saved.keys:
        typer.echo("  " + ", ".join(f"{count:,} {kind}" for kind, count in saved.kinds.items() if count))
    if saved.kept:
        typer.echo(say("  {kept} of them before the interruption", kept=f"{saved.kept:,}"))
    rate = (saved.keys - saved.kept) / max(took_s, 0.001)
    typer.echo(
        say(
            "  {size} MB, {took_s} s, {rate} keys a second",
            size=f"{saved.size_bytes / 1_000_000:,.1f}",
            took_s=f"{took_s:,.1f}",
            rate=f"{rate:,.0f}",
        )
    )
    left_out = saved.left_out
    if left_out.count:
        print_problem(
            say(
                "left out {keys} that could never be restored:",
                keys=plural("{count} key", "{count} keys", left_out.count),
            ),
            left_out.examples,
        )


def _name_other_stores(url: str) -> None:
    """Name the stores of other roles, and the tables, which this file does not include."""
    settings = Settings()
    for role, other in settings.store_urls.items():
        if other != url:
            typer.echo(
                say(
                    "not included, the store of the role {role}: keystead backup FILE --store {role}",
                    role=role,
                ),
                err=True,
            )
    tables = settings.database_url or ""
    file = Path(unquote(tables.removeprefix("sqlite:///").partition("?")[0]))
    if tables.startswith("sqlite:///") and file.exists():
        typer.echo(say("not included, the relational tables: sqlite3 {file} '.backup COPY'", file=file), err=True)
    elif settings.database is not None:
        typer.echo(say("not included, the relational tables: back up their database with its own tool"), err=True)
