"""The start page: what is running, what its store guarantees, and the commands it understands."""

import dataclasses
from collections.abc import Set
from itertools import groupby
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

import keystead
from keystead.stores.base import Store
from keystead.stores.commands import TABLE, Spec

_PAGES: Final = Environment(
    loader=PackageLoader("keystead.server", "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_UNITS: Final = {"ms": "ms", "bytes": "bytes"}


class Row(NamedTuple):
    """One guarantee, as the page shows it."""

    name: str
    value: str
    doc: str


def render_start_page(store: Store, problem: str | None) -> str:
    """The page as HTML. `problem` says why the store does not answer, or is None."""
    return _PAGES.get_template("start.html").render(
        version=keystead.__version__,
        store_url=store.url,
        problem=problem,
        guarantees=_guarantees(store),
        commands=_commands_by_kind(),
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
    return Row(name, shown, field.metadata.get("doc", "").replace("`", ""))


def _in_words(value: object) -> str:
    match value:
        case None:
            return "no limit of its own"
        case bool():
            return "yes" if value else "no"
        case Set():
            return ", ".join(sorted(map(_in_words, value))) or "none"
        case _:
            return str(value)


def _commands_by_kind() -> list[tuple[str, list[Spec]]]:
    """The command table in groups, in the order in which the kinds first appear in it."""
    first_seen = {spec.kind: place for place, spec in reversed(list(enumerate(TABLE.values())))}
    specs = sorted(TABLE.values(), key=lambda spec: first_seen[spec.kind])
    return [(str(kind or "any key"), list(group)) for kind, group in groupby(specs, key=lambda spec: spec.kind)]
