"""`POST /preferences`: the switches for language and colours on every page. It works without scripts.

The choice is a cookie, so that the server sends each page in the right colours from the first byte. Of a signed-in user
it is also stored with the account, for their other browsers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from keystead.catalogue import LANGUAGES
from keystead.errors import KeysteadError
from keystead.http.csrf import refuse_cross_site
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import with_cookies
from keystead.kits.identity import remember
from keystead.kits.language import CHOICE_SECONDS, language_cookie
from keystead.server.page_frame import THEMES, theme_cookie

_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-~]{0,2000}")
_FORM_MAX_BYTES: Final = 4_000
_CHOICES: Final[Mapping[str, Collection[str]]] = {"language": LANGUAGES, "theme": THEMES}


def add_preferences(app: FastAPI) -> None:
    app.add_api_route("/preferences", _choose, methods=["POST"], include_in_schema=False)


async def _choose(request: Request) -> Response:
    """Set what was chosen, and return to the page. Raises Refusal for an unknown choice."""
    site = request.app.state.site
    # Also under a name of this machine that is not the public one.
    refuse_cross_site(request.headers, (site.public_url, f"{request.url.scheme}://{request.url.netloc}"))
    body = await request.body()
    fields = {} if len(body) > _FORM_MAX_BYTES else parse_qs(body.decode("utf-8", "replace"), max_num_fields=9)
    choice = {name: values[0] for name, values in fields.items()}
    chosen = {name: choice[name] for name, known in _CHOICES.items() if choice.get(name) in known}
    if not chosen:
        raise Refusal(
            400, "BAD_REQUEST", f"Choose a language ({', '.join(LANGUAGES)}) or a theme ({', '.join(THEMES)})."
        )
    with suppress(Refusal, KeysteadError):  # the cookie alone does for this browser
        await remember(request, chosen)
    made = {"language": language_cookie(site.secure), "theme": theme_cookie(site.secure)}
    cookies = [made[name].set(value, CHOICE_SECONDS) for name, value in chosen.items()]
    to = choice.get("back", "/")
    return with_cookies(RedirectResponse(to if _OWN_PATH.fullmatch(to) else "/", 303, headers=NO_STORE), cookies)
