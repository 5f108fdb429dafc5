"""`keystead store`: what concerns a store as a whole."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from keystead import connect
from keystead.cli.flags import NO_VALUE, Command, CommandGroup
from keystead.cli.formatting import json_text
from keystead.cli.keyspace_arguments import Json, Stores, run, store_urls
from keystead.server import Settings
from keystead.stores.database.database_schema import SchemaUpgrade
from keystead.stores.database.database_store import DatabaseStore

_DRY_RUN_HELP = "Print the plan, and change nothing."

DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help=_DRY_RUN_HELP)]

store = typer.Typer(name="store", cls=CommandGroup, no_args_is_help=True, help="Look after a store as a whole.")


@store.callback()
def _group() -> None:
    """Look after a store as a whole."""


@store.command("upgrade", cls=Command)
def upgrade_store(store: Stores = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Bring the tables of a store to the version of this Keystead, and say what was done.

    Opening a store does the same by itself. This is for doing it beforehand, by a user who may make tables, or for
    seeing what a new version would do. Only PostgreSQL, MySQL and MariaDB have tables that a later version may change.

    [bold]Examples[/bold]

      keystead store upgrade --store postgresql://app@localhost/app --dry-run

      keystead store upgrade
    """

    async def work() -> int:
        urls = store_urls(store) if store else Settings().store_urls
        told: list[dict[str, Any]] = []
        for url in dict.fromkeys(urls.values()):
            opened = connect(url)
            plan = await opened.upgrade(dry_run=dry_run) if isinstance(opened, DatabaseStore) else None
            told.append(_as_json(opened.url, plan, done=not dry_run))
            if not as_json:
                _print_plan(opened.url, plan, dry_run)
        if as_json:
            typer.echo(json_text(told, indent=2))
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
        typer.echo(f"{url} has no tables that need an upgrade")
    elif not plan.changes:
        typer.echo(f"{url} has version {plan.found}, which is that of this Keystead; nothing to do")
    else:
        typer.echo(f"{url} {'would go' if dry_run else 'went'} from version {plan.found} to {plan.version}:")
        for step in plan.changes:
            typer.echo(f"  version {step.version} {step.what}")
