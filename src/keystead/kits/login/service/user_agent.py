"""Browser and device names from a User-Agent header."""

from __future__ import annotations

import re
from typing import Final

_MAX_CHARS: Final = 1000  # of a header that is examined

# The first match wins: many browsers also name the browsers they are derived from.
_BROWSERS: Final = (
    ("Edge", r"Edg(?:e|A|iOS)?/"),
    ("Opera", r"OPR/|Opera"),
    ("Samsung Internet", r"SamsungBrowser/"),
    ("Whale", r"Whale/"),
    ("Vivaldi", r"Vivaldi/"),
    ("Firefox", r"Firefox/|FxiOS/"),
    ("Chrome", r"Chrome/|CriOS/|Chromium/"),
    ("Safari", r"Version/[\d.]+.*Safari/"),
    ("curl", r"^curl/"),
)
_DEVICES: Final = (
    ("iPhone", r"iPhone"),
    ("iPad", r"iPad"),
    ("Android", r"Android"),
    ("ChromeOS", r"CrOS"),
    ("Windows", r"Windows"),
    ("Mac", r"Macintosh|Mac OS X"),
    ("Linux", r"Linux|X11"),
)


def browser_and_device(agent: str) -> tuple[str | None, str | None]:
    """Such as `Firefox` and `Windows`; None for each that is not recognized.

    Only these names are stored: the header itself could identify a person, and may contain anything.
    """
    return _first_match(_BROWSERS, agent[:_MAX_CHARS]), _first_match(_DEVICES, agent[:_MAX_CHARS])


def _first_match(known: tuple[tuple[str, str], ...], agent: str) -> str | None:
    return next((name for name, pattern in known if re.search(pattern, agent)), None)
