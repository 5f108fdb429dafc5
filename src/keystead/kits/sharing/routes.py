"""The routes of the sharing kit. They translate HTTP, and decide nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from pydantic import Field, SecretStr
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from keystead.errors import BadArgument
from keystead.http.accept import content_type
from keystead.http.bearer import www_authenticate
from keystead.http.rate_limits import too_many_requests
from keystead.http.refusals import NO_STORE, Refusal, statuses
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter, translated
from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.identity import sign_in_of
from keystead.kits.kit import Example, Kit, service_of
from keystead.kits.language import Speaker
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.messages import MESSAGES, SCRIPT
from keystead.kits.sharing.service import (
    MESSAGE_MAX,
    RECEIVER_MAX,
    UPLOAD_S,
    FilesElsewhere,
    Issued,
    Range,
    Resolved,
    Sharing,
    SharingRefused,
    SharingSettings,
    User,
    Wanted,
    missing,
    open_sharing,
    told,
)
from keystead.kits.sharing.words import left_in_words, moment_in_words, size_in_words
from keystead.kits.signed_in import not_signed_in, signed_in
from keystead.kits.visit import CsrfAnswer, Ok, Visit
from keystead.parts.blobs import BlobUnavailable
from keystead.parts.digest import same
from keystead.parts.limit import LimitReached
from keystead.parts.sizes import size_bytes
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import moment

_UPLOAD: Final = "/api/receive/upload"
_DOWNLOAD: Final = "/api/receive/download"
_LINKS_PAGE: Final = "/share/links"
_EXTENDED_LEAST_MS: Final = 600_000  # what the page offers is worth a click
_LIFETIMES: Final = ("1h", "1d", "3d", "7d", "14d")  # what the page offers, as far as links may live
_UPLOAD_OPTIONS: Final = frozenset(
    {
        *("name", "purpose", "validUntil", "maxDownloads", "ownerOnly", "message", "receiverName", "theme"),
        *("format", "health"),
    }
)
_CLEANUP_S: Final = 20  # a request may take 30 s
_PREFETCH: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
_FILE_POLICY: Final = "default-src 'none'; sandbox"

# What each refusal of the service is in HTTP.
STATUS: Final = statuses(
    {
        400: (
            "TOKEN_REQUIRED INVALID_FORMAT INVALID_BYTES INVALID_PAYLOAD BORN_EXPIRED BAD_EXPIRY BAD_NAME "
            "BAD_LIMIT BAD_PASSWORD BAD_MESSAGE BAD_THEME BAD_RECEIVER EMPTY KEY_REQUIRED"
        ),
        401: "PASSWORD_REQUIRED",
        403: "HOST_NOT_ALLOWED PASSWORD_WRONG NOT_OWNER",
        404: "TOKEN_NOT_FOUND NOT_FOUND",
        408: "STALLED",
        409: "NOT_READY PATH_TAKEN NOT_ENDABLE",
        410: "EXPIRED REVOKED USED_UP FILE_GONE GONE",
        413: "TOO_LARGE QUOTA_EXCEEDED",
        416: "RANGE",
        429: "TOO_MANY_GUESSES",
        503: "TRY_AGAIN",
        507: "STORAGE_FULL",
    }
)


# --- what is sent and answered ---------------------------------------------------------------------------------


class IssuedAnswer(Ok):
    token: str
    short_token: str
    share_url: str
    exp: int
    id: str
    owner_key: str


class UploadedAnswer(IssuedAnswer):
    file_name: str
    size: int


class RegisteredAnswer(Ok):
    key: str
    share_url: str
    expires_at: str
    id: str
    owner_key: str


class ResolvedAnswer(Ok):
    url: str
    name: str
    exp: int
    purpose: str


class EdgeAnswer(Ok):
    blob_name: str
    download_url: str
    display_name: str
    expires_at: str
    message: str | None = None
    theme: str | None = None


class StatusAnswer(Ok):
    exp: int
    downloads: int
    max_downloads: int | None
    ready: bool


class OwnLinkAnswer(CamelModel):
    id: str
    name: str
    share_url: str | None = Field(description="null: the link was made before it was kept for you.")
    exp: int
    downloads: int
    max_downloads: int | None
    ready: bool
    has_password: bool
    size: int | None = Field(description="In bytes, of a file that is kept here.")
    receiver_name: str | None


class OwnLinksAnswer(Ok):
    links: list[OwnLinkAnswer]
    used: int = Field(description="How many bytes of your quota your files take.")
    quota: int = Field(description="0: there is no limit.")


class ExtendedAnswer(Ok):
    exp: int


class CleanedAnswer(Ok):
    now: str
    index_key: str
    scanned: int
    deleted: int
    not_found: int
    missing_meta: int
    skipped: int
    errors: int
    more: bool = Field(description="Whether it ended before everything was looked at: call it again.")


class WantedBody(CamelBody):
    """What a link can be told to be."""

    purpose: str | None = None
    valid_until: int | str | None = Field(None, description="In ms since 1970, or as 2026-12-31T15:00:00Z.")
    max_downloads: int | None = Field(None, description="1: a single download.")
    password: SecretStr | None = None
    owner_only: bool = Field(False, description="Whether only its owner can end it, and not everybody who has it.")
    message: str | None = Field(None, description="A line for the receiver.")
    receiver_name: str | None = Field(None, description="For whom it is; the page of the link says so.")
    theme: str | None = Field(None, description="How the page of the link looks: amber, ocean, rose or violet.")
    csrf: str | None = Field(None, description="The token of /api/blob/csrf, for pages; not needed.")

    def wanted(self, user_id: str | None) -> Wanted:
        return Wanted(
            message=self.message,
            theme=self.theme,
            receiver=self.receiver_name,
            user_id=user_id,
            valid_until=self.valid_until,
            purpose=self.purpose,
            max_downloads=self.max_downloads,
            password=None if self.password is None else self.password.get_secret_value(),
            owner_only=self.owner_only,
        )


class TokenBody(WantedBody):
    url: str | None = None
    name: str | None = None


class EdgeBody(WantedBody):
    pathname: str | None = None
    download_url: str | None = None
    owner_discord_id: str | None = Field(None, max_length=200, description="The user whose link it is.")
    user_id: str | None = Field(None, max_length=200, description="The same, without ownerDiscordId.")
    display_name: str | None = None


class DeleteBody(CamelBody):
    token: str | None = None
    id: str | None = None
    owner_key: SecretStr | None = None
    csrf: str | None = None


class StatusBody(CamelBody):
    id: str
    owner_key: SecretStr | None = Field(None, description="Not needed for a link of whoever is signed in.")


class ExtendBody(StatusBody):
    valid_until: int | str = Field(description="In ms since 1970, or as 2026-12-31T15:00:00Z.")


# --- the request -----------------------------------------------------------------------------------------------


def refusal_of(error: Exception, renamed: Mapping[str, str] | None = None) -> Refusal | None:
    """What is answered where the service refuses; None: the error is none of its refusals."""
    match error:
        case SharingRefused(reason=reason):
            more = dict(error.more)
            wait_s = more.get("retryAfter") or (1 if reason == "TRY_AGAIN" else None)
            headers = {"retry-after": str(wait_s)} if wait_s else {}
            if reason == "RANGE":
                headers["content-range"] = f"bytes */{more.pop('size')}"
            code = (renamed or {}).get(reason, reason)
            return Refusal(STATUS[code], code, str(error), headers=headers, more=more)
        case LimitReached():
            return too_many_requests(error)
        case BlobUnavailable() | FilesElsewhere():
            sentence = "the place where files are kept cannot be reached just now; try again in a moment"
            return Refusal(503, "FILES_UNAVAILABLE", sentence, retry_after_s=5)
        case BadArgument():
            return Refusal(400, "BAD_PATH", str(error))
    return None


@dataclass(frozen=True)
class Issuer:
    """Who issues a link: `who` for the audit log; `user`, if they are signed in; and whether they have the key."""

    who: str
    user: User | None = None
    has_key: bool = False

    @property
    def user_id(self) -> str | None:
        return None if self.user is None else self.user.id


class SharingVisit(Visit):
    """A request to the sharing kit."""

    messages = MESSAGES
    script = SCRIPT

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

    async def user(self) -> User | None:
        """Who is signed in. Raises Refusal for a write that no page of this site makes, though its cookie says who."""
        found = await signed_in(self.request)
        if found is None:
            return None
        # An id of the login kit stands as it is, for `login:{user_id}` of the keys. Those of other spaces stand with
        # their space, after a colon: no id of the login kit begins so.
        return User(found.id if found.space == "login" else f":{found.subject}", found.subject)

    async def issuer(self, csrf: str | None = None) -> Issuer:
        """Who issues a link. Raises Refusal where they may not, which is noted."""
        settings, user = self.sharing.settings, await self.user()
        key = settings.issue_key
        given = self.request.headers.get("x-issue-key") or self.bearer
        if key is not None and given is not None and same(given, key.get_secret_value()):
            return Issuer("issuer" if user is None else user.subject, user, has_key=True)
        is_user_let_through = user is not None and settings.allow_users
        is_open = key is None and (settings.open or self.site.development)
        if not is_user_let_through and not is_open:
            await self.sharing.note_stranger("issue", self.address)
            if key is None or settings.allow_users:
                raise _unauthorized("sign in to share files here")
            raise _unauthorized("issuing links takes the issue key, as Authorization: Bearer …")
        # Without a user nothing is let through by a cookie, so what no page of another site makes is let through.
        self.refuse_cross_site()
        if csrf is not None:
            self.refuse_forged(csrf)
        return Issuer("visitor" if user is None else user.subject, user)

    @property
    def is_looking(self) -> bool:
        """Whether nobody really asked for it: HEAD asks what would be answered."""
        return bool(self.request.scope.get("keystead.head"))

    def refuse_prefetch(self) -> None:
        """A browser or a messenger that fetches what nobody has clicked must not use a link up."""
        if any("prefetch" in self.request.headers.get(name, "").lower() for name in _PREFETCH):
            raise Refusal(403, "NO_PREFETCH", "links are not opened before somebody asks for it")

    def share_url(self, short: str, name: str = "t") -> str:
        return f"{self.site.public_url}/receive?{urlencode({name: short})}"

    def download_url(self, resolved: Resolved) -> str:
        if resolved.ticket is None:
            return resolved.url or ""
        return f"{self.site.public_url}/api/receive/download?{urlencode({'ticket': resolved.ticket})}"

    def issued(self, issued: Issued) -> dict[str, Any]:
        return {
            "token": issued.token,
            "short_token": issued.short_token,
            "share_url": self.share_url(issued.short_token),
            "exp": issued.expires_ms,
            "id": issued.id,
            "owner_key": issued.owner_key,
        }


Visiting = Annotated[SharingVisit, Depends()]
TokenQuery = Annotated[str | None, Query(description="The token of the link, short or long.")]


def _unauthorized(sentence: str) -> Refusal:
    return Refusal(401, "UNAUTHORIZED", sentence, headers=www_authenticate())


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
    routes = KitRouter("sharing", refusal_of)
    add = routes.add
    add("GET /receive", _receive_page)
    add("GET /share", _share_page)
    add("GET /api/blob/csrf", _csrf, "A token for pages", CsrfAnswer)
    add("POST /api/receive/token", _token, "Issue a link to a URL", IssuedAnswer)
    add(f"POST {_UPLOAD}", _upload, "Upload a file, and get a link to it", UploadedAnswer, openapi_extra=_FILE)
    add(f"PUT {_UPLOAD}", _upload)  # for `curl -T`
    add(
        "GET /api/receive/resolve",
        _resolve,
        "Where a link leads",
        ResolvedAnswer,
        responses={302: {"description": "To the file, with redirect=1."}},
        operation_id="resolve",
    )
    add(
        "POST /api/receive/resolve",
        _resolve_post,
        "Where a link leads, with a password",
        ResolvedAnswer,
        responses={
            200: {"content": {"text/html": {"schema": {"type": "string"}}}},
            303: {"description": "To the file: for a form, where it is kept here; else with redirect=1."},
            **_REFUSED_FORM,
        },
        operation_id="resolve_with_password",
        openapi_extra=_RESOLVE_BODY,
    )
    add(f"GET {_DOWNLOAD}", _download, "The file of a ticket", response_class=Response)
    add("GET /api/receive/edge-resolve", _edge, "Where a registered upload is", EdgeAnswer, operation_id="edge_resolve")
    add(
        "POST /api/receive/edge-resolve",
        _register,
        "Register an upload, which is deleted when it expires",
        RegisteredAnswer,
        operation_id="edge_register",
    )
    add("POST /api/receive/delete", _delete, "End a link, and delete its file", Ok)
    add("POST /api/receive/status", _status, "How often a link was used, for its owner", StatusAnswer)
    add(f"GET {_LINKS_PAGE}", _links_page)
    add(f"POST {_LINKS_PAGE}", _change_link)
    add("GET /api/receive/links", _links, "Your links, while you are signed in", OwnLinksAnswer)
    add("POST /api/receive/extend", _extend, "Let a link live longer, for its owner", ExtendedAnswer)
    for method in ("GET", "POST"):
        add(
            f"{method} /api/cron/receive-cleanup",
            _clean_up,
            "Delete files whose links have expired",
            CleanedAnswer,
            operation_id=f"clean_up_{method.lower()}",
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
        with translated(refusal_of):
            await visit.count("page")
            shown = await visit.sharing.look(token)
    except Refusal as refused:
        return _refused(visit, token, refused)
    if shown.downloads_left == 0:
        return _refused(visit, token, Refusal(410, "USED_UP", "this link was used as often as it may be"))
    now_ms, expires_at = visit.site.now_ms(), moment(shown.expires_ms)
    language = visit.say.language
    return visit.page(
        "sharing/receive.html",
        status=200 if refusal is None else refusal.status,
        scripts=True,
        token=token,
        shown=shown,
        size=None if shown.size is None else size_in_words(shown.size, language),
        now_ms=now_ms,
        left=left_in_words(shown.expires_ms - now_ms, language),
        expires=moment_in_words(expires_at, language),
        expires_at=expires_at,
        wrong=None if refusal is None else visit.say(refusal.code),
    )


def _refused(visit: SharingVisit, token: str | None, refusal: Refusal) -> Response:
    """The page that says why a link does not open, and what to do."""
    exp = refusal.more.get("exp")
    expired_at = moment(exp) if isinstance(exp, int) else None
    heading, advice, action = _page_of(visit.say, refusal)
    response = visit.page(
        "sharing/refused.html",
        status=refusal.status,
        scripts=expired_at is not None,
        token=token,
        code=refusal.code,
        heading=heading,
        advice=advice,
        action=action,
        expired_at=expired_at,
        expired=expired_at and moment_in_words(expired_at, visit.say.language),
    )
    response.headers.update(refusal.headers)
    return response


# What can be done on the page of a refusal: paste another link, or try again.
_ACTIONS: Final = {
    **dict.fromkeys(
        ("TOKEN_REQUIRED", "TOKEN_NOT_FOUND", "INVALID_FORMAT", "INVALID_BYTES", "INVALID_PAYLOAD"), "paste"
    ),
    **dict.fromkeys(("EXPIRED", "USED_UP", "REVOKED", "HOST_NOT_ALLOWED"), ""),
}


def _page_of(say: Speaker, refusal: Refusal) -> tuple[str, str, str]:
    """The heading of a refusal, what to do, and what can be done on the page."""
    action = _ACTIONS.get(refusal.code, "again")
    heading = f"{refusal.code}_heading"
    if not say.knows(heading):
        sentence = refusal.sentence
        return say("does_not_open"), f"{sentence[:1].upper()}{sentence[1:]}.", action
    return say(heading), say(f"{refusal.code}_advice"), action


async def _share_page(visit: Visiting) -> Response:
    """Where a file is uploaded, and its link copied."""
    if visit.home is not None:
        return visit.goes_on(visit.home)
    settings, language = visit.sharing.settings, visit.say.language
    max_bytes = size_bytes(settings.max_upload)
    user = await visit.user()
    needs_key = settings.issue_key is not None and not (settings.allow_users and user is not None)
    return visit.page(
        "sharing/share.html",
        scripts=True,
        needs_key=needs_key,
        is_signed_in=user is not None,
        has_users=sign_in_of(visit.request.scope) is not None,
        max_upload=size_in_words(max_bytes, language),
        max_upload_bytes=max_bytes,
        message_max=MESSAGE_MAX,
        receiver_max=RECEIVER_MAX,
        lifetimes=[(ms, left_in_words(ms, language)) for ms in _offered(settings)],
        default_ms=settings.ttl_ms,
        deleted_within=left_in_words(settings.cleanup_within_ms, language),
        now_ms=visit.site.now_ms(),
        upload_url=f"{visit.site.public_url}{_UPLOAD}",
        script_words=visit.say.script_words(),
    )


async def _csrf(visit: Visiting) -> Response:
    """The same value comes as a cookie; send it back as `csrf` in the body."""
    await visit.count("csrf")
    return visit.csrf_response()


async def _token(visit: Visiting, body: TokenBody) -> Response:
    """A link to a file elsewhere, on one of the allowed hosts."""
    await visit.count("token")
    by = await visit.issuer(body.csrf)
    if not body.url:
        raise Refusal(400, "URL_REQUIRED", "url says where the link leads")
    wanted = body.wanted(by.user_id)
    issued = await visit.sharing.issue(body.url, body.name, wanted, who=by.who, where=visit.address)
    return json_response(IssuedAnswer(**visit.issued(issued)))


async def _upload(
    visit: Visiting,
    name: Annotated[str | None, Query(max_length=1000, description="The name of the file.")] = None,
    purpose: Annotated[str | None, Query()] = None,
    valid_until: Annotated[
        str | None, Query(alias="validUntil", description="In ms since 1970, or as 2026-12-31T15:00:00Z.")
    ] = None,
    max_downloads: Annotated[int | None, Query(alias="maxDownloads", description="1: a single download.")] = None,
    owner_only: Annotated[bool, Query(alias="ownerOnly", description="Whether only its owner can end it.")] = False,
    message: Annotated[str | None, Query(description="A line for the receiver.")] = None,
    receiver_name: Annotated[str | None, Query(alias="receiverName", description="For whom it is.")] = None,
    theme: Annotated[str | None, Query(description="amber, ocean, rose or violet.")] = None,
) -> Response:
    """The body is the file itself. A password comes in the header `x-link-password`, percent-encoded."""
    _refuse_other_forms(visit.request)
    await visit.count("upload")
    by = await visit.issuer()
    # A file may take its time; other requests may not.
    visit.request.state.time_limit.reschedule(asyncio.get_running_loop().time() + UPLOAD_S)
    wanted = Wanted(
        valid_until=valid_until,
        purpose=purpose,
        max_downloads=max_downloads,
        password=_unquoted(visit.request.headers.get("x-link-password")),
        owner_only=owner_only,
        message=message,
        theme=theme,
        receiver=receiver_name,
        user_id=by.user_id,
    )
    try:
        issued = await visit.sharing.upload(
            visit.request.stream(), name, wanted, who=by.who, where=visit.address, size=_length_of(visit.request)
        )
    except ClientDisconnect:  # nobody is there to be answered
        raise Refusal(400, "BROKEN_OFF", "the upload broke off") from None
    return json_response(UploadedAnswer(**visit.issued(issued), file_name=issued.name, size=issued.size or 0))


def _refuse_other_forms(request: Request) -> None:
    """A misspelt option would make a link that is open to all; a form would be kept with its borders."""
    unknown = sorted(set(request.query_params) - _UPLOAD_OPTIONS)
    if unknown:
        said = f"{unknown[0][:40]!r} is no option of an upload; there are {', '.join(sorted(_UPLOAD_OPTIONS))}, "
        raise Refusal(400, "UNKNOWN_OPTION", f"{said}and a password in the header x-link-password")
    if content_type(request.headers) == "multipart/form-data":
        sentence = "the body is the file itself, and no form: write curl --data-binary @file instead of -F"
        raise Refusal(415, "NOT_A_FILE", sentence)
    if not request.headers.get("x-link-password", "").isascii():
        sentence = "percent-encode the password in x-link-password, as UTF-8: p%C3%A4ss"
        raise Refusal(400, "BAD_PASSWORD", sentence)


def _length_of(request: Request) -> int | None:
    """How many bytes the body has, as far as its sender says that."""
    length = request.headers.get("content-length", "")
    return int(length) if re.fullmatch("[0-9]{1,15}", length) else None


def _unquoted(header: str | None) -> str | None:
    return None if header is None else unquote(header)


async def _resolve(visit: Visiting, t: TokenQuery = None, redirect: Annotated[str | None, Query()] = None) -> Response:
    """Where a link leads. Each call counts as a download, so a link for one download is used up; HEAD only looks."""
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
        with translated(refusal_of):
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
    return json_response(ResolvedAnswer(url=url, name=resolved.name, exp=resolved.expires_ms, purpose=resolved.purpose))


async def _download(visit: Visiting, ticket: Annotated[str, Query(max_length=64)]) -> Response:
    """The file itself, or the part of it that the header Range asks for."""
    start, end = _asked_range(visit.request.headers.get("range"))
    only_of = visit.request.headers.get("if-range")
    asked = Range(start, end, None if only_of is None else only_of.strip('"'))
    await visit.count("download")
    found = await visit.sharing.download(ticket, asked, where=visit.address, looking=visit.is_looking)
    visit.request.state.time_limit.reschedule(None)
    ascii_name = found.name.encode("ascii", "replace").decode().replace("?", "_")
    headers = {
        "content-length": str(found.length),
        "accept-ranges": "bytes",
        "etag": f'"{found.tag}"',
        "content-disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(found.name, safe='')}",
        "content-security-policy": _FILE_POLICY,
        "cache-control": "private, no-store",
        # A proxy that takes in the whole file ahead of its receiver would hide where a download broke off.
        "x-accel-buffering": "no",
    }
    if found.is_part:
        headers["content-range"] = f"bytes {found.start}-{found.start + found.length - 1}/{found.size}"
    return _FileResponse(found.body, 206 if found.is_part else 200, headers, media_type="application/octet-stream")


class _FileResponse(StreamingResponse):
    """A file on its way. Where its receiver goes away, its body hears of it at once, and not when it is collected."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await asyncio.shield(self.body_iterator.aclose())


def _asked_range(header: str | None) -> tuple[int | None, int | None]:
    """One range of bytes; several, and what is none, count as none, as HTTP allows."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (header or "").replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None, None
    return (int(found[1]) if found[1] else None), (int(found[2]) if found[2] else None)


_EDGE_CODES: Final = {"TOKEN_NOT_FOUND": "NOT_FOUND", "REVOKED": "NOT_FOUND", "TOKEN_REQUIRED": "KEY_REQUIRED"}


async def _edge(visit: Visiting, key: TokenQuery = None) -> Response:
    """The same as resolve, in the form of the document's second plan."""
    with translated(partial(refusal_of, renamed=_EDGE_CODES)):
        await visit.count("resolve")
        if visit.is_looking:
            await visit.sharing.look(key)
            return Response(status_code=200, headers=NO_STORE)
        visit.refuse_prefetch()
        resolved = await visit.sharing.resolve(key, where=visit.address)
    answer = EdgeAnswer(
        blob_name=resolved.name,
        download_url=visit.download_url(resolved),
        display_name=resolved.display_name,
        expires_at=_iso(moment(resolved.expires_ms)),
        message=resolved.message,
        theme=resolved.theme,
    )
    return json_response(answer)


async def _register(visit: Visiting, body: EdgeBody) -> Response:
    """For files that somebody else put to where files are kept. They are deleted when the link expires, so this takes
    an issue key in production, also where anybody may issue links.
    """
    await visit.count("token")
    by = await visit.issuer(body.csrf)
    if not by.has_key and not visit.site.development:
        await visit.sharing.note_stranger("issue", visit.address)
        raise _unauthorized("registering a file takes an issue key (RECEIVE_ISSUE_KEY), which is not set here")
    if not body.pathname or not body.download_url:
        raise Refusal(400, "PATH_REQUIRED", "pathname and downloadUrl say which file it is")
    wanted = body.wanted(body.owner_discord_id or body.user_id or by.user_id)
    issued = await visit.sharing.register(
        body.pathname, body.download_url, body.display_name, wanted, who=by.who, where=visit.address
    )
    answer = RegisteredAnswer(
        key=issued.short_token,
        share_url=visit.share_url(issued.short_token, "key"),
        expires_at=_iso(moment(issued.expires_ms)),
        id=issued.id,
        owner_key=issued.owner_key,
    )
    return json_response(answer)


async def _delete(visit: Visiting, body: DeleteBody | None = None, t: TokenQuery = None) -> Response:
    """By the link itself, or by its id and the owner's key."""
    body = body or DeleteBody()
    await visit.count("delete")
    visit.refuse_cross_site()
    if body.csrf is not None:
        visit.refuse_forged(body.csrf)
    owner_key = _secret(body.owner_key)
    user = await visit.user() if owner_key is None else None
    await visit.sharing.end(body.token or t, id=body.id, owner_key=owner_key, user=user, where=visit.address)
    return json_response(Ok())


async def _links(visit: Visiting) -> Response:
    """The links that you have made while you were signed in, those that expire last first."""
    await visit.count("resolve")
    user = await visit.user()
    if user is None:
        raise not_signed_in(visit.request)
    links = await visit.sharing.links_of(user)
    used = await visit.sharing.quota.used(user.subject)
    shown = [
        OwnLinkAnswer(
            id=link.id,
            name=link.name,
            share_url=link.short_token and visit.share_url(link.short_token),
            exp=link.expires_ms,
            downloads=link.downloads,
            max_downloads=link.max_downloads,
            ready=link.ready,
            has_password=link.has_password,
            size=link.size,
            receiver_name=link.receiver,
        )
        for link in links
    ]
    quota = visit.sharing.settings.quota_per_user_bytes
    return json_response(OwnLinksAnswer(links=shown, used=used, quota=quota))


async def _extend(visit: Visiting, body: ExtendBody) -> Response:
    """Let a link live longer: by the owner's key, or as whoever is signed in and has made it."""
    await visit.count("token")
    visit.refuse_cross_site()
    owner_key = _secret(body.owner_key)
    user = await visit.user() if owner_key is None else None
    exp = await visit.sharing.extend(body.id, body.valid_until, owner_key=owner_key, user=user, where=visit.address)
    return json_response(ExtendedAnswer(exp=exp))


async def _links_page(visit: Visiting) -> Response:
    """The links of whoever is signed in: to copy, to end, to extend."""
    return await _show_links(visit)


async def _show_links(visit: SharingVisit, problem: str | None = None, status: int = 200) -> Response:
    if visit.home is not None:
        return visit.goes_on(visit.home)
    await visit.count("page")
    user = await visit.user()
    links = [] if user is None else await visit.sharing.links_of(user)
    used = 0 if user is None else await visit.sharing.quota.used(user.subject)
    settings, now_ms, language = visit.sharing.settings, visit.site.now_ms(), visit.say.language
    sign_in = sign_in_of(visit.request.scope)
    return visit.page(
        "sharing/links.html",
        status=status,
        scripts=True,
        is_signed_in=user is not None,
        sign_in=None if sign_in is None else f"{sign_in.page}?{urlencode({'returnTo': _LINKS_PAGE})}",
        problem=problem,
        links=[
            {
                "link": link,
                "url": link.short_token and visit.share_url(link.short_token),
                "size": None if link.size is None else size_in_words(link.size, language),
                "expires_at": moment(link.expires_ms),
                "expires": moment_in_words(moment(link.expires_ms), language),
                "left": left_in_words(link.expires_ms - now_ms, language),
                "longer": [
                    (ms, left_in_words(ms, language))
                    for ms in _offered(settings)
                    if now_ms + ms > link.expires_ms + _EXTENDED_LEAST_MS
                ],
            }
            for link in links
        ],
        used=size_in_words(used, language),
        quota=size_in_words(settings.quota_per_user_bytes, language) if settings.quota_per_user_bytes else None,
    )


async def _change_link(visit: Visiting) -> Response:
    """What the forms of the page of links send: end a link, or extend it."""
    fields = await visit.fields()
    id, what, ms = (str(fields.get(name) or "") for name in ("id", "what", "ms"))
    try:
        with translated(refusal_of):
            await visit.count("delete" if what == "end" else "token")
            user = await visit.user()
            if user is None:
                raise not_signed_in(visit.request)
            if what == "end":
                await visit.sharing.end(None, id=id, user=user, where=visit.address)
            elif what == "extend" and re.fullmatch("[0-9]{1,15}", ms):
                until_ms = visit.site.now_ms() + int(ms)
                await visit.sharing.extend(id, until_ms, user=user, where=visit.address)
            else:
                raise Refusal(400, "BAD_REQUEST", "what is end or extend, with a time in ms")
    except Refusal as refusal:
        if refusal.code not in _LINK_PROBLEMS:
            raise
        return await _show_links(visit, visit.say(_LINK_PROBLEMS[refusal.code]), refusal.status)
    return visit.goes_on(_LINKS_PAGE)


# What the page of links says of a refusal; of any other, the page of errors says its own sentence.
_LINK_PROBLEMS: Final = {
    "NOT_OWNER": "link_gone",
    "REVOKED": "link_gone",
    "EXPIRED": "link_gone",
    "BAD_EXPIRY": "link_not_later",
    "RATE_LIMITED": "too_fast",
}


def _offered(settings: SharingSettings) -> list[int]:
    """For how long the pages offer that a link lives, in ms."""
    most = settings.max_ttl_ms
    return sorted({settings.ttl_ms, most, *(ms for ms in map(duration_ms, _LIFETIMES) if ms <= most)})


async def _status(visit: Visiting, body: StatusBody) -> Response:
    await visit.count("resolve")
    owner_key = _secret(body.owner_key)
    user = await visit.user() if owner_key is None else None
    status = await visit.sharing.status(body.id, owner_key, user)
    answer = StatusAnswer(
        exp=status.expires_ms, downloads=status.downloads, max_downloads=status.max_downloads, ready=status.ready
    )
    return json_response(answer)


async def _clean_up(visit: Visiting, limit: Annotated[int | None, Query(ge=1, le=10_000)] = None) -> Response:
    """It runs by itself every few minutes; this is for whoever cannot wait. Any number of calls at once do no harm."""
    settings = visit.sharing.settings
    secret, bearer = settings.cleanup_secret, visit.bearer
    is_known = secret is not None and bearer is not None and same(bearer, secret.get_secret_value())
    if not is_known and not (settings.trust_vercel_cron and "x-vercel-cron" in visit.request.headers):
        await visit.count("cleanup")
        await visit.sharing.note_stranger("clean-up", visit.address)
        raise _unauthorized("the clean-up takes its secret (RECEIVE_CLEANUP_SECRET), as Authorization: Bearer …")
    began = asyncio.get_running_loop().time()
    counts = await visit.sharing.clean_up.run(
        limit, stop=lambda: asyncio.get_running_loop().time() - began > _CLEANUP_S
    )
    answer = CleanedAnswer(
        now=_iso(moment(visit.site.now_ms())),
        index_key=visit.sharing.keys.index().key,
        more=counts.more,
        **told(counts),
    )
    return json_response(answer)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


KIT: Final = Kit(
    name="sharing",
    doc="Links that lead to a file until they expire, and the clean-up of the files.",
    keyspace=SharingKeys,
    settings=SharingSettings,
    turned_on_by="RECEIVE_ISSUE_KEY, or sharing.open",
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
    stop=lambda sharing: sharing.uploads.stop(),
    bodies=lambda settings: {_UPLOAD: size_bytes(settings.max_upload)},
)
