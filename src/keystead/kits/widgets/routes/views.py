"""How an outcome is shown where no JSON is asked for: as text for scripts, as a picture for a plain `<img>`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from keystead.kits.widgets import pictures
from keystead.kits.widgets.pictures import DEFAULT_THEME, BoardLine, RankingLine
from keystead.kits.widgets.service.outcomes import BoardData, CounterData, Entry, LikeData, RankingData, WelcomeData

Given = Mapping[str, Any]


@dataclass(frozen=True)
class View:
    """How one service is shown.

    text     of the outcome and of what was given
    picture  the same, and whether it is for whoever asks alone: one that others are shown too tells nothing of them
    """

    text: Callable[[Any, Given], str]
    picture: Callable[[Any, Given, bool], str]


def _theme(given: Given) -> str:
    theme: str = given.get("theme", DEFAULT_THEME)
    return theme


def _visits(outcome: CounterData | int, given: Given) -> int:
    if isinstance(outcome, int):
        return outcome
    number: int = getattr(outcome, given.get("type", "total"))
    return number


def _counter(outcome: CounterData | int, given: Given, personal: bool) -> str:
    return pictures.counter(_visits(outcome, given), theme=_theme(given), digits=given.get("digits"))


def _likes(outcome: LikeData | int, given: Given) -> str:
    return str(outcome if isinstance(outcome, int) else outcome.total)


def _like(outcome: LikeData | int, given: Given, personal: bool) -> str:
    if isinstance(outcome, int):
        return pictures.like(outcome, theme=_theme(given))
    liked = personal and outcome.userLiked
    return pictures.like(outcome.total, theme=_theme(given), icon=outcome.icon, liked=liked)


def _entries(outcome: RankingData, given: Given) -> str:
    return "".join(f"{entry.rank}\t{entry.name}\t{_score(entry)}\n" for entry in outcome.entries)


def _score(entry: Entry) -> str:
    return str(entry.score) if entry.displayScore is None else entry.displayScore


def _ranking(outcome: RankingData, given: Given, personal: bool) -> str:
    lines = (RankingLine(entry.rank, entry.name, _score(entry)) for entry in outcome.entries)
    return pictures.ranking(outcome.title, lines, theme=_theme(given))


def _messages(outcome: BoardData, given: Given) -> str:
    """A line a message: those that have several become one."""
    return "".join(f"{one.timestamp}\t{one.author}\t{' '.join(one.message.split())}\n" for one in outcome.messages)


def _board(outcome: BoardData, given: Given, personal: bool) -> str:
    lines = (BoardLine(one.author, one.message) for one in outcome.messages)
    return pictures.bbs(outcome.title, lines, theme=_theme(given), limit=given.get("limit"))


def _welcome(outcome: WelcomeData, given: Given, personal: bool) -> str:
    if outcome.mode == "badge":
        return pictures.welcome_badge(outcome.message, theme=_theme(given))
    year, month, day = outcome.updatedAt[:10].split("-")
    date = f"{month}-{day}-{year}" if given.get("lang") == "en" else f"{year}-{month}-{day}"
    theme = _theme(given)
    return pictures.welcome_card(outcome.message, name=outcome.name, avatar=outcome.avatar, date=date, theme=theme)


COUNTER: Final = View(lambda outcome, given: str(_visits(outcome, given)), _counter)
LIKE: Final = View(_likes, _like)
RANKING: Final = View(_entries, _ranking)
BOARD: Final = View(_messages, _board)
WELCOME: Final = View(lambda outcome, given: outcome.message, _welcome)
