"""`keystead store`: maintenance of a whole store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keystead import connect
from keystead.cli.flags import NO_VALUE, Command, CommandGroup
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import Json, Stores, run, store_urls
from keystead.cli.terminal_language import say
from keystead.stores.database.database_schema import SchemaUpgrade
from keystead.stores.database.database_store import DatabaseStore

DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help="Print the plan, and change nothing.")]

store = typer.Typer(name="store", cls=CommandGroup, no_args_is_help=True, help="Maintain a store.")


@store.callback()
def _group() -> None:
    """Maintain a store."""


@store.command("upgrade", cls=Command)
def upgrade_store(store: Stores = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Upgrade the tables of a store to this version of Keystead.

    Opening a store upgrades it too. Run this to upgrade beforehand, as a database user who may create tables, or to
    preview what a new version changes. Only PostgreSQL, MySQL and MariaDB stores have tables to upgrade.

    [bold]Examples[/bold]

      keystead store upgrade --store postgresql://app@localhost/app --dry-run

      keystead store upgrade
    """

    async def work() -> int:
        upgrades: list[dict[str, Any]] = []
        for url in dict.fromkeys(store_urls(store).values()):
            opened = connect(url)
            plan = await opened.upgrade(dry_run=dry_run) if isinstance(opened, DatabaseStore) else None
            upgrades.append(_as_json(opened.url, plan, done=not dry_run))
            if not as_json:
                _print_plan(opened.url, plan, dry_run)
        if as_json:
            print_json(upgrades)
        return 0

    run(work)


def _as_json(url: str, plan: SchemaUpgrade | None, *, done: bool) -> dict[str, Any]:
    changes = [] if plan is None else [{"version": step.version, "what": step.what} for step in plan.changes]
    return {
        "store": url,
        "found": None if plan is None else plan.found,
        "version": None if plan is None else plan.version,
        "changes": changes,
        "done": done,
    }


def _print_plan(url: str, plan: SchemaUpgrade | None, dry_run: bool) -> None:
    if plan is None:
        typer.echo(say("{url} has no tables that need an upgrade", url=url))
    elif not plan.changes:
        typer.echo(say("{url} has version {found}, the current one; nothing to do", url=url, found=plan.found))
    else:
        versions = {"found": plan.found, "version": plan.version}
        typer.echo(
            say("{url} would be upgraded from version {found} to {version}:", url=url, **versions)
            if dry_run
            else say("{url} was upgraded from version {found} to {version}:", url=url, **versions)
        )
        for step in plan.changes:
            typer.echo(say("  version {version} {what}", version=step.version, what=step.what))
