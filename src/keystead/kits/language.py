"""The language of a request. `Speaker` has texts in it."""

from __future__ import annotations

from typing import Final

from starlette.requests import HTTPConnection

from keystead.catalogue import LANGUAGES, Language, Speaker
from keystead.http.accept import preferred_language
from keystead.http.cookies import Cookie
from keystead.kits.identity import known_user

__all__ = ["CHOICE_SECONDS", "Speaker", "choose_language", "language_cookie", "language_of"]

# The choices of the switches on every page. Not secret, but the cookie attributes are right for them, too.
CHOICE_SECONDS: Final = 365 * 86_400


def language_of(accept_language: str, otherwise: Language = "en") -> Language:
    """The preferred supported language of an `Accept-Language` header; `otherwise` if there is none."""
    return preferred_language(accept_language, (otherwise, *(one for one in LANGUAGES if one != otherwise)))


def language_cookie(secure: bool) -> Cookie:
    return Cookie("language", secure)


def choose_language(connection: HTTPConnection, secure: bool, otherwise: Language = "en") -> Language:
    """The language that was chosen with the switch on a page: by the signed-in user in any browser, else in this
    browser. Else the browser's own, else `otherwise`."""
    user = known_user(connection.scope)
    chosen = user.language if user is not None and user.language else language_cookie(secure).find(connection.headers)
    for language in LANGUAGES:
        if chosen == language:
            return language
    return language_of(connection.headers.get("accept-language", ""), otherwise)
