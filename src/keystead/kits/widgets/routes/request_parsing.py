"""Request parsing: the action, its parameters and the response format."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
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
_QUERIES_MAX: Final = 2048  # parsed queries that a process remembers, for each endpoint
_QUERY_MAX: Final = 256  # bytes of a query that is remembered
_PREFETCH: Final = frozenset({b"sec-purpose", b"purpose", b"x-purpose", b"x-moz"})
# The values of `Sec-Fetch-Site` for requests of other sites' pages, which may hide their origin.
_OTHER_SITES: Final = ("cross-site", "same-site")
_HOW_TO_SEND: Final = "send it in the header {}, or in the body of a POST; URLs end up in logs and histories"


def bad_request(sentence: str, field: str | None = None) -> Refusal:
    """The refusal of an invalid request. The sentence names the parameter, but does not repeat its value."""
    return make_refusal(400, "VALIDATION_ERROR", sentence, field=field)


# --- names and values ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParsedRequest:
    """A request whose parameters are valid. `given` is the endpoint's model."""

    name: str
    action: Action
    call: Call
    given: Any
    format: Format


@dataclass(frozen=True)
class RawRequest:
    """The parameters of a request, from a query or a JSON body.

    repeated  a name that the query contains twice: it is refused later, when the response format is known
    """

    action: str | None
    values: Mapping[str, Any]
    is_query: bool
    repeated: str | None = None


def query_parser(endpoint: Endpoint) -> Callable[[bytes], ParsedRequest | None]:
    """A function that parses a query, and remembers the result: a page asks the same again and again.

    It returns None if the query is invalid, or if headers may add to it.
    """

    @lru_cache(maxsize=_QUERIES_MAX)
    def parse_valid(query: bytes) -> ParsedRequest | None:
        raw = _read_raw_query(query)
        action = find_action(endpoint, raw.action)
        if not names_of(endpoint.request).secrets.keys().isdisjoint(action.parameters):
            return None
        call, given = parse_parameters(endpoint, action, raw, None, tokens_in_urls=False)
        return ParsedRequest(str(raw.action), action, call, given, choose_format(action, raw))

    def parse(query: bytes) -> ParsedRequest | None:
        try:
            return parse_valid(query) if len(query) <= _QUERY_MAX else None
        except Refusal:  # not remembered
            return None

    return parse


async def read_request(request: Request) -> RawRequest:
    """Raises Refusal for an invalid query or JSON body, and for a repeated name in the body."""
    if request.method != "POST":
        return _read_raw_query(request.scope["query_string"])
    query = dict(_read_query(request.scope["query_string"]))
    try:
        body = _read_object(await request.body(), request.headers.get("content-type", ""))
    except ClientDisconnect:  # there is no client left to answer
        raise bad_request("the request was interrupted") from None
    in_query, in_body = query.pop("action", None), body.pop("action", None)
    if query:
        name = _quote(next(iter(query)))
        raise bad_request(f"send the parameters of a POST in its body, not in the URL: {name}")
    if in_query is not None and in_body is not None and in_query != in_body:
        raise bad_request("action differs between the URL and the body", "action")
    action = in_query if in_body is None else in_body
    if action is not None and not isinstance(action, str):
        raise bad_request("action must be text", "action")
    return RawRequest(action, body, is_query=False)


def _read_raw_query(query: bytes) -> RawRequest:
    pairs = _read_query(query)
    values = dict(pairs)
    repeated = None if len(values) == len(pairs) else _find_repeated(pairs)
    return RawRequest(values.pop("action", None), values, is_query=True, repeated=repeated)


def _read_query(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:  # not UTF-8, or too many fields
        raise bad_request("invalid query: it must have at most 50 parameters, in percent-encoded UTF-8") from None


def _read_object(body: bytes, content_type: str) -> dict[str, Any]:
    # No other type is accepted: pages of other sites could send those without a CORS preflight.
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise bad_request("the body of a POST must be JSON, with the header content-type: application/json")
    try:
        content = json.loads(
            body, object_pairs_hook=_make_object, parse_int=_parse_integer, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):  # not JSON, or nested too deep
        raise bad_request("the body is not a JSON object") from None
    if not isinstance(content, dict):
        raise bad_request("the body is not a JSON object")
    return content


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = _find_repeated(pairs)
    if repeated is not None:
        raise _repeated_parameter(repeated)
    return dict(pairs)


def _parse_integer(digits: str) -> int | float:
    """`-0` and very large numbers become floats, which no parameter accepts."""
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


def _repeated_parameter(name: str) -> Refusal:
    return bad_request(f"{_quote(name)} is given twice", _printable(name))


def _printable(name: str) -> str:
    """A name from the client, if it can be shown: a lone surrogate, for example, cannot."""
    return name[:40] if name.isprintable() else "(unreadable)"


def _quote(name: str) -> str:
    return repr(_printable(name))


# --- the action ----------------------------------------------------------------------------------------------------


def find_action(endpoint: Endpoint, name: str | None) -> Action:
    """Raises Refusal, which lists the actions."""
    action = None if name is None else endpoint.actions.get(name)
    if action is None:
        problem = "action is missing" if name is None else "unknown action"
        raise bad_request(f"{problem}; the actions are {', '.join(endpoint.actions)}", "action")
    return action


def choose_format(action: Action, raw: RawRequest) -> Format:
    """The response format, also for errors. An invalid format counts as none."""
    wanted = raw.values.get("format")
    return wanted if action.view and wanted in ("json", "text", "image") else action.default


def refuse_unwanted_write(name: str | None, action: Action, request: Request, widgets: Widgets) -> None:
    """Raises Refusal for a write from a site that `origins` does not list, by GET if `get_writes` forbids it, and for a
    prefetch.
    """
    if not action.writes:
        return
    _refuse_other_sites(request, widgets)
    if request.method == "POST":
        return
    allowed = widgets.settings.get_writes
    if allowed == "none" or (allowed == "visits" and not action.visits):
        sentence = f"{name} needs a POST with a JSON body here"
        raise make_refusal(405, "METHOD_NOT_ALLOWED", sentence, headers={"allow": "POST"})
    for name, value in request.scope["headers"]:
        if name in _PREFETCH and (b"prefetch" in value.lower() or b"preview" in value.lower()):
            raise make_refusal(403, "NO_PREFETCH", "a prefetch must not write")


def _refuse_other_sites(request: Request, widgets: Widgets) -> None:
    """CORS hides the response from a page, but does not stop the request: any page sends one with a picture or a form.

    A request without an origin comes from a program, or was typed in.
    """
    origins = widgets.settings.origins
    if "*" in origins:
        return
    origin = page_origin(request.headers)
    if origin is None:
        is_foreign = request.headers.get("sec-fetch-site", "").strip().lower() in _OTHER_SITES
    else:
        is_foreign = origin not in (*origins, widgets.site.public_url)
    if is_foreign:
        sentence = "pages of this site may not write here; the setting origins lists those that may"
        raise make_refusal(403, "ORIGIN_NOT_ALLOWED", sentence)


# --- the parameters ------------------------------------------------------------------------------------------------


def parse_parameters(
    endpoint: Endpoint, action: Action, raw: RawRequest, request: Request | None, tokens_in_urls: bool
) -> tuple[Call, Any]:
    """The selected call, and its parameters as the endpoint's model. Headers of `request` may hold secrets.

    Raises Refusal for an unknown, missing, repeated or invalid parameter, and for a secret in the URL.
    """
    if raw.repeated is not None:
        raise _repeated_parameter(raw.repeated)
    names = names_of(endpoint.request)
    given = _read_given(action, raw, names, tokens_in_urls)
    secrets = {field: secret for field, secret in names.secrets.items() if field in action.parameters}
    from_headers = _read_headers(action, secrets, names, request, given) if request is not None and secrets else {}
    call = action.choose({**given, **from_headers})
    accepted = (*call.parameters, *action.view_parameters)
    extra = next((field for field in given if field not in accepted), None)
    if extra is not None:
        with_it = f" with {names.shown[call.when]}" if call.when else ""
        raise _unknown_parameter(f"{raw.action}{with_it}", names.shown[extra], accepted, names)
    given |= {field: value for field, value in from_headers.items() if field in call.parameters}
    model = _validate(endpoint.request, given, raw.is_query, names)
    missing = next((field for field in call.required if field not in given), None)
    if missing is not None:
        how = f": {_HOW_TO_SEND.format(names.secrets[missing].header.title())}" if missing in names.secrets else ""
        raise bad_request(f"{names.shown[missing]} is missing{how}", names.shown[missing])
    return call, model


def _read_given(action: Action, raw: RawRequest, names: Names, tokens_in_urls: bool) -> dict[str, Any]:
    """The parameters of the query or body, by field. Raises Refusal."""
    given: dict[str, Any] = {}
    for name, value in raw.values.items():
        field = names.field.get(name, "")
        if field not in action.parameters:
            raise _unknown_parameter(f"{raw.action}", name, action.parameters, names)
        if field in given:
            raise _repeated_parameter(names.shown[field])
        if field in names.secrets and raw.is_query and not tokens_in_urls:
            how = _HOW_TO_SEND.format(names.secrets[field].header)
            raise bad_request(f"{name} is not accepted in a URL: {how}", name)
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


def _unknown_parameter(action: str, name: str, parameters: Iterable[str], names: Names) -> Refusal:
    accepted = ", ".join(names.shown[field] for field in parameters)
    return bad_request(f"{action} has no parameter {_quote(name)}; it accepts {accepted}", _printable(name))


def _read_headers(
    action: Action, secrets: Mapping[str, Secret], names: Names, request: Request, given: Mapping[str, Any]
) -> dict[str, str]:
    """The secrets from headers. Raises Refusal for two different values.

    Read-only actions accept no bearer token: a gateway that forwards its own would ask for the owner's view of each
    widget on a public page, with a wrong token.
    """
    found: dict[str, str] = {}
    for field, secret in secrets.items():
        values = _header_values(request, secret.header)
        if secret.is_bearer and action.writes:
            values += filter(None, map(_read_bearer, _header_values(request, "authorization")))
        if any(value != given.get(field, values[0]) for value in values):
            raise _repeated_parameter(names.shown[field])
        if values:
            found[field] = values[0]
    return found


def _read_bearer(value: str) -> str:
    """The token in `Bearer …`; empty for another scheme."""
    scheme, _, token = value.partition(" ")
    return token.strip(" \t") if scheme.lower() == "bearer" else ""


def _header_values(request: Request, name: str) -> list[str]:
    """The values of a header. Clients send UTF-8, and the framework decodes Latin-1."""
    return [_decode(value.encode("latin-1")) for value in request.headers.getlist(name)]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
