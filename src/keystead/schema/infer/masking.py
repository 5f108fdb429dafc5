"""Masking: examples that show the form of a key without its ids, which may be tokens, addresses or names."""

from __future__ import annotations

from typing import Any, Final

from keystead.errors import printable
from keystead.schema.key_forms import VARIABLE, allows
from keystead.schema.key_shapes import Node, Shape

_SHOWN: Final = 2  # characters of an id
_LONG: Final = 8
_EXAMPLES: Final = 3
_COLUMNS: Final = 90


def masked_keys(shape: Shape[Any]) -> str:
    """Examples of keys of this shape: dates and short numbers as they are, a few characters of other ids."""
    keys = (shape.delimiter.join(_masked_segment(node, at) for node in shape.path) for at in range(_EXAMPLES))
    first, *others = dict.fromkeys(keys)
    text = first
    for other in others:
        if len(text) + len(other) <= _COLUMNS:
            text = f"{text}, {other}"
    return text


def _masked_segment(node: Node[Any], at: int) -> str:
    pieces = node.form.split(VARIABLE)
    text = printable(pieces[0])
    for variable, piece in zip(node.variables, pieces[1:], strict=True):
        examples = sorted(variable.examples)
        example = examples[at % len(examples)] if examples else ""
        is_plain = any(allows(variable.types, name) for name in ("date", "month"))
        text += (example if is_plain else mask(example)) + printable(piece)
    return text


def mask(text: str) -> str:
    """The first characters of an id that is long enough, and its length."""
    if len(text) <= 4 and text.isdigit():
        return text
    shown = printable(text[:_SHOWN]) if len(text) >= _LONG else ""
    return f"{shown}…({len(text)})"
