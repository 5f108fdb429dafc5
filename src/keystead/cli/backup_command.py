"""`keystead backup`: every key of a store, with its value and its expiry, into one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from keystead import connect
from keystead.cli.exit import FAILED, USAGE_ERROR, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import counted
from keystead.cli.interrupts import stoppable
from keystead.cli.keyspace_arguments import Json, run
from keystead.cli.priority import step_back
from keystead.cli.transfers import (
    Display,
    Match,
    StoreUrl,
    patient,
    print_json,
    print_problem,
    refuse_missing,
    store_url,
)
from keystead.errors import Contended, StoreError
from keystead.server import Settings
from keystead.stores.backup import Saved, part_of
from keystead.stores.backup import backup as save

_FILE_HELP = "The file to write. Only you can read it: it holds all that the store does."
_RESUME_HELP = "Go on with a backup that was interrupted. Keys that were saved are not read again."
_OVERWRITE_HELP = "Write over the file if it is there, and over what an interrupted backup left."

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
    """Save every key of a store into one file: all kinds, with values and the exact time at which each expires.

    It works beside the running application and blocks nobody. A key and its expiry are read in one step; the backup as
    a whole is not one moment in time. The file is written as FILE.part and gets its name when it is whole. Sealed
    values stay sealed: keep KEYSTEAD_SEAL_KEYS, too. Keys that could never be restored are left out and named, and the
    exit code is 1 then. docs/backup.md has the rest.

    [bold]Examples[/bold]

      keystead backup keys.backup

      keystead backup sessions.backup --store redis://localhost:6379/0 --match 'sess:*'

      keystead backup keys.backup --resume
    """
    if resume and overwrite:
        leave("--resume goes on with what is there, and --overwrite starts anew; write one of them", USAGE_ERROR)
    url = store_url(store)
    refuse_missing(url)
    began = time.monotonic()

    async def work() -> int:
        step_back()
        with stoppable(lambda: f"stopped; {_advice(file)}"), Display() as display:
            async with connect(patient(url)) as opened:
                try:
                    saved = await save(
                        opened, file, match=match, overwrite=overwrite, resume=resume, on_progress=display.bar
                    )
                except (StoreError, Contended) as error:
                    leave(f"{error}; {_advice(file)}")
        if as_json:
            print_json(saved.as_json())
        else:
            _print(saved, time.monotonic() - began)
        if store is None:
            _name_other_stores(url)
        return FAILED if saved.left_out.count else 0

    run(work)


def _advice(file: Path) -> str:
    """What a person can do after an interruption."""
    if part_of(file).exists():
        return f"what was saved is in {part_of(file)}, and --resume goes on with it"
    return "nothing was saved"


def _print(saved: Saved, took_s: float) -> None:
    typer.echo(f"saved {counted(saved.keys, 'key')} of {saved.header.store} in {saved.file}")
    if saved.keys:
        typer.echo("  " + ", ".join(f"{count:,} {kind}" for kind, count in saved.kinds.items() if count))
    if saved.kept:
        typer.echo(f"  {saved.kept:,} of them before it was interrupted")
    rate = (saved.keys - saved.kept) / max(took_s, 0.001)
    typer.echo(f"  {saved.size_bytes / 1_000_000:,.1f} MB, {took_s:,.1f} s, {rate:,.0f} keys a second")
    left_out = saved.left_out
    if left_out.count:
        print_problem(f"left out {counted(left_out.count, 'key')} that could never be restored:", left_out.examples)


def _name_other_stores(url: str) -> None:
    """One file is one store, and an application with several roles may have more of them, and tables beside them."""
    settings = Settings()
    for role, other in settings.store_urls.items():
        if other != url:
            typer.echo(f"the store of the role {role} is not in it: keystead backup FILE --store {role}", err=True)
    tables = settings.database_url or ""
    file = Path(unquote(tables.removeprefix("sqlite:///").partition("?")[0]))
    if tables.startswith("sqlite:///") and file.exists():
        typer.echo(f"the relational tables are not in it: sqlite3 {file} '.backup COPY'", err=True)
    elif settings.database is not None:
        typer.echo("the relational tables are not in it: save their database with its own tool", err=True)
