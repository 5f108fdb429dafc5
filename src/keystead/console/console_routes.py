"""The routes of the console: pages to read, and acts that show a plan first."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter
from fastapi.responses import Response

from keystead.console.console_activity import ACTIVITY_ROUTES
from keystead.console.console_here import enter_here
from keystead.console.console_measures import largest
from keystead.console.console_requests import (
    ConsoleRoute,
    ConsoleVisit,
    NotAllowed,
    Visiting,
    for_role,
    show_entrance,
)
from keystead.console.console_texts import (
    ENTER_FAILED,
    FORBIDDEN,
    KEEPS_AUDIT,
    NO_LIMIT,
    NO_PAGE,
    NO_ROLE,
    NOT_EDITABLE,
    NOT_RENEWABLE,
)
from keystead.console.console_undo import Before
from keystead.console.form_fields import WrongEntry
from keystead.console.hash_editor import hash_form
from keystead.console.key_references import family_path
from keystead.console.key_visibility import (
    hides_keys,
    is_partly_hidden,
    secret_placeholders,
    shown_key,
    shown_values,
)
from keystead.console.value_editor import EditConflict, NotEditable, can_edit, value_form
from keystead.errors import BadArgument, BadKey, BadValue, printable
from keystead.http.refusals import Refusal
from keystead.http.routing import KitRouter
from keystead.parts.audit import is_audit_log
from keystead.parts.sessions import Act
from keystead.schema.browsing import read_raw
from keystead.schema.family_lookup import name_of
from keystead.schema.kinds import Hash
from keystead.schema.survey import TTLS
from keystead.schema.times import moment
from keystead.server.metered_store import NO_FAMILY
from keystead.server.reference_page import guarantee_rows

_FILTER: Final = "v."
_CALLS_SHOWN: Final = 10
_SLOWEST_SHOWN: Final = 5
_TYPED_CHARS: Final = 40
_UNDO: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_VALUE_SHOWN_CHARS: Final = 20_000


async def enter_page(visit: Visiting) -> Response:
    """Where a link leads. Its secret is in the fragment, which no browser sends and no log has."""
    if visit.home is not None:
        return visit.redirect_to(visit.home)
    return await show_entrance(visit)


async def enter(visit: Visiting) -> Response:
    """Exchange the secret of a link for a session."""
    await visit.read_form()
    made = await visit.console.access.enter(visit.form.get("secret", "").strip(), visit.address)
    if made is None:
        return await show_entrance(visit, status=403, problem=ENTER_FAILED)
    return visit.redirect_to("/console", visit.cookie.set(made.token))


async def enter_signed_in(visit: Visiting) -> Response:
    """A session for the signed-in user, if the settings give them a role."""
    await visit.read_form()
    found = await visit.user()
    if found is None:
        return await show_entrance(visit, status=403, problem=NO_ROLE)
    user, role = found
    made = await visit.console.access.enter_signed_in(user.subject, role, user.since, visit.address)
    return visit.redirect_to("/console", visit.cookie.set(made.token))


async def leave(visit: ConsoleVisit) -> Response:
    await visit.console.access.leave(visit.token or "", Act(*visit.actor))
    return visit.redirect_to("/console/enter", visit.cookie.clear())


async def no_page(visit: ConsoleVisit) -> Response:
    if not visit.request.path_params["rest"]:
        return visit.redirect_to("/console")
    raise NotAllowed(404, NO_PAGE)


async def overview_page(visit: ConsoleVisit) -> Response:
    return await _show_overview(visit)


async def measure(visit: ConsoleVisit) -> Response:
    """Measure now, instead of a few minutes ago."""
    await visit.console.overview(measure=True)
    return visit.redirect_to("/console")


async def _show_overview(visit: ConsoleVisit) -> Response:
    metrics = visit.request.app.state.metrics
    calls = [] if metrics is None else [one for one in metrics.store_calls() if one.family != NO_FAMILY]
    overview = await visit.console.overview()
    return visit.show(
        "overview",
        overview=overview,
        calls=calls[:_CALLS_SHOWN],
        slowest=sorted(calls, key=lambda one: -one.total_s / one.calls)[:_SLOWEST_SHOWN],
        layers=largest(overview.sizes),
        here="overview",
        left_steps=TTLS,
        guarantees=guarantee_rows,
        moment=moment,
    )


async def unknown_page(visit: ConsoleVisit) -> Response:
    found = (await visit.console.overview()).sizes.measure
    shapes = sorted(found.shapes.items(), key=lambda one: -one[1])
    draft = await visit.console.tasks.read("draft")
    return visit.show(
        "unknown", shapes=shapes, count=found.unknown, is_sample=found.is_sample, draft=draft, here="unknown"
    )


async def family_page(visit: ConsoleVisit) -> Response:
    """One page of the keys of a family, filtered by placeholder values."""
    bound, query = visit.bound(), visit.request.query_params
    family = bound.family
    # A credential would be in the address of the page, so it cannot be searched for.
    names = [name for name in family.pattern.names if name not in secret_placeholders(family)]
    filters = {name: text for name in names if (text := query.get(_FILTER + name, "").strip())}
    problem, detail, rows, cursor, is_cut, examined = "", "", [], "", False, 0
    if bound.store.guarantees.scans or set(filters) == set(family.pattern.names):
        try:
            found = await visit.console.page(bound, filters, query.get("cursor", ""))
        except BadKey as error:
            problem, detail = visit.say("These are not values of its placeholders."), str(error)
        else:
            left = await visit.console.lifetimes(bound, found.keys)
            rows = [
                (key, shown_values(family, bound.parse(key) or {}), left_ms)
                for key, left_ms in zip(found.keys, left, strict=True)
            ]
            cursor, is_cut, examined = found.cursor, found.is_cut, found.examined
    else:
        problem = visit.say("This store cannot list its keys. Fill in all values to open one.")
    kept = {_FILTER + name: text for name, text in filters.items()}
    return visit.show(
        "family",
        bound=bound,
        rows=rows,
        names=names,
        filters=filters,
        problem=problem,
        detail=detail,
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
    shown = await visit.console.show(bound, key)
    shows_bytes = visit.console.shows_bytes(bound) and not is_partly_hidden([shown.value, *shown.entries])
    if "raw" in visit.request.query_params:
        if not visit.may("operator"):
            raise NotAllowed(403, FORBIDDEN)
        if shows_bytes:
            raw = [printable_bytes(one) for one in await read_raw(bound, key)]
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
        shows_bytes=shows_bytes,
        can_delete=not is_audit_log(bound),
        can_edit=can_edit(bound),
        can_renew=visit.console.can_renew(bound),
        is_limit=visit.console.operations.is_limit(bound),
        undo=visit.request.query_params.get("undo", ""),
        undone=visit.request.query_params.get("undone", ""),
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


# --- acts --------------------------------------------------------------------------------------------------


async def delete(visit: ConsoleVisit) -> Response:
    """The plan; and with the name typed, the deletion."""
    bound, key = visit.key()
    if is_audit_log(bound):
        raise NotAllowed(403, KEEPS_AUDIT)
    name = confirmed_name(bound, key)
    if visit.confirms(name):
        done = await visit.console.delete(bound, key, visit.actor)
        text = visit.say("The key was deleted.") if done else visit.say("There is no such key.")
        return visit.show("done", status=200 if done else 404, bound=bound, text=text)
    plan = await visit.console.plan_delete(bound, key)
    if not plan.steps:
        return visit.problem(404, visit.say("There is no such key."))
    steps = [(step, visit.console.find_key(step.key)) for step in plan.steps]
    notes = [note.replace(key, shown_key(bound, key)) for note in plan.notes]
    cancel = visit.references.url(bound, key)
    return visit.show_confirmation("delete", name, bound=bound, key=key, steps=steps, notes=notes, cancel=cancel)


async def reset_limit(visit: ConsoleVisit) -> Response:
    """Forget what a client has used of a rate limit, with the name typed."""
    bound, key = visit.key()
    if not visit.console.operations.is_limit(bound):
        raise NotAllowed(400, NO_LIMIT)
    name = confirmed_name(bound, key)
    if visit.confirms(name):
        done = await visit.console.reset_limit(bound, key, visit.actor)
        return visit.show(
            "done", bound=bound, text=visit.say("The limit was reset.") if done else visit.say("There is no such key.")
        )
    return visit.show_confirmation("reset", name, bound=bound, key=key, cancel=visit.references.url(bound, key))


def confirmed_name(bound: Any, key: str) -> str:
    """What to type to confirm an act on a key: the key, or its family if the key is a credential or hard to type."""
    is_typed = len(key) <= _TYPED_CHARS and key.isprintable() and key == key.strip()
    return key if is_typed and not hides_keys(bound.family) else bound.family.name


async def renew_page(visit: ConsoleVisit) -> Response:
    bound, key = _renewable(visit)
    return visit.show("renew", bound=bound, key=key)


async def renew(visit: ConsoleVisit) -> Response:
    bound, key = _renewable(visit)
    before = await visit.console.renew(bound, key, visit.actor)
    if before is None:
        return visit.show("done", status=404, bound=bound, text=visit.say("There is no such key."))
    return await _show_undo(visit, bound, key, before)


async def _show_undo(visit: ConsoleVisit, bound: Any, key: str, before: Before) -> Response:
    """The page of a key after an act, with a button that undoes it."""
    can_undo = before.restart is not None or before.after
    undo = await visit.console.undos.remember(visit.references, before) if can_undo else ""
    return visit.redirect_to(f"{visit.references.url(bound, key)}{f'&undo={undo}' if undo else ''}")


async def undo(visit: ConsoleVisit) -> Response:
    """Undo an edit or a renewal of this session."""
    given = visit.form.get("undo", "")
    before = await visit.console.undos.take(visit.references, given) if _UNDO.fullmatch(given) else None
    bound = None if before is None else visit.console.family(before.keyspace, before.family)
    if before is None or bound is None:
        return visit.problem(409, visit.say("It could not be undone: the key was changed since, or it is too late."))
    done = await visit.console.undo(before, visit.actor)
    return visit.redirect_to(f"{visit.references.url(bound, before.key)}&undone={'yes' if done else 'no'}")


def _renewable(visit: ConsoleVisit) -> tuple[Any, str]:
    bound, key = visit.key()
    if not visit.console.can_renew(bound):
        raise NotAllowed(400, NOT_RENEWABLE)
    return bound, key


async def edit_page(visit: ConsoleVisit) -> Response:
    bound, key = visit.key()
    return await _show_form(visit, bound, key)


async def edit(visit: ConsoleVisit) -> Response:
    bound, key = visit.key()
    if not can_edit(bound):
        raise NotAllowed(400, NOT_EDITABLE)
    try:
        before = await visit.console.edit(bound, key, visit.form, visit.actor)
    except EditConflict:
        return await _show_form(
            visit,
            bound,
            key,
            visit.say(
                "Somebody else changed this value meanwhile. Nothing was saved. The form shows the value as it is now."
            ),
            409,
        )
    except NotEditable as error:
        return _not_editable(visit, error)
    except WrongEntry as error:
        return await _show_form(visit, bound, key, visit.say(error.text, **error.values), 422)
    except BadValue as error:
        problem = visit.say("This does not fit its declared type. Nothing was saved.")
        return await _show_form(visit, bound, key, problem, 422, detail=str(error))
    return await _show_undo(visit, bound, key, before)


def _not_editable(visit: ConsoleVisit, error: NotEditable) -> Response:
    return visit.problem(409, visit.say(error.text, **error.values), detail=error.detail)


async def _show_form(
    visit: ConsoleVisit, bound: Any, key: str, problem: str = "", status: int = 200, *, detail: str = ""
) -> Response:
    """The form with the stored value; what was entered is kept beside an error, but not after a conflict."""
    if not can_edit(bound):
        raise NotAllowed(400, NOT_EDITABLE)
    try:
        form = await (hash_form if isinstance(bound.family, Hash) else value_form)(bound, key)
    except NotEditable as error:
        return _not_editable(visit, error)
    if form is None:
        return visit.problem(409 if problem else 404, problem or visit.say("There is no such key."))
    entered = visit.form if status == 422 else {}
    return visit.show(
        "edit", status=status, bound=bound, key=key, form=form, problem=problem, detail=detail, entered=entered
    )


async def erase_page(visit: ConsoleVisit) -> Response:
    visit.require_fresh()
    return visit.show("erase", kinds=visit.console.subject_kinds, plan=None, subject="", problem="", here="erase")


async def erase(visit: ConsoleVisit) -> Response:
    """The plan; and with the subject typed once more, the erasure."""
    visit.require_fresh()
    subject = visit.form.get("subject", "").strip()
    if subject and visit.confirms(subject):
        if not await visit.console.start_erasure(subject, visit.actor, visit.is_still_in):
            return visit.problem(409, visit.say("This is already running. Wait until it ends."))
        return visit.redirect_to("/console/task/erase")
    visit.request.state.time_limit.reschedule(None)  # it searches all keys
    try:
        plan, rows_by_table, subjects = await visit.console.plan_erase(subject)
    except BadArgument:
        kinds = visit.console.subject_kinds
        wanted = ", ".join(f"{one}:42" for one in kinds)
        problem = visit.say("Write whose data it is as one of {wanted}.", wanted=wanted)
        return visit.show("erase", status=422, here="erase", kinds=kinds, plan=None, subject=subject, problem=problem)
    steps = [(step, visit.console.find_key(step.key)) for step in plan.steps]
    return visit.show(
        "erase",
        here="erase",
        kinds=visit.console.subject_kinds,
        plan=plan,
        steps=steps,
        rows=rows_by_table,
        subjects=subjects,
        subject=subject,
        has_tables=visit.site.tables is not None,
        problem=visit.say("The two texts differ.") if visit.has_typed else "",
    )


# --- the table ---------------------------------------------------------------------------------------------

_KEY: Final = "/console/key/{keyspace}/{family}"
_ROUTES: Final[Sequence[ConsoleRoute]] = (
    ("GET /console", "viewer", overview_page),
    ("POST /console/leave", "viewer", leave),
    ("POST /console/measure", "operator", measure),
    ("POST /console/find", "viewer", find),
    ("GET /console/unknown", "viewer", unknown_page),
    ("GET /console/family/{keyspace}/{family}", "viewer", family_page),
    (f"GET {_KEY}", "viewer", key_page),
    (f"GET {_KEY}/delete", "operator", delete),
    (f"POST {_KEY}/delete", "operator", delete),
    (f"GET {_KEY}/renew", "operator", renew_page),
    (f"POST {_KEY}/renew", "operator", renew),
    (f"GET {_KEY}/edit", "operator", edit_page),
    (f"POST {_KEY}/edit", "operator", edit),
    (f"GET {_KEY}/reset", "operator", reset_limit),
    (f"POST {_KEY}/reset", "operator", reset_limit),
    ("POST /console/undo", "operator", undo),
    ("GET /console/erase", "admin", erase_page),
    ("POST /console/erase", "admin", erase),
)
_ANY_OTHER: Final[ConsoleRoute] = ("GET /console/{rest:path}", "viewer", no_page)


def router() -> APIRouter:
    routes = KitRouter("console", _no_refusal)
    routes.add("GET /console/enter", enter_page)
    routes.add("POST /console/enter", enter)
    routes.add("POST /console/enter/signed-in", enter_signed_in)
    routes.add("POST /console/enter/here", enter_here)
    for route, role, respond in (*_ROUTES, *ACTIVITY_ROUTES, _ANY_OTHER):
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
