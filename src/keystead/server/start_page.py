"""The start page: what is running, what to try first, what its store guarantees, and the commands it understands."""

import dataclasses
from collections.abc import Set
from typing import Final, NamedTuple

from keystead.server.first_steps import first_steps
from keystead.server.templates import TEMPLATES
from keystead.stores.base import Store
from keystead.stores.commands import TABLE, Spec

_UNITS: Final = {"ms": "ms", "bytes": "bytes"}


class Row(NamedTuple):
    """One guarantee, as the page shows it."""

    name: str
    value: str
    doc: str


def render_start_page(store: Store, problem: str | None, home: str) -> str:
    """The page as HTML. `problem` says why the store does not answer, or is None; `home` is the page's own URL."""
    return TEMPLATES.get_template("start.html").render(
        store_url=store.url,
        problem=problem,
        first_steps=first_steps(store.url, home),
        guarantees=_guarantees(store),
        commands=_commands_by_subject(),
        command_count=len(TABLE),
    )


def _guarantees(store: Store) -> list[Row]:
    promises = store.guarantees
    return [_row(field, getattr(promises, field.name)) for field in dataclasses.fields(promises)]


def _row(field: dataclasses.Field[object], value: object) -> Row:
    """Units stand in the field's name, and on the page beside the number."""
    *words, last = field.name.split("_")
    unit = _UNITS.get(last, "")
    name = " ".join(words if unit else (*words, last))
    shown = f"{value:,} {unit}" if unit and isinstance(value, int) else _in_words(value)
    doc, _, _ = field.metadata.get("doc", "").partition("; none:")  # the value says that already
    return Row(name, shown, doc.replace("`", ""))


def _in_words(value: object) -> str:
    match value:
        case None:
            return "no limit"
        case bool():
            return "yes" if value else "no"
        case Set():
            return ", ".join(sorted(map(_in_words, value))) or "none"
        case _:
            return str(value)


def _commands_by_subject() -> list[tuple[str, list[Spec]]]:
    """The command table in groups, in the order in which their subjects first appear in it."""
    groups: dict[str, list[Spec]] = {}
    for spec in TABLE.values():
        groups.setdefault(spec.about, []).append(spec)
    return list(groups.items())
