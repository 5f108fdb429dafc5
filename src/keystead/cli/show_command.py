"""`keystead show`: what is in a store, by family; or one key, with all that belongs to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keystead.cli.delete_command import key_of, values_of
from keystead.cli.exit import FAILED, USAGE_ERROR, leave
from keystead.cli.formatting import counted
from keystead.cli.interrupts import stoppable
from keystead.cli.keyspace_arguments import Json, Keys, Stores, bound, family_named, keyspaces, other_keyspaces, run
from keystead.cli.priority import step_back
from keystead.cli.progress_bar import progress
from keystead.schema import Family, Keyspace, Plan
from keystead.schema.deletion import PlannedStep
from keystead.schema.doctor import QuarantineKeys
from keystead.schema.doctor.deadlines import roughly
from keystead.schema.family_lookup import name_of
from keystead.schema.survey import FamilySurvey, Survey, SurveyProgress, survey, survey_of

_FAMILY_HELP = (
    "A family to be shown in detail: counter, or WidgetKeys.counter; quarantine is what the doctor set aside."
)
_VALUES_HELP = "The values of its placeholders, for one key with all that belongs to it."
_SAMPLES_HELP = "How many keys of each family are shown with their values, sealed fields hidden."

_UNBROKEN = 200
_LONGEST = 500  # characters of a value that are shown to people

FamilyName = Annotated[str | None, typer.Argument(metavar="FAMILY", help=_FAMILY_HELP, show_default=False)]
Values = Annotated[list[str] | None, typer.Argument(metavar="VALUE", help=_VALUES_HELP, show_default=False)]
Samples = Annotated[int, typer.Option("--samples", metavar="NUMBER", min=0, help=_SAMPLES_HELP)]


def show(
    family: FamilyName = None,
    values: Values = None,
    keys: Keys = None,
    store: Stores = None,
    samples: Samples = 3,
    as_json: Json = False,
) -> None:
    """Show what is in a store by family: how many keys, how large, how long they have left, and samples.

    It scans while the application runs, without blocking it. Sizes are those of keys and values as they were written;
    "about" says that not all values were read. Nothing sealed is opened. With the values of its placeholders one key is
    shown, with all that belongs to it; the exit code is 1 when there is no such key.

    [bold]Examples[/bold]

      keystead show --keys myapp.keys:AppKeys

      keystead show session --keys myapp.keys --samples 10

      keystead show counter example-a1b2c3d4

      keystead show quarantine --json
    """
    classes = keyspaces(keys)
    chosen = None if family is None else family_named(family, [*classes, QuarantineKeys])
    if chosen is not None and values:
        _show_one(chosen, values, classes, store, as_json)
        return
    wanted = None if chosen is None else {chosen}
    said = _Said()

    async def work() -> int:
        step_back()
        with stoppable(said.stopped), progress("counting") as shown:

            def on_progress(now: SurveyProgress) -> None:
                said.examined = now.examined
                shown(now.examined, now.total)

            async with bound(classes if wanted is None else [*classes, QuarantineKeys], store) as bound_keys:
                known = other_keyspaces(classes) if wanted is None else ()
                found = await survey(bound_keys, wanted, samples, known=known, on_progress=on_progress)
        if as_json:
            typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False, default=str))
        else:
            _print(found, wanted is not None)
        return 0

    run(work)


def _show_one(
    family: Family[Any], texts: list[str], classes: list[type[Keyspace]], store: list[str] | None, as_json: bool
) -> None:
    """One key, and all that a delete of it would take with it."""
    if family.kind == "channel":
        leave(f"{family.place} is a Channel: nothing is kept there that could be shown", USAGE_ERROR)
    placeholders = values_of(family, texts)

    async def work() -> int:
        with stoppable(lambda: "stopped; nothing was changed"):
            async with bound([*classes, QuarantineKeys], store) as bound_keys:
                owner = next(one for one in bound_keys if family in one.families.values())
                key = key_of(owner.bound(family), placeholders)
                plan = await key.plan_delete()
                found = await survey_of(bound_keys, plan.keys)
                exists = bool(await key.exists())
        if as_json:
            listed = [asdict(step) for step in _listings(plan)]
            typer.echo(json.dumps(found.as_json() | {"listed": listed}, indent=2, ensure_ascii=False, default=str))
        else:
            _print_one(found, plan)
        if not exists:
            typer.echo(f"there is no {key.key}", err=True)
        return 0 if exists else FAILED

    run(work)


def _print_one(found: Survey, plan: Plan) -> None:
    console = _console()
    for one in found.families:
        console.print(Text(name_of(one.family), "bold"))
        _print_samples(console, one)
    for step in _listings(plan):
        console.print(_indent(Text(f"{step.member} is named in {step.key}", "dim"), 2), soft_wrap=True)
    for note in plan.notes:
        console.print(Text(note), soft_wrap=True)


def _listings(plan: Plan) -> list[PlannedStep]:
    """Where it is named by what does not go with it."""
    deleted = set(plan.keys)
    return [step for step in plan.steps if step.member is not None and step.key not in deleted]


class _Said:
    examined = 0

    def stopped(self) -> str:
        return f"stopped after {counted(self.examined, 'key')}; nothing was changed"


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
        console.print(Text(f"keys of keyspaces that were not named: {others}"), soft_wrap=True)
    if found.unknown:
        belong = f"{counted(found.unknown, 'key belongs', 'keys belong')} to no family"
        console.print(Text(f"{belong}: {', '.join(found.unknown_examples)}"), soft_wrap=True)


def _table(found: Survey) -> Table:
    table = Table(header_style="bold")
    for column in ("family", "kind"):
        table.add_column(column, overflow="fold", min_width=8)
    for column in ("keys", "bytes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("time to live", overflow="fold", min_width=12)
    for one in found.families:
        left = ", ".join(f"{name}: {count:,}" for name, count in one.ttls.items() if count)
        family = Text.assemble(name_of(one.family), "\n", (one.family.pattern.display, "dim"))
        table.add_row(family, one.family.kind_name, f"{one.count:,}", _bytes(one), left)
    return table


def _print_family(console: Console, one: FamilySurvey) -> None:
    family = one.family
    console.print(Text(name_of(family), "bold"))
    rows: Iterable[tuple[str, str]] = (
        ("key", family.pattern.display),
        ("kind", family.kind_name),
        ("role", family.role),
        ("value", family.value_shape),
        ("lifetime", family.lifetime.describe()),
        ("doc", family.doc),
        ("owns", ", ".join(relation.target.name for relation in family.owns)),
        ("keys", f"{one.count:,}"),
        ("bytes", _bytes(one)),
        ("TTL", ", ".join(f"{name}: {count:,}" for name, count in one.ttls.items() if count) or "none left"),
    )
    table = Table.grid(padding=(0, 2))
    for name, said in rows:
        if said:
            table.add_row(Text(name, "dim"), Text(said))
    console.print(_indent(table, 2))
    _print_samples(console, one)


def _print_samples(console: Console, one: FamilySurvey) -> None:
    for sample in one.samples:
        left = "no deadline" if sample.left_ms is None else f"{roughly(sample.left_ms)} left"
        console.print(_indent(Text.assemble(sample.key, "  ", (left, "dim")), 2))
        console.print(_indent(Text(_shorten(sample.value), "dim"), 4))


def _indent(what: Text | Table, by: int) -> Padding:
    return Padding(what, (0, 0, 0, by), expand=False)


def _shorten(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    said = "".join(c if c.isprintable() else repr(c)[1:-1] for c in said)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}… ({len(said):,} characters)"


def _bytes(one: FamilySurvey) -> str:
    size, unit = float(one.bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    number = f"{size:,.0f}" if unit == "B" or size >= 100 else f"{size:,.1f}"
    return f"{'about ' if one.about else ''}{number} {unit}"


def _summary(found: Survey) -> str:
    there = sum(1 for one in found.families if one.count)
    return f"{counted(found.count, 'key')} in {there} of {counted(len(found.families), 'family', 'families')}"
