"""FastAPI endpoints, called without its dependency injection.

FastAPI resolves the dependencies of a route for each request, inside three exit stacks. Most routes do not need that:
their parameters and dependencies are known when the route is declared. `direct_call` turns such a route into one
function. It handles well-formed requests; for any other it returns None before any side effect, and FastAPI handles it:
so errors and the OpenAPI document are FastAPI's own.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

from fastapi import Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_body_to_args, request_params_to_args
from fastapi.params import Form
from fastapi.responses import Response
from fastapi.routing import APIRoute, RouteContext, serialize_response
from fastapi.utils import is_body_allowed_for_status_code
from pydantic_core import PydanticUndefined
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from keystead.http.routing import KitRoute

DirectCall: TypeAlias = Callable[[Request], Awaitable[Response | None]]
_Values: TypeAlias = dict[str, Any]

# A key of the scope: the body of a request, once a direct call has read it.
BODY_READ: Final = "keystead.body_read"

# What needs the machinery: a dependency may add headers or background tasks, or ask for the scopes of OAuth.
_UNSUPPORTED: Final = (
    "websocket_param_name",
    "response_param_name",
    "background_tasks_param_name",
    "security_scopes_param_name",
)
_PARAMETERS: Final = (
    ("path_params", "path_params"),
    ("query_params", "query_params"),
    ("header_params", "headers"),
    ("cookie_params", "cookies"),
)


class _Malformed(Exception):
    """A request that FastAPI must refuse."""


def direct_call(route: RouteContext) -> DirectCall | None:
    """A function that answers well-formed requests to a route as FastAPI would, and returns None for others; None for a
    route that needs FastAPI's machinery."""
    own = route.original_route
    if not isinstance(own, APIRoute) or not _is_supported(route.dependant):
        return None
    if type(own).get_route_handler not in (APIRoute.get_route_handler, KitRoute.get_route_handler):
        return None
    body_fields = list(_body_fields(route.dependant))
    if body_fields and (body_fields != [route.body_field] or isinstance(route.body_field.field_info, Form)):
        return None
    call = _compile_call(route, has_body=bool(body_fields))
    return own.around(call) if isinstance(own, KitRoute) else call


def _is_supported(dependant: Dependant) -> bool:
    function = dependant.call if inspect.isroutine(dependant.call) else getattr(dependant.call, "__call__", None)  # noqa: B004
    return (
        inspect.iscoroutinefunction(function)
        and not any(getattr(dependant, name) for name in _UNSUPPORTED)
        and all(map(_is_supported, dependant.dependencies))
    )


def _body_fields(dependant: Dependant) -> Iterator[Any]:
    yield from dependant.body_params
    for dependency in dependant.dependencies:
        yield from _body_fields(dependency)


def _compile_call(route: RouteContext, *, has_body: bool) -> DirectCall:
    endpoint, respond = _Call(route.dependant), _compile_response(route)
    if not has_body and endpoint.takes_only_request:
        *before, function = endpoint.functions

        async def call_with_request(request: Request) -> Response | None:
            for one in before:
                await one(request)
            result = await function(request)
            return result if isinstance(result, Response) else await respond(result)

        return call_with_request

    async def call(request: Request) -> Response | None:
        try:
            values = await endpoint.values_of(request, await _read_json(request) if has_body else None)
        except _Malformed:
            return None
        return await respond(await endpoint.run(request, values, {}))

    return call


class _Call:
    """A function with its parameters and dependencies: the endpoint of a route, or one of its dependencies."""

    def __init__(self, dependant: Dependant) -> None:
        self.function: Callable[..., Any] = dependant.call  # type: ignore[assignment]  # None only while it is built
        self._name = dependant.name
        self._use_cache = dependant.use_cache
        connection = (dependant.request_param_name, dependant.http_connection_param_name)
        self._connection_names = [name for name in connection if name]
        self._parameters = [
            (getattr(dependant, fields), source) for fields, source in _PARAMETERS if getattr(dependant, fields)
        ]
        self._body_fields = dependant.body_params
        self._dependencies = [_Call(one) for one in dependant.dependencies]

    @property
    def takes_only_request(self) -> bool:
        """Whether it can be called with the request as its only argument, and so can all dependencies before it."""
        if self._parameters or self._body_fields or len(self._connection_names) != 1:
            return False
        if not all(one._name is None and one._use_cache and one.takes_only_request for one in self._dependencies):
            return False
        [parameter] = inspect.signature(self.function).parameters.values()
        return parameter.kind is parameter.POSITIONAL_OR_KEYWORD

    @property
    def functions(self) -> list[Callable[..., Any]]:
        """The functions of all dependencies, each once, and this one."""
        every = [function for one in self._dependencies for function in one.functions]
        return [*dict.fromkeys(every), self.function]

    async def values_of(self, request: Request, body: Any) -> dict[_Call, _Values]:
        """The validated parameters of this function and of all its dependencies. Raises `_Malformed`.

        Validated first, all of them: a dependency may count the request, and must not do so twice.
        """
        found: dict[_Call, _Values] = {}
        for dependency in self._dependencies:
            found |= await dependency.values_of(request, body)
        own: _Values = dict.fromkeys(self._connection_names, request)
        for fields, source in self._parameters:
            values, errors = request_params_to_args(fields, getattr(request, source))
            if errors:
                raise _Malformed
            own |= values
        if self._body_fields:
            values, errors = await request_body_to_args(self._body_fields, body, embed_body_fields=False)
            if errors:
                raise _Malformed
            own |= values
        found[self] = own
        return found

    async def run(self, request: Request, values: dict[_Call, _Values], known: dict[Any, Any]) -> Any:
        """Call the function, after its dependencies, each of which runs once for a request."""
        arguments = values[self]
        for dependency in self._dependencies:
            function = dependency.function
            if dependency._use_cache and function in known:
                result = known[function]
            else:
                result = known[function] = await dependency.run(request, values, known)
            if dependency._name is not None:
                arguments[dependency._name] = result
        return await self.function(**arguments)


async def _read_json(request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _Malformed
    try:
        body = await request.body()
    except ClientDisconnect:  # there is no client left to answer
        raise HTTPException(400) from None
    request.scope[BODY_READ] = body
    try:
        return json.loads(body) if body else PydanticUndefined
    except (ValueError, RecursionError):
        raise _Malformed from None


def _compile_response(route: RouteContext) -> Callable[[Any], Awaitable[Response]]:
    """Turns the result of an endpoint into a response, as FastAPI does."""
    field, is_default = route.response_field, isinstance(route.response_class, DefaultPlaceholder)
    response_class: type[Response] = route.response_class.value if is_default else route.response_class
    is_dumped = field is not None and is_default
    status = {} if route.status_code is None else {"status_code": route.status_code}

    async def respond(result: Any) -> Response:
        if isinstance(result, Response):
            return result
        content = await serialize_response(
            field=field,
            response_content=result,
            include=route.response_model_include,
            exclude=route.response_model_exclude,
            by_alias=route.response_model_by_alias,
            exclude_unset=route.response_model_exclude_unset,
            exclude_defaults=route.response_model_exclude_defaults,
            exclude_none=route.response_model_exclude_none,
            dump_json=is_dumped,
        )
        if is_dumped:
            response = Response(content, media_type="application/json", **status)
        else:
            response = response_class(content, **status)
        if not is_body_allowed_for_status_code(response.status_code):
            response.body = b""
        return response

    return respond
