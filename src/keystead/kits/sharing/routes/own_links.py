"""Routes for the owner of links: list, inspect, extend and end them, as JSON."""

from __future__ import annotations

from fastapi.responses import Response

from keystead.http.responses import json_response
from keystead.kits.sharing.routes.bodies import (
    DeleteBody,
    ExtendBody,
    ExtendedAnswer,
    OwnLinkAnswer,
    OwnLinksAnswer,
    StatusAnswer,
    StatusBody,
)
from keystead.kits.sharing.routes.request import TokenQuery, Visiting
from keystead.kits.signed_in import not_signed_in
from keystead.kits.visit import Ok


async def end_link(visit: Visiting, body: DeleteBody | None = None, t: TokenQuery = None) -> Response:
    """Ends a link, named by its token, or by its id and owner key."""
    body = body or DeleteBody()
    await visit.count("delete")
    visit.refuse_cross_site()
    if body.csrf is not None:
        visit.refuse_forged(body.csrf)
    owner_key, user = await visit.owner(body.owner_key)
    await visit.sharing.end(body.token or t, id=body.id, owner_key=owner_key, user=user, where=visit.address)
    return json_response(Ok())


async def list_links(visit: Visiting) -> Response:
    """The links that you created while signed in, latest expiry first."""
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


async def extend_link(visit: Visiting, body: ExtendBody) -> Response:
    """Extends a link, with its owner key or as the signed-in user who created it."""
    await visit.count("token")
    visit.refuse_cross_site()
    owner_key, user = await visit.owner(body.owner_key)
    exp = await visit.sharing.extend(body.id, body.valid_until, owner_key=owner_key, user=user, where=visit.address)
    return json_response(ExtendedAnswer(exp=exp))


async def link_status(visit: Visiting, body: StatusBody) -> Response:
    await visit.count("resolve")
    owner_key, user = await visit.owner(body.owner_key)
    status = await visit.sharing.status(body.id, owner_key, user)
    answer = StatusAnswer(
        exp=status.expires_ms, downloads=status.downloads, max_downloads=status.max_downloads, ready=status.ready
    )
    return json_response(answer)
