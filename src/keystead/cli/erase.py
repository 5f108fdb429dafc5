"""`keystead erase`: all that belongs to one subject, in all keyspaces and stores."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from keystead.cli.confirmation import confirmed, refuse_without_terminal
from keystead.cli.delete import DryRun, Yes
from keystead.cli.leave import ASKED_WRONGLY, FAILED, leave
from keystead.cli.progress import progress
from keystead.cli.stopping import stoppable
from keystead.cli.targets import Json, Keys, Stores, bound, keyspaces, run
from keystead.cli.words import counted
from keystead.errors import BadArgument
from keystead.schema import Keyspace
from keystead.schema.erasure import Erased, ErasurePlan, ErasureProgress, plan_erase
from keystead.schema.erasure import erase as erase_all

_SUBJECT_HELP = "Whose keys: a kind that families name in member_of, and an id, such as user:42."

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help=_SUBJECT_HELP, show_default=False)]


def erase(
    subject: Subject,
    keys: Keys = None,
    store: Stores = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete everything that belongs to one subject, such as a user, across all keyspaces and stores.

    Every family whose member_of names the kind of the subject is looked through, each key goes with what it owns, and
    it is looked again until nothing is found. The plan is shown first, and you are asked. The exit code is 1 when
    something may be left. KEYSTEAD_SEAL_KEYS opens sealed values.

    [bold]Examples[/bold]

      keystead erase user:42 --keys myapp.keys --dry-run

      keystead erase user:42 --keys myapp.keys --store redis://localhost:6379/0 --store durable=sqlite:///app.db

      keystead erase user:42 --yes --json
    """
    refuse_without_terminal(yes, dry_run)
    classes = keyspaces(keys)

    async def work() -> int:
        with stoppable(lambda: f"stopped; run it again to erase what is left of {subject}") as paused:
            async with bound(classes, store) as bound_keys:
                plan = await _plan(bound_keys, subject)
                if not as_json:
                    _print(plan, dry_run)
                erased = None
                if plan.count and not dry_run:
                    if not confirmed(f"Delete {counted(plan.keys, 'key')}?", yes, paused):
                        leave("nothing was deleted")
                    erased = await _erase(bound_keys, subject)
        if as_json:
            typer.echo(json.dumps(_as_json(plan, erased), indent=2, ensure_ascii=False))
        elif erased is not None:
            _print_erased(erased)
        left = erased.left if erased is not None else 0
        return FAILED if left or plan.notes else 0

    run(work)


async def _plan(bound_keys: list[Keyspace], subject: str) -> ErasurePlan:
    with progress("looking") as show:

        def on_progress(now: ErasureProgress) -> None:
            show(now.examined, None, f", {now.found:,} of {subject}")

        try:
            return await plan_erase(bound_keys, subject, on_progress=on_progress)
        except BadArgument as error:
            leave(str(error), ASKED_WRONGLY)


async def _erase(bound_keys: list[Keyspace], subject: str) -> Erased:
    with progress("erasing") as show:

        def on_progress(now: ErasureProgress) -> None:
            show(now.examined, None, f", {now.found:,} of {subject}")

        return await erase_all(bound_keys, subject, on_progress=on_progress)


def _print(plan: ErasurePlan, dry_run: bool) -> None:
    if not plan.count:
        typer.echo(f"nothing belongs to {plan.subject}")
    else:
        typer.echo("would do:" if dry_run else "to do:")
        for step in plan.steps:
            typer.echo(f"  {step}")
        if plan.count > len(plan.steps):
            typer.echo(f"  and {plan.count - len(plan.steps):,} more")
    for note in plan.notes:
        typer.echo(f"keystead: {note}", err=True)


def _print_erased(erased: Erased) -> None:
    for family, count in erased.families.items():
        typer.echo(f"  {family}: {counted(count, 'key')}")
    typer.echo(f"erased {erased.subject}: {counted(erased.keys, 'key')}, and what goes with them")
    if erased.left:
        typer.echo(f"keystead: {counted(erased.left, 'key')} came back while it was erased; run it again", err=True)


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
