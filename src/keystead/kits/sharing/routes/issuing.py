"""Routes that issue links: to a URL, an upload, or a registered file."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Final
from urllib.parse import unquote

from fastapi import Query, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from keystead.http.accept import content_type
from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.kits.sharing.routes.bodies import EdgeBody, IssuedAnswer, RegisteredAnswer, TokenBody, UploadedAnswer
from keystead.kits.sharing.routes.request import Visiting, iso, unauthorized
from keystead.kits.sharing.service import UPLOAD_S, Wanted
from keystead.schema.times import moment

_UPLOAD_OPTIONS: Final = frozenset(
    {
        *("name", "purpose", "validUntil", "maxDownloads", "ownerOnly", "message", "receiverName", "theme"),
        *("format", "health"),
    }
)


async def csrf(visit: Visiting) -> Response:
    """Also sets the token as a cookie. Send it back as `csrf` in the body."""
    await visit.count("csrf")
    return visit.csrf_response()


async def issue_link(visit: Visiting, body: TokenBody) -> Response:
    """Issues a link to a file on one of the allowed hosts."""
    await visit.count("token")
    by = await visit.issuer(body.csrf)
    if not body.url:
        raise Refusal(400, "URL_REQUIRED", "url is required: the target of the link")
    wanted = body.to_wanted(by.user_id)
    issued = await visit.sharing.issue(body.url, body.name, wanted, who=by.who, where=visit.address)
    return json_response(IssuedAnswer(**visit.link_fields(issued)))


async def upload(
    visit: Visiting,
    name: Annotated[str | None, Query(max_length=1000, description="The name of the file.")] = None,
    purpose: Annotated[str | None, Query()] = None,
    valid_until: Annotated[
        str | None, Query(alias="validUntil", description="In ms since 1970, or such as 2026-12-31T15:00:00Z.")
    ] = None,
    max_downloads: Annotated[
        int | None, Query(alias="maxDownloads", description="Maximum number of downloads.")
    ] = None,
    owner_only: Annotated[bool, Query(alias="ownerOnly", description="Only the owner can end the link.")] = False,
    message: Annotated[str | None, Query(description="A message for the recipient.")] = None,
    receiver_name: Annotated[str | None, Query(alias="receiverName", description="Name of the recipient.")] = None,
    theme: Annotated[str | None, Query(description="amber, ocean, rose or violet.")] = None,
) -> Response:
    """The body is the file. Send a password in the header `x-link-password`, percent-encoded."""
    _check_upload(visit.request)
    await visit.count("upload")
    by = await visit.issuer()
    # Uploads have a longer time limit than other requests.
    visit.request.state.time_limit.reschedule(asyncio.get_running_loop().time() + UPLOAD_S)
    wanted = Wanted(
        valid_until=valid_until,
        purpose=purpose,
        max_downloads=max_downloads,
        password=_unquote(visit.request.headers.get("x-link-password")),
        owner_only=owner_only,
        message=message,
        theme=theme,
        receiver=receiver_name,
        user_id=by.user_id,
    )
    try:
        issued = await visit.sharing.upload(
            visit.request.stream(), name, wanted, who=by.who, where=visit.address, size=_content_length(visit.request)
        )
    except ClientDisconnect:  # for the log only
        raise Refusal(400, "BROKEN_OFF", "the client disconnected during the upload") from None
    return json_response(UploadedAnswer(**visit.link_fields(issued), file_name=issued.name, size=issued.size or 0))


def _check_upload(request: Request) -> None:
    """Refuse unknown options (a misspelt one could make a link public) and forms (their boundaries would be stored)."""
    unknown = sorted(set(request.query_params) - _UPLOAD_OPTIONS)
    if unknown:
        known = f"{', '.join(sorted(_UPLOAD_OPTIONS))}, and a password in the header x-link-password"
        raise Refusal(400, "UNKNOWN_OPTION", f"unknown upload option {unknown[0][:40]!r}; there are {known}")
    if content_type(request.headers) == "multipart/form-data":
        sentence = "the body must be the file itself, not a form: use curl --data-binary @file instead of -F"
        raise Refusal(415, "NOT_A_FILE", sentence)
    if not request.headers.get("x-link-password", "").isascii():
        sentence = "percent-encode the password in x-link-password, as UTF-8: p%C3%A4ss"
        raise Refusal(400, "BAD_PASSWORD", sentence)


def _content_length(request: Request) -> int | None:
    """The length of the body, if the client sent it."""
    length = request.headers.get("content-length", "")
    return int(length) if re.fullmatch("[0-9]{1,15}", length) else None


def _unquote(header: str | None) -> str | None:
    return None if header is None else unquote(header)


async def register(visit: Visiting, body: EdgeBody) -> Response:
    """Registers a file that another system uploaded to the location of our files. It is deleted when the link expires,
    so production requires an issue key, even if anyone may issue links.
    """
    await visit.count("token")
    by = await visit.issuer(body.csrf)
    if not by.has_key and not visit.site.development:
        await visit.sharing.note_stranger("issue", visit.address)
        raise unauthorized("registering a file requires an issue key (RECEIVE_ISSUE_KEY), which is not set here")
    if not body.pathname or not body.download_url:
        raise Refusal(400, "PATH_REQUIRED", "pathname and downloadUrl are required")
    wanted = body.to_wanted(body.owner_discord_id or body.user_id or by.user_id)
    issued = await visit.sharing.register(
        body.pathname, body.download_url, body.display_name, wanted, who=by.who, where=visit.address
    )
    answer = RegisteredAnswer(
        key=issued.short_token,
        share_url=visit.share_url(issued.short_token, "key"),
        expires_at=iso(moment(issued.expires_ms)),
        id=issued.id,
        owner_key=issued.owner_key,
    )
    return json_response(answer)
