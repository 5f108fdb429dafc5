"""Masking: examples that show the form of a key without its ids, which may be tokens, addresses or names."""

from __future__ import annotations

from typing import Any, Final

from keystead.errors import printable
from keystead.schema.key_forms import VARIABLE, allows
from keystead.schema.key_shapes import Node, Shape

_SHOWN: Final = 2  # characters of an id
_LONG: Final = 8


def masked_key(shape: Shape[Any]) -> str:
    """An example of keys of this shape: numbers and dates as they are, a few characters of other ids."""
    return shape.delimiter.join(map(_masked_segment, shape.path))


def _masked_segment(node: Node[Any]) -> str:
    pieces = node.form.split(VARIABLE)
    text = printable(pieces[0])
    for variable, piece in zip(node.variables, pieces[1:], strict=True):
        example = min(variable.examples, default="")
        is_plain = any(allows(variable.types, name) for name in ("date", "month"))
        text += (example if is_plain else mask(example)) + printable(piece)
    return text


def mask(text: str) -> str:
    """The first characters of an id that is long enough, and its length."""
    if len(text) <= 4 and text.isdigit():
        return text
    shown = printable(text[:_SHOWN]) if len(text) >= _LONG else ""
    return f"{shown}…({len(text)})"
