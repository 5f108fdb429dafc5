"""Pages for owners: share a file, and manage your links."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode

from fastapi.responses import Response

from keystead.catalogue import message
from keystead.http.refusals import Refusal
from keystead.http.routing import translate_errors
from keystead.kits.identity import sign_in_of
from keystead.kits.sharing.routes.request import LINKS_PAGE, UPLOAD_PATH, SharingVisit, Visiting, refusal_of
from keystead.kits.sharing.service import MESSAGE_MAX, RECEIVER_MAX, SharingSettings
from keystead.kits.sharing.words import left_in_words, moment_in_words, size_in_words
from keystead.kits.signed_in import not_signed_in
from keystead.parts.sizes import size_bytes
from keystead.schema.lifetime import duration_ms
from keystead.schema.times import moment

_EXTENDED_LEAST_MS: Final = 600_000  # the page offers no shorter extension
_LIFETIMES: Final = ("1h", "1d", "3d", "7d", "14d")  # offered by the page, up to `max_ttl`


async def share_page(visit: Visiting) -> Response:
    """Uploads a file and shows its link."""
    if visit.home is not None:
        return visit.redirect_to(visit.home)
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
        lifetimes=[(ms, left_in_words(ms, language)) for ms in _offered_lifetimes_ms(settings)],
        default_ms=settings.ttl_ms,
        deleted_within=left_in_words(settings.cleanup_within_ms, language),
        now_ms=visit.site.now_ms(),
        upload_url=f"{visit.site.public_url}{UPLOAD_PATH}",
    )


async def links_page(visit: Visiting) -> Response:
    """The links of the signed-in user, to copy, extend and end."""
    return await _render_links(visit)


async def _render_links(visit: SharingVisit, problem: str | None = None, status: int = 200) -> Response:
    if visit.home is not None:
        return visit.redirect_to(visit.home)
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
        sign_in=None if sign_in is None else f"{sign_in.page}?{urlencode({'returnTo': LINKS_PAGE})}",
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
                    for ms in _offered_lifetimes_ms(settings)
                    if now_ms + ms > link.expires_ms + _EXTENDED_LEAST_MS
                ],
            }
            for link in links
        ],
        used=size_in_words(used, language),
        quota=size_in_words(settings.quota_per_user_bytes, language) if settings.quota_per_user_bytes else None,
    )


async def change_link(visit: Visiting) -> Response:
    """Handles the forms of the page "My links": end or extend a link."""
    fields = await visit.fields()
    id, what, ms = (str(fields.get(name) or "") for name in ("id", "what", "ms"))
    try:
        with translate_errors(refusal_of):
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
                raise Refusal(400, "BAD_REQUEST", "what must be end or extend; extend needs ms, a number")
    except Refusal as refusal:
        if refusal.code not in _LINK_PROBLEMS:
            raise
        return await _render_links(visit, visit.say(_LINK_PROBLEMS[refusal.code]), refusal.status)
    return visit.redirect_to(LINKS_PAGE)


# Refusals that the page shows itself; the error page shows all others.
_GONE: Final = message("You no longer have this link. It has expired or was ended.")
_LINK_PROBLEMS: Final = {
    "NOT_OWNER": _GONE,
    "REVOKED": _GONE,
    "EXPIRED": _GONE,
    "BAD_EXPIRY": message("The link already lasts longer than that."),
    "RATE_LIMITED": message("Too many requests. Wait a minute, then try again."),
}


def _offered_lifetimes_ms(settings: SharingSettings) -> list[int]:
    """The lifetimes that the pages offer."""
    most = settings.max_ttl_ms
    return sorted({settings.ttl_ms, most, *(ms for ms in map(duration_ms, _LIFETIMES) if ms <= most)})
