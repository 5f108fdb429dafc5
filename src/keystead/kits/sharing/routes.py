"""The routes of the sharing kit. They translate HTTP, and decide nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from pydantic import BaseModel, Field, SecretStr
from starlette.requests import ClientDisconnect

from keystead.errors import BadArgument
from keystead.kits.kit import Example, Kit, service_of
from keystead.kits.refusal import Refusal
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.service import (
    MESSAGE_MAX,
    UPLOAD_S,
    Issued,
    Resolved,
    Sharing,
    SharingRefused,
    SharingSettings,
    Wanted,
    missing,
    open_sharing,
    told,
)
from keystead.kits.sharing.words import left_in_words, moment_in_words, size_in_words
from keystead.kits.visit import NO_STORE, Visit, too_often
from keystead.parts.blobs import BlobUnavailable
from keystead.parts.digest import same
from keystead.parts.limit import LimitReached
from keystead.parts.sizes import size_bytes
from keystead.schema.lifetime import duration_ms, in_words
from keystead.schema.times import moment

_UPLOAD: Final = "/api/receive/upload"
_DOWNLOAD: Final = "/api/receive/download"
_LIFETIMES: Final = ("1h", "1d", "3d", "7d", "14d")  # what the page offers, as far as links may live
_UPLOAD_OPTIONS: Final = frozenset(
    {"name", "purpose", "validUntil", "maxDownloads", "ownerOnly", "message", "format", "health"}
)
_CLEANUP_S: Final = 20  # a request may take 30 s
_PREFETCH: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
_FILE_POLICY: Final = "default-src 'none'; sandbox"

# What each refusal of the service is in HTTP.
STATUS: Final[Mapping[str, int]] = {
    "TOKEN_REQUIRED": 400,
    "TOKEN_NOT_FOUND": 404,
    "INVALID_FORMAT": 400,
    "INVALID_BYTES": 400,
    "INVALID_PAYLOAD": 400,
    "EXPIRED": 410,
    "HOST_NOT_ALLOWED": 403,
    "REVOKED": 410,
    "USED_UP": 410,
    "FILE_GONE": 410,
    "NOT_READY": 409,
    "PASSWORD_REQUIRED": 401,
    "PASSWORD_WRONG": 403,
    "TOO_MANY_GUESSES": 429,
    "BORN_EXPIRED": 400,
    "BAD_EXPIRY": 400,
    "BAD_NAME": 400,
    "BAD_LIMIT": 400,
    "BAD_PASSWORD": 400,
    "BAD_MESSAGE": 400,
    "BAD_THEME": 400,
    "PATH_TAKEN": 409,
    "NOT_ENDABLE": 409,
    "NOT_OWNER": 403,
    "EMPTY": 400,
    "TOO_LARGE": 413,
    "GONE": 410,
    "RANGE": 416,
    "TRY_AGAIN": 503,
    "STALLED": 408,
    # As edge-resolve calls some of them.
    "NOT_FOUND": 404,
    "KEY_REQUIRED": 400,
}


# --- what is sent and answered ---------------------------------------------------------------------------------


class Ok(BaseModel):
    ok: Literal[True] = True


class IssuedAnswer(Ok):
    token: str
    shortToken: str  # noqa: N815 - the document's names
    shareUrl: str  # noqa: N815
    exp: int
    id: str
    ownerKey: str  # noqa: N815


class UploadedAnswer(IssuedAnswer):
    fileName: str  # noqa: N815
    size: int


class RegisteredAnswer(Ok):
    key: str
    shareUrl: str  # noqa: N815
    expiresAt: str  # noqa: N815
    id: str
    ownerKey: str  # noqa: N815


class ResolvedAnswer(Ok):
    url: str
    name: str
    exp: int
    purpose: str


class EdgeAnswer(Ok):
    blobName: str  # noqa: N815
    downloadUrl: str  # noqa: N815
    displayName: str  # noqa: N815
    expiresAt: str  # noqa: N815
    message: str | None = None
    theme: str | None = None


class StatusAnswer(Ok):
    exp: int
    downloads: int
    maxDownloads: int | None  # noqa: N815
    ready: bool


class CsrfAnswer(Ok):
    token: str


class CleanedAnswer(Ok):
    now: str
    indexKey: str  # noqa: N815
    scanned: int
    deleted: int
    notFound: int  # noqa: N815
    missingMeta: int  # noqa: N815
    skipped: int
    errors: int
    more: bool = Field(description="Whether it ended before everything was looked at: call it again.")


class WantedBody(BaseModel):
    """What a link can be told to be."""

    purpose: str | None = None
    validUntil: int | str | None = Field(None, description="In ms since 1970, or as 2026-12-31T15:00:00Z.")  # noqa: N815
    maxDownloads: int | None = Field(None, description="1: a single download.")  # noqa: N815
    password: SecretStr | None = None
    ownerOnly: bool = Field(False, description="Whether only its owner can end it, and not everybody who has it.")  # noqa: N815
    csrf: str | None = Field(None, description="The token of /api/blob/csrf, for pages; not needed.")

    def wanted(self, **more: str | None) -> Wanted:
        return Wanted(
            valid_until=self.validUntil,
            purpose=self.purpose,
            max_downloads=self.maxDownloads,
            password=None if self.password is None else self.password.get_secret_value(),
            owner_only=self.ownerOnly,
            **more,
        )


class TokenBody(WantedBody):
    url: str | None = None
    name: str | None = None


class EdgeBody(WantedBody):
    pathname: str | None = None
    downloadUrl: str | None = None  # noqa: N815
    ownerDiscordId: str | None = None  # noqa: N815
    userId: str | None = None  # noqa: N815
    receiverName: str | None = None  # noqa: N815
    displayName: str | None = None  # noqa: N815
    message: str | None = None
    theme: str | None = None


class DeleteBody(BaseModel):
    token: str | None = None
    id: str | None = None
    ownerKey: SecretStr | None = None  # noqa: N815
    csrf: str | None = None


class StatusBody(BaseModel):
    id: str
    ownerKey: SecretStr  # noqa: N815


# --- the request -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _refusals(renamed: Mapping[str, str] | None = None) -> AsyncIterator[None]:
    """Turns what the service refuses into what the server answers."""
    try:
        yield
    except SharingRefused as refused:
        more = dict(refused.more)
        wait = more.get("retryAfter") or (1 if refused.reason == "TRY_AGAIN" else None)
        headers = NO_STORE | ({"retry-after": str(wait)} if wait else {})
        if refused.reason == "RANGE":
            headers["content-range"] = f"bytes */{more.pop('size')}"
        code = (renamed or {}).get(refused.reason, refused.reason)
        raise Refusal(STATUS[code], code, str(refused), headers=headers, more=more) from None
    except LimitReached as reached:
        raise too_often(reached) from None
    except BlobUnavailable:
        sentence = "the place where files are kept cannot be reached just now; try again in a moment"
        raise Refusal(503, "FILES_UNAVAILABLE", sentence, headers=NO_STORE | {"retry-after": "5"}) from None
    except BadArgument as error:
        raise Refusal(400, "BAD_PATH", str(error), headers=NO_STORE) from None


class SharingVisit(Visit):
    """A request to the sharing kit."""

    def __init__(self, request: Request, sharing: Annotated[Sharing, Depends(service_of("sharing"))]) -> None:
        super().__init__(request, sharing.site)
        self.sharing = sharing

    async def count(self, name: str) -> None:
        await self.sharing.limit.count(name, self.address)

    @property
    def bearer(self) -> str | None:
        """The secret of an Authorization header, with or without `Bearer`."""
        given = self.request.headers.get("authorization", "")
        return re.sub(r"(?i)^bearer\s+", "", given).strip() or None

    async def issuer(self, csrf: str | None = None) -> str:
        """Who issues a link. Raises Refusal where they may not, which is noted."""
        key = self.sharing.settings.issue_key
        if key is not None:
            if self.bearer is None or not same(self.bearer, key.get_secret_value()):
                await self.sharing.note_stranger("issue", self.address)
                raise _unauthorized("issuing links takes the issue key, as Authorization: Bearer …")
            return "issuer"
        # Nothing is let through by a cookie here, so a request that no page of another site makes is let through.
        self.refuse_other_origins()
        if csrf is not None:
            self.refuse_foreign(csrf)
        return "visitor"

    @property
    def is_looking(self) -> bool:
        """Whether nobody really asked for it: HEAD asks what would be answered."""
        return bool(self.request.scope.get("keystead.head"))

    def refuse_prefetch(self) -> None:
        """A browser or a messenger that fetches what nobody has clicked must not use a link up."""
        if any("prefetch" in self.request.headers.get(name, "").lower() for name in _PREFETCH):
            raise Refusal(403, "NO_PREFETCH", "links are not opened before somebody asks for it", headers=NO_STORE)

    def share_url(self, short: str, name: str = "t") -> str:
        return f"{self.site.public_url}/receive?{urlencode({name: short})}"

    def download_url(self, resolved: Resolved) -> str:
        if resolved.ticket is None:
            return resolved.url or ""
        return f"{self.site.public_url}/api/receive/download?{urlencode({'ticket': resolved.ticket})}"

    def issued(self, issued: Issued) -> dict[str, Any]:
        return {
            "token": issued.token,
            "shortToken": issued.short_token,
            "shareUrl": self.share_url(issued.short_token),
            "exp": issued.expires_ms,
            "id": issued.id,
            "ownerKey": issued.owner_key,
        }


Visiting = Annotated[SharingVisit, Depends()]
TokenQuery = Annotated[str | None, Query(description="The token of the link, short or long.")]


def _unauthorized(sentence: str) -> Refusal:
    return Refusal(401, "UNAUTHORIZED", sentence, headers=NO_STORE | {"www-authenticate": "Bearer"})


def _secret(given: SecretStr | None) -> str | None:
    return None if given is None else given.get_secret_value()


# --- the routes ------------------------------------------------------------------------------------------------

_FILE: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_RESOLVE_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {
                "schema": {"type": "object", "properties": {"t": {"type": "string"}, "password": {"type": "string"}}}
            }
            for kind in ("application/json", "application/x-www-form-urlencoded")
        },
    }
}


_REFUSED_FORM: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": "Something is wrong: JSON for programs, and for a form the page again.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}},
            "text/html": {"schema": {"type": "string"}},
        },
    }
    for status in ("4XX", "5XX")
}


def router() -> APIRouter:
    """All routes of the kit."""
    routes = APIRouter(tags=["sharing"])
    add = routes.add_api_route
    add("/receive", _receive_page, methods=["GET"], include_in_schema=False)
    add("/share", _share_page, methods=["GET"], include_in_schema=False)
    add("/api/blob/csrf", _csrf, methods=["GET"], response_model=CsrfAnswer, summary="A token for pages")
    add("/api/receive/token", _token, methods=["POST"], response_model=IssuedAnswer, summary="Issue a link to a URL")
    add(
        _UPLOAD,
        _upload,
        methods=["POST"],
        response_model=UploadedAnswer,
        summary="Upload a file, and get a link to it",
        openapi_extra=_FILE,
    )
    add(_UPLOAD, _upload, methods=["PUT"], include_in_schema=False)  # for `curl -T`
    add(
        "/api/receive/resolve",
        _resolve,
        methods=["GET"],
        response_model=ResolvedAnswer,
        responses={302: {"description": "To the file, with redirect=1."}},
        operation_id="resolve",
        summary="Where a link leads",
    )
    add(
        "/api/receive/resolve",
        _resolve_post,
        methods=["POST"],
        response_model=ResolvedAnswer,
        responses={
            200: {"content": {"text/html": {"schema": {"type": "string"}}}},
            303: {"description": "To the file: for a form, where it is kept here; else with redirect=1."},
            **_REFUSED_FORM,
        },
        operation_id="resolve_with_password",
        summary="Where a link leads, with a password",
        openapi_extra=_RESOLVE_BODY,
    )
    add(_DOWNLOAD, _download, methods=["GET"], summary="The file of a ticket", response_class=Response)
    add(
        "/api/receive/edge-resolve",
        _edge,
        methods=["GET"],
        response_model=EdgeAnswer,
        operation_id="edge_resolve",
        summary="Where a registered upload is",
    )
    add(
        "/api/receive/edge-resolve",
        _register,
        methods=["POST"],
        response_model=RegisteredAnswer,
        operation_id="edge_register",
        summary="Register an upload, which is deleted when it expires",
    )
    add("/api/receive/delete", _delete, methods=["POST"], response_model=Ok, summary="End a link, and delete its file")
    add(
        "/api/receive/status",
        _status,
        methods=["POST"],
        response_model=StatusAnswer,
        summary="How often a link was used, for its owner",
    )
    for method in ("GET", "POST"):
        add(
            "/api/cron/receive-cleanup",
            _clean_up,
            methods=[method],
            response_model=CleanedAnswer,
            operation_id=f"clean_up_{method.lower()}",
            summary="Delete files whose links have expired",
        )
    return routes


async def _receive_page(visit: Visiting, t: TokenQuery = None, key: TokenQuery = None) -> Response:
    """What a receiver opens. It looks, and uses nothing up: the button does."""
    return await _show(visit, _token_in(t or key))


def _token_in(text: str | None) -> str | None:
    """The token that is in a link, where somebody has pasted the whole of it; any other text as it is."""
    if not text or "?" not in text:
        return text and text.strip()
    try:
        asked = parse_qs(text.strip().partition("?")[2].partition("#")[0], max_num_fields=50)
    except ValueError:  # too many fields
        return text
    return next((asked[name][0] for name in ("t", "key") if name in asked), text)


async def _show(visit: SharingVisit, token: str | None, refusal: Refusal | None = None) -> Response:
    """The page of a link, or the page that says why there is none; with a refusal, what went wrong with the form."""
    asks_again = refusal is not None and refusal.code in ("PASSWORD_WRONG", "PASSWORD_REQUIRED")
    if refusal is not None and not asks_again:
        return _refused(visit, token, refusal)
    try:
        async with _refusals():
            await visit.count("page")
            shown = await visit.sharing.look(token)
    except Refusal as refused:
        return _refused(visit, token, refused)
    if shown.downloads_left == 0:
        return _refused(visit, token, Refusal(410, "USED_UP", "this link was used as often as it may be"))
    now_ms, expires_at = visit.site.now_ms(), moment(shown.expires_ms)
    return visit.page(
        "sharing/receive.html",
        status=200 if refusal is None else refusal.status,
        scripts=True,
        token=token,
        shown=shown,
        size=None if shown.size is None else size_in_words(shown.size),
        now_ms=now_ms,
        left=left_in_words(shown.expires_ms - now_ms),
        expires=moment_in_words(expires_at),
        expires_at=expires_at,
        wrong=None if refusal is None else _WRONG[refusal.code],
    )


_WRONG: Final = {
    "PASSWORD_WRONG": "This is not the password. Capitals count, and so do spaces.",
    "PASSWORD_REQUIRED": "This link asks for a password.",
}


def _refused(visit: SharingVisit, token: str | None, refusal: Refusal) -> Response:
    """The page that says why a link does not open, and what to do."""
    exp = refusal.more.get("exp")
    expired_at = moment(exp) if isinstance(exp, int) else None
    response = visit.page(
        "sharing/refused.html",
        status=refusal.status,
        scripts=expired_at is not None,
        token=token,
        code=refusal.code,
        sentence=refusal.sentence,
        expired_at=expired_at,
        expired=expired_at and moment_in_words(expired_at),
    )
    response.headers.update(refusal.headers)
    return response


async def _share_page(visit: Visiting) -> Response:
    """Where a file is uploaded, and its link copied."""
    if visit.home is not None:
        return visit.goes_on(visit.home)
    settings = visit.sharing.settings
    most, max_bytes = settings.max_ttl_ms, size_bytes(settings.max_upload)
    offered = {settings.ttl_ms, most, *(ms for ms in map(duration_ms, _LIFETIMES) if ms <= most)}
    return visit.page(
        "sharing/share.html",
        scripts=True,
        needs_key=settings.issue_key is not None,
        max_upload=size_in_words(max_bytes),
        max_upload_bytes=max_bytes,
        message_max=MESSAGE_MAX,
        lifetimes=[(ms, in_words(ms)) for ms in sorted(offered)],
        default_ms=settings.ttl_ms,
        now_ms=visit.site.now_ms(),
        upload_url=f"{visit.site.public_url}{_UPLOAD}",
    )


async def _csrf(visit: Visiting) -> Response:
    """The same value comes as a cookie; send it back as `csrf` in the body."""
    async with _refusals():
        await visit.count("csrf")
    token = visit.csrf_token()
    return visit.answer(CsrfAnswer(token=token), visit.csrf.set(token))


async def _token(visit: Visiting, body: TokenBody) -> Response:
    """A link to a file elsewhere, on one of the allowed hosts."""
    async with _refusals():
        await visit.count("token")
        who = await visit.issuer(body.csrf)
        if not body.url:
            raise Refusal(400, "URL_REQUIRED", "url says where the link leads", headers=NO_STORE)
        issued = await visit.sharing.issue(body.url, body.name, body.wanted(), who=who, where=visit.address)
    return visit.answer(IssuedAnswer(**visit.issued(issued)))


async def _upload(
    visit: Visiting,
    name: Annotated[str | None, Query(max_length=1000, description="The name of the file.")] = None,
    purpose: Annotated[str | None, Query()] = None,
    validUntil: Annotated[str | None, Query(description="In ms since 1970, or as 2026-12-31T15:00:00Z.")] = None,  # noqa: N803
    maxDownloads: Annotated[int | None, Query(description="1: a single download.")] = None,  # noqa: N803
    ownerOnly: Annotated[bool, Query(description="Whether only its owner can end it.")] = False,  # noqa: N803
    message: Annotated[str | None, Query(description="A line for the receiver.")] = None,
) -> Response:
    """The body is the file itself. A password comes in the header `x-link-password`, percent-encoded."""
    _refuse_other_forms(visit.request)
    async with _refusals():
        await visit.count("upload")
        who = await visit.issuer()
        # A file may take its time; other requests may not.
        visit.request.state.time_limit.reschedule(asyncio.get_running_loop().time() + UPLOAD_S)
        wanted = Wanted(
            valid_until=validUntil,
            purpose=purpose,
            max_downloads=maxDownloads,
            password=_unquoted(visit.request.headers.get("x-link-password")),
            owner_only=ownerOnly,
            message=message,
        )
        try:
            issued = await visit.sharing.upload(visit.request.stream(), name, wanted, who=who, where=visit.address)
        except ClientDisconnect:  # nobody is there to be answered
            raise Refusal(400, "BROKEN_OFF", "the upload broke off", headers=NO_STORE) from None
    answer = UploadedAnswer(**visit.issued(issued), fileName=issued.name, size=issued.size or 0)
    return visit.answer(answer)


def _refuse_other_forms(request: Request) -> None:
    """A misspelt option would make a link that is open to all; a form would be kept with its borders."""
    unknown = sorted(set(request.query_params) - _UPLOAD_OPTIONS)
    if unknown:
        said = f"{unknown[0][:40]!r} is no option of an upload; there are {', '.join(sorted(_UPLOAD_OPTIONS))}, "
        raise Refusal(400, "UNKNOWN_OPTION", f"{said}and a password in the header x-link-password", headers=NO_STORE)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        sentence = "the body is the file itself, and no form: write curl --data-binary @file instead of -F"
        raise Refusal(415, "NOT_A_FILE", sentence, headers=NO_STORE)
    if not request.headers.get("x-link-password", "").isascii():
        sentence = "percent-encode the password in x-link-password, as UTF-8: p%C3%A4ss"
        raise Refusal(400, "BAD_PASSWORD", sentence, headers=NO_STORE)


def _unquoted(header: str | None) -> str | None:
    return None if header is None else unquote(header)


async def _resolve(visit: Visiting, t: TokenQuery = None, redirect: Annotated[str | None, Query()] = None) -> Response:
    """Where a link leads. Each call counts as a download, so a link for one download is used up; HEAD only looks."""
    async with _refusals():
        await visit.count("resolve")
        if visit.is_looking:
            await visit.sharing.look(t)
            return Response(status_code=200, headers=NO_STORE)
        visit.refuse_prefetch()
        resolved = await visit.sharing.resolve(t, where=visit.address)
    return _led(visit, resolved, 302 if redirect == "1" else None)


async def _resolve_post(visit: Visiting, redirect: Annotated[str | None, Query()] = None) -> Response:
    """The same, with a password; as JSON, or as the form of the page."""
    fields = await visit.fields()
    token, password = (value if isinstance(value, str) else None for value in (fields.get("t"), fields.get("password")))
    token = token or visit.request.query_params.get("t")
    try:
        async with _refusals():
            await visit.count("resolve")
            resolved = await visit.sharing.resolve(token, password=password, where=visit.address)
    except Refusal as refusal:
        if not visit.is_form:
            raise
        return await _show(visit, token, refusal)
    if visit.is_form and redirect != "1":
        return _started(visit, resolved)
    return _led(visit, resolved, 303 if redirect == "1" else None)


def _started(visit: SharingVisit, resolved: Resolved) -> Response:
    """What the form of the page leads to. The policy of the page lets its form lead to this site only, also by way of a
    redirect: to a file elsewhere a page of its own goes on, which is no form, and has no such bound.
    """
    if resolved.ticket is not None:
        # Without a host: the page may be open under another name of this site.
        return visit.goes_on(f"{_DOWNLOAD}?{urlencode({'ticket': resolved.ticket})}")
    url = resolved.url or ""
    return visit.page("sharing/started.html", name=resolved.display_name, url=url, host=urlsplit(url).netloc)


def _led(visit: SharingVisit, resolved: Resolved, redirect: int | None) -> Response:
    url = visit.download_url(resolved)
    if redirect is not None:
        return RedirectResponse(url, redirect, headers=NO_STORE)
    answer = ResolvedAnswer(url=url, name=resolved.name, exp=resolved.expires_ms, purpose=resolved.purpose)
    return visit.answer(answer)


async def _download(visit: Visiting, ticket: Annotated[str, Query(max_length=64)]) -> Response:
    """The file itself, or the part of it that the header Range asks for."""
    start, end = _asked_range(visit.request.headers.get("range"))
    only_of = visit.request.headers.get("if-range")
    async with _refusals():
        await visit.count("download")
        found = await visit.sharing.download(
            ticket,
            start=start,
            end=end,
            only_of=None if only_of is None else only_of.strip('"'),
            looking=visit.is_looking,
        )
    visit.request.state.time_limit.reschedule(None)
    ascii_name = found.name.encode("ascii", "replace").decode().replace("?", "_")
    headers = {
        "content-length": str(found.length),
        "accept-ranges": "bytes",
        "etag": f'"{found.tag}"',
        "content-disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(found.name, safe='')}",
        "content-security-policy": _FILE_POLICY,
        "cache-control": "private, no-store",
    }
    if found.is_part:
        headers["content-range"] = f"bytes {found.start}-{found.start + found.length - 1}/{found.size}"
    return StreamingResponse(found.body, 206 if found.is_part else 200, headers, media_type="application/octet-stream")


def _asked_range(header: str | None) -> tuple[int | None, int | None]:
    """One range of bytes; several, and what is none, count as none, as HTTP allows."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (header or "").replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None, None
    return (int(found[1]) if found[1] else None), (int(found[2]) if found[2] else None)


_EDGE_CODES: Final = {"TOKEN_NOT_FOUND": "NOT_FOUND", "REVOKED": "NOT_FOUND", "TOKEN_REQUIRED": "KEY_REQUIRED"}


async def _edge(visit: Visiting, key: TokenQuery = None) -> Response:
    """The same as resolve, in the form of the document's second plan."""
    async with _refusals(_EDGE_CODES):
        await visit.count("resolve")
        if visit.is_looking:
            await visit.sharing.look(key)
            return Response(status_code=200, headers=NO_STORE)
        visit.refuse_prefetch()
        resolved = await visit.sharing.resolve(key, where=visit.address)
    answer = EdgeAnswer(
        blobName=resolved.name,
        downloadUrl=visit.download_url(resolved),
        displayName=resolved.display_name,
        expiresAt=_iso(moment(resolved.expires_ms)),
        message=resolved.message,
        theme=resolved.theme,
    )
    return visit.answer(answer)


async def _register(visit: Visiting, body: EdgeBody) -> Response:
    """For files that somebody else put to where files are kept. They are deleted when the link expires, so this takes
    an issue key in production, also where anybody may issue links.
    """
    async with _refusals():
        await visit.count("token")
        who = await visit.issuer(body.csrf)
        if who == "visitor" and not visit.site.development:
            await visit.sharing.note_stranger("issue", visit.address)
            raise _unauthorized("registering a file takes an issue key (RECEIVE_ISSUE_KEY), which is not set here")
        if not body.pathname or not body.downloadUrl:
            raise Refusal(400, "PATH_REQUIRED", "pathname and downloadUrl say which file it is", headers=NO_STORE)
        wanted = body.wanted(display_name=body.displayName, message=body.message, theme=body.theme)
        issued = await visit.sharing.register(
            body.pathname, body.downloadUrl, body.displayName, wanted, who=who, where=visit.address
        )
    answer = RegisteredAnswer(
        key=issued.short_token,
        shareUrl=visit.share_url(issued.short_token, "key"),
        expiresAt=_iso(moment(issued.expires_ms)),
        id=issued.id,
        ownerKey=issued.owner_key,
    )
    return visit.answer(answer)


async def _delete(visit: Visiting, body: DeleteBody | None = None, t: TokenQuery = None) -> Response:
    """By the link itself, or by its id and the owner's key."""
    body = body or DeleteBody()
    async with _refusals():
        await visit.count("delete")
        visit.refuse_other_origins()
        if body.csrf is not None:
            visit.refuse_foreign(body.csrf)
        await visit.sharing.end(body.token or t, id=body.id, owner_key=_secret(body.ownerKey), where=visit.address)
    return visit.answer(Ok())


async def _status(visit: Visiting, body: StatusBody) -> Response:
    async with _refusals():
        await visit.count("resolve")
        status = await visit.sharing.status(body.id, _secret(body.ownerKey))
    answer = StatusAnswer(
        exp=status.expires_ms, downloads=status.downloads, maxDownloads=status.max_downloads, ready=status.ready
    )
    return visit.answer(answer)


async def _clean_up(visit: Visiting, limit: Annotated[int | None, Query(ge=1, le=10_000)] = None) -> Response:
    """It runs by itself once a day; this is for whoever cannot wait. Any number of calls at once do no harm."""
    settings = visit.sharing.settings
    secret, bearer = settings.cleanup_secret, visit.bearer
    is_known = secret is not None and bearer is not None and same(bearer, secret.get_secret_value())
    if not is_known and not (settings.trust_vercel_cron and "x-vercel-cron" in visit.request.headers):
        async with _refusals():
            await visit.count("cleanup")
        await visit.sharing.note_stranger("clean-up", visit.address)
        raise _unauthorized("the clean-up takes its secret (RECEIVE_CLEANUP_SECRET), as Authorization: Bearer …")
    began = asyncio.get_running_loop().time()
    async with _refusals():
        counts = await visit.sharing.clean_up.run(
            limit, stop=lambda: asyncio.get_running_loop().time() - began > _CLEANUP_S
        )
    answer = CleanedAnswer(
        now=_iso(moment(visit.site.now_ms())),
        indexKey=visit.sharing.keys.index().key,
        more=counts.more,
        **told(counts),
    )
    return visit.answer(answer)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


KIT: Final = Kit(
    name="sharing",
    doc="Links that lead to a file until they expire, and the clean-up of the files.",
    keyspace=SharingKeys,
    settings=SharingSettings,
    router=router,
    service=open_sharing,
    environment={
        "RECEIVE_TOKEN_KEY": "token_keys",
        "RECEIVE_CLEANUP_SECRET": "cleanup_secret",
        "RECEIVE_CLEANUP_BATCH_LIMIT": "cleanup_batch",
        "RECEIVE_ISSUE_KEY": "issue_key",
        "ALLOWED_DOWNLOAD_HOST_SUFFIXES": "allowed_hosts",
    },
    missing=missing,
    examples=(
        Example("Share a file", "/share", "Upload a file, get a link, send it to somebody."),
        Example("Is the clean-up there?", "/api/cron/receive-cleanup?health=1", "As JSON."),
    ),
    jobs=lambda sharing: sharing.jobs,
    bodies=lambda settings: {_UPLOAD: size_bytes(settings.max_upload)},
)
