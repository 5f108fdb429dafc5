"""Widgets as SVG pictures, for `<img>` and READMEs. Pure functions.

A picture runs no script and loads nothing. User text is escaped, stripped of characters that XML does not allow or that
change the text direction, and isolated, so that right-to-left text does not affect its surroundings.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from typing import Final, NamedTuple

from keystead.kits.widgets.themes import BADGE, CAT_PATH, ICON_PATHS, Theme, theme_named

DEFAULT_THEME: Final = "dark"

RANKING_LINES: Final = 5
BOARD_LINES: Final = 3
BOARD_LINES_MAX: Final = 10
WELCOME_LINES: Final = 10

_DIGIT_PX: Final = 12
_DIGITS_FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_LIST_PX: Final = 320
_CARD_PX: Final = 350
_LINE_PX: Final = 30
_CLUSTER_MAX: Final = 12  # code points per character; the longest emoji in use have 10
_ISOLATED: Final = "\u2068{}\u2069"  # isolates its text direction
_JOINERS: Final = frozenset("\u200c\u200d")  # in emoji, Persian and Indic scripts


class RankingLine(NamedTuple):
    rank: int
    name: str
    score: str


class BoardLine(NamedTuple):
    author: str
    message: str


def counter(value: int, *, theme: str = DEFAULT_THEME, digits: int | None = None) -> str:
    """A number in a frame, 12 px per digit and 30 px high, padded with zeros to `digits`, and never truncated.

    The theme `github` is a badge. Raises UnknownTheme.
    """
    shown = str(value) if digits is None else str(value).zfill(digits)
    if theme == BADGE:
        return _badge("visitors", shown)
    look = theme_named(theme)
    width, height = _DIGIT_PX * len(shown) + 20, 30
    text = (
        f'<text x="{width / 2:g}" y="22" text-anchor="middle" font-family="{_DIGITS_FONT}" font-size="20" '
        f'font-weight="bold" textLength="{_DIGIT_PX * len(shown)}" lengthAdjust="spacingAndGlyphs"{_paint(look)}>'
        f"{shown}</text>"
    )
    return _picture(look, width, height, f"Visits: {value}", text)


def like(value: int, *, theme: str = DEFAULT_THEME, icon: str = "heart", liked: bool = False) -> str:
    """An icon, filled if `liked`, and a number, 120 by 40 px. Raises UnknownTheme."""
    look = theme_named(theme)
    fill = look.like if liked else "none"
    drawn = (
        f'<path transform="translate(14 8)" d="{ICON_PATHS.get(icon, ICON_PATHS["heart"])}" fill="{fill}" '
        f'stroke="{look.like}" stroke-width="1.8" stroke-linejoin="round"/>'
    )
    shown = str(value)
    squeezed = ' textLength="66" lengthAdjust="spacingAndGlyphs"' if len(shown) > 6 else ""
    text = (
        f'<text x="78" y="26" text-anchor="middle" font-family="{_font(look)}" font-size="17" font-weight="bold" '
        f'fill="{look.ink}"{squeezed}>{shown}</text>'
    )
    return _picture(look, 120, 40, f"Likes: {value}", drawn, text)


def ranking(title: str | None, lines: Iterable[RankingLine], *, theme: str = DEFAULT_THEME) -> str:
    """The first five lines of a ranking. Raises UnknownTheme."""
    look = theme_named(theme)
    shown = list(islice(lines, RANKING_LINES))
    heading = _cut(title or "", 30) or "Ranking"
    rows: list[str] = []
    for number, line in enumerate(shown):
        top = 44 + number * _LINE_PX
        score = _cut(line.score, 16)
        rows.append(
            _draw_divider(look, number, top)
            + _text(look, 36, top + 20, str(line.rank), anchor="end", weight="bold", colour=look.accent)
            + _text(look, 48, top + 20, _cut(line.name, (26 if _is_wide(look) else 30) - _columns(score)))
            + _text(look, _LIST_PX - 14, top + 20, score, anchor="end", weight="bold")
        )
    summary = "; ".join(f"{line.rank}. {_cut(line.name, 30)}, {_cut(line.score, 16)}" for line in shown)
    return _list_picture(look, heading, rows, summary or "No entries yet")


def bbs(title: str | None, lines: Iterable[BoardLine], *, theme: str = DEFAULT_THEME, limit: int | None = None) -> str:
    """The first three messages of a board, or up to ten with `limit`, one line each. Raises UnknownTheme."""
    look = theme_named(theme)
    shown = list(islice(lines, min(limit or BOARD_LINES, BOARD_LINES_MAX)))
    heading = _cut(title or "", 30) or "BBS"
    rows: list[str] = []
    for number, line in enumerate(shown):
        top = 44 + number * _LINE_PX * 1.5
        rows.append(
            _draw_divider(look, number, top)
            + _text(look, 14, top + 18, _cut(line.author, 30), size=12, weight="bold", colour=look.accent)
            + _text(look, 14, top + 37, _cut(line.message, 32 if _is_wide(look) else 38))
        )
    summary = "; ".join(f"{_cut(line.author, 30)}: {_cut(line.message, 38)}" for line in shown)
    return _list_picture(look, heading, rows, summary or "No messages yet", _LINE_PX * 1.5)


def welcome_badge(message: str, *, theme: str = DEFAULT_THEME) -> str:
    """A cat with a one-line message, 30 px high. Raises UnknownTheme."""
    look = theme_named(theme)
    shown = _cut(message, 40)
    width = 42 + round((8.6 if _is_wide(look) else 7.8) * _columns(shown)) + 12
    words = _text(look, 42, 20, shown, weight="bold")
    return _picture(look, width, 30, f"Welcome: {shown}", _cat(look, 8, 3, 24), words)


def welcome_card(
    message: str, *, name: str | None, date: str, avatar: str | None = None, theme: str = DEFAULT_THEME
) -> str:
    """Name, date, and a message of at most ten lines. Raises UnknownTheme.

    An avatar is drawn only if it is a data URL, because a picture loads nothing.
    """
    look = theme_named(theme)
    columns = 38 if _is_wide(look) else 44
    lines = list(islice(_wrap(message, columns), WELCOME_LINES))
    face = _cat(look, 14, 12, 36)
    if avatar is not None and avatar.startswith("data:image/"):
        face = (
            '<clipPath id="face"><circle cx="32" cy="30" r="18"/></clipPath>'
            f'<image href="{escape(avatar)}" x="14" y="12" width="36" height="36" clip-path="url(#face)" '
            'preserveAspectRatio="xMidYMid slice"/>'
        )
    sender = _cut(name or "", 30) or "Yokoso"
    parts = [
        face,
        _text(look, 60, 27, sender, weight="bold", colour=look.accent),
        _text(look, 60, 44, date, size=12, colour=look.muted),
        *(_text(look, 14, 72 + number * 20, line) for number, line in enumerate(lines)),
    ]
    return _picture(look, _CARD_PX, 66 + 20 * len(lines) + 8, f"{sender}: {' '.join(lines)}", *parts)


def _cat(look: Theme, x: float, y: float, size: float) -> str:
    scale = size / 24
    return (
        f'<g transform="translate({x:g} {y:g}) scale({scale:g})" fill="none" stroke="{look.accent}" stroke-width="1.8" '
        'stroke-linecap="round" stroke-linejoin="round">'
        f'<path d="{CAT_PATH}"/></g>'
    )


def _wrap(text: str, columns: int) -> Iterator[str]:
    """Lines of at most so many columns, wrapped between words if possible."""
    for line in text.split("\n"):
        wrapped = ""
        for word in _split_words(_clean(line), columns):
            if wrapped and _columns(wrapped) + _columns(word) > columns:
                yield wrapped.rstrip()
                wrapped = ""
            wrapped += word
        yield wrapped.rstrip()


def _split_words(line: str, columns: int) -> Iterator[str]:
    """Words with their trailing space; long words and East Asian text are split into characters."""
    for word in re.findall(r"\S+\s*", line):
        if _columns(word) <= columns and word.isascii():
            yield word
        else:
            yield from _clusters(word)


def error(text: str = "Error") -> str:
    """An error message as a picture."""
    shown = _cut(text, 40) or "Error"
    width = round(7.5 * _columns(shown)) + 24
    return (
        f"{_open_svg(width, 30, shown)}"
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="29" rx="6" fill="#fdeceb" stroke="#b42318"/>'
        f'<text x="{width / 2:g}" y="20" text-anchor="middle" font-family="{_SANS}" font-size="13" font-weight="bold" '
        f'fill="#912018">{_escape_text(shown)}</text></svg>'
    )


# --- drawing ------------------------------------------------------------------------------------------------------

_SANS: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def _open_svg(width: float, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" direction="ltr"><title>{_escape_text(title)}</title>'
    )


def _picture(look: Theme, width: float, height: float, title: str, *parts: str) -> str:
    inset = look.frame / 2
    box = (
        f'x="{inset:g}" y="{inset:g}" width="{width - look.frame:g}" height="{height - look.frame:g}" '
        f'rx="{min(look.radius, height / 2):g}"'
    )
    defined = _gradient(look) + _pattern(look)
    return "".join(
        (
            _open_svg(width, height, title),
            f"<defs>{defined}</defs>" if defined else "",
            f'<rect {box} fill="{f"url(#{look.name}-fade)" if look.background_end else look.background}"/>',
            f'<rect {box} fill="url(#{look.name}-pattern)"/>' if look.pattern != "none" else "",
            *parts,
            f'<rect {box} fill="none" stroke="{look.border}" stroke-width="{look.frame}"/>',
            "</svg>",
        )
    )


def _list_picture(look: Theme, heading: str, rows: Sequence[str], summary: str, row_px: float = _LINE_PX) -> str:
    empty = _text(look, 14, 64, summary, colour=look.muted)
    height = 44 + max(len(rows) * row_px, _LINE_PX) + 8
    parts = (
        _text(look, 14, 28, heading, size=16, weight="bold"),
        _draw_divider(look, 1, 44),
        *(rows or (empty,)),
    )
    return _picture(look, _LIST_PX, height, f"{heading}: {summary}", *parts)


def _draw_divider(look: Theme, number: int, top: float) -> str:
    """A line above each row but the first."""
    return f'<path d="M{look.frame} {top - 0.5:g}h{_LIST_PX - 2 * look.frame}" stroke="{look.line}"/>' if number else ""


def _text(
    look: Theme,
    x: float,
    y: float,
    words: str,
    *,
    size: int = 14,
    anchor: str = "start",
    weight: str = "normal",
    colour: str | None = None,
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-family="{_font(look)}" font-size="{size}" '
        f'font-weight="{weight}" fill="{colour or look.ink}">{_escape_text(words)}</text>'
    )


def _paint(look: Theme) -> str:
    outline = f' stroke="{look.border}" stroke-width="2" stroke-linejoin="round" paint-order="stroke"'
    return f' fill="{look.text}"{outline if look.outlined else ""}'


def _gradient(look: Theme) -> str:
    if look.background_end is None:
        return ""
    return (
        f'<linearGradient id="{look.name}-fade" x2="0" y2="1">'
        f'<stop stop-color="{look.background}"/><stop offset="1" stop-color="{look.background_end}"/></linearGradient>'
    )


def _pattern(look: Theme) -> str:
    drawn = {
        "none": "",
        "scanlines": f'<pattern id="{look.name}-pattern" width="4" height="4" patternUnits="userSpaceOnUse">'
        '<path d="M0 3h4" stroke="#000000" stroke-opacity="0.3" stroke-width="2"/></pattern>',
        "dots": f'<pattern id="{look.name}-pattern" width="14" height="14" patternUnits="userSpaceOnUse">'
        '<circle cx="4" cy="4" r="2" fill="#ffffff"/><circle cx="11" cy="11" r="2" fill="#ffffff"/></pattern>',
        "gingham": f'<pattern id="{look.name}-pattern" width="16" height="16" patternUnits="userSpaceOnUse">'
        f'<path d="M0 4h16M4 0v16" stroke="{look.border}" stroke-opacity="0.07" stroke-width="8"/></pattern>',
    }
    return drawn[look.pattern]


def _is_wide(look: Theme) -> bool:
    return look.font.endswith("monospace")


def _font(look: Theme) -> str:
    return look.font.replace('"', "'")


def _badge(label: str, value: str) -> str:
    """A badge as in READMEs: a grey label, and a value on colour."""
    left, right = round(6.2 * len(label)) + 10, round(7 * len(value)) + 10
    width = left + right

    def words(text: str, middle: float, long: float) -> str:
        place = f'text-anchor="middle" textLength="{long:g}" lengthAdjust="spacingAndGlyphs"'
        return (
            f'<text x="{middle:g}" y="15" fill="#010101" fill-opacity="0.3" {place}>{text}</text>'
            f'<text x="{middle:g}" y="14" {place}>{text}</text>'
        )

    return (
        f"{_open_svg(width, 20, f'{label}: {value}')}"
        '<defs><linearGradient id="shine" x2="0" y2="1"><stop stop-color="#bbbbbb" stop-opacity="0.1"/>'
        '<stop offset="1" stop-opacity="0.1"/></linearGradient>'
        f'<clipPath id="round"><rect width="{width}" height="20" rx="3"/></clipPath></defs>'
        f'<g clip-path="url(#round)"><rect width="{left}" height="20" fill="#555555"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="#0969c8"/>'
        f'<rect width="{width}" height="20" fill="url(#shine)"/></g>'
        '<g fill="#ffffff" font-family="Verdana, Geneva, \'DejaVu Sans\', sans-serif" font-size="11">'
        f"{words(label, left / 2, left - 10)}{words(value, left + right / 2, right - 10)}</g></svg>"
    )


# --- user text ----------------------------------------------------------------------------------------------------


def _escape_text(text: str) -> str:
    """The text, cleaned and escaped; right-to-left text is isolated."""
    clean = _clean(text)
    has_rtl = any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in clean)
    return escape(_ISOLATED.format(clean) if has_rtl else clean)


def _clean(text: str) -> str:
    """One line, without characters that XML does not allow or that affect the text around them."""
    visible = "".join(letter for letter in text.replace("\n", " ").replace("\t", " ") if _is_visible(letter))
    return "".join(_clusters(" ".join(visible.split())))


def _is_visible(letter: str) -> bool:
    if letter in _JOINERS or "\U000e0020" <= letter <= "\U000e007f":  # the latter are tags of regional flags
        return True
    return unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _cut(text: str, columns: int) -> str:
    """As much as fits, in whole grapheme clusters; East Asian characters and emoji take two columns."""
    clean = _clean(text)
    if _columns(clean) <= columns:
        return clean
    shortened, used = "", 0
    for cluster in _clusters(clean):
        used += _columns(cluster)
        if used > columns - 1:
            break
        shortened += cluster
    return f"{shortened.rstrip()}…"


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(cluster[0]) in "WF" else 1 for cluster in _clusters(text))


def _clusters(text: str) -> Iterator[str]:
    """Grapheme clusters: a letter with its marks, an emoji with its parts, the two halves of a flag."""
    cluster = ""
    for letter in text:
        if cluster and not _extends(cluster, letter):
            yield cluster
            cluster = ""
        if len(cluster) < _CLUSTER_MAX:  # more marks would paint over the neighbours
            cluster += letter
    if cluster:
        yield cluster


def _extends(cluster: str, letter: str) -> bool:
    if letter in _JOINERS or unicodedata.category(letter) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= letter <= "\U0001f3ff" or "\U000e0020" <= letter <= "\U000e007f":  # skin tones, tags
        return True
    is_half = "\U0001f1e6" <= letter <= "\U0001f1ff"
    return cluster.endswith("\u200d") or (is_half and len(cluster) == 1 and "\U0001f1e6" <= cluster <= "\U0001f1ff")
