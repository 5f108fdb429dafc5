"""`/reference`: the guarantees of the store, and its commands. Development only, because it reveals the store."""

import dataclasses
from collections.abc import Set
from typing import Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from keystead.http.pages import PAGE_HEADERS
from keystead.kits.identity import page_header
from keystead.server.page_templates import render
from keystead.stores.commands import TABLE, Spec
from keystead.stores.store_contract import Store

_UNITS: Final = {"ms": "ms", "bytes": "bytes"}


class GuaranteeRow(NamedTuple):
    """One guarantee of the store."""

    name: str
    value: str
    doc: str


def add_reference_page(app: FastAPI) -> None:
    app.add_api_route("/reference", _reference_page, methods=["GET"], include_in_schema=False)


async def _reference_page(request: Request) -> HTMLResponse:
    default = request.app.state.stores.get("default")
    page = render(
        "reference.html",
        development=True,
        store=default.url if default else "",
        guarantees=_guarantees(default) if default else [],
        commands=_commands_by_subject(),
        command_count=len(TABLE),
        header=page_header(request.scope),
    )
    return HTMLResponse(page, headers=PAGE_HEADERS)


def _guarantees(store: Store) -> list[GuaranteeRow]:
    promises = store.guarantees
    return [_row(field, getattr(promises, field.name)) for field in dataclasses.fields(promises)]


def _row(field: dataclasses.Field[object], value: object) -> GuaranteeRow:
    """The unit is in the field's name, and on the page beside the number."""
    *words, last = field.name.split("_")
    unit = _UNITS.get(last, "")
    name = " ".join(words if unit else (*words, last))
    shown = f"{value:,} {unit}" if unit and isinstance(value, int) else _in_words(value)
    doc, _, _ = field.metadata.get("doc", "").partition("; none:")  # the value shows that already
    return GuaranteeRow(name, shown, doc.replace("`", ""))


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
    """The command table grouped by subject, in order of first appearance."""
    groups: dict[str, list[Spec]] = {}
    for spec in TABLE.values():
        groups.setdefault(spec.about, []).append(spec)
    return list(groups.items())
