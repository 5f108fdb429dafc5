"""The templates of the pages: escaped, and strict about undefined names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from keystead.schema.docs.diagram import px
from keystead.schema.docs.prose import as_html, blocks


def _route(text: str) -> Markup:
    """A route as code that may wrap after each `/`. Text with a space is prose."""
    if " " in text:
        return as_html(text)
    return Markup("<code>{}</code>").format(Markup("<wbr>").join(re.split(r"(?<=[^/]/)(?=[^/])", text)))


Say: TypeAlias = Callable[..., str]

_TEMPLATES: Final = Environment(
    loader=PackageLoader("keystead.schema.docs", "pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters |= {"blocks": blocks, "prose": as_html, "px": px, "route": _route}


def plain(text: str, /, **values: object) -> str:
    """A text of a template in English: with a value that is markup, the result is markup."""
    return Markup.escape(text).format(**values) if values else text


def render_page(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(values, frame="layout.html")


def render_main(template: str, **values: Any) -> str:
    """Only the content, without the frame."""
    return _TEMPLATES.get_template(template).render(values, frame="content.html")
