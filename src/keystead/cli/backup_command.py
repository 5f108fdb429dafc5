"""`keystead backup`: every key of a store, with its value and its expiry, into one file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qsl, unquote

import typer

from keystead import connect
from keystead.cli.exit import ASKED_WRONGLY, FAILED, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import counted
from keystead.cli.interrupts import stoppable
from keystead.cli.keyspace_arguments import Json, run
from keystead.cli.priority import step_back
from keystead.cli.progress import progress
from keystead.errors import Contended, StoreError
from keystead.server import Settings
from keystead.stores.backup import Saved, SaveProgress, part_of
from keystead.stores.backup import backup as save

_FILE_HELP = "The file to write. Only you can read it: it holds all that the store does."
_STORE_HELP = (
    "The store: its URL, or a role of keystead.toml, such as durable. "
    "[dim]\\[env: KEYSTEAD_STORE; default: sqlite:///keystead.db][/dim]"
)
_MATCH_HELP = "Only keys that match this pattern, such as 'sess:*'. [dim]\\[default: all][/dim]"
_RESUME_HELP = "Go on with a backup that was interrupted. Keys that were saved are not read again."
_OVERWRITE_HELP = "Write over the file if it is there, and over what an interrupted backup left."

File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE_HELP, show_default=False)]
StoreUrl = Annotated[str | None, typer.Option("--store", metavar="URL", help=_STORE_HELP, show_default=False)]
Match = Annotated[str, typer.Option("--match", metavar="PATTERN", help=_MATCH_HELP, show_default=False)]
Resume = Annotated[bool, typer.Option("--resume", metavar=NO_VALUE, help=_RESUME_HELP)]
Overwrite = Annotated[bool, typer.Option("--overwrite", metavar=NO_VALUE, help=_OVERWRITE_HELP)]

MEGABYTE: Final = 1_000_000
_TIMEOUT: Final = "60s"  # a set of some ten million members in one step; a lost connection is noticed at once


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
        leave("--resume goes on with what is there, and --overwrite starts anew; write one of them", ASKED_WRONGLY)
    url = store_url(store)
    refuse_missing(url)
    began = time.monotonic()
    now = SaveProgress(0, None)

    async def work() -> int:
        nonlocal now
        step_back()
        with stoppable(lambda: f"stopped; {_kept(file)}"), progress("saving") as show:

            def on_progress(latest: SaveProgress) -> None:
                nonlocal now
                now = latest
                show(now.saved, now.total)

            async with connect(patient(url)) as opened:
                try:
                    saved = await save(
                        opened, file, match=match, overwrite=overwrite, resume=resume, on_progress=on_progress
                    )
                except (StoreError, Contended) as error:
                    leave(f"{error}; {_kept(file)}")
        if as_json:
            typer.echo(json.dumps(saved.as_json(), indent=2, ensure_ascii=False))
        else:
            _print(saved, time.monotonic() - began)
        if store is None:
            _say_what_else_there_is(url)
        return FAILED if saved.left_out.count else 0

    run(work)


def _kept(file: Path) -> str:
    """What a person can do after an interruption."""
    if part_of(file).exists():
        return f"what was saved is in {part_of(file)}, and --resume goes on with it"
    return "nothing was saved"


def _print(saved: Saved, took_s: float) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in saved.kinds.items() if count)
    typer.echo(f"saved {counted(saved.keys, 'key')} of {saved.header.store} in {saved.file}")
    if kinds:
        typer.echo(f"  {kinds}")
    if saved.kept:
        typer.echo(f"  {saved.kept:,} of them before it was interrupted")
    new = saved.keys - saved.kept
    typer.echo(
        f"  {saved.size_bytes / MEGABYTE:,.1f} MB, {took_s:,.1f} s, {new / max(took_s, 0.001):,.0f} keys a second"
    )
    left_out = saved.left_out
    if left_out.count:
        typer.echo(f"left out {counted(left_out.count, 'key')} that could never be restored:", err=True)
        for sentence in left_out.examples:
            typer.echo(f"  {sentence}", err=True)


def _say_what_else_there_is(url: str) -> None:
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


# --- what backup, restore and copy share -------------------------------------------------------------------------


def store_url(store: str | None) -> str:
    """The URL that was given, that of a role, or that of the settings."""
    if store is None:
        return Settings().store
    return named_url(store)


def named_url(given: str) -> str:
    """A URL as it is, and the URL of a role."""
    if "://" in given:
        return given
    roles = Settings().store_urls
    if given not in roles:
        leave(f"{given!r} is no URL of a store and no role; there are: {', '.join(roles)}", ASKED_WRONGLY)
    return roles[given]


def patient(url: str) -> str:
    """The URL with a timeout that suits one large key in one step; who named another one has that."""
    query = url.partition("?")[2]
    if "timeout" in dict(parse_qsl(query, keep_blank_values=True)):
        return url
    return f"{url}{'&' if query else '' if url.endswith('?') else '?'}timeout={_TIMEOUT}"


def is_missing(url: str) -> bool:
    """Whether this names a database file that is not there, and that opening it would make."""
    path = unquote(url.removeprefix("sqlite:///").partition("?")[0])
    return url.startswith("sqlite:///") and not Path(path).exists()


def refuse_missing(url: str, advice: str = "name another with --store URL") -> None:
    """Who looks at what is there has mistyped a file that is not."""
    if is_missing(url):
        leave(f"there is no database {url.removeprefix('sqlite:///')}; {advice}", ASKED_WRONGLY)
