"""OpenAPI descriptions of the actions: parameters, bodies and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel

from keystead.kits.camel_model import CamelModel
from keystead.kits.widgets.routes.actions import ADMIN, BOARDS, LIKES, RANKINGS, VISIT, WELCOMES, Endpoint
from keystead.kits.widgets.routes.requests import names_of, schema_of
from keystead.kits.widgets.service.outcomes import (
    BoardData,
    Cleaned,
    CounterData,
    Created,
    Deleted,
    LikeData,
    RankingData,
    WelcomeData,
)

T = TypeVar("T")


class Success(CamelModel, Generic[T]):
    success: Literal[True]
    data: T


class Sum(BaseModel):
    prefix: str
    total: int


class PostedAnswer(Success[BoardData]):
    message_id: str
    edit_token: str


_DATA: Final[Mapping[str, type[BaseModel]]] = {
    VISIT.name: CounterData,
    LIKES.name: LikeData,
    RANKINGS.name: RankingData,
    BOARDS.name: BoardData,
    WELCOMES.name: WelcomeData,
    ADMIN.name: Cleaned,
}
_SHOWN: Final = {"image/svg+xml": {"schema": {"type": "string"}}, "text/plain": {"schema": {"type": "string"}}}
_REFUSED: Final = {
    "description": "An error: `success` is false; `code` and `error` describe it.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}, **_SHOWN},
}


def describe_answers(endpoint: Endpoint) -> dict[str, Any]:
    """`response_model` and `responses` of both routes of an endpoint."""
    data = _DATA[endpoint.name]
    models: Any = Success[data]  # type: ignore[valid-type]
    if endpoint is not ADMIN:
        models |= data | Success[Created] | Success[Deleted]
    if endpoint is BOARDS:
        models |= PostedAnswer
    if "batchGet" in endpoint.actions:
        models |= Success[list[Created]] | Success[dict[str, int]] | Success[Sum]
    shown = {"description": "`success` and `data`; with `format`, a picture or text.", "content": _SHOWN}
    return {"response_model": models, "responses": {200: shown, "4XX": _REFUSED, "5XX": _REFUSED}}


def describe_query(endpoint: Endpoint) -> dict[str, Any]:
    """The parameters of GET: each one once, with the actions that accept it."""
    names = names_of(endpoint.request)
    actions = {"type": "string", "enum": list(endpoint.actions)}
    action = _describe_parameter("action", "query", actions, "The action to run.") | {"required": True}
    query = [_describe_in_query(endpoint, *pair) for pair in names.field.items() if pair[1] not in names.secrets]
    return {
        "parameters": [action, *filter(None, query), *_describe_headers(endpoint)],
        "description": _list_actions(endpoint),
    }


def describe_body(endpoint: Endpoint) -> dict[str, Any]:
    """The body of POST: one schema per action, with an example."""
    content = {
        "schema": {"oneOf": [_describe_form(endpoint, name) for name in endpoint.actions]},
        "examples": {
            name: {"summary": action.doc, "value": _make_example(endpoint, name)}
            for name, action in endpoint.actions.items()
        },
    }
    return {
        "parameters": _describe_headers(endpoint),
        "requestBody": {"required": True, "content": {"application/json": content}},
        "description": _list_actions(endpoint),
    }


def _list_actions(endpoint: Endpoint) -> str:
    lines = [f"- `{name}`: {action.doc}" for name, action in endpoint.actions.items()]
    how = "GET takes all parameters in the query; POST takes `action` and the parameters in a JSON body."
    return "\n".join((how, "", *lines))


def _describe_in_query(endpoint: Endpoint, name: str, field: str) -> dict[str, Any] | None:
    schema = {key: value for key, value in schema_of(endpoint.request, field).items() if key != "description"}
    if "anyOf" in schema:
        schema = schema["anyOf"][0]  # in a query, empty means null
    parameter = _describe_parameter(name, "query", schema, _describe_use(endpoint, field))
    if schema["type"] != "array":
        return parameter
    if schema["items"]["type"] != "string":
        return None  # a list of objects needs a body
    return parameter | {"style": "form", "explode": False}


def _describe_headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    secrets, text = names_of(endpoint.request).secrets, {"type": "string"}
    return [
        _describe_parameter(secret.header, "header", text, _describe_use(endpoint, field))
        for field, secret in secrets.items()
    ]


def _describe_parameter(name: str, place: str, schema: dict[str, Any], doc: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": doc}


def _describe_use(endpoint: Endpoint, field: str) -> str:
    users = [name for name, action in endpoint.actions.items() if field in action.parameters]
    return f"{schema_of(endpoint.request, field)['description']} For: {', '.join(users)}."


def _describe_form(endpoint: Endpoint, name: str) -> dict[str, Any]:
    action, names = endpoint.actions[name], names_of(endpoint.request)
    accepted = {one: field for one, field in names.field.items() if field in action.parameters}
    # Not required: secrets, which may come in headers; parameters with two names; and any, if there are several calls.
    [call, *others] = action.calls
    fields = list(names.field.values())
    needs = [] if others else [one for one in call.needs.split() if one not in names.secrets and fields.count(one) == 1]
    properties = {one: schema_of(endpoint.request, field) for one, field in accepted.items()}
    return {
        "title": name,
        "description": action.doc,
        "type": "object",
        "properties": {"action": {"const": name, "type": "string"}, **properties},
        "required": ["action", *(names.shown[field] for field in needs)],
        "additionalProperties": False,
    }


def _make_example(endpoint: Endpoint, name: str) -> dict[str, Any]:
    call, fields, names = endpoint.actions[name].calls[0], endpoint.request.model_fields, names_of(endpoint.request)
    needs = (*(("url", "token") if call.is_by_owner else ()), *call.needs.split())
    return {"action": name, **{names.shown[field]: (fields[field].examples or [""])[0] for field in needs}}
