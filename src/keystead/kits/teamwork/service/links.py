"""Where a work item, or the page of the kit, is seen."""

from __future__ import annotations

from urllib.parse import quote, urlencode

PAGE = "/teamwork"


def item_link(item_url: str, public_url: str, ref_type: str, ref_id: str) -> str:
    """The address of a work item: as the settings say, or the page of the kit with what is known of it."""
    if not item_url:
        return f"{public_url}{PAGE}?{urlencode({'refType': ref_type, 'refId': ref_id})}"
    return item_url.replace("{refType}", quote(ref_type, safe="")).replace("{refId}", quote(ref_id, safe=""))


def invitation_link(public_url: str, token: str) -> str:
    """The address that invites somebody. The secret is in its fragment, which no browser sends, and no server logs."""
    return f"{public_url}{PAGE}#invitation={token}"
