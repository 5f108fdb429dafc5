"""A request, read: which action it asks for, with what, and in which form it is to be answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.requests import ClientDisconnect

from keystead.http.csrf import page_origin
from keystead.http.refusals import Refusal
from keystead.kits.widgets.routes import parameters as p
from keystead.kits.widgets.routes.actions import Action, Call, Endpoint, Format
from keystead.kits.widgets.routes.parameters import MinusZero, Parameter, invalid, named, refusal
from keystead.kits.widgets.service import Owner, Widgets, WidgetSettings

_FIELDS_MAX: Final = 50
_PREFETCH: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
# What a browser says in `Sec-Fetch-Site` of a page that is not one of ours, where that page hides which one it is.
_ELSEWHERE: Final = ("cross-site", "same-site")
_HOW: Final = "send it in the header {header}, or in the body of a POST: in an address, logs and histories keep it"


@dataclass(frozen=True)
class Sent:
    """What a request says, before anything is known of it: names and values, as texts of a query or as JSON.

    What is wrong with it is said once it is known in which form it is to be answered: `twice` is a name that stands
    there twice.
    """

    action: str | None
    values: Mapping[str, Any]
    is_text: bool
    twice: str | None = None


async def sent(request: Request) -> Sent:
    """The names and values of a request. Raises Refusal where it is neither a query nor a JSON object, or where a name
    is given twice.
    """
    pairs = _pairs(request.scope["query_string"])
    query = dict(pairs)
    if request.method != "POST":
        twice = None if len(query) == len(pairs) else _first_twice(pairs)
        return Sent(query.pop("action", None), query, is_text=True, twice=twice)
    try:
        body = _object(await request.body(), request.headers.get("content-type", ""))
    except ClientDisconnect:  # nobody is there to be answered
        raise invalid("the request broke off") from None
    in_query, in_body = query.pop("action", None), body.pop("action", None)
    if query:
        raise invalid(f"the parameters of a POST stand in its body, not in the address: {_quoted(next(iter(query)))}")
    if in_query is not None and in_body is not None and in_query != in_body:
        raise invalid("action stands in the address and in the body, and they differ", field="action")
    action = in_query if in_body is None else in_body
    if action is not None and not isinstance(action, str):
        raise invalid("action is a text", field="action")
    return Sent(action, body, is_text=False)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:  # no UTF-8, or too many fields
        raise invalid("the query cannot be read: parameters are percent-encoded UTF-8, at most 50 of them") from None


def _first_twice(pairs: Iterable[tuple[str, Any]]) -> str | None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object."""
    twice = _first_twice(pairs)
    if twice is not None:
        raise _given_twice(twice)
    return dict(pairs)


def _given_twice(name: str) -> Refusal:
    return invalid(f"{_quoted(name)} is given twice", field=_told(name))


def _object(body: bytes, content_type: str) -> dict[str, Any]:
    # Not by any other type: a page of another site could send those without asking whether it may.
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise invalid("the body of a POST is JSON: send the header content-type: application/json")
    try:
        told = json.loads(body, object_pairs_hook=_unique, parse_int=_integer, parse_constant=_no_number)
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        raise invalid("the body is no JSON object") from None
    if not isinstance(told, dict):
        raise invalid("the body is no JSON object")
    return told


def _integer(digits: str) -> int | float:
    if digits == "-0":
        return MinusZero(0)
    return int(digits) if len(digits) <= 19 else float("inf")  # longer ones are beyond any limit


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _told(name: str) -> str:
    """A name that a client sent, as far as it can be repeated: half a surrogate pair, say, cannot."""
    return name[:40] if name.isprintable() else "(unreadable)"


def _quoted(name: str) -> str:
    return repr(_told(name))


def action_of(endpoint: Endpoint, name: str | None) -> Action:
    """Raises Refusal, which names the actions that there are."""
    there = ", ".join(endpoint.actions)
    if name is None:
        raise invalid(f"action is missing; there are {there}", field="action")
    found = endpoint.actions.get(name)
    if found is None:
        raise invalid(f"there is no such action; there are {there}", field="action")
    return found


def format_of(action: Action, said: Sent) -> Format:
    """How it is to be answered, also where it is refused. What is no format is answered as without one."""
    wanted = said.values.get("format")
    return wanted if action.view and wanted in ("json", "text", "image") else action.default


def refuse_unwanted_write(action: Action, request: Request, widgets: Widgets) -> None:
    """Refuses what may not be written: for pages of sites that the settings do not name, by GET where they say so, and
    ahead of whoever asks for it. Raises Refusal.
    """
    if not action.writes:
        return
    _refuse_other_sites(request, widgets)
    if request.method == "POST":
        return
    allowed = widgets.settings.get_writes
    if allowed == "none" or (allowed == "visits" and not action.visits):
        sentence = f"{action.name} takes a POST here, with a JSON body"
        raise refusal(405, "METHOD_NOT_ALLOWED", sentence, headers={"allow": "POST"})
    if any(_is_ahead(request.headers.get(name, "")) for name in _PREFETCH):
        raise refusal(403, "NO_PREFETCH", "nothing is written before somebody asks for it")


def _refuse_other_sites(request: Request, widgets: Widgets) -> None:
    """CORS keeps an answer from a page, and not the request from us: a picture, a form or a link on any page sends one.

    What does not say where it comes from is a program, or was typed in.
    """
    origins = widgets.settings.origins
    if "*" in origins:
        return
    origin = page_origin(request.headers)
    if origin is None:
        is_elsewhere = request.headers.get("sec-fetch-site", "").strip().lower() in _ELSEWHERE
    else:
        is_elsewhere = origin not in (*origins, widgets.site.public_url)
    if is_elsewhere:
        raise refusal(
            403, "ORIGIN_NOT_ALLOWED", "pages of this site may not write here; the setting origins names those that may"
        )


def _is_ahead(purpose: str) -> bool:
    return "prefetch" in purpose.lower() or "preview" in purpose.lower()


@dataclass(frozen=True)
class Asked:
    """An action, with what was given to it: by the names of its parameters, each of the shape that it takes."""

    action: Action
    call: Call
    given: Mapping[str, Any]
    format: Format

    @property
    def owner(self) -> Owner:
        """Whoever says to be the owner. Raises Refusal where the token is missing."""
        token = self.given.get("token")
        if token is None:
            raise invalid(f"token is missing: {_HOW.format(header='X-Owner-Token')}", field="token")
        return Owner(token, self.given.get("url"), self.given.get("id"))


def asked(action: Action, said: Sent, request: Request, settings: WidgetSettings) -> Asked:
    """What is asked for. Raises Refusal for a parameter that the action does not have, that is missing, given twice or
    of another shape, and for a secret that stands in the address.
    """
    if said.twice is not None:
        raise _given_twice(said.twice)
    given = _secrets(action, request)
    for name, value in said.values.items():
        parameter = _known(action, name)
        if parameter.header and said.is_text and not settings.tokens_in_urls:
            raise invalid(f"{name} does not belong into an address: {_HOW.format(header=parameter.header)}", field=name)
        read = parameter.read(value, is_text=said.is_text)
        if given.setdefault(parameter.name, read) != read or _twice(parameter, said.values):
            raise _given_twice(parameter.name)
    call = action.chosen(given)
    _refuse_others(action, call, said.values)
    for needed in call.needs:
        if needed.name not in given:
            how = f": {_HOW.format(header=needed.header)}" if needed.header else ""
            raise invalid(f"{needed.name} is missing{how}", field=needed.name)
    return Asked(action, call, given, given.get("format", action.default))


def _known(action: Action, name: str) -> Parameter:
    found = action.parameters.get(name)
    if found is None:
        takes = ", ".join(dict.fromkeys(one.name for one in action.parameters.values()))
        raise invalid(f"{action.name} takes no {_quoted(name)}; it takes {takes}", field=_told(name))
    return found


def _twice(parameter: Parameter, values: Mapping[str, Any]) -> bool:
    """Whether it stands there under several of its names."""
    return sum(name in values for name in parameter.names) > 1


def _refuse_others(action: Action, call: Call, names: Iterable[str]) -> None:
    """Of an action that stands for several, what does not belong to the one that is asked for."""
    if len(action.calls) == 1:
        return
    taken = named((*call.parameters, *action.looks, *((p.FORMAT,) if action.view else ())))
    for name in names:
        if name not in taken:
            asked_by = f" with {call.when[0].name}" if call.when else ""
            raise invalid(f"{action.name}{asked_by} takes no {name}; it takes {', '.join(taken)}", field=name)


def _secrets(action: Action, request: Request) -> dict[str, Any]:
    """The secrets that come in headers. Raises Refusal where one comes in two ways that differ."""
    found: dict[str, Any] = {}
    for parameter in action.parameters.values():
        if parameter.header:
            given = {*_headers(request, parameter.header), *_bearers(action, parameter, request)}
            if len(given) > 1:
                raise _given_twice(parameter.name)
            if given:
                found[parameter.name] = given.pop()
    return found


def _bearers(action: Action, parameter: Parameter, request: Request) -> Iterator[str]:
    """The owner's token in `Authorization: Bearer …`; what else stands there is for somebody else.

    What only looks takes it in its own header: a gateway that passes on a token of its own would ask for the owner's
    view of each widget on a public page, with a wrong token.
    """
    if parameter not in (p.TOKEN, p.ADMIN_TOKEN) or not action.writes:
        return
    for given in _headers(request, "authorization"):
        scheme, _, secret = given.partition(" ")
        secret = secret.strip(" \t")
        if scheme.lower() == "bearer" and secret:
            yield secret


def _headers(request: Request, name: str) -> list[str]:
    return [_as_written(given) for given in request.headers.getlist(name)]


def _as_written(given: str) -> str:
    try:
        return given.encode("latin-1").decode()  # clients write UTF-8 there; the framework reads Latin-1
    except UnicodeDecodeError:
        return given
