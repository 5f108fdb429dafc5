"""`keystead show`: statistics of a store by family, or one key with its related keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keystead.cli.delete_command import key_of, values_of
from keystead.cli.exit import FAILED, USAGE_ERROR, fail
from keystead.cli.formatting import one_line, print_json, rough_duration, shorten
from keystead.cli.interrupts import stop_on_signals
from keystead.cli.keyspace_arguments import (
    NAMED,
    Json,
    Keyspaces,
    Stores,
    find_family,
    keyspaces,
    open_keyspaces,
    other_keyspaces,
    run,
)
from keystead.cli.name_hints import complete_family, modules_here
from keystead.cli.priority import lower_priority
from keystead.cli.progress_bar import progress
from keystead.cli.terminal_language import plural, say
from keystead.schema import Family, Keyspace, Plan
from keystead.schema.deletion import PlannedStep
from keystead.schema.doctor import QuarantineKeys
from keystead.schema.family_lookup import name_of
from keystead.schema.survey import FamilySurvey, Survey, SurveyProgress, survey, survey_of

_FAMILY_HELP = (
    "A family to show in detail: counter, or WidgetKeys.counter; quarantine for the keys that the doctor set aside. "
    "A KEYSPACE may precede it, or be alone, as in other commands."
)
_VALUES_HELP = "The values of its placeholders, to show one key and its related keys."
_SAMPLES_HELP = "The number of sample keys of each family, with values; sealed fields are hidden."

_UNBROKEN = 200
_SHAPES = 10  # of unknown keys

FamilyName = Annotated[
    str | None, typer.Argument(metavar="FAMILY", help=_FAMILY_HELP, show_default=False, autocompletion=complete_family)
]
Values = Annotated[list[str] | None, typer.Argument(metavar="VALUE", help=_VALUES_HELP, show_default=False)]
Samples = Annotated[int, typer.Option("--samples", metavar="NUMBER", min=0, help=_SAMPLES_HELP)]


def show(
    family: FamilyName = None,
    values: Values = None,
    keyspace: Keyspaces = None,
    store: Stores = None,
    samples: Samples = 3,
    as_json: Json = False,
) -> None:
    """Show the keys of a store by family: count, size, time to live and samples.

    It scans while the application runs, without blocking it. Sizes are those of stored keys and values; "about" marks
    an estimate. Sealed values are not opened. With the values of its placeholders, show one key and its related keys;
    the exit code is 1 if there is no such key.

    [bold]Examples[/bold]

      keystead show myapp.keys:AppKeys

      keystead show myapp.keys session --samples 10

      keystead show counter example-a1b2c3d4

      keystead show quarantine --json
    """
    if family and not keyspace and _names_a_keyspace(family):
        keyspace = [family]
        family, values = (values[0], values[1:]) if values else (None, [])
    classes = keyspaces(keyspace)
    chosen = None if family is None else find_family(family, [*classes, QuarantineKeys])
    if chosen is not None and values:
        _show_one(chosen, values, classes, store, as_json)
        return
    wanted = None if chosen is None else {chosen}
    examined = 0

    async def work() -> int:
        lower_priority()
        with (
            stop_on_signals(
                lambda: say(
                    "stopped after {keys}; nothing was changed", keys=plural("{count} key", "{count} keys", examined)
                )
            ),
            progress(say("counting")) as update,
        ):

            def on_progress(now: SurveyProgress) -> None:
                nonlocal examined
                examined = now.examined
                update(now.examined, now.total)

            async with open_keyspaces(classes if wanted is None else [*classes, QuarantineKeys], store) as bound_keys:
                known = other_keyspaces(classes) if wanted is None else ()
                found = await survey(bound_keys, wanted, samples, known=known, on_progress=on_progress)
        if as_json:
            print_json(found.as_json())
        else:
            _print(found, wanted is not None)
        return 0

    run(work)


def _names_a_keyspace(name: str) -> bool:
    """Whether this is a keyspace rather than a family of the kits. Their families come first."""
    if name in QuarantineKeys.families or any(name in cls.families for cls in keyspaces()):
        return False
    return ":" in name or name.endswith(".py") or name in NAMED or name == "kits" or name in modules_here()


def _show_one(
    family: Family[Any], texts: list[str], classes: list[type[Keyspace]], store: list[str] | None, as_json: bool
) -> None:
    """Show one key, and the keys that would be deleted with it."""
    if family.kind == "channel":
        fail(say("{place} is a Channel, which stores nothing to show", place=family.place), USAGE_ERROR)
    placeholders = values_of(family, texts)

    async def work() -> int:
        with stop_on_signals(lambda: say("stopped; nothing was changed")):
            async with open_keyspaces([*classes, QuarantineKeys], store) as bound_keys:
                owner = next(one for one in bound_keys if family in one.families.values())
                key = key_of(owner.bound(family), placeholders)
                plan = await key.plan_delete()
                found = await survey_of(bound_keys, plan.keys)
                exists = bool(await key.exists())
        if as_json:
            listed = [asdict(step) for step in _listings(plan)]
            print_json(found.as_json() | {"listed": listed})
        else:
            _print_one(found, plan)
        if not exists:
            typer.echo(say("there is no {key}", key=one_line(key.key)), err=True)
        return 0 if exists else FAILED

    run(work)


def _print_one(found: Survey, plan: Plan) -> None:
    console = _console()
    for one in found.families:
        console.print(Text(name_of(one.family), "bold"))
        _print_samples(console, one)
    for step in _listings(plan):
        console.print(
            _indent(Text(one_line(say("{member} is named in {key}", member=step.member, key=step.key)), "dim"), 2),
            soft_wrap=True,
        )
    for note in plan.notes:
        console.print(Text(one_line(note)), soft_wrap=True)


def _listings(plan: Plan) -> list[PlannedStep]:
    """The index entries that name it, in keys that would not be deleted with it."""
    deleted = set(plan.keys)
    return [step for step in plan.steps if step.member is not None and step.key not in deleted]


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNBROKEN
    return console


def _print(found: Survey, detailed: bool) -> None:
    console = _console()
    if detailed:
        for one in found.families:
            _print_family(console, one)
        return
    console.print(_table(found))
    for one in found.families:
        if one.samples:
            console.print()
            console.print(Text(name_of(one.family), "bold"))
            _print_samples(console, one)
    console.print(_summary(found))
    if found.others:
        others = ", ".join(f"{keyspace} ({count:,})" for keyspace, count in found.others.items())
        console.print(Text(say("keys of other keyspaces: {others}", others=others)), soft_wrap=True)
    if found.unknown:
        belong = plural("{count} key belongs to no family", "{count} keys belong to no family", found.unknown)
        shapes = found.unknown_shapes.as_json()[:_SHAPES]
        shown = [str(one["example"] if one["count"] == 1 else f"{one['shape']} ({one['count']:,})") for one in shapes]
        console.print(Text(f"{belong}: {', '.join(shown)}"), soft_wrap=True)


def _table(found: Survey) -> Table:
    table = Table(header_style="bold")
    for column in (say("family"), say("kind")):
        table.add_column(column, overflow="fold", min_width=8)
    for column in (say("keys"), say("bytes")):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column(say("time to live"), overflow="fold", min_width=12)
    for one in found.families:
        left = ", ".join(f"{name}: {count:,}" for name, count in one.ttls.items() if count)
        family = Text.assemble(name_of(one.family), "\n", (one.family.pattern.display, "dim"))
        table.add_row(family, one.family.kind_name, f"{one.count:,}", _bytes(one), left)
    return table


def _print_family(console: Console, one: FamilySurvey) -> None:
    family = one.family
    console.print(Text(name_of(family), "bold"))
    rows: Iterable[tuple[str, str]] = (
        (say("key"), family.pattern.display),
        (say("kind"), family.kind_name),
        (say("role"), family.role),
        (say("value"), family.value_shape),
        (say("lifetime"), family.lifetime.describe()),
        (say("doc"), family.doc),
        (say("owns"), ", ".join(relation.target.name for relation in family.owns)),
        (say("keys"), f"{one.count:,}"),
        (say("bytes"), _bytes(one)),
        ("TTL", ", ".join(f"{name}: {count:,}" for name, count in one.ttls.items() if count) or say("none left")),
    )
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        if value:
            table.add_row(Text(name, "dim"), Text(value))
    console.print(_indent(table, 2))
    _print_samples(console, one)


def _print_samples(console: Console, one: FamilySurvey) -> None:
    for sample in one.samples:
        left = (
            say("no deadline")
            if sample.left_ms is None
            else say("{duration} left", duration=rough_duration(sample.left_ms))
        )
        console.print(_indent(Text.assemble(one_line(sample.key), "  ", (left, "dim")), 2))
        console.print(_indent(Text(shorten(sample.value), "dim"), 4))


def _indent(what: Text | Table, by: int) -> Padding:
    return Padding(what, (0, 0, 0, by), expand=False)


def _bytes(one: FamilySurvey) -> str:
    size, unit = float(one.bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    number = f"{size:,.0f}" if unit == "B" or size >= 100 else f"{size:,.1f}"
    return say("about {size}", size=f"{number} {unit}") if one.about else f"{number} {unit}"


def _summary(found: Survey) -> str:
    there = sum(1 for one in found.families if one.count)
    return say(
        "{keys} in {there} of {families}",
        keys=plural("{count} key", "{count} keys", found.count),
        there=there,
        families=plural("{count} family", "{count} families", len(found.families)),
    )
