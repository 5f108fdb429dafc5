"""The actions as the OpenAPI document tells them: what a query and a body take, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel

from keystead.kits.widgets.routes.actions import ADMIN, BOARDS, LIKES, RANKINGS, VISIT, WELCOMES, Action, Endpoint
from keystead.kits.widgets.routes.parameters import Parameter
from keystead.kits.widgets.service import (
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

_EXAMPLES: Final[Mapping[str, Any]] = {
    "url": "https://example.com/page",
    "token": "my-own-token",
    "id": "example-a1b2c3d4",
    "total": 100,
    "value": 100,
    "webhookUrl": "https://example.com/hook",
    "name": "Ann",
    "score": 4200,
    "message": "Hello!",
    "messageId": "example-a1b2c3d4_m1_abc123",
    "editToken": "…",
    "ids": ["example-a1b2c3d4"],
    "items": [{"id": "my-page", "url": "https://example.com/page"}],
    "prefix": "example-",
    "targetId": "example-a1b2c3d4",
    "urlPattern": "https://example.com/*",
    "adminToken": "…",
}


class Success(BaseModel, Generic[T]):
    success: Literal[True]
    data: T


class Sum(BaseModel):
    prefix: str
    total: int


class PostedAnswer(Success[BoardData]):
    messageId: str  # noqa: N815 - the original's names
    editToken: str  # noqa: N815


_DATA: Final[Mapping[str, type[BaseModel]]] = {
    VISIT.name: CounterData,
    LIKES.name: LikeData,
    RANKINGS.name: RankingData,
    BOARDS.name: BoardData,
    WELCOMES.name: WelcomeData,
    ADMIN.name: Cleaned,
}


def answers_of(endpoint: Endpoint) -> dict[str, Any]:
    """`response_model` and `responses` of both routes of an endpoint."""
    data = _DATA[endpoint.name]
    models: Any = Success[data]  # type: ignore[valid-type]
    if endpoint is not ADMIN:
        models |= data | Success[Created] | Success[Deleted]
    if endpoint is BOARDS:
        models |= PostedAnswer
    if "batchGet" in endpoint.actions:
        models |= Success[list[Created]] | Success[dict[str, int]] | Success[Sum]
    shown = {"image/svg+xml": {"schema": {"type": "string"}}, "text/plain": {"schema": {"type": "string"}}}
    return {
        "response_model": models,
        "responses": {
            200: {"description": "`success` and `data`; with `format`, a picture or text.", "content": shown},
            **{status: _refused() for status in ("4XX", "5XX")},
        },
    }


def _refused() -> dict[str, Any]:
    """In the form that was asked for."""
    shown = {"image/svg+xml": {"schema": {"type": "string"}}, "text/plain": {"schema": {"type": "string"}}}
    return {
        "description": "Something is wrong: `success` is false, `code` and `error` say what.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}, **shown},
    }


def query_of(endpoint: Endpoint) -> dict[str, Any]:
    """What GET takes. A parameter that several actions take is told once, with the names of the actions."""
    used: dict[str, list[tuple[Parameter, Action]]] = {}
    for action in endpoint.actions.values():
        for name, parameter in action.parameters.items():
            used.setdefault(name, []).append((parameter, action))
    told = [_action_parameter(endpoint)]
    told += [_in_query(name, uses) for name, uses in used.items() if not uses[0][0].header and name != "items"]
    told += [_in_header(uses) for uses in used.values() if uses[0][0].header]
    return {"parameters": told, "description": _told(endpoint)}


def _told(endpoint: Endpoint) -> str:
    lines = [f"- `{action.name}`: {action.doc}" for action in endpoint.actions.values()]
    how = "By GET with everything in the query, or by POST with `action` and everything else in a JSON body."
    return "\n".join((how, "", *lines))


def _action_parameter(endpoint: Endpoint) -> dict[str, Any]:
    schema = {"type": "string", "enum": list(endpoint.actions)}
    return {"name": "action", "in": "query", "required": True, "schema": schema, "description": "What is to be done."}


def _in_query(name: str, uses: list[tuple[Parameter, Action]]) -> dict[str, Any]:
    parameter = uses[0][0]
    schema = dict(parameter.shape.schema)
    if schema["type"] == ["string", "null"]:
        schema["type"] = "string"  # empty stands for null there
    told = {
        "name": name,
        "in": "query",
        "required": False,
        "schema": schema,
        "description": _doc(uses),
    }
    return told | ({"style": "form", "explode": False} if schema["type"] == "array" else {})


def _in_header(uses: list[tuple[Parameter, Action]]) -> dict[str, Any]:
    parameter = uses[0][0]
    return {
        "name": parameter.header,
        "in": "header",
        "required": False,
        "schema": {"type": "string"},
        "description": _doc(uses),
    }


def _doc(uses: list[tuple[Parameter, Action]]) -> str:
    docs = " ".join(dict.fromkeys(parameter.doc for parameter, _ in uses))
    return f"{docs} Of: {', '.join(action.name for _, action in uses)}."


def body_of(endpoint: Endpoint) -> dict[str, Any]:
    """What POST takes: one form of the body for each action, with an example."""
    content = {
        "schema": {"oneOf": [_form(action) for action in endpoint.actions.values()]},
        "examples": {
            action.name: {"summary": action.doc, "value": _example(action)} for action in endpoint.actions.values()
        },
    }
    headers = {
        one.header: one for action in endpoint.actions.values() for one in action.parameters.values() if one.header
    }
    return {
        "parameters": [_in_header([(one, action) for action in _takers(endpoint, one)]) for one in headers.values()],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "description": _told(endpoint),
    }


def _takers(endpoint: Endpoint, parameter: Parameter) -> list[Action]:
    return [action for action in endpoint.actions.values() if parameter in action.parameters.values()]


def _form(action: Action) -> dict[str, Any]:
    told = {
        name: {**parameter.shape.schema, "description": parameter.doc} for name, parameter in action.parameters.items()
    }
    # A secret may come in its header instead; of several calls, which is needed depends on what is given.
    needs = (
        [one.name for one in action.calls[0].needs if not one.header and not one.also] if len(action.calls) == 1 else []
    )
    return {
        "title": action.name,
        "description": action.doc,
        "type": "object",
        "properties": {"action": {"const": action.name, "type": "string"}, **told},
        "required": ["action", *needs],
        "additionalProperties": False,
    }


def _example(action: Action) -> dict[str, Any]:
    call = action.calls[0]
    needs = (*call.needs, *call.when)
    owner = {name: _EXAMPLES[name] for name in ("url", "token")} if call.owner else {}
    return {"action": action.name, **owner, **{one.name: _EXAMPLES[one.name] for one in needs}}
