"""Themes of widgets, as data for the pictures (`pictures.py`) and the components (`as_module`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, Literal

Pattern = Literal["none", "scanlines", "dots", "gingham"]

_SANS: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_MONO: Final = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
_ROUND: Final = '"Hiragino Maru Gothic ProN", "Arial Rounded MT Bold", Quicksand, Nunito, "Segoe UI", sans-serif'
_HOMELY: Final = '"Trebuchet MS", "Gill Sans", Candara, "Segoe UI", sans-serif'
_SERIF: Final = 'Palatino, "Palatino Linotype", "Book Antiqua", "Noto Serif", "DejaVu Serif", Georgia, serif'


@dataclass(frozen=True)
class Theme:
    """A theme. Colours are `#rrggbb`.

    background, text, border  the box, digits and frame of a counter
    background_end            the end of the background gradient; None: a flat background
    outlined                  light digits on a light background get an outline in the border colour
    surface                   the background of forms
    ink, muted                primary and secondary text
    line                      dividers of lists
    field                     the border of input fields
    accent, on_accent         buttons, and the text on them
    like                      the icon of a like button
    bad                       errors
    radius, frame             corner radius and frame width, in px
    pattern                   a faint pattern on the background
    """

    name: str
    title: str
    background: str
    text: str
    border: str
    surface: str
    ink: str
    muted: str
    line: str
    field: str
    accent: str
    on_accent: str
    like: str
    bad: str
    radius: int
    frame: int
    font: str
    scheme: Literal["light", "dark"] = "light"
    background_end: str | None = None
    outlined: bool = False
    pattern: Pattern = "none"


_ALL: Final = (
    Theme(
        name="light",
        title="Light",
        background="#ffffff",
        text="#000000",
        border="#000000",
        surface="#f5f5f4",
        ink="#1c1917",
        muted="#57534e",
        line="#e2e0dd",
        field="#8a8580",
        accent="#1d4ed8",
        on_accent="#ffffff",
        like="#d6264f",
        bad="#b42318",
        radius=6,
        frame=1,
        font=_SANS,
    ),
    Theme(
        name="dark",
        title="Dark",
        background="#1a1a1a",
        text="#ffffff",
        border="#ffffff",
        surface="#262626",
        ink="#f2f2f2",
        muted="#b5b5b5",
        line="#3a3a3a",
        field="#8c8c8c",
        accent="#9ec1ff",
        on_accent="#0c1a33",
        like="#ff7a95",
        bad="#ff9d94",
        radius=6,
        frame=1,
        font=_SANS,
        scheme="dark",
    ),
    Theme(
        name="retro",
        title="Retro",
        background="#06140a",
        text="#4dff88",
        border="#2aa653",
        surface="#0b2412",
        ink="#8dffb3",
        muted="#5fcf88",
        line="#17502a",
        field="#2aa653",
        accent="#ffcf4d",
        on_accent="#1d1400",
        like="#ffcf4d",
        bad="#ff9a76",
        radius=0,
        frame=2,
        font=_MONO,
        scheme="dark",
        pattern="scanlines",
    ),
    Theme(
        name="kawaii",
        title="Kawaii",
        background="#e0f7fa",
        text="#ff69b4",
        border="#9c27b0",
        surface="#fdf1fa",
        ink="#5b1669",
        muted="#7b3a8a",
        line="#f3c3e4",
        field="#b76bc6",
        accent="#b8186f",
        on_accent="#ffffff",
        like="#e0218a",
        bad="#b3123f",
        radius=16,
        frame=2,
        font=_ROUND,
        outlined=True,
        pattern="dots",
    ),
    Theme(
        name="mom",
        title="Mom",
        background="#fff8e7",
        text="#2f6b34",
        border="#e07b00",
        surface="#eef6e3",
        ink="#3a2f1e",
        muted="#6d5a3c",
        line="#e6c58c",
        field="#a3742c",
        accent="#2f6b34",
        on_accent="#ffffff",
        like="#c8371b",
        bad="#a92d12",
        radius=10,
        frame=2,
        font=_HOMELY,
        pattern="gingham",
    ),
    Theme(
        name="final",
        title="Final",
        background="#2438a8",
        text="#ffffff",
        border="#e8ecff",
        surface="#16226f",
        ink="#f3f5ff",
        muted="#c6cffb",
        line="#4a5cc9",
        field="#aab6f5",
        accent="#ffe082",
        on_accent="#1a1f4d",
        like="#ff9db5",
        bad="#ffc2b8",
        radius=8,
        frame=2,
        font=_SERIF,
        scheme="dark",
        background_end="#080d3a",
    ),
)

THEMES: Final[dict[str, Theme]] = {theme.name: theme for theme in _ALL}
"""By name, in the order of the theme picker."""

BADGE: Final = "github"
"""A theme of the counter picture only: a badge for a README."""

# The icons of like buttons, each 24 by 24.
ICON_PATHS: Final[dict[str, str]] = {
    "heart": (
        "M12 20.7 10.6 19.4C5.6 14.9 2.4 12 2.4 8.4 2.4 5.5 4.7 3.2 7.6 3.2c1.7 0 3.3.8 4.4 2 1-1.2 2.7-2 4.4-2 2.9 0 "
        "5.2 2.3 5.2 5.2 0 3.6-3.2 6.5-8.2 11Z"
    ),
    "star": "m12 2.6 2.9 6 6.6.9-4.8 4.6 1.2 6.5L12 17.5l-5.9 3.1 1.2-6.5L2.5 9.5l6.6-.9Z",
    "thumb": (
        "M2.5 10.2h3.7v10.3H2.5ZM7.8 20.1V10.4l4.1-7.1c.3-.5.8-.6 1.3-.5 1.2.3 1.9 1.5 1.6 2.7l-.8 3.6h5.4"
        "c1.4 0 2.4 1.3 2 2.6l-2 7c-.3 1.1-1.2 1.8-2.3 1.8h-6.6c-1 0-1.9-.1-2.7-.4Z"
    ),
    "peta": (
        "M12 11.6c2.9 0 6 3.4 6 6.3 0 1.7-1.2 2.7-2.8 2.7-1.2 0-2.1-.6-3.2-.6s-2 .6-3.2.6C7.2 20.6 6 19.6 6 17.9"
        "c0-2.9 3.1-6.3 6-6.3ZM8.9 3.2c1.3 0 2.2 1.6 2.2 3.5s-.9 3.4-2.2 3.4-2.2-1.5-2.2-3.4.9-3.5 2.2-3.5Z"
        "m6.2 0c1.3 0 2.2 1.6 2.2 3.5s-.9 3.4-2.2 3.4-2.2-1.5-2.2-3.4.9-3.5 2.2-3.5Z"
        "M4.2 8.7c1.2 0 2.1 1.3 2.1 2.9s-.9 2.9-2.1 2.9-2.1-1.3-2.1-2.9.9-2.9 2.1-2.9Z"
        "m15.6 0c1.2 0 2.1 1.3 2.1 2.9s-.9 2.9-2.1 2.9-2.1-1.3-2.1-2.9.9-2.9 2.1-2.9Z"
    ),
}


class UnknownTheme(ValueError):
    """The theme does not exist; the message lists those that do."""

    def __init__(self, name: str) -> None:
        super().__init__(f"theme must be one of {', '.join(THEMES)}, not {name!r}")
        self.name = name


def theme_named(name: str) -> Theme:
    """Raises UnknownTheme."""
    if name not in THEMES:
        raise UnknownTheme(name)
    return THEMES[name]


# The lucky cat of a welcome card.
CAT_PATH: Final = "M4 21v-9l-.5-8 5 3.2h7l5-3.2-.5 8v9ZM8.6 12.4v.2M15.4 12.4v.2M12 15v1.2M9.6 17.4q2.4 1.6 4.8 0"


def as_module() -> str:
    """The JavaScript module `themes.js`: the themes and icons, with camelCase names."""
    themes = {name: {_camel(key): value for key, value in asdict(theme).items()} for name, theme in THEMES.items()}
    return (
        "// Generated from themes.py.\n"
        f"export const THEMES = {json.dumps(themes, indent=2)};\n\n"
        "// Each 24 by 24.\n"
        f"export const ICON_PATHS = {json.dumps(ICON_PATHS, indent=2)};\n"
        f"export const CAT_PATH = {json.dumps(CAT_PATH)};\n"
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
