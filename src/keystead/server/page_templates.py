"""Page templates. Values are escaped; an undefined name is an error."""

from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader, StrictUndefined
from starlette.types import Scope

import keystead
from keystead.server.page_frame import page_frame

_ADDED: Final[dict[str, FileSystemLoader]] = {}

TEMPLATES: Final = Environment(
    loader=ChoiceLoader([PackageLoader("keystead.server", "pages"), PrefixLoader(_ADDED)]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["version"] = keystead.__version__


def add_pages(prefix: str, folder: Path) -> None:
    """Make the pages in a folder available: with the prefix `login`, `account.html` is `login/account.html`.

    A later folder replaces an earlier one with the same prefix.
    """
    known = _ADDED.get(prefix)
    if known is None or known.searchpath != [str(folder)]:  # an unchanged loader keeps its compiled templates
        _ADDED[prefix] = FileSystemLoader(folder)


def render(name: str, scope: Scope | None = None, /, **values: Any) -> str:
    """A page as HTML, in the frame of all pages. Values are escaped.

    `scope` is that of the request, for its language, colours and user. `say` may have the texts of a kit.
    """
    frame = page_frame(scope, values.pop("say", None))
    say = frame.say
    shown = {"header": frame.header, **values, "frame": frame, "say": say, "say_plural": say.plural}
    return TEMPLATES.get_template(name).render(shown)
