"""What every page has around its content: language, colours, links, and the signed-in user."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import Scope

from keystead.catalogue import LANGUAGES, NAMES, Catalogue, Language, message
from keystead.http.cookies import Cookie
from keystead.kits.identity import PageHeader, known_user, page_header
from keystead.kits.language import Speaker, choose_language

CATALOGUE: Final = Catalogue(Path(__file__).parent)
GUIDE: Final = "/guide/"
THEMES: Final = {"system": message("As the system"), "light": message("Light"), "dark": message("Dark")}


class PageLink(NamedTuple):
    """A link in the header of every page."""

    path: str
    label: str
    icon: str


class PageFrame(NamedTuple):
    """The frame of one page.

    theme   `light` or `dark` if somebody chose it; `system` otherwise
    here    the path of this page, to return to after a choice
    """

    say: Speaker
    theme: str
    here: str
    links: list[PageLink]
    header: PageHeader | None
    language_names: dict[Language, str]
    themes: dict[str, str]


def theme_cookie(secure: bool) -> Cookie:
    return Cookie("theme", secure)


def page_frame(scope: Scope | None, say: Speaker | None = None) -> PageFrame:
    """The frame of the page that responds to a request. Without one, it is in English and has no links."""
    state: Any = None if scope is None else scope["app"].state
    if scope is None or not hasattr(state, "site"):  # pages in an application of another kind
        return _frame(say or Speaker("en"), "system", "/", [], None)
    connection = HTTPConnection(scope)
    secure = state.site.secure
    user = known_user(scope)
    theme = (user.theme if user is not None else None) or theme_cookie(secure).find(connection.headers)
    say = say or Speaker(choose_language(connection, secure, state.settings.language))
    return _frame(say, theme if theme in THEMES else "system", _here(scope), _links(state, say), page_header(scope))


def _frame(say: Speaker, theme: str, here: str, links: list[PageLink], header: PageHeader | None) -> PageFrame:
    say = say.behind(CATALOGUE)
    named = [link._replace(label=say(link.label)) for link in links]
    themes = {name: say(label) for name, label in THEMES.items()}
    return PageFrame(say, theme, here, named, header, {one: NAMES[one] for one in LANGUAGES}, themes)


def _here(scope: Scope) -> str:
    path: str = scope.get("path", "/")
    # The URL of a callback holds secrets, the response to a form has no URL of its own, and a link to a page that
    # does not exist must not put its text on our page.
    if scope.get("method") not in ("GET", "HEAD") or path.startswith(("/api/", "//")) or "endpoint" not in scope:
        return "/"
    query = scope.get("query_string", b"").decode("latin-1")
    return quote(path) + (f"?{query}" if query else "")


def _links(state: Any, say: Speaker) -> list[PageLink]:
    links = []
    if state.settings.development:
        links.append(PageLink("/keys", message("Keys"), "key"))
    if any(kit.name == "console" for kit in state.running):
        links.append(PageLink("/console", message("Console"), "console"))
    if state.settings.development:
        links.append(PageLink(GUIDE, message("Guide"), "book"))
        links.append(PageLink("/reference", message("Reference"), "list"))
    return [*links, PageLink("/docs", "API", "code")]
