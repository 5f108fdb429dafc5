"""`keystead restore`: restore the keys of a backup into a store, or compare both."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from keystead import connect
from keystead.catalogue import message
from keystead.cli.billing import announce_writing
from keystead.cli.confirmation import confirm, refuse_without_terminal
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import print_json
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import Json, is_missing, require_database, run
from keystead.cli.priority import lower_priority
from keystead.cli.private_files import private_files
from keystead.cli.terminal_language import plural, say
from keystead.cli.transfers import (
    Display,
    StoreUrl,
    Yes,
    print_counts,
    store_url,
    with_timeout,
)
from keystead.errors import StoreError
from keystead.stores import Store
from keystead.stores.backup import BackupFile, Checked, Compared, IfThere, Restored, check, compare
from keystead.stores.backup import restore as write

_FILE_HELP = "A file written by `keystead backup`."
_IF_THERE_HELP = """What to do if keys of the backup already exist in the store: restore nothing, skip those keys, or
replace them. [dim]\\[default: refuse][/dim]"""
_DRY_RUN_HELP = "Check the file, print what would be restored, and write nothing."
_RESUME_HELP = "Continue an interrupted restore of this file."
_VERIFY_HELP = "Compare the store with the file key by key, and write nothing. The exit code is 1 if they differ."

File = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE_HELP, show_default=False)]
WhatIfThere = Annotated[
    IfThere | None,
    typer.Option("--if-there", metavar="refuse|skip|replace", help=_IF_THERE_HELP, show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help=_DRY_RUN_HELP)]
Resume = Annotated[bool, typer.Option("--resume", metavar=NO_VALUE, help=_RESUME_HELP)]
Verify = Annotated[bool, typer.Option("--verify", metavar=NO_VALUE, help=_VERIFY_HELP)]

_RESUME = message("the restored keys stay, and --resume continues")


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
    """Restore the keys of a backup into a store of any type: values and exact expiry times.

    The whole file is checked before anything is written. Expired keys are not restored. Each key is written with its
    expiry in one step. By default nothing is restored if any key of the backup already exists in the store. At the end
    the keys in the store are counted; the exit code is 1 if any is missing. See `keystead guide backup`.

    [bold]Examples[/bold]

      keystead restore keys.backup --dry-run

      keystead restore keys.backup --store sqlite:///app.db --yes

      keystead restore keys.backup --store redis://localhost:6379/0 --if-there skip --resume

      keystead restore keys.backup --verify
    """
    if verify and (dry_run or resume or if_there is not None):
        fail(say("--verify only compares; use it without --dry-run, --resume and --if-there"), USAGE_ERROR)
    refuse_without_terminal(yes or verify, dry_run, "restored")
    url = opened_url = store_url(store)
    if verify:
        require_database(url)
    elif dry_run and is_missing(url):
        opened_url = "memory://"  # a missing database would be created empty
    begun = False

    def advise() -> str:
        return say("stopped; {advice}", advice=say(_RESUME)) if begun else say("stopped; nothing was written")

    async def work() -> int:
        nonlocal begun
        lower_priority()
        with (
            stop_on_signals(advise) as pause,
            BackupFile(file) as backup_file,
            private_files(),
            Display() as display,
        ):
            async with connect(with_timeout(opened_url)) as opened:
                if verify:
                    return await _verify(opened, backup_file, display, as_json)
                checked = await check(opened, backup_file, on_progress=display.bar)
                display.close()
                if dry_run:
                    _print_checked(checked, backup_file, connect(url).url, if_there, as_json)
                    return 0
                announce_writing(opened, checked.counts.keys)
                if not confirm(_question(checked, opened.url), yes, pause, say("nothing was restored")):
                    fail(say("nothing was restored"))
                begun, began = True, time.monotonic()
                try:
                    restored = await write(
                        opened, backup_file, if_there=if_there, resume=resume, checked=checked, on_progress=display.bar
                    )
                except StoreError as error:
                    fail(f"{error}; {say(_RESUME)}")
        _print_restored(restored, opened.url, time.monotonic() - began, as_json)
        return FAILED if restored.missing else 0

    run(work)


async def _verify(store: Store, file: BackupFile, display: Display, as_json: bool) -> int:
    compared = await compare(store, file, on_progress=display.bar)
    display.close()
    _print_compared(compared, store.url, as_json)
    return FAILED if compared.differences else 0


def _question(checked: Checked, store: str) -> str:
    live = plural("{count} key", "{count} keys", checked.counts.keys - checked.expired)
    if not checked.there:
        return say("Restore {keys} into {store}?", keys=live, store=store)
    there = f"{checked.there:,}"
    return say("Restore {keys} into {store}, of which {there} already exist?", keys=live, store=store, there=there)


def _print_checked(checked: Checked, file: BackupFile, store: str, if_there: IfThere | None, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(file.path), "store": store, **checked.as_json()})
        return
    header = file.header
    typer.echo(
        say(
            "{path} is whole: {keys} of {store}, saved {made_at}",
            path=file.path,
            keys=plural("{count} key", "{count} keys", checked.counts.keys),
            store=header.store,
            made_at=header.made_at,
        )
    )
    if header.match != "*":
        typer.echo(say("  only keys that match {match}", match=header.match))
    if checked.expired:
        typer.echo(
            say(
                "  {keys} expired since, and would not be restored",
                keys=plural("{count} key", "{count} keys", checked.expired),
            )
        )
    live = checked.counts.keys - checked.expired
    restores, there = (
        say("would restore {keys} into {store}", keys=plural("{count} key", "{count} keys", live), store=store),
        say("{count} of them already exist", count=f"{checked.there:,}"),
    )
    if not checked.there:
        typer.echo(restores)
    elif if_there is IfThere.SKIP:
        typer.echo(
            say(
                "would restore {keys} into {store}; {there} and stay",
                keys=plural("{count} key", "{count} keys", live - checked.there),
                store=store,
                there=there,
            )
        )
    elif if_there is IfThere.REPLACE:
        typer.echo(say("{restores}; {there} and would be replaced", restores=restores, there=there))
    else:
        typer.echo(
            say(
                "would restore nothing into {store}: {there}; write --if-there skip or replace",
                store=store,
                there=there,
            )
        )


def _print_restored(restored: Restored, store: str, took_s: float, as_json: bool) -> None:
    if as_json:
        print_json({"store": store, **restored.as_json()})
        return
    typer.echo(
        say("restored {keys} into {store}", keys=plural("{count} key", "{count} keys", restored.restored), store=store)
    )
    print_counts(
        (
            (restored.expired, message("expired since the backup, and not restored")),
            (restored.skipped, message("existed already, and were left as they are")),
            (restored.resumed_at, message("processed before the interruption")),
        )
    )
    if restored.missing:
        typer.echo(
            say(
                "  {keys} of the backup missing at the end: a program deleted them, "
                "or the store restarted and lost them; --if-there skip restores them",
                keys=plural("{count} key", "{count} keys", restored.missing),
            ),
            err=True,
        )
    rate = (restored.keys - restored.resumed_at) / max(took_s, 0.001)
    typer.echo(say("  {took_s} s, {rate} keys a second", took_s=f"{took_s:,.1f}", rate=f"{rate:,.0f}"))


def _print_compared(compared: Compared, store: str, as_json: bool) -> None:
    if as_json:
        print_json(compared.as_json())
        return
    typer.echo(
        say(
            "compared {keys} of the backup with {store}",
            keys=plural("{count} key", "{count} keys", compared.keys),
            store=store,
        )
    )
    print_counts(
        (
            (compared.equal, message("equal")),
            (compared.expired, message("expired since, and are not in the store")),
            (compared.missing, message("missing")),
            (compared.other_kind, message("of another kind")),
            (compared.other_value, message("with a different value")),
            (compared.other_expiry, message("with a different expiry")),
        )
    )
    for example in compared.describe_examples():
        typer.echo(f"    {example}")
    if not compared.differences:
        typer.echo(say("no differences"))
