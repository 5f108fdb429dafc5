"""Numbers as JavaScript writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

# The numbers of RFC 8259, section 6.
JSON_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
# Floats that Pydantic may write differently from JavaScript end in one of these.
_FLOATS_TO_LOOK_AT = re.compile(rb"(?:\.0|[eE][+-]?[0-9]+)[,\]}]")
_TEXT_OR_FLOAT = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)')


def js_number(number: float) -> str:
    """A finite float as JavaScript writes it: `1` and not `1.0`, `1e+21` and not `1e21`, and no negative zero."""
    if not math.isfinite(number):
        raise ValueError("JSON has no NaN and no infinity")
    text = repr(number or 0.0)
    if "e" not in text:
        return text.removesuffix(".0")
    if 1e-6 <= abs(number) < 1e21:
        return format(Decimal(text), "f")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def js_numbers(data: bytes) -> bytes:
    """JSON with each float as JavaScript writes it."""
    return _TEXT_OR_FLOAT.sub(_js_token, data) if _FLOATS_TO_LOOK_AT.search(data) else data


def _js_token(found: re.Match[bytes]) -> bytes:
    token = found[0]
    return token if token.startswith(b'"') else js_number(float(token)).encode()


def not_finite(tree: Any, path: tuple[str | int, ...] = ()) -> tuple[str | int, ...] | None:
    """The path to a float in a plain value that JSON cannot express; None if there is none."""
    if isinstance(tree, float):
        return None if math.isfinite(tree) else path
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(tree, dict):
        items = tree.items()
    elif isinstance(tree, (list, tuple, set, frozenset)):
        items = enumerate(tree)
    found = (not_finite(value, (*path, part if isinstance(part, int) else str(part))) for part, value in items)
    return next((place for place in found if place is not None), None)
