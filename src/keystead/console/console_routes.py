"""The routes of the console: pages to read, and acts that show a plan first."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import Response

from keystead.console.console_keys import Role
from keystead.console.console_requests import ConsoleVisit, NotAllowed, Visiting, for_role
from keystead.console.key_references import family_path
from keystead.console.key_visibility import hides_keys, secret_placeholders, shown_key, shown_values
from keystead.console.value_editor import EditConflict, NotEditable, can_edit, make_form
from keystead.errors import BadKey, BadValue, printable
from keystead.http.refusals import Refusal
from keystead.http.routing import KitRouter
from keystead.schema.browsing import read_raw
from keystead.schema.family_lookup import name_of

_FILTER: Final = "v."
_AUDIT_SHOWN: Final = 100
_VALUE_SHOWN_CHARS: Final = 20_000


async def enter_page(visit: Visiting) -> Response:
    """Where a link leads. Its secret is in the fragment, which no browser sends and no log has."""
    if visit.home is not None:
        return visit.redirect_to(visit.home)
    return visit.show("enter", failed=False)


async def enter(visit: Visiting) -> Response:
    """Exchange the secret of a link for a session."""
    await visit.read_form()
    made = await visit.console.access.enter(visit.form.get("secret", "").strip(), visit.address)
    if made is None:
        return visit.show("enter", status=403, failed=True)
    return visit.redirect_to("/console", visit.cookie.set(made.token))


async def leave(visit: ConsoleVisit) -> Response:
    await visit.console.access.leave(visit.token or "", visit.address)
    return visit.redirect_to("/console/enter", visit.cookie.clear())


async def overview_page(visit: ConsoleVisit) -> Response:
    found = await visit.console.overview()
    sizes = [one for some in found.sizes.values() for one in some]
    return visit.show(
        "overview",
        overview=found,
        most_keys=max([1, *(one.count for one in sizes)]),
        most_bytes=max([1, *(one.bytes for one in sizes)]),
    )


async def unknown_page(visit: ConsoleVisit) -> Response:
    found = await visit.console.overview()
    shapes = sorted(found.shapes.items(), key=lambda one: -one[1])
    return visit.show("unknown", shapes=shapes, count=found.unknown, is_sample=found.is_sample)


async def family_page(visit: ConsoleVisit) -> Response:
    """One page of the keys of a family, filtered by placeholder values."""
    bound, query = visit.bound(), visit.request.query_params
    family = bound.family
    # A credential would be in the address of the page, so it cannot be searched for.
    names = [name for name in family.pattern.names if name not in secret_placeholders(family)]
    filters = {name: text for name in names if (text := query.get(_FILTER + name, "").strip())}
    problem, rows, cursor, is_cut, examined = "", [], "", False, 0
    if bound.store.guarantees.scans or set(filters) == set(family.pattern.names):
        try:
            found = await visit.console.page(bound, filters, query.get("cursor", ""))
        except BadKey as error:
            problem = str(error)
        else:
            left = await visit.console.lifetimes(bound, found.keys)
            rows = [
                (key, shown_values(family, bound.parse(key) or {}), left_ms)
                for key, left_ms in zip(found.keys, left, strict=True)
            ]
            cursor, is_cut, examined = found.cursor, found.is_cut, found.examined
    else:
        problem = visit.say("no_scans")
    kept = {_FILTER + name: text for name, text in filters.items()}
    return visit.show(
        "family",
        bound=bound,
        rows=rows,
        names=names,
        filters=filters,
        problem=problem,
        is_cut=is_cut,
        examined=examined,
        is_first=not query.get("cursor"),
        hides_keys=hides_keys(family),
        following=f"{family_path(bound)}?{urlencode({**kept, 'cursor': cursor})}" if cursor else "",
    )


async def key_page(visit: ConsoleVisit) -> Response:
    """One key: its value as its model, its lifetime, and what it is related to."""
    bound, key = visit.key()
    raw = None
    if "raw" in visit.request.query_params:
        if not visit.may("operator"):
            raise NotAllowed(403, "forbidden")
        if visit.console.shows_bytes(bound):
            raw = [printable_bytes(one) for one in await read_raw(bound, key)]
    shown = await visit.console.show(bound, key)
    groups: dict[str, list[Any]] = {}
    for one in shown.related:
        groups.setdefault(one.kind, []).append(one)
    return visit.show(
        "key",
        status=200 if shown.content.exists else 404,
        bound=bound,
        key=key,
        shown=shown,
        values=shown_values(bound.family, bound.parse(key) or {}),
        pretty=_pretty,
        groups=groups,
        raw=raw,
        shows_bytes=visit.console.shows_bytes(bound),
        can_edit=can_edit(bound),
        can_renew=visit.console.can_renew(bound),
        filter_url=_filter_url,
    )


async def find(visit: ConsoleVisit) -> Response:
    """A key by its whole name, or families by a part of theirs. A post: the text may be a credential."""
    text = visit.form.get("q", "").strip()
    found = visit.console.find_key(text) if text else None
    if found is not None:
        return visit.redirect_to(visit.references.url(*found))
    some = [
        bound
        for bounds in visit.console.families.values()
        for bound in bounds
        if text.lower() in f"{name_of(bound.family)} {bound.family.pattern.text}".lower()
    ]
    if len(some) == 1:
        return visit.redirect_to(family_path(some[0]))
    return visit.show("found", some=some, find=text if some else "")


async def audit_page(visit: ConsoleVisit) -> Response:
    entries = await visit.console.access.audit.latest(_AUDIT_SHOWN)
    return visit.show("audit", entries=entries)


# --- acts --------------------------------------------------------------------------------------------------


async def delete_page(visit: ConsoleVisit) -> Response:
    bound, key = visit.key()
    plan = await visit.console.plan_delete(bound, key)
    steps = [(step, visit.console.find_key(step.key)) for step in plan.steps]
    notes = [note.replace(key, shown_key(bound, key)) for note in plan.notes]
    return visit.show("delete", bound=bound, key=key, steps=steps, notes=notes)


async def delete(visit: ConsoleVisit) -> Response:
    bound, key = visit.key()
    done = await visit.console.delete(bound, key, visit.actor)
    return visit.show("done", status=200 if done else 404, bound=bound, text=visit.say("deleted" if done else "gone"))


async def renew_page(visit: ConsoleVisit) -> Response:
    bound, key = _renewable(visit)
    return visit.show("renew", bound=bound, key=key)


async def renew(visit: ConsoleVisit) -> Response:
    bound, key = _renewable(visit)
    done = await visit.console.renew(bound, key, visit.actor)
    if done:
        return visit.redirect_to(visit.references.url(bound, key))
    return visit.show("done", status=404, bound=bound, text=visit.say("gone"))


def _renewable(visit: ConsoleVisit) -> tuple[Any, str]:
    bound, key = visit.key()
    if not visit.console.can_renew(bound):
        raise NotAllowed(400, "not_renewable")
    return bound, key


async def edit_page(visit: ConsoleVisit) -> Response:
    bound, key = visit.key()
    return await _show_form(visit, bound, key)


async def edit(visit: ConsoleVisit) -> Response:
    bound, key = visit.key()
    if not can_edit(bound):
        raise NotAllowed(400, "not_editable")
    try:
        await visit.console.edit(bound, key, visit.form.get("version", ""), visit.form, visit.actor)
    except EditConflict:
        return await _show_form(visit, bound, key, visit.say("conflict"), 409)
    except NotEditable as error:
        return visit.problem(409, str(error))
    except BadValue as error:
        return await _show_form(visit, bound, key, str(error), 422)
    return visit.redirect_to(visit.references.url(bound, key))


async def _show_form(visit: ConsoleVisit, bound: Any, key: str, problem: str = "", status: int = 200) -> Response:
    """The form with the stored value; what was entered is kept beside an error, but not after a conflict."""
    if not can_edit(bound):
        raise NotAllowed(400, "not_editable")
    try:
        form = await make_form(bound, key)
    except NotEditable as error:
        return visit.problem(409, str(error))
    if form is None:
        return visit.problem(409 if problem else 404, problem or visit.say("gone"))
    entered = visit.form if status == 422 else {}
    return visit.show("edit", status=status, bound=bound, key=key, form=form, problem=problem, entered=entered)


async def erase_page(visit: ConsoleVisit) -> Response:
    visit.require_fresh()
    return visit.show("erase", kinds=visit.console.subject_kinds, plan=None, subject="", problem="")


async def erase(visit: ConsoleVisit) -> Response:
    """The plan; and with the subject typed once more, the erasure."""
    visit.require_fresh()
    visit.request.state.time_limit.reschedule(None)  # it searches all keys
    subject = visit.form.get("subject", "").strip()
    again = visit.form.get("again")
    if again is not None and again.strip() == subject:
        keys, rows, left = await visit.console.erase(subject, visit.actor)
        text = visit.say("erased", subject=subject, keys=keys, rows=rows)
        return visit.show("done", bound=None, text=text, problem=visit.say("left_keys", count=left) if left else "")
    plan, rows_by_table, subjects = await visit.console.plan_erase(subject)
    steps = [(step, visit.console.find_key(step.key)) for step in plan.steps]
    return visit.show(
        "erase",
        kinds=visit.console.subject_kinds,
        plan=plan,
        steps=steps,
        rows=rows_by_table,
        subjects=subjects,
        subject=subject,
        has_tables=visit.site.tables is not None,
        problem=visit.say("not_the_same") if again is not None else "",
    )


# --- the table ---------------------------------------------------------------------------------------------

_KEY: Final = "/console/key/{keyspace}/{family}"
_ROUTES: Final[tuple[tuple[str, Role, Callable[[ConsoleVisit], Awaitable[Response]]], ...]] = (
    ("GET /console", "viewer", overview_page),
    ("POST /console/leave", "viewer", leave),
    ("POST /console/find", "viewer", find),
    ("GET /console/unknown", "viewer", unknown_page),
    ("GET /console/family/{keyspace}/{family}", "viewer", family_page),
    (f"GET {_KEY}", "viewer", key_page),
    (f"GET {_KEY}/delete", "operator", delete_page),
    (f"POST {_KEY}/delete", "operator", delete),
    (f"GET {_KEY}/renew", "operator", renew_page),
    (f"POST {_KEY}/renew", "operator", renew),
    (f"GET {_KEY}/edit", "operator", edit_page),
    (f"POST {_KEY}/edit", "operator", edit),
    ("GET /console/audit", "operator", audit_page),
    ("GET /console/erase", "admin", erase_page),
    ("POST /console/erase", "admin", erase),
)


def router() -> APIRouter:
    routes = KitRouter("console", _no_refusal)
    routes.add("GET /console/enter", enter_page)
    routes.add("POST /console/enter", enter)
    for route, role, respond in _ROUTES:
        routes.add(route, for_role(role, respond))
    return routes


def _no_refusal(error: Exception) -> Refusal | None:
    return None


def printable_bytes(data: bytes) -> str:
    """Bytes as text: what is not printable ASCII is written as \\xNN."""
    return "".join(chr(one) if 32 <= one < 127 and one != 92 else f"\\x{one:02x}" for one in data)


def _pretty(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    shown = "\n".join(printable(line) if len(line) <= 200 else line for line in text.split("\n"))
    return shown if len(shown) <= _VALUE_SHOWN_CHARS else f"{shown[:_VALUE_SHOWN_CHARS]}…"


def _filter_url(related: Any) -> str:
    """The page of a family with the known values of a relation."""
    hidden = secret_placeholders(related.bound.family)
    pattern = related.bound.family.pattern
    query = {
        _FILTER + name: pattern.types[name].render(value)
        for name, value in related.values.items()
        if name not in hidden
    }
    return family_path(related.bound) + (f"?{urlencode(query)}" if query else "")
