"""Where the pages' templates are, and how they are rendered: escaped, and with no name left undefined."""

from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

import keystead

TEMPLATES: Final = Environment(
    loader=PackageLoader("keystead.server", "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals["version"] = keystead.__version__
