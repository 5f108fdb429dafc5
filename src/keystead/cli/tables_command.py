"""`keystead tables`: maintenance of the kits' relational tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote

import typer

from keystead.cli.exit import USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE, Command, CommandGroup
from keystead.cli.formatting import print_json
from keystead.cli.keyspace_arguments import Json, run, store_urls
from keystead.cli.terminal_language import say
from keystead.kits import KITS, TABLES
from keystead.server import Settings

if TYPE_CHECKING:
    from keystead.parts.tables import Tables, TableSet, TableUpgrade

_DATABASE_HELP = """Where the tables are: sqlite:///tables.db, postgresql://user@host/database or mysql://…
[dim]\\[default: beside the store][/dim]"""

Database = Annotated[str | None, typer.Option("--database", metavar="URL", help=_DATABASE_HELP, show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help="Print the plan, and change nothing.")]

tables = typer.Typer(name="tables", cls=CommandGroup, no_args_is_help=True, help="Maintain the kits' tables.")


@tables.callback()
def _group() -> None:
    """Maintain the kits' tables."""


@tables.command("upgrade", cls=Command)
def upgrade_tables(database: Database = None, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Upgrade the relational tables of the kits to this version of Keystead.

    Opening them upgrades them too. Run this to upgrade beforehand, as a database user who may create tables, or to
    preview what a new version changes.

    [bold]Examples[/bold]

      keystead tables upgrade --database postgresql://app@localhost/app --dry-run

      keystead tables upgrade
    """

    from keystead.parts.tables import open_tables  # imported here: it is slow, and the help does not need it

    async def work() -> int:
        url = Settings(database=database).database_url
        if url is None:
            fail(say("this store cannot hold tables; name a database with --database URL"), USAGE_ERROR)
        opened = open_tables(url, *_sets(TABLES))
        plans = await opened.upgrade(dry_run=dry_run)
        if as_json:
            print_json([_as_json(opened.url, plan, done=not dry_run) for plan in plans])
        else:
            _print_plans(opened.url, plans, dry_run)
        return 0

    run(work)


def open_tables_of(
    modules: Set[str], stores: Sequence[str] | None, database: str | None
) -> tuple[Tables | None, str | None]:
    """The tables of the kits that declare their keys in these modules, not open yet; None if there are none to search.

    The second value is a warning if a kit has tables whose database is unknown, so data may be left in them. Exits with
    code 2 if `database` names a missing file.
    """
    kits = [kit for kit in TABLES if KITS[kit] in modules]
    if not kits:
        return None, None
    from keystead.parts.tables import open_tables, url_beside

    settings = Settings(store=store_urls(stores)["default"], database=database)
    url = settings.database_url
    file = unquote((url or "").removeprefix("sqlite:///").partition("?")[0])
    if url is not None and (not url.startswith("sqlite:///") or Path(file).exists()):
        return open_tables(url, *_sets(kits)), None
    if database is not None:
        fail(say("there is no database {file}; name another with --database URL", file=file), USAGE_ERROR)
    if settings.database is None and url_beside(settings.store) is not None:
        return None, None  # the server would have created them beside the store
    known = settings.database is not None
    reason = say("there is no database {file}", file=file) if known else say("their database is not known")
    return None, say(
        "the tables of {kits} are not searched: {reason}; name it with --database URL",
        kits=", ".join(kits),
        reason=reason,
    )


def _sets(kits: Iterable[str]) -> list[TableSet]:
    return [getattr(import_module(module), name) for module, name in (TABLES[kit] for kit in kits)]


def _as_json(url: str, plan: TableUpgrade, *, done: bool) -> dict[str, Any]:
    return {
        "database": url,
        "tables": plan.name,
        "found": plan.found,
        "version": plan.version,
        "changes": [{"version": step.version, "what": step.what} for step in plan.changes],
        "done": done,
    }


def _print_plans(url: str, plans: Sequence[TableUpgrade], dry_run: bool) -> None:
    for plan in plans:
        where = say("the tables of {name} in {url}", name=plan.name, url=url)
        if not plan.changes:
            typer.echo(
                say("{where} have version {found}, the current one; nothing to do", where=where, found=plan.found)
            )
            continue
        versions = {"found": plan.found, "version": plan.version}
        typer.echo(
            say("{where} would be upgraded from version {found} to {version}:", where=where, **versions)
            if dry_run
            else say("{where} were upgraded from version {found} to {version}:", where=where, **versions)
        )
        for step in plan.changes:
            typer.echo(say("  version {version} {what}", version=step.version, what=step.what))
