"""`keystead delete`: delete a key with the keys it owns and its index entries."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from keystead.catalogue import message
from keystead.cli.confirmation import confirm, refuse_without_terminal
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.flags import NO_VALUE
from keystead.cli.formatting import one_line, print_json
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import Json, Keyspaces, Stores, find_family, keyspaces, open_keyspaces, run
from keystead.cli.name_hints import complete_family
from keystead.cli.terminal_language import plural, say
from keystead.errors import BadKey
from keystead.schema import Family, Plan
from keystead.schema.erasure import value_of

_FAMILY_HELP = "The family of the key: session, or AppKeys.session."
_VALUES_HELP = "The values of its placeholders, in the order of its pattern."
_DRY_RUN_HELP = "Show what would be deleted, and delete nothing."
_YES_HELP = "Skip the confirmation."
_STOPPED = message("stopped; the deletion may be partial, and `keystead doctor` finds the rest")

FamilyName = Annotated[
    str, typer.Argument(metavar="FAMILY", help=_FAMILY_HELP, show_default=False, autocompletion=complete_family)
]
Values = Annotated[list[str] | None, typer.Argument(metavar="VALUE", help=_VALUES_HELP, show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", metavar=NO_VALUE, help=_DRY_RUN_HELP)]
Yes = Annotated[bool, typer.Option("--yes", metavar=NO_VALUE, help=_YES_HELP)]


def delete(
    family: FamilyName,
    values: Values = None,
    keyspace: Keyspaces = None,
    store: Stores = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a key, the keys it owns and the index entries that name it. You confirm the plan first.

    Write values as the key document does: 42, 2026-02-23, https://example.com. The exit code is 1 if there is no such
    key.

    [bold]Examples[/bold]

      keystead delete session 9f86d081 --keyspace myapp.keys:AppKeys

      keystead delete counter_daily example-a1b2c3d4 2026-02-23 --keyspace widgets --dry-run

      keystead delete counter example-a1b2c3d4 --yes --json
    """
    refuse_without_terminal(yes, dry_run)
    classes = keyspaces(keyspace)
    chosen = find_family(family, classes)
    if chosen.kind == "channel":
        fail(say("{place} is a Channel, which stores nothing to delete", place=chosen.place), USAGE_ERROR)
    placeholders = values_of(chosen, values or [])

    async def work() -> int:
        with stop_on_signals(lambda: say(_STOPPED)) as pause:
            async with open_keyspaces(classes, store) as bound_keys:
                owner = next(one for one in bound_keys if chosen in one.families.values())
                key = key_of(owner.bound(chosen), placeholders)
                plan = await key.plan_delete()
                existed = bool(await key.exists())
                if not as_json:
                    _print(plan, dry_run)
                if dry_run:
                    deleted = False
                elif confirm(
                    say("Delete {keys}?", keys=plural("{count} key", "{count} keys", len(plan.keys))), yes, pause
                ):
                    deleted = bool(await key.delete())
                else:
                    fail(say("nothing was deleted"))
        if as_json:
            print_json(_as_json(key.key, plan, existed, deleted))
        elif not existed:
            typer.echo(say("there is no {key}", key=one_line(key.key)), err=True)
        elif deleted:
            typer.echo(say("deleted {key}", key=one_line(key.key)))
        return 0 if existed else FAILED

    run(work)


def values_of(family: Family[Any], texts: list[str]) -> dict[str, Any]:
    """The values of the placeholders, parsed from text. Exits with code 2 if they do not fit."""
    pattern = family.pattern
    has_tail = pattern.text.endswith("]")
    if not len(pattern.names) - has_tail <= len(texts) <= len(pattern.names):
        wanted = " ".join(pattern.names) or say("no values")
        given = plural("{count} was given", "{count} were given", len(texts)) if texts else say("none was given")
        fail(
            say("{pattern} takes {wanted}, and {given}", pattern=pattern.text, wanted=wanted, given=given), USAGE_ERROR
        )
    try:
        return {name: value_of(pattern, name, text) for name, text in zip(pattern.names, texts, strict=False)}
    except BadKey as error:
        fail(f"{pattern.text}: {error}", USAGE_ERROR)


def key_of(bound_family: Any, placeholders: dict[str, Any]) -> Any:
    """The key. Exits with code 2 if the values do not make one."""
    try:
        return bound_family(**placeholders)
    except BadKey as error:
        fail(str(error), USAGE_ERROR)


def _print(plan: Plan, dry_run: bool) -> None:
    typer.echo(say("would do:") if dry_run else say("to do:"))
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
