"""Links to work items and invitations."""

from __future__ import annotations

from urllib.parse import quote, urlencode

PAGE = "/teamwork"


def item_link(item_url: str, public_url: str, ref_type: str, ref_id: str) -> str:
    """The address of a work item: from the `item_url` setting, or the page of the kit."""
    if not item_url:
        return f"{public_url}{PAGE}?{urlencode({'refType': ref_type, 'refId': ref_id})}"
    return item_url.replace("{refType}", quote(ref_type, safe="")).replace("{refId}", quote(ref_id, safe=""))


def invitation_link(public_url: str, token: str) -> str:
    """An invitation link. The token is in the fragment, which browsers do not send and servers do not log."""
    return f"{public_url}{PAGE}#invitation={token}"
