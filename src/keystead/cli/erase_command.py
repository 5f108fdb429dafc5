"""`keystead erase`: delete all data of one subject, in all keyspaces, stores and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keystead.cli.confirmation import confirm, refuse_without_terminal
from keystead.cli.delete_command import DryRun, Yes
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.formatting import print_json
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import Json, Keyspaces, Stores, keyspaces, open_keyspaces, run
from keystead.cli.operator import operator
from keystead.cli.progress_bar import progress
from keystead.cli.tables_command import Database, open_tables_of
from keystead.cli.terminal_language import plural, say
from keystead.errors import BadArgument
from keystead.parts.audit import audit_of
from keystead.schema import Keyspace
from keystead.schema.erasure import Erased, ErasurePlan, ErasureProgress, plan_erase, subject_kinds
from keystead.schema.erasure import erase as erase_all

if TYPE_CHECKING:
    from keystead.parts.tables import Tables

_SUBJECT_HELP = "Whose data: an identity space that families name in member_of, and an id in it, such as login:42."

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help=_SUBJECT_HELP, show_default=False)]


def erase(
    subject: Subject,
    keyspace: Keyspaces = None,
    store: Stores = None,
    database: Database = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete all data of one subject, such as a user, in all keyspaces, stores and tables.

    A subject includes its identity space, because the same id in two kits is two people: `login:42` signs in as 42,
    `membership:42` is the patron 42. Your own keyspaces declare the space in member_of. If a kit's tables know the
    person by another id too, that id is erased as well.

    Every family whose member_of names the space is searched. Each key is deleted with the keys it owns, and the search
    repeats until it finds nothing. Then the subject's rows in relational tables are deleted, and keys that were cached
    from them meanwhile. You confirm the plan first. The exit code is 1 if data may remain, for example in tables that
    cannot be found. KEYSTEAD_SEAL_KEYS opens sealed values. The audit log records who erased whom: see keystead audit.

    [bold]Examples[/bold]

      keystead erase user:42 --keyspace myapp.keys --dry-run

      keystead erase user:42 --keyspace myapp.keys --store redis://localhost:6379/0 --store durable=sqlite:///app.db

      keystead erase login:42 --yes --json
    """
    refuse_without_terminal(yes, dry_run)
    classes = keyspaces(keyspace)

    async def work() -> int:
        erased, deleted = None, None
        with stop_on_signals(
            lambda: say("stopped; run it again to erase what is left of {subject}", subject=subject)
        ) as pause:
            async with (
                open_keyspaces(classes, store) as bound_keys,
                _open_tables(classes, store, database) as (tables, note),
            ):
                subjects = [subject, *([] if tables is None else await tables.known_as(subject))]
                plan = await _plan_all(bound_keys, subjects, note)
                rows = {} if tables is None else await _sum_counts(tables.count_of, subjects)
                if not as_json:
                    _print_plan(plan, rows, subjects[1:], dry_run)
                if (plan.count or rows) and not dry_run:
                    if not confirm(say("Delete {counts}?", counts=_describe_counts(plan.keys, rows)), yes, pause):
                        fail(say("nothing was deleted"))
                    erased, deleted = await _erase_all(bound_keys, tables, subjects, plan)
        if as_json:
            result = {**_as_json(plan, erased), "known_as": subjects[1:], "rows": rows, "erased_rows": deleted}
            print_json(result)
        elif erased is not None:
            _print_erased(erased, deleted or {})
        return FAILED if plan.notes or (erased is not None and erased.left) else 0

    run(work)


@asynccontextmanager
async def _open_tables(
    classes: Sequence[type[Keyspace]], stores: Sequence[str] | None, database: str | None
) -> AsyncIterator[tuple[Tables | None, str | None]]:
    """The tables of the kits of these keyspaces, and a note about tables that cannot be searched.

    The tables are None if the kits have none, or none was created yet. No table is created.
    """
    found, note = open_tables_of({cls.__module__ for cls in classes}, stores, database)
    if found is None or all(plan.found == 0 for plan in await found.upgrade(dry_run=True)):
        yield None, note
        return
    async with found:
        yield found, note


async def _plan_all(bound_keys: list[Keyspace], subjects: Sequence[str], note: str | None) -> ErasurePlan:
    """One plan for all ids of a person."""
    plan, *others = [await _plan(bound_keys, subject) for subject in subjects]
    for other in others:
        plan.include(other)
    if note is not None:
        plan.notes.append(note)
    return plan


async def _erase_all(
    bound_keys: list[Keyspace], tables: Tables | None, subjects: Sequence[str], plan: ErasurePlan
) -> tuple[Erased, dict[str, int]]:
    """Erase the keys and the rows of a person. Returns what was erased, and the deleted rows by table."""
    # The audit entry comes first, so that the log has interrupted erasures too.
    await _write_audit(bound_keys, subjects, plan)
    # Keys before rows: a user who is signed out cannot create a row again.
    erased, *others = [await _erase(bound_keys, subject) for subject in subjects]
    deleted = {} if tables is None else await _sum_counts(tables.erase, subjects)
    if deleted:
        # And the keys again: a request in between may have cached a row.
        others += [await _erase(bound_keys, subject) for subject in subjects]
    for other in others:
        erased.include(other)
    return erased, deleted


async def _plan(bound_keys: list[Keyspace], subject: str) -> ErasurePlan:
    with progress(say("searching")) as show:

        def on_progress(now: ErasureProgress) -> None:
            show(now.examined, None, f", {now.found:,} of {subject}")

        try:
            return await plan_erase(bound_keys, subject, on_progress=on_progress)
        except BadArgument as error:
            fail(str(error), USAGE_ERROR)


async def _erase(bound_keys: list[Keyspace], subject: str) -> Erased:
    with progress(say("erasing")) as show:

        def on_progress(now: ErasureProgress) -> None:
            show(now.examined, None, f", {now.found:,} of {subject}")

        return await erase_all(bound_keys, subject, on_progress=on_progress)


async def _write_audit(bound_keys: list[Keyspace], subjects: Sequence[str], plan: ErasurePlan) -> None:
    """Add an entry to the audit log of each keyspace that has keys of this person."""
    act, spaces = operator(), {one.partition(":")[0] for one in subjects}
    for keys in bound_keys:
        audit = audit_of(keys)
        has_keys = plan.families.keys() & keys.families.keys() and spaces.intersection(subject_kinds([keys]))
        if audit is not None and has_keys:
            await audit.note("erased", who=act.who, what=subjects[0], where=act.where)


def _describe_counts(keys: int, rows: Mapping[str, int]) -> str:
    count = plural("{count} key", "{count} keys", keys)
    if not rows:
        return count
    return say("{keys} and {rows}", keys=count, rows=plural("{count} row", "{count} rows", sum(rows.values())))


async def _sum_counts(count: Callable[[str], Awaitable[dict[str, int]]], subjects: Sequence[str]) -> dict[str, int]:
    """The counts of all these subjects, added up."""
    found: Counter[str] = Counter()
    for subject in subjects:
        found.update(await count(subject))
    return dict(found)


def _print_plan(plan: ErasurePlan, rows: Mapping[str, int], also: Sequence[str], dry_run: bool) -> None:
    for other in also:
        typer.echo(say("{subject} is also {other}", subject=plan.subject, other=other))
    if not plan.count and not rows:
        typer.echo(say("there is no data of {subject}", subject=plan.subject))
    else:
        typer.echo(say("would do:") if dry_run else say("to do:"))
        for step in plan.steps:
            typer.echo(f"  {step}")
        if plan.count > len(plan.steps):
            typer.echo(say("  and {count} more", count=f"{plan.count - len(plan.steps):,}"))
        for table, count in rows.items():
            typer.echo(
                say(
                    "  delete {rows} of the table {table}",
                    rows=plural("{count} row", "{count} rows", count),
                    table=table,
                )
            )
    for note in plan.notes:
        typer.echo(f"keystead: {note}", err=True)


def _print_erased(erased: Erased, rows: Mapping[str, int]) -> None:
    for family, count in erased.families.items():
        typer.echo(f"  {family}: {plural('{count} key', '{count} keys', count)}")
    for table, count in rows.items():
        typer.echo(f"  {table}: {plural('{count} row', '{count} rows', count)}")
    typer.echo(
        say(
            "erased {subject}: {counts}, and the keys they own",
            subject=erased.subject,
            counts=_describe_counts(erased.keys, rows),
        )
    )
    if erased.left:
        left = plural("{count} key", "{count} keys", erased.left)
        typer.echo(f"keystead: {say('{keys} came back meanwhile; run it again', keys=left)}", err=True)


def _as_json(plan: ErasurePlan, erased: Erased | None) -> dict[str, Any]:
    return {
        "subject": plan.subject,
        "count": plan.count,
        "keys": plan.keys,
        "families": plan.families,
        "plan": [asdict(step) for step in plan.steps],
        "notes": plan.notes,
        "erased": None if erased is None else asdict(erased),
    }
