"""`/reference`: the guarantees of the store, and its commands. Development only, because it reveals the store."""

import dataclasses
from collections.abc import Set
from typing import Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from keystead.catalogue import message
from keystead.http.pages import PAGE_HEADERS
from keystead.kits.language import Speaker
from keystead.server.page_frame import page_frame
from keystead.server.page_templates import render
from keystead.stores.commands import TABLE, Spec
from keystead.stores.store_contract import Store

_UNITS: Final = {"ms": "{count} ms", "bytes": message("{count} bytes")}
_CHANNEL: Final = message("channel")  # the one kind of value that has no commands of its own


class GuaranteeRow(NamedTuple):
    """One guarantee of the store."""

    name: str
    value: str
    doc: str


def add_reference_page(app: FastAPI) -> None:
    app.add_api_route("/reference", _reference_page, methods=["GET"], include_in_schema=False)


async def _reference_page(request: Request) -> HTMLResponse:
    default = request.app.state.stores.get("default")
    say = page_frame(request.scope).say
    page = render(
        "reference.html",
        request.scope,
        store=default.url if default else "",
        guarantees=guarantee_rows(default, say) if default else [],
        commands=[(say(subject), specs) for subject, specs in _commands_by_subject()],
        command_count=len(TABLE),
        tag=Markup('<span class="tag">{}</span>').format(say("writes")),
    )
    return HTMLResponse(page, headers=PAGE_HEADERS)


def guarantee_rows(store: Store, say: Speaker) -> list[GuaranteeRow]:
    """What a store guarantees, in the language of a page, whose `say` has the texts of this folder."""
    promises = store.guarantees
    return [_row(field, getattr(promises, field.name), say) for field in dataclasses.fields(promises)]


def guarantee_texts(field: dataclasses.Field[object]) -> tuple[str, str]:
    """Name and description of a guarantee. The unit is in the field's name, and on the page beside the number."""
    *words, last = field.name.split("_")
    name = " ".join(words if last in _UNITS else (*words, last))
    doc, _, _ = field.metadata.get("doc", "").partition("; none:")  # the value shows that already
    return name, doc.replace("`", "")


def _row(field: dataclasses.Field[object], value: object, say: Speaker) -> GuaranteeRow:
    name, doc = guarantee_texts(field)
    unit = _UNITS.get(field.name.rpartition("_")[2], "")
    shown = say(unit, count=say.number(value)) if unit and isinstance(value, int) else _in_words(value, say)
    return GuaranteeRow(say(name), shown, doc and say(doc))


def _in_words(value: object, say: Speaker) -> str:
    match value:
        case None:
            return say("no limit")
        case bool():
            return say("yes") if value else say("no")
        case Set():
            return ", ".join(sorted(_in_words(one, say) for one in value)) or say("none")
        case _:
            return say(str(value))


def _commands_by_subject() -> list[tuple[str, list[Spec]]]:
    """The command table grouped by subject, in order of first appearance."""
    groups: dict[str, list[Spec]] = {}
    for spec in TABLE.values():
        groups.setdefault(spec.about, []).append(spec)
    return list(groups.items())
