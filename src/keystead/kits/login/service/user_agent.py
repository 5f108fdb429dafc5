"""What a browser says of itself, in the two words that a person knows it by."""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 1000  # of a header that is looked at

# The first that fits counts: many browsers name those that they descend from, too.
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
    """`Firefox` and `Windows`, by a User-Agent header; None where it names none that is known.

    Only these words are kept: the header itself would tell strangers apart, and may hold anything.
    """
    return _first(_BROWSERS, agent[:_LONGEST]), _first(_DEVICES, agent[:_LONGEST])


def _first(known: tuple[tuple[str, str], ...], agent: str) -> str | None:
    return next((name for name, pattern in known if re.search(pattern, agent)), None)
