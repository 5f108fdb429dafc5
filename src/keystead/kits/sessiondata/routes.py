"""The Sessions API: session data over HTTP, for programs with an API key and for users who are logged in."""

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

from keystead.errors import BadValue, StoreError, Unreadable
from keystead.http.accept import content_type
from keystead.http.cookies import Cookie
from keystead.http.csrf import is_cross_site
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import with_cookies
from keystead.kits.kit import Kit, Site, service_of
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
from keystead.kits.sessiondata.words import said
from keystead.kits.visit import Visit
from keystead.parts.limit import LimitReached
from keystead.parts.sizes import size_bytes
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.unreadable import log_unreadable

_security = logging.getLogger("keystead.security")

_PATHS: Final = ("/api/Sessions/Get", "/api/Sessions/Set", "/api/Sessions/Delete")
_TYPE: Final = "application/json;charset=utf-8"
_USER: Final = "User_"  # what stands before the key of a client, so that it meets no key of the application
_ESCAPED: Final = 6  # bytes of JSON that one byte of a value can take: \u0000
_BESIDE: Final = 16_384  # bytes for all that a body holds beside the value

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

# Who is logged in, by the cookies of a request; None: nobody.
LoggedIn: TypeAlias = Callable[[Request], Awaitable[int | None]]


class Asked(BaseModel):
    """The body of a request. What others of this API know beside it is let be."""

    model_config = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)

    ApiVersion: float = Field(
        1.1, gt=0, allow_inf_nan=False, description="The version of the API that the client speaks."
    )
    ApiKey: str = Field(
        "", description="The API key, as `keystead apikeys issue` shows it. A user who is signed in needs none."
    )
    Token: str = Field("", description="Without an API key: a CSRF token, where no Origin says whose page asks.")
    SessionKey: str = Field("", description="The name of the value. It must not be empty.")
    SavePerUser: bool = Field(False, description="Kept for the user of the key, for good; otherwise for the session.")
    SessionGuid: str = Field("", description="The session, as `Set` told it; without it, it is that of the cookie.")

    @model_validator(mode="before")
    @classmethod
    def _null_is_nothing(cls, given: Any) -> Any:
        """What is null is as good as left out."""
        return {name: one for name, one in given.items() if one is not None} if isinstance(given, dict) else given


class AskedToSet(Asked):
    SessionValue: str = Field("", description="The value. It must not be empty.")


class Told(BaseModel):
    """What was asked for. `SessionGuid` is there where this request began a session."""

    UserId: int
    Key: str
    Value: str | None = None
    SessionGuid: str | None = None


class Answer(BaseModel):
    StatusCode: int = 200
    Response: Told


class Wrong(BaseModel):
    """Something is wrong; `Message` says what, in English, Japanese or Korean by `Accept-Language`."""

    Id: int = 0
    StatusCode: int
    Message: str


class NotUnderstood(BaseModel):
    """The body is no JSON, or does not say that it is."""

    Message: str


class _Refused(Exception):
    def __init__(self, what: str) -> None:
        self.what = what


class _NotRead(_Refused):
    """Refused before anything of it was understood: the answer has a message only."""


class InAnyCase(APIRoute):
    """A route whose path may be written in any mixture of capitals and small letters."""

    def __init__(self, path: str, *given: Any, **options: Any) -> None:
        super().__init__(path, *given, **options)
        self.path_regex = re.compile(self.path_regex.pattern, re.IGNORECASE | re.ASCII)  # for who asks what is there

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        asked, own = scope.get("path", ""), self.path
        if asked.lower().endswith(own.lower()):
            scope = {**scope, "path": asked[: -len(own)] + own}
        return super().matches(scope)


class Open:
    """What answers the routes."""

    def __init__(self, data: SessionData, site: Site, logged_in: LoggedIn | None = None) -> None:
        self.data = data
        self.site = site
        self.logged_in = logged_in
        self.cookie = Cookie("sessionguid", site.secure)


Opened = Annotated[Open, Depends(service_of("sessiondata"))]


@asynccontextmanager
async def open_session_data(
    keys: SessionDataKeys, settings: SessionDataSettings, site: Site, logged_in: LoggedIn | None = None
) -> AsyncIterator[Open]:
    yield Open(SessionData(keys, settings), site, logged_in)


def router() -> APIRouter:
    """All routes of the kit."""
    routes = APIRouter(tags=["sessiondata"], route_class=InAnyCase)
    shapes: dict[int | str, dict[str, Any]] = {status: {"model": Wrong} for status in STATUS.values()}
    shapes[400] = {"model": Wrong | NotUnderstood}
    for path, route, summary, body in (
        (_PATHS[0], _get, "Read a value", Asked),
        (_PATHS[1], _set, "Write a value", AskedToSet),
        (_PATHS[2], _delete, "Remove a value", Asked),
    ):
        routes.add_api_route(
            path,
            route,
            methods=["POST"],
            response_model=Answer,
            responses=shapes,
            summary=summary,
            openapi_extra={
                "requestBody": {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}
            },
        )
    return routes


async def _get(request: Request, opened: Opened) -> Response:
    async with _Responding(request) as responding:
        user_id, asked = await _read(request, opened, Asked)
        area, key = _place(request, opened, user_id, asked)
        value = await area.get(key)
        if value is None:
            raise _Refused("not-found")
        responding.told = Told(UserId=user_id, Key=asked.SessionKey, Value=value)
    return responding.response


async def _set(request: Request, opened: Opened) -> Response:
    async with _Responding(request) as responding:
        user_id, asked = await _read(request, opened, AskedToSet)
        if not asked.SessionValue:
            raise _Refused("bad-request")
        begun = None
        area, key = _place(request, opened, user_id, asked)
        if isinstance(area, UserArea):
            await area.set(key, asked.SessionValue)
        elif not await area.set(key, asked.SessionValue):
            # There is no such session: the client gets one, under an id that it did not choose, in one step with the
            # value. So nothing can come between, and where the store fails there is no session without a value.
            begun = await opened.data.begin({key: asked.SessionValue})
            if _is_same_site(request, opened):
                responding.cookies.append(opened.cookie.set(begun))
        responding.told = Told(UserId=user_id, Key=asked.SessionKey, SessionGuid=begun)
    return responding.response


async def _delete(request: Request, opened: Opened) -> Response:
    async with _Responding(request) as responding:
        user_id, asked = await _read(request, opened, Asked)
        area, key = _place(request, opened, user_id, asked)
        if not await area.remove(key):
            raise _Refused("not-found")
        responding.told = Told(UserId=user_id, Key=asked.SessionKey)
    return responding.response


class _Responding:
    """Makes the answer of what a block says, or of what went wrong in it."""

    def __init__(self, request: Request) -> None:
        self._language = request.headers.get("accept-language", "")
        self.cookies: list[str] = []
        self.told: Told | None = None
        self.response: Response = Response(status_code=500)

    async def __aenter__(self) -> _Responding:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        match error:
            case None:
                body = Answer(Response=self.told) if self.told is not None else None
                self._respond(200, {} if body is None else body.model_dump(exclude_none=True))
            case _NotRead():
                self._respond(400, NotUnderstood(Message=said(error.what, self._language)).model_dump())
            case _Refused():
                self._wrong(error.what)
            case LimitReached():
                self._wrong("too-often", {"retry-after": str(error.retry_after_s)})
            case Refusal():  # of a page of another site
                self._wrong("foreign")
            case TooLong():
                self._wrong("too-long")
            case TooMany():
                self._wrong("too-many")
            case BadValue():
                self._wrong("bad-request")
            case Unreadable():
                log_unreadable(None, error)
                self._wrong("unreadable")
            case StoreError():
                self._wrong("store")
            case _:
                return False
        return True

    def _wrong(self, what: str, headers: Mapping[str, str] | None = None) -> None:
        wrong = Wrong(StatusCode=STATUS[what], Message=said(what, self._language))
        self._respond(wrong.StatusCode, wrong.model_dump(), headers)

    def _respond(self, status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        headers = NO_STORE | {"vary": "accept-language"} | dict(headers or {})
        self.response = with_cookies(JSONResponse(body, status, headers=headers, media_type=_TYPE), self.cookies)


async def _read(request: Request, opened: Open, model: type[Any]) -> tuple[int, Any]:
    """Who asks, and for what."""
    if opened.data.settings.check_content_type and content_type(request.headers) != "application/json":
        raise _NotRead("content-type")
    try:
        body = json.loads(await request.body(), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _NotRead("not-json") from None
    try:
        asked = model.model_validate(body)
    except ValidationError:
        raise _Refused("bad-request") from None
    user_id = await _who(Visit(request, opened.site), opened, asked)
    if not asked.SessionKey:
        raise _Refused("bad-request")
    if len(asked.SessionKey) > KEY_MAX - len(_USER):
        raise _Refused("too-long")
    return user_id, asked


async def _who(visit: Visit, opened: Open, asked: Asked) -> int:
    """Who asks: by an API key, or by being logged in. Raises what is said to anybody else."""
    if asked.ApiKey:
        return await _by_key(opened.data, asked.ApiKey, visit.address)
    if opened.logged_in is not None:
        # A browser sends its cookies along whoever made the request, so this one must be of a page of this site.
        visit.refuse_forged(asked.Token or None)
        user_id = await opened.logged_in(visit.request)
        if user_id is not None:
            return user_id
    raise _Refused("unauthorized")


async def _by_key(data: SessionData, token: str, address: str) -> int:
    """The user of an API key. One round trip a store."""
    # Both are asked at the same time. Who has guessed too often is told so, whether this guess is right or not.
    _, key = await in_one_turn(data.limit.refuse_reached("guesses", address), data.api_keys.of(token))
    if key is None:
        _security.info("sessiondata: an API key that is none", extra={"event": "unknown-api-key", "client": address})
        await data.limit.count("guesses", address)
        raise _Refused("unauthorized")
    await data.limit.count("requests", key.id)
    return key.user_id


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _place(request: Request, opened: Open, user_id: int, asked: Asked) -> tuple[SessionArea | UserArea, str]:
    """Where the value is, and its key there."""
    if asked.SavePerUser:
        return opened.data.user(user_id), asked.SessionKey
    session_id = asked.SessionGuid
    if not session_id and _is_same_site(request, opened):
        session_id = Visit(request, opened.site).read(opened.cookie) or ""
    return opened.data.session(session_id), f"{_USER}{asked.SessionKey}"


def _is_same_site(request: Request, opened: Open) -> bool:
    """Whether the cookie of the session counts: a page of another site neither uses that of its visitor nor sets one.

    With an API key of its own, it could otherwise write into the session of a visitor, or put another in its place.
    """
    return not is_cross_site(request.headers, (opened.site.public_url,))


def _bodies(settings: SessionDataSettings) -> dict[str, int]:
    return dict.fromkeys(_PATHS, size_bytes(settings.value_max) * _ESCAPED + _BESIDE)


def session_data_kit(logged_in: LoggedIn | None = None) -> Kit:
    """The kit, for an application that knows who is logged in: `KIT = session_data_kit(user_of)`.

    Its users need no API key then. `logged_in` is asked only about requests that pages of this site make.
    """
    return Kit(
        name="sessiondata",
        doc="What an application remembers of a session until it ends, and of a user for good.",
        keyspace=SessionDataKeys,
        settings=SessionDataSettings,
        router=router,
        service=partial(open_session_data, logged_in=logged_in),
        bodies=_bodies,
    )


KIT: Final = session_data_kit()
