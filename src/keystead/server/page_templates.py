"""Where the pages' templates are, and how they are rendered: escaped, and with no name left undefined."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader, StrictUndefined

import keystead
from keystead.kits.kit import Kit

_PAGES_OF_KITS: Final[dict[str, FileSystemLoader]] = {}

TEMPLATES: Final = Environment(
    loader=ChoiceLoader([PackageLoader("keystead.server", "pages"), PrefixLoader(_PAGES_OF_KITS)]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["version"] = keystead.__version__


def add_pages(kits: Iterable[Kit]) -> None:
    """Find the pages of these kits: `login/account.html` is `account.html` in the folder `pages` of the kit `login`."""
    for kit in kits:
        folder: Path = kit.folder / "pages"
        known = _PAGES_OF_KITS.get(kit.name)
        if known is None or known.searchpath != [str(folder)]:  # of two kits of one name, the one that runs now
            _PAGES_OF_KITS[kit.name] = FileSystemLoader(folder)


def render(name: str, /, **values: Any) -> str:
    """A page as HTML. Values are escaped."""
    return TEMPLATES.get_template(name).render(**values)
