"""The templates of the pages: escaped, and strict about undefined names."""

from __future__ import annotations

import re
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from keystead.schema.docs.diagram import px
from keystead.schema.docs.prose import as_html, blocks


def _route(text: str) -> Markup:
    """A route as code that may wrap after each `/`. Text with a space is prose."""
    if " " in text:
        return as_html(text)
    return Markup("<code>{}</code>").format(Markup("<wbr>").join(re.split(r"(?<=[^/]/)(?=[^/])", text)))


TEMPLATES: Final = Environment(
    loader=PackageLoader("keystead.schema.docs", "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {"blocks": blocks, "prose": as_html, "px": px, "route": _route}
