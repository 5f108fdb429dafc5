"""Where the pages' templates are, and how they are rendered: escaped, and with no name left undefined."""

from pathlib import Path
from typing import Any, Final

from jinja2 import BaseLoader, ChoiceLoader, Environment, FileSystemLoader, PackageLoader, PrefixLoader, StrictUndefined

import keystead
from keystead.kits import KITS

_KITS: Final = Path(keystead.__file__).parent / "kits"


def _pages_of_kits() -> BaseLoader:
    """`login/account.html` is `account.html` in the folder `pages` of the kit `login`."""
    return PrefixLoader({name: FileSystemLoader(_KITS / name / "pages") for name in KITS})


TEMPLATES: Final = Environment(
    loader=ChoiceLoader([PackageLoader("keystead.server", "pages"), _pages_of_kits()]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["version"] = keystead.__version__


def render(name: str, /, **values: Any) -> str:
    """A page as HTML. Values are escaped."""
    return TEMPLATES.get_template(name).render(**values)
