"""The way into the console without a link, for the person who runs a development server on their own machine."""

from __future__ import annotations

import getpass

from fastapi.responses import Response

from keystead.console.console_requests import Visiting, show_entrance
from keystead.server.local_entry import is_own_browser, names_origin


async def enter_here(visit: Visiting) -> Response:
    """A session for the account that runs this server: a one-time link, created and used in one request.

    It may change single keys, but not erase people or repair many keys. Everybody else gets the entrance again.
    """
    await visit.read_form()
    if not names_origin(visit.request) or not is_own_browser(visit.request):
        return await show_entrance(visit, status=403)
    access = visit.console.access
    try:
        account = getpass.getuser()
    except (OSError, KeyError):  # containers may run accounts without a name
        account = "unknown"
    made = await access.enter(await access.create_link(f"operator:{account}", "operator"), visit.address)
    return visit.redirect_to("/console", *([] if made is None else [visit.cookie.set(made.token)]))
