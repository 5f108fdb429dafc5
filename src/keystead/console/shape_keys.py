"""The keys of one shape, such as `legacy:{int}:user`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from keystead.schema.key_shapes import DELIMITERS

_PLACEHOLDER: Final = re.compile(r"\{\w+\}")


def shape_matcher(shape: str) -> Callable[[bytes], bool]:
    """Whether a key may have this shape: its literals are there, and no placeholder holds a delimiter."""
    delimiter = next((one for one in DELIMITERS if one in shape), "")
    anything = f"[^{delimiter}]+" if delimiter else ".+"
    wanted = re.compile(anything.join(map(re.escape, _PLACEHOLDER.split(shape))), re.DOTALL)
    return lambda raw: wanted.fullmatch(raw.decode("utf-8", "replace")) is not None
