"""Content negotiation: HTML or JSON, and the language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from starlette.datastructures import Headers

L = TypeVar("L", bound=str)

_RANGES_MAX: Final = 20  # per header; browsers send a handful


def preferred_language(accept_language: str, languages: Sequence[L]) -> L:
    """The available language that the browser prefers; the first of `languages` if it accepts none of them."""
    best, best_quality = languages[0], 0.0
    for name, quality in _ranges(accept_language):
        found = next((one for one in languages if one == name.partition("-")[0]), None)
        if found is not None and quality > best_quality:
            best, best_quality = found, quality
    return best


def prefers_html(accept: str) -> bool:
    """Whether the header names HTML and prefers it to JSON, as browsers do; false for `*/*`."""
    html = json = anything = None
    for kind, quality in _ranges(accept):
        if kind == "text/html":
            html = max(html or 0.0, quality)
        elif kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
            json = max(json or 0.0, quality)
        elif kind in ("*/*", "application/*"):
            anything = max(anything or 0.0, quality)
    if not html:
        return False
    # If only `*/*` covers JSON, named HTML wins a tie.
    return html > json if json is not None else html >= (anything or 0.0)


def content_type(headers: Headers) -> str:
    """The media type of a body, in lower case and without parameters; "" if there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _ranges(header: str) -> Iterator[tuple[str, float]]:
    """The values of a header, in lower case, each with its quality from 0 to 1."""
    for entry in header.lower().split(",")[:_RANGES_MAX]:
        name, *parameters = (part.strip() for part in entry.split(";"))
        yield name, _quality(parameters)


def _quality(parameters: Sequence[str]) -> float:
    for one in parameters:
        name, _, value = one.partition("=")
        if name.rstrip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
