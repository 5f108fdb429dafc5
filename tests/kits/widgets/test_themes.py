"""The six themes: original colours, contrast, and the same data for components."""

import json
import re
from dataclasses import fields

import pytest

from keystead.kits.widgets.themes import ICON_PATHS, THEMES, Theme, UnknownTheme, as_module, theme_named

COLOURS = [
    *("background", "text", "border", "surface", "ink", "muted", "line", "field", "accent", "on_accent", "like", "bad"),
]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def grounds(theme: Theme) -> list[str]:
    return [theme.background, theme.background_end or theme.background, theme.surface]


def test_there_are_six_themes() -> None:
    assert list(THEMES) == ["light", "dark", "retro", "kawaii", "mom", "final"]


@pytest.mark.parametrize(
    ("name", "background", "text", "border"),
    [
        ("light", "#ffffff", "#000000", "#000000"),
        ("dark", "#1a1a1a", "#ffffff", "#ffffff"),
        ("kawaii", "#e0f7fa", "#ff69b4", "#9c27b0"),
    ],
)
def test_theme_colours_match_the_original(name: str, background: str, text: str, border: str) -> None:
    theme = THEMES[name]
    assert (theme.background, theme.text, theme.border) == (background, text, border)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_every_colour_is_rrggbb(theme: Theme) -> None:
    for name in COLOURS:
        assert re.fullmatch(r"#[0-9a-f]{6}", getattr(theme, name)), name


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_text_has_enough_contrast(theme: Theme) -> None:
    for ground in grounds(theme):
        for name in ("ink", "muted", "accent", "bad"):
            assert contrast(getattr(theme, name), ground) >= 4.5, (name, ground)
    assert contrast(theme.on_accent, theme.accent) >= 4.5


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_controls_have_enough_contrast(theme: Theme) -> None:
    for ground in grounds(theme):
        assert contrast(theme.field, ground) >= 3, ("field", ground)
        assert contrast(theme.like, ground) >= 3, ("like", ground)


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_digits_or_their_outline_have_enough_contrast(theme: Theme) -> None:
    seen = theme.border if theme.outlined else theme.text
    assert contrast(seen, theme.background) >= 4.5


def test_an_unknown_theme_error_lists_the_themes() -> None:
    with pytest.raises(UnknownTheme, match="light, dark, retro, kawaii, mom, final"):
        theme_named("neon")


def test_components_get_the_same_themes_and_icons_as_the_pictures() -> None:
    found = dict(re.findall(r"export const (\w+) = (\{.*?\n\});", as_module(), re.DOTALL))
    themes, icons = json.loads(found["THEMES"]), json.loads(found["ICON_PATHS"])
    assert icons == ICON_PATHS
    assert list(themes) == list(THEMES)
    assert themes["final"]["backgroundEnd"] == THEMES["final"].background_end
    assert all(len(theme) == len(fields(Theme)) for theme in themes.values())
    assert all("_" not in key for theme in themes.values() for key in theme)
