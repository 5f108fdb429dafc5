"""Durations: a number and its unit."""

from __future__ import annotations

from keystead.errors import BadUrl

# Default time limits of a call and of connecting.
TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0

_UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0))


def seconds(name: str, text: str) -> float:
    """The duration of a URL's option, such as `500ms`, `2s` or `1m`. A number without a unit is refused."""
    for unit, factor in _UNITS:
        number = text.removesuffix(unit)
        if number != text and number.isascii() and number.replace(".", "", 1).isdigit() and float(number) > 0:
            return float(number) * factor
    raise BadUrl(f"{name}={text} is not a duration; write a number with a unit, such as {name}=500ms or {name}=2s")
