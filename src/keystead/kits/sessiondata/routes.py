"""The Sessions API: session data over HTTP, for programs with an API key and for logged-in users."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.routing import Match
from starlette.types import Scope

from keystead.catalogue import message
from keystead.errors import BadValue, StoreError, Unreadable
from keystead.http.accept import content_type
from keystead.http.cookies import Cookie
from keystead.http.csrf import is_cross_site
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import with_cookies
from keystead.kits.kit import Kit, Site, service_of
from keystead.kits.sessiondata.error_messages import message_for
from keystead.kits.sessiondata.keys import SessionDataKeys
from keystead.kits.sessiondata.service import (
    KEY_MAX,
    SessionArea,
    SessionData,
    SessionDataSettings,
    TooLong,
    TooMany,
    UserArea,
)
from keystead.kits.visit import Visit
from keystead.parts.limit import LimitReached
from keystead.parts.sizes import size_bytes
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.unreadable import log_unreadable

_security = logging.getLogger("keystead.security")

_PATHS: Final = ("/api/Sessions/Get", "/api/Sessions/Set", "/api/Sessions/Delete")
_TYPE: Final = "application/json;charset=utf-8"
_USER: Final = "User_"  # prefix of client keys, which keeps them apart from the application's own keys
_ESCAPED_BYTES: Final = 6  # the most JSON bytes per byte of a value: \u0000
_OVERHEAD_BYTES: Final = 16_384  # for everything in a body except the value

STATUS: Final = {
    "bad-request": 400,
    "unauthorized": 401,
    "foreign": 403,
    "not-found": 404,
    "too-long": 422,
    "too-often": 429,
    "too-many": 441,
    "unreadable": 409,
    "store": 500,
}

# The id of the logged-in user, from the cookies of a request; None: not logged in.
LoggedIn: TypeAlias = Callable[[Request], Awaitable[int | None]]


class SessionsRequest(BaseModel):
    """The body of a request. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    ApiVersion: float = Field(1.1, gt=0, allow_inf_nan=False, description="The API version of the client.")
    ApiKey: str = Field("", description="The API key from `keystead apikeys issue`. Signed-in users need none.")
    Token: str = Field("", description="Without an API key: a CSRF token, if the request has no Origin header.")
    SessionKey: str = Field("", description="The name of the value. It must not be empty.")
    SavePerUser: bool = Field(False, description="Store the value for the user, without expiry, not for the session.")
    SessionGuid: str = Field("", description="The session id that `Set` returned. The default is that of the cookie.")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        return {name: one for name, one in given.items() if one is not None} if isinstance(given, dict) else given


class SessionsSetRequest(SessionsRequest):
    SessionValue: str = Field("", description="The value. It must not be empty.")


class SessionsResult(BaseModel):
    """The result of a request. `SessionGuid` is present if this request created a session."""

    UserId: int
    Key: str
    Value: str | None = None
    SessionGuid: str | None = None


class SessionsResponse(BaseModel):
    StatusCode: int = 200
    Response: SessionsResult


class SessionsError(BaseModel):
    """An error. `Message` is in English, Japanese or Korean, by `Accept-Language`."""

    Id: int = 0
    StatusCode: int
    Message: str


class SessionsParseError(BaseModel):
    """The body is not JSON, or has another content type."""

    Message: str


class _RequestFailed(Exception):
    def __init__(self, code: str) -> None:
        self.code = code


class _ParseFailed(_RequestFailed):
    """The body could not be parsed: the response has a message only."""


class CaseInsensitiveRoute(APIRoute):
    """A route with a case-insensitive path."""

    def __init__(self, path: str, *given: Any, **options: Any) -> None:
        super().__init__(path, *given, **options)
        self.path_regex = re.compile(self.path_regex.pattern, re.IGNORECASE | re.ASCII)  # for code that lists routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        requested, own = scope.get("path", ""), self.path
        if requested.lower().endswith(own.lower()):
            scope = {**scope, "path": requested[: -len(own)] + own}
        return super().matches(scope)


class SessionsService:
    """The open service behind the routes."""

    def __init__(self, data: SessionData, site: Site, logged_in: LoggedIn | None = None) -> None:
        self.data = data
        self.site = site
        self.logged_in = logged_in
        self.cookie = Cookie("sessionguid", site.secure)


Service = Annotated[SessionsService, Depends(service_of("sessiondata"))]


@asynccontextmanager
async def open_session_data(
    keys: SessionDataKeys, settings: SessionDataSettings, site: Site, logged_in: LoggedIn | None = None
) -> AsyncIterator[SessionsService]:
    yield SessionsService(SessionData(keys, settings), site, logged_in)


def router() -> APIRouter:
    """All routes of the kit."""
    routes = APIRouter(tags=["sessiondata"], route_class=CaseInsensitiveRoute)
    errors: dict[int | str, dict[str, Any]] = {status: {"model": SessionsError} for status in STATUS.values()}
    errors[400] = {"model": SessionsError | SessionsParseError}
    for path, route, summary, body in (
        (_PATHS[0], _get, "Read a value", SessionsRequest),
        (_PATHS[1], _set, "Write a value", SessionsSetRequest),
        (_PATHS[2], _delete, "Remove a value", SessionsRequest),
    ):
        routes.add_api_route(
            path,
            route,
            methods=["POST"],
            response_model=SessionsResponse,
            responses=errors,
            summary=summary,
            openapi_extra={
                "requestBody": {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}
            },
        )
    return routes


async def _get(request: Request, service: Service) -> Response:
    async with _ResponseBuilder(request) as builder:
        user_id, body = await _parse_request(request, service, SessionsRequest)
        area, key = _locate(request, service, user_id, body)
        value = await area.get(key)
        if value is None:
            raise _RequestFailed("not-found")
        builder.result = SessionsResult(UserId=user_id, Key=body.SessionKey, Value=value)
    return builder.response


async def _set(request: Request, service: Service) -> Response:
    async with _ResponseBuilder(request) as builder:
        user_id, body = await _parse_request(request, service, SessionsSetRequest)
        if not body.SessionValue:
            raise _RequestFailed("bad-request")
        new_id = None
        area, key = _locate(request, service, user_id, body)
        if isinstance(area, UserArea):
            await area.set(key, body.SessionValue)
        elif not await area.set(key, body.SessionValue):
            # No such session: create one, under an id that the client did not choose. Session and value are written in
            # one atomic step, so a store failure leaves no session without a value.
            new_id = await service.data.begin({key: body.SessionValue})
            if _is_same_site(request, service):
                builder.cookies.append(service.cookie.set(new_id))
        builder.result = SessionsResult(UserId=user_id, Key=body.SessionKey, SessionGuid=new_id)
    return builder.response


async def _delete(request: Request, service: Service) -> Response:
    async with _ResponseBuilder(request) as builder:
        user_id, body = await _parse_request(request, service, SessionsRequest)
        area, key = _locate(request, service, user_id, body)
        if not await area.remove(key):
            raise _RequestFailed("not-found")
        builder.result = SessionsResult(UserId=user_id, Key=body.SessionKey)
    return builder.response


class _ResponseBuilder:
    """Turns the result of a block, or the error that it raises, into a response."""

    def __init__(self, request: Request) -> None:
        self._language = request.headers.get("accept-language", "")
        self.cookies: list[str] = []
        self.result: SessionsResult | None = None
        self.response: Response = Response(status_code=500)

    async def __aenter__(self) -> _ResponseBuilder:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        match error:
            case None:
                body = SessionsResponse(Response=self.result) if self.result is not None else None
                self._respond(200, {} if body is None else body.model_dump(exclude_none=True))
            case _ParseFailed():
                message = message_for(error.code, self._language)
                self._respond(400, SessionsParseError(Message=message).model_dump())
            case _RequestFailed():
                self._fail(error.code)
            case LimitReached():
                self._fail("too-often", {"retry-after": str(error.retry_after_s)})
            case Refusal():  # a cross-site request
                self._fail("foreign")
            case TooLong():
                self._fail("too-long")
            case TooMany():
                self._fail("too-many")
            case BadValue():
                self._fail("bad-request")
            case Unreadable():
                log_unreadable(None, error)
                self._fail("unreadable")
            case StoreError():
                self._fail("store")
            case _:
                return False
        return True

    def _fail(self, code: str, headers: Mapping[str, str] | None = None) -> None:
        error = SessionsError(StatusCode=STATUS[code], Message=message_for(code, self._language))
        self._respond(error.StatusCode, error.model_dump(), headers)

    def _respond(self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        headers = NO_STORE | {"vary": "accept-language"} | dict(headers or {})
        self.response = with_cookies(JSONResponse(body, status, headers=headers, media_type=_TYPE), self.cookies)


async def _parse_request(request: Request, service: SessionsService, model: type[Any]) -> tuple[int, Any]:
    """The id of the authenticated user, and the validated body."""
    if service.data.settings.check_content_type and content_type(request.headers) != "application/json":
        raise _ParseFailed("content-type")
    try:
        data = json.loads(await request.body(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _ParseFailed("not-json") from None
    try:
        body = model.model_validate(data)
    except ValidationError:
        raise _RequestFailed("bad-request") from None
    user_id = await _authenticate(Visit(request, service.site), service, body)
    if not body.SessionKey:
        raise _RequestFailed("bad-request")
    if len(body.SessionKey) > KEY_MAX - len(_USER):
        raise _RequestFailed("too-long")
    return user_id, body


async def _authenticate(visit: Visit, service: SessionsService, body: SessionsRequest) -> int:
    """The id of the user, from the API key or the login. Raises _RequestFailed, LimitReached or Refusal."""
    if body.ApiKey:
        return await _check_api_key(service.data, body.ApiKey, visit.address)
    if service.logged_in is not None:
        # Browsers send cookies with cross-site requests too (CSRF), so this request must come from our own page.
        visit.refuse_forged(body.Token or None)
        user_id = await service.logged_in(visit.request)
        if user_id is not None:
            return user_id
    raise _RequestFailed("unauthorized")


async def _check_api_key(data: SessionData, token: str, address: str) -> int:
    """The user of an API key. One round trip per store."""
    # An address over its limit is refused even with a valid key: the response does not confirm a guess.
    _, key = await in_one_turn(data.limit.refuse_reached("guesses", address), data.api_keys.of(token))
    if key is None:
        _security.info("sessiondata: unknown API key", extra={"event": "unknown-api-key", "client": address})
        await data.limit.count("guesses", address)
        raise _RequestFailed("unauthorized")
    await data.limit.count("requests", key.id)
    return key.user_id


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _locate(
    request: Request, service: SessionsService, user_id: int, body: SessionsRequest
) -> tuple[SessionArea | UserArea, str]:
    """The area that holds the value, and its key there."""
    if body.SavePerUser:
        return service.data.user(user_id), body.SessionKey
    session_id = body.SessionGuid
    if not session_id and _is_same_site(request, service):
        session_id = Visit(request, service.site).read(service.cookie) or ""
    return service.data.session(session_id), f"{_USER}{body.SessionKey}"


def _is_same_site(request: Request, service: SessionsService) -> bool:
    """Whether the session cookie is used. A page of another site can neither use it nor set it.

    Otherwise such a page, with its own API key, could write into a visitor's session, or replace it (session fixation).
    """
    return not is_cross_site(request.headers, (service.site.public_url,))


def _max_body_bytes(settings: SessionDataSettings) -> dict[str, int]:
    return dict.fromkeys(_PATHS, size_bytes(settings.value_max) * _ESCAPED_BYTES + _OVERHEAD_BYTES)


def session_data_kit(logged_in: LoggedIn | None = None) -> Kit:
    """The kit, for an application that authenticates its users: `KIT = session_data_kit(user_of)`.

    Logged-in users then need no API key. `logged_in` is called only for same-site requests.
    """
    return Kit(
        name="sessiondata",
        doc=message("Session data: values of a session until it ends, and durable values of a user."),
        keyspace=SessionDataKeys,
        settings=SessionDataSettings,
        router=router,
        service=partial(open_session_data, logged_in=logged_in),
        bodies=_max_body_bytes,
    )


KIT: Final = session_data_kit()
