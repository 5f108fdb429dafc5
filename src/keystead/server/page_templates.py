"""Page templates. Values are escaped; an undefined name is an error."""

from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader, StrictUndefined

import keystead

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


def render(name: str, /, **values: Any) -> str:
    """A page as HTML. Values are escaped."""
    return TEMPLATES.get_template(name).render(**values)
