"""Routes for recipients: the page of a link, its target, and the download."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Final
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from fastapi import Query
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response
from keystead.http.routing import translate_errors
from keystead.kits.language import Speaker
from keystead.kits.sharing.routes.bodies import EdgeAnswer, ResolvedAnswer
from keystead.kits.sharing.routes.link_problems import LINK_PROBLEMS, WRONG_PASSWORD
from keystead.kits.sharing.routes.request import DOWNLOAD_PATH, SharingVisit, TokenQuery, Visiting, iso, refusal_of
from keystead.kits.sharing.service import Range, Resolved
from keystead.kits.sharing.words import left_in_words, moment_in_words, size_in_words
from keystead.schema.times import moment

_FILE_POLICY: Final = "default-src 'none'; sandbox"


async def receive_page(visit: Visiting, t: TokenQuery = None, key: TokenQuery = None) -> Response:
    """The page of a link. Viewing it uses up nothing; its button does."""
    return await _render_link(visit, _extract_token(t or key))


def _extract_token(text: str | None) -> str | None:
    """The token in a pasted link; any other text unchanged."""
    if not text or "?" not in text:
        return text and text.strip()
    try:
        query = parse_qs(text.strip().partition("?")[2].partition("#")[0], max_num_fields=50)
    except ValueError:  # too many fields
        return text
    return next((query[name][0] for name in ("t", "key") if name in query), text)


async def _render_link(visit: SharingVisit, token: str | None, refusal: Refusal | None = None) -> Response:
    """The page of a link, or its error page. A refusal of the password form is shown in the form."""
    is_password_refusal = refusal is not None and refusal.code in ("PASSWORD_WRONG", "PASSWORD_REQUIRED")
    if refusal is not None and not is_password_refusal:
        return _render_refusal(visit, token, refusal)
    try:
        with translate_errors(refusal_of):
            await visit.count("page")
            shown = await visit.sharing.look(token)
    except Refusal as refused:
        return _render_refusal(visit, token, refused)
    if shown.downloads_left == 0:
        return _render_refusal(visit, token, Refusal(410, "USED_UP", "this link has reached its download limit"))
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
        wrong=None if refusal is None else visit.say(WRONG_PASSWORD[refusal.code]),
    )


def _render_refusal(visit: SharingVisit, token: str | None, refusal: Refusal) -> Response:
    """The error page of a link: why it does not open, and what to do."""
    exp = refusal.more.get("exp")
    expired_at = moment(exp) if isinstance(exp, int) else None
    heading, advice, action = _explain(visit.say, refusal)
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


# What the error page offers: paste another link, or try again.
_ACTIONS: Final = {
    **dict.fromkeys(
        ("TOKEN_REQUIRED", "TOKEN_NOT_FOUND", "INVALID_FORMAT", "INVALID_BYTES", "INVALID_PAYLOAD"), "paste"
    ),
    **dict.fromkeys(("EXPIRED", "USED_UP", "REVOKED", "HOST_NOT_ALLOWED"), ""),
}


def _explain(say: Speaker, refusal: Refusal) -> tuple[str, str, str]:
    """Heading, advice and offered action of a refusal."""
    action = _ACTIONS.get(refusal.code, "again")
    problem = LINK_PROBLEMS.get(refusal.code)
    if problem is None:
        sentence = refusal.sentence
        return say("This link does not open"), f"{sentence[:1].upper()}{sentence[1:]}.", action
    return say(problem.heading), say(problem.advice), action


async def resolve(visit: Visiting, t: TokenQuery = None, redirect: Annotated[str | None, Query()] = None) -> Response:
    """The target of a link. Each call counts as a download, so it uses up a link for one download; HEAD does not."""
    await visit.count("resolve")
    if visit.is_head:
        await visit.sharing.look(t)
        return Response(status_code=200, headers=NO_STORE)
    visit.refuse_prefetch()
    resolved = await visit.sharing.resolve(t, where=visit.address)
    return _respond(visit, resolved, 302 if redirect == "1" else None)


async def resolve_post(visit: Visiting, redirect: Annotated[str | None, Query()] = None) -> Response:
    """Resolves a link with a password, sent as JSON or by the form of the page."""
    fields = await visit.fields()
    token, password = (value if isinstance(value, str) else None for value in (fields.get("t"), fields.get("password")))
    token = token or visit.request.query_params.get("t")
    try:
        with translate_errors(refusal_of):
            await visit.count("resolve")
            resolved = await visit.sharing.resolve(token, password=password, where=visit.address)
    except Refusal as refusal:
        if not visit.is_form:
            raise
        return await _render_link(visit, token, refusal)
    if visit.is_form and redirect != "1":
        return _start_download(visit, resolved)
    return _respond(visit, resolved, 303 if redirect == "1" else None)


def _start_download(visit: SharingVisit, resolved: Resolved) -> Response:
    """The response to the form of the page. Its content security policy restricts forms to this site, including
    redirects. So for an external file this responds with another page that links to it.
    """
    if resolved.ticket is not None:
        # A relative URL: the site may be open under another host name.
        return visit.redirect_to(f"{DOWNLOAD_PATH}?{urlencode({'ticket': resolved.ticket})}")
    url = resolved.url or ""
    return visit.page("sharing/started.html", name=resolved.display_name, url=url, host=urlsplit(url).netloc)


def _respond(visit: SharingVisit, resolved: Resolved, redirect: int | None) -> Response:
    url = visit.download_url(resolved)
    if redirect is not None:
        return RedirectResponse(url, redirect, headers=NO_STORE)
    return json_response(ResolvedAnswer(url=url, name=resolved.name, exp=resolved.expires_ms, purpose=resolved.purpose))


async def download(visit: Visiting, ticket: Annotated[str, Query(max_length=64)]) -> Response:
    """The file, or the part requested by the Range header."""
    start, end = _parse_range(visit.request.headers.get("range"))
    only_of = visit.request.headers.get("if-range")
    requested = Range(start, end, None if only_of is None else only_of.strip('"'))
    await visit.count("download")
    found = await visit.sharing.download(ticket, requested, where=visit.address, head_only=visit.is_head)
    visit.request.state.time_limit.reschedule(None)
    ascii_name = found.name.encode("ascii", "replace").decode().replace("?", "_")
    headers = {
        "content-length": str(found.length),
        "accept-ranges": "bytes",
        "etag": f'"{found.tag}"',
        "content-disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(found.name, safe='')}",
        "content-security-policy": _FILE_POLICY,
        "cache-control": "private, no-store",
        # A buffering proxy would hide where a download broke off.
        "x-accel-buffering": "no",
    }
    if found.is_part:
        headers["content-range"] = f"bytes {found.start}-{found.start + found.length - 1}/{found.size}"
    return _FileResponse(found.body, 206 if found.is_part else 200, headers, media_type="application/octet-stream")


class _FileResponse(StreamingResponse):
    """Streams a file. If the client disconnects, the body generator is closed right away, not at garbage collection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await asyncio.shield(self.body_iterator.aclose())


def _parse_range(header: str | None) -> tuple[int | None, int | None]:
    """A single byte range. Multiple and malformed ranges are ignored, as HTTP allows."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (header or "").replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return None, None
    return (int(found[1]) if found[1] else None), (int(found[2]) if found[2] else None)


_EDGE_CODES: Final = {"TOKEN_NOT_FOUND": "NOT_FOUND", "REVOKED": "NOT_FOUND", "TOKEN_REQUIRED": "KEY_REQUIRED"}


async def edge_resolve(visit: Visiting, key: TokenQuery = None) -> Response:
    """Like resolve, in the format of the document's second plan."""
    with translate_errors(partial(refusal_of, renamed=_EDGE_CODES)):
        await visit.count("resolve")
        if visit.is_head:
            await visit.sharing.look(key)
            return Response(status_code=200, headers=NO_STORE)
        visit.refuse_prefetch()
        resolved = await visit.sharing.resolve(key, where=visit.address)
    answer = EdgeAnswer(
        blob_name=resolved.name,
        download_url=visit.download_url(resolved),
        display_name=resolved.display_name,
        expires_at=iso(moment(resolved.expires_ms)),
        message=resolved.message,
        theme=resolved.theme,
    )
    return json_response(answer)
