"""`keystead delete`: one key, with all that goes with it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from keystead.cli.confirmation import confirmed, refuse_without_terminal
from keystead.cli.exit import FAILED, USAGE_ERROR, leave
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import counted
from keystead.cli.interrupts import stoppable
from keystead.cli.keyspace_arguments import Json, Keys, Stores, bound, family_named, keyspaces, run
from keystead.errors import BadKey
from keystead.schema import Family, Plan
from keystead.schema.erasure import value_of

_FAMILY_HELP = "The family of the key: session, or AppKeys.session."
_VALUES_HELP = "The values of its placeholders, in the order of its pattern."
_DRY_RUN_HELP = "Show what would be deleted, and delete nothing."
_YES_HELP = "Do not ask."
_STOPPED = "stopped; what was begun may be done in part, and `keystead doctor` finds the rest"

FamilyName = Annotated[str, typer.Argument(metavar="FAMILY", help=_FAMILY_HELP, show_default=False)]
Values = Annotated[list[str] | None, typer.Argument(metavar="VALUE", help=_VALUES_HELP, show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help=_DRY_RUN_HELP)]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help=_YES_HELP)]


def delete(
    family: FamilyName,
    values: Values = None,
    keys: Keys = None,
    store: Stores = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a key, what it owns and the index entries that name it. The plan is shown first, and you are asked.

    Values are written as they stand in the key document: 42, 2026-02-23, https://example.com. The exit code is 1 when
    there was no such key.

    [bold]Examples[/bold]

      keystead delete session 9f86d081 --keys myapp.keys:AppKeys

      keystead delete counter_daily example-a1b2c3d4 2026-02-23 --keys widgets --dry-run

      keystead delete counter example-a1b2c3d4 --yes --json
    """
    refuse_without_terminal(yes, dry_run)
    classes = keyspaces(keys)
    chosen = family_named(family, classes)
    if chosen.kind == "channel":
        leave(f"{chosen.place} is a Channel: nothing is kept there that could be deleted", USAGE_ERROR)
    placeholders = values_of(chosen, values or [])

    async def work() -> int:
        with stoppable(lambda: _STOPPED) as paused:
            async with bound(classes, store) as bound_keys:
                owner = next(one for one in bound_keys if chosen in one.families.values())
                key = key_of(owner.bound(chosen), placeholders)
                plan = await key.plan_delete()
                existed = bool(await key.exists())
                if not as_json:
                    _print(plan, dry_run)
                if dry_run:
                    deleted = False
                elif confirmed(f"Delete {counted(len(plan.keys), 'key')}?", yes, paused):
                    deleted = bool(await key.delete())
                else:
                    leave("nothing was deleted")
        if as_json:
            typer.echo(json.dumps(_as_json(key.key, plan, existed, deleted), indent=2, ensure_ascii=False))
        elif not existed:
            typer.echo(f"there is no {key.key}", err=True)
        elif deleted:
            typer.echo(f"deleted {key.key}")
        return 0 if existed else FAILED

    run(work)


def values_of(family: Family[Any], texts: list[str]) -> dict[str, Any]:
    """The values of the placeholders that were written as text. Leaves with exit code 2 where they do not fit."""
    pattern = family.pattern
    has_tail = pattern.text.endswith("]")
    if not len(pattern.names) - has_tail <= len(texts) <= len(pattern.names):
        wanted = " ".join(pattern.names) or "no values"
        leave(f"{pattern.text} takes {wanted}, and {_count_text(len(texts))}", USAGE_ERROR)
    try:
        return {name: value_of(pattern, name, text) for name, text in zip(pattern.names, texts, strict=False)}
    except BadKey as error:
        leave(f"{pattern.text}: {error}", USAGE_ERROR)


def key_of(bound_family: Any, placeholders: dict[str, Any]) -> Any:
    """The key itself. Leaves with exit code 2 where it is none."""
    try:
        return bound_family(**placeholders)
    except BadKey as error:
        leave(str(error), USAGE_ERROR)


def _count_text(count: int) -> str:
    return {0: "none was given", 1: "1 was given"}.get(count, f"{count} were given")


def _print(plan: Plan, dry_run: bool) -> None:
    typer.echo("would do:" if dry_run else "to do:")
    for line in str(plan).splitlines():
        typer.echo(f"  {line}")


def _as_json(key: str, plan: Plan, existed: bool, deleted: bool) -> dict[str, Any]:
    return {
        "key": key,
        "existed": existed,
        "deleted": deleted,
        "plan": [asdict(step) for step in plan.steps],
        "notes": plan.notes,
    }
