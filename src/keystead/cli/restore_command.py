"""`keystead restore`: the keys of a backup into a store, or a comparison of the two."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from keystead import connect
from keystead.cli.backup_command import StoreUrl, is_missing, patient, refuse_missing, store_url
from keystead.cli.confirmation import confirmed
from keystead.cli.exit import ASKED_WRONGLY, FAILED, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import counted
from keystead.cli.interrupts import Paused, stoppable
from keystead.cli.keyspace_arguments import Json, run
from keystead.cli.priority import step_back
from keystead.cli.private_files import private_files
from keystead.cli.progress import Show, progress
from keystead.errors import StoreError
from keystead.stores import Store
from keystead.stores.backup import (
    BackupFile,
    Checked,
    Compared,
    IfThere,
    Restored,
    RestoreProgress,
    check,
    compare,
)
from keystead.stores.backup import restore as write

_FILE_HELP = "A file that `keystead backup` has written."
_IF_THERE_HELP = """What to do with keys of the backup that are in the store already: restore nothing, leave those as
they are, or put the ones of the backup in their place. [dim]\\[default: refuse][/dim]"""
_DRY_RUN_HELP = "Check the file, say what would be restored, and write nothing."
_RESUME_HELP = "Go on with a restore of this file that was interrupted."
_VERIFY_HELP = "Compare the store with the file key by key, and write nothing. The exit code is 1 if they differ."
_YES_HELP = "Do not ask."

File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE_HELP, show_default=False)]
WhatIfThere = Annotated[
    IfThere | None,
    typer.Option("--if-there", metavar="refuse|skip|replace", help=_IF_THERE_HELP, show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help=_DRY_RUN_HELP)]
Resume = Annotated[bool, typer.Option("--resume", metavar=NO_VALUE, help=_RESUME_HELP)]
Verify = Annotated[bool, typer.Option("--verify", metavar=NO_VALUE, help=_VERIFY_HELP)]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help=_YES_HELP)]

_RESUME = "what was restored stays, and --resume goes on with it"


def restore(
    file: File,
    store: StoreUrl = None,
    if_there: WhatIfThere = None,
    dry_run: DryRun = False,
    resume: Resume = False,
    verify: Verify = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Restore the keys of a backup into a store of any kind: values, and the exact time at which each expires.

    The whole file is checked before anything is written. Keys whose time is over are not restored. Each key comes with
    its expiry in one step. By default nothing is restored if a key of the backup is in the store already. In the end
    all keys are counted in the store, and the exit code is 1 if any is missing. docs/backup.md has the rest.

    [bold]Examples[/bold]

      keystead restore keys.backup --dry-run

      keystead restore keys.backup --store sqlite:///app.db --yes

      keystead restore keys.backup --store redis://localhost:6379/0 --if-there skip --resume

      keystead restore keys.backup --verify
    """
    if verify and (dry_run or resume or if_there is not None):
        leave("--verify only compares; write it without --dry-run, --resume and --if-there", ASKED_WRONGLY)
    if not (yes or dry_run or verify) and not sys.stdin.isatty():
        leave(
            "nothing was restored: there is no terminal to ask on; add --yes, or --dry-run to see what would be",
            ASKED_WRONGLY,
        )
    url = opened_url = store_url(store)
    if verify:
        refuse_missing(url)
    elif dry_run and is_missing(url):
        opened_url = "memory://"  # as empty as the database that would be made
    begun = False

    def stopped() -> str:
        return f"stopped; {_RESUME if begun else 'nothing was written'}"

    async def work() -> int:
        nonlocal begun
        step_back()
        with stoppable(stopped) as paused, BackupFile(file) as backup_file, private_files():
            async with connect(patient(opened_url)) as opened:
                if verify:
                    return await _compare(opened, backup_file, as_json)
                with progress("checking") as show:
                    checked = await check(opened, backup_file, on_progress=_shown_on(show, None))
                if dry_run:
                    _print_checked(checked, backup_file, connect(url).url, if_there, as_json)
                    return 0
                if not _confirmed(checked, opened, yes, paused):
                    leave("nothing was restored")
                begun, began = True, time.monotonic()
                restored = await _write(opened, backup_file, if_there, resume, checked)
        _print_restored(restored, opened, time.monotonic() - began, as_json)
        return FAILED if restored.missing else 0

    run(work)


async def _write(store: Store, file: BackupFile, if_there: IfThere | None, resume: bool, checked: Checked) -> Restored:
    with progress("restoring") as show:
        try:
            return await write(
                store,
                file,
                if_there=if_there,
                resume=resume,
                checked=checked,
                on_progress=_shown_on(show, checked.counts.keys),
            )
        except StoreError as error:
            leave(f"{error}; {_RESUME}")


def _shown_on(show: Show, total: int | None) -> Callable[[RestoreProgress], None]:
    def on_progress(now: RestoreProgress) -> None:
        show(now.done, total)

    return on_progress


def _confirmed(checked: Checked, store: Store, yes: bool, paused: Paused) -> bool:
    live = checked.counts.keys - checked.expired
    there = f", of which {checked.there:,} are there already" if checked.there else ""
    return confirmed(f"Restore {counted(live, 'key')} into {store.url}{there}?", yes, paused, "nothing was restored")


async def _compare(store: Store, file: BackupFile, as_json: bool) -> int:
    with progress("comparing") as show:
        compared = await compare(store, file, on_progress=_shown_on(show, None))
    if as_json:
        typer.echo(json.dumps(compared.as_json(), indent=2, ensure_ascii=False))
    else:
        _print_compared(compared, store)
    return FAILED if compared.differences else 0


def _print_checked(checked: Checked, file: BackupFile, store: str, if_there: IfThere | None, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"file": str(file.path), "store": store, **checked.as_json()}, indent=2))
        return
    header = file.header
    typer.echo(f"{file.path} is whole: {counted(checked.counts.keys, 'key')} of {header.store}, saved {header.made_at}")
    if header.match != "*":
        typer.echo(f"  only keys that match {header.match}")
    live = checked.counts.keys - checked.expired
    if checked.expired:
        typer.echo(f"  {counted(checked.expired, 'key')} expired since, and will not be restored")
    if not checked.there:
        typer.echo(f"would restore {counted(live, 'key')} into {store}")
        return
    there = f"{checked.there:,} of them are there already"
    match if_there:
        case IfThere.SKIP:
            typer.echo(f"would restore {counted(live - checked.there, 'key')} into {store}; {there} and stay")
        case IfThere.REPLACE:
            typer.echo(f"would restore {counted(live, 'key')} into {store}; {there} and would be replaced")
        case _:
            typer.echo(f"would restore nothing into {store}: {there}; write --if-there skip or replace")


def _print_restored(restored: Restored, store: Store, took_s: float, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"store": store.url, **restored.as_json()}, indent=2))
        return
    typer.echo(f"restored {counted(restored.restored, 'key')} into {store.url}")
    for count, said in (
        (restored.expired, "expired since the backup, and not restored"),
        (restored.skipped, "were there already, and stay as they are"),
        (restored.resumed_at, "dealt with before it was interrupted"),
    ):
        if count:
            typer.echo(f"  {count:,} {said}")
    if restored.missing:
        typer.echo(
            f"  {counted(restored.missing, 'key')} of the backup missing in the end: a program deleted them meanwhile, "
            "or the store was restarted and forgot them; --if-there skip brings them back",
            err=True,
        )
    done = restored.keys - restored.resumed_at
    typer.echo(f"  {took_s:,.1f} s, {done / max(took_s, 0.001):,.0f} keys a second")


def _print_compared(compared: Compared, store: Store) -> None:
    typer.echo(f"{counted(compared.keys, 'key')} of the backup beside {store.url}")
    for what, count in (
        ("equal", compared.equal),
        ("expired since, and gone as they should be", compared.expired),
        ("missing", compared.missing),
        ("of another kind", compared.other_kind),
        ("with another value", compared.other_value),
        ("with another expiry", compared.other_expiry),
    ):
        if count:
            typer.echo(f"  {count:,} {what}")
    for what, keys in compared.examples.items():
        for key in keys:
            typer.echo(f"    {what.replace('_', ' ')}: {key}")
    if not compared.differences:
        typer.echo("no differences")
