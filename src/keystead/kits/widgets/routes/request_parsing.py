"""Reads a request: which action it asks for, with which parameters, and in which format it is to be answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from keystead.http.csrf import page_origin
from keystead.http.refusals import Refusal
from keystead.kits.camel_model import CamelBody
from keystead.kits.widgets.routes.actions import Action, Call, Endpoint
from keystead.kits.widgets.routes.requests import Format, Names, Secret, describe_expectation, names_of, schema_of
from keystead.kits.widgets.routes.responses import make_refusal
from keystead.kits.widgets.service import Widgets

_FIELDS_MAX: Final = 50
_PREFETCH: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
# What a browser says in `Sec-Fetch-Site` of a page that is not one of ours, where that page hides which one it is.
_ELSEWHERE: Final = ("cross-site", "same-site")
_HOW: Final = "send it in the header {}, or in the body of a POST: in an address, logs and histories keep it"


def bad_request(sentence: str, field: str | None = None) -> Refusal:
    """The refusal of a request that cannot be understood. The sentence names the parameter, and not what was sent."""
    return make_refusal(400, "VALIDATION_ERROR", sentence, field=field)


# --- names and values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawRequest:
    """The names and values of a request, as texts of a query or as JSON.

    repeated  a name that the query has twice: it is refused once it is known in which format to answer
    """

    action: str | None
    values: Mapping[str, Any]
    is_query: bool
    repeated: str | None = None


async def read_request(request: Request) -> RawRequest:
    """Raises Refusal where it is neither a query nor a JSON object, or where a name stands in the body twice."""
    pairs = _read_query(request.scope["query_string"])
    query = dict(pairs)
    if request.method != "POST":
        repeated = None if len(query) == len(pairs) else _find_repeated(pairs)
        return RawRequest(query.pop("action", None), query, is_query=True, repeated=repeated)
    try:
        body = _read_object(await request.body(), request.headers.get("content-type", ""))
    except ClientDisconnect:  # there is no client left to answer
        raise bad_request("the request broke off") from None
    in_query, in_body = query.pop("action", None), body.pop("action", None)
    if query:
        name = _quote(next(iter(query)))
        raise bad_request(f"the parameters of a POST stand in its body, not in the address: {name}")
    if in_query is not None and in_body is not None and in_query != in_body:
        raise bad_request("action stands in the address and in the body, and they differ", "action")
    action = in_query if in_body is None else in_body
    if action is not None and not isinstance(action, str):
        raise bad_request("action is a text", "action")
    return RawRequest(action, body, is_query=False)


def _read_query(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:  # not UTF-8, or too many fields
        raise bad_request(
            "the query cannot be read: parameters are percent-encoded UTF-8, at most 50 of them"
        ) from None


def _read_object(body: bytes, content_type: str) -> dict[str, Any]:
    # No other type: a page of another site could send those without asking whether it may.
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise bad_request("the body of a POST is JSON: send the header content-type: application/json")
    try:
        content = json.loads(
            body, object_pairs_hook=_make_object, parse_int=_parse_integer, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):  # not JSON, or nested too deep
        raise bad_request("the body is no JSON object") from None
    if not isinstance(content, dict):
        raise bad_request("the body is no JSON object")
    return content


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = _find_repeated(pairs)
    if repeated is not None:
        raise _given_twice(repeated)
    return dict(pairs)


def _parse_integer(digits: str) -> int | float:
    """`-0` and what is beyond any limit are floats, which no parameter takes."""
    return float(digits) if digits == "-0" or len(digits) > 19 else int(digits)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _find_repeated(pairs: Iterable[tuple[str, Any]]) -> str | None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None


def _given_twice(name: str) -> Refusal:
    return bad_request(f"{_quote(name)} is given twice", _printable(name))


def _printable(name: str) -> str:
    """A name that a client sent, as far as it can be repeated: half a surrogate pair, say, cannot."""
    return name[:40] if name.isprintable() else "(unreadable)"


def _quote(name: str) -> str:
    return repr(_printable(name))


# --- the action ----------------------------------------------------------------------------------------------------


def find_action(endpoint: Endpoint, name: str | None) -> Action:
    """Raises Refusal, which names the actions that there are."""
    there = ", ".join(endpoint.actions)
    if name is None:
        raise bad_request(f"action is missing; there are {there}", "action")
    found = endpoint.actions.get(name)
    if found is None:
        raise bad_request(f"there is no such action; there are {there}", "action")
    return found


def choose_format(action: Action, raw: RawRequest) -> Format:
    """How to answer, also where the request is refused. What is not a format is answered as without one."""
    wanted = raw.values.get("format")
    return wanted if action.view and wanted in ("json", "text", "image") else action.default


def refuse_unwanted_write(raw: RawRequest, action: Action, request: Request, widgets: Widgets) -> None:
    """Refuses writes by pages of sites that the settings do not name, by GET where they say so, and by a browser that
    fetches ahead. Raises Refusal.
    """
    if not action.writes:
        return
    _refuse_other_sites(request, widgets)
    if request.method == "POST":
        return
    allowed = widgets.settings.get_writes
    if allowed == "none" or (allowed == "visits" and not action.visits):
        sentence = f"{raw.action} takes a POST here, with a JSON body"
        raise make_refusal(405, "METHOD_NOT_ALLOWED", sentence, headers={"allow": "POST"})
    purposes = [request.headers.get(header, "").lower() for header in _PREFETCH]
    if any("prefetch" in purpose or "preview" in purpose for purpose in purposes):
        raise make_refusal(403, "NO_PREFETCH", "nothing is written before somebody asks for it")


def _refuse_other_sites(request: Request, widgets: Widgets) -> None:
    """CORS keeps an answer from a page, and not the request from us: a picture, a form or a link on any page sends one.

    A request that does not say where it comes from is made by a program, or was typed in.
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
        sentence = "pages of this site may not write here; the setting origins names those that may"
        raise make_refusal(403, "ORIGIN_NOT_ALLOWED", sentence)


# --- the parameters ------------------------------------------------------------------------------------------------


def parse_parameters(
    endpoint: Endpoint, action: Action, raw: RawRequest, request: Request, tokens_in_urls: bool
) -> tuple[Call, Any]:
    """The call that is asked for, and what was given to it, as the endpoint's model.

    Raises Refusal for a parameter that the action does not take, that is missing, given twice or not what it accepts,
    and for a secret in the address.
    """
    if raw.repeated is not None:
        raise _given_twice(raw.repeated)
    names = names_of(endpoint.request)
    given = _read_given(action, raw, names, tokens_in_urls)
    secrets = {field: secret for field, secret in names.secrets.items() if field in action.parameters}
    from_headers = _read_headers(action, secrets, names, request, given) if secrets else {}
    call = action.choose({**given, **from_headers})
    taken = (*call.parameters, *action.looks)
    extra = next((field for field in given if field not in taken), None)
    if extra is not None:
        with_it = f" with {names.shown[call.when]}" if call.when else ""
        raise _not_taken(f"{raw.action}{with_it}", names.shown[extra], taken, names)
    given |= {field: value for field, value in from_headers.items() if field in call.parameters}
    model = _validate(endpoint.request, given, raw.is_query, names)
    missing = next((field for field in call.required if field not in given), None)
    if missing is not None:
        how = f": {_HOW.format(names.secrets[missing].header.title())}" if missing in names.secrets else ""
        raise bad_request(f"{names.shown[missing]} is missing{how}", names.shown[missing])
    return call, model


def _read_given(action: Action, raw: RawRequest, names: Names, tokens_in_urls: bool) -> dict[str, Any]:
    """The values of the query or body, by field. Raises Refusal."""
    given: dict[str, Any] = {}
    for name, value in raw.values.items():
        field = names.field.get(name, "")
        if field not in action.parameters:
            raise _not_taken(f"{raw.action}", name, action.parameters, names)
        if field in given:
            raise _given_twice(names.shown[field])
        if field in names.secrets and raw.is_query and not tokens_in_urls:
            how = _HOW.format(names.secrets[field].header)
            raise bad_request(f"{name} does not belong into an address: {how}", name)
        given[field] = value
    return given


def _validate(model: type[CamelBody], given: dict[str, Any], is_query: bool, names: Names) -> CamelBody:
    validate = model.model_validate_strings if is_query else model.model_validate
    try:
        return validate(given, by_alias=False, by_name=True)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        name = names.shown[field]
    raise bad_request(f"{name} {describe_expectation(schema_of(model, field))}", name)


def _not_taken(asked: str, name: str, parameters: Iterable[str], names: Names) -> Refusal:
    takes = ", ".join(names.shown[field] for field in parameters)
    return bad_request(f"{asked} takes no {_quote(name)}; it takes {takes}", _printable(name))


def _read_headers(
    action: Action, secrets: Mapping[str, Secret], names: Names, request: Request, given: Mapping[str, Any]
) -> dict[str, str]:
    """The secrets that come in headers. Raises Refusal where one comes in two ways that differ.

    What only looks does not take a bearer: a gateway that passes on a token of its own would ask for the owner's view
    of each widget on a public page, with a wrong token.
    """
    found: dict[str, str] = {}
    for field, secret in secrets.items():
        values = _header_values(request, secret.header)
        if secret.is_bearer and action.writes:
            values += filter(None, map(_read_bearer, _header_values(request, "authorization")))
        if any(value != given.get(field, values[0]) for value in values):
            raise _given_twice(names.shown[field])
        if values:
            found[field] = values[0]
    return found


def _read_bearer(value: str) -> str:
    """The secret in `Bearer …`; empty: the header is of another scheme, for somebody else."""
    scheme, _, token = value.partition(" ")
    return token.strip(" \t") if scheme.lower() == "bearer" else ""


def _header_values(request: Request, name: str) -> list[str]:
    """Clients write UTF-8 into headers, and the framework reads Latin-1."""
    return [_decode(value.encode("latin-1")) for value in request.headers.getlist(name)]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
