"""Views of widgets other than JSON: text for scripts, pictures for `<img>`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from keystead.kits.widgets import pictures
from keystead.kits.widgets.pictures import BoardLine, RankingLine
from keystead.kits.widgets.routes.requests import (
    BoardRequest,
    CounterRequest,
    LikeRequest,
    RankingRequest,
    WelcomeRequest,
)
from keystead.kits.widgets.service.outcomes import BoardData, CounterData, Entry, LikeData, RankingData, WelcomeData


@dataclass(frozen=True)
class View:
    """The text and picture of a service.

    parameters    the parameters besides `format`
    text          makes the text from the result and the request
    picture       the same, and whether the picture is for this visitor only: a public one reveals nothing about them
    missing_is_0  show a missing widget as 0; its result is None
    """

    parameters: tuple[str, ...]
    text: Callable[[Any, Any], str]
    picture: Callable[[Any, Any, bool], str]
    missing_is_0: bool = False


def _count_visits(result: CounterData | None, given: CounterRequest) -> int:
    number: int = 0 if result is None else getattr(result, given.type)
    return number


def _draw_counter(result: CounterData | None, given: CounterRequest, personal: bool) -> str:
    return pictures.counter(_count_visits(result, given), theme=given.theme, digits=given.digits)


def _draw_like(result: LikeData | None, given: LikeRequest, personal: bool) -> str:
    if result is None:
        return pictures.like(0, theme=given.theme)
    liked = personal and result.user_liked
    return pictures.like(result.total, theme=given.theme, icon=result.icon, liked=liked)


def _format_score(entry: Entry) -> str:
    return str(entry.score) if entry.display_score is None else entry.display_score


def _list_entries(result: RankingData, given: RankingRequest) -> str:
    return "".join(f"{entry.rank}\t{entry.name}\t{_format_score(entry)}\n" for entry in result.entries)


def _draw_ranking(result: RankingData, given: RankingRequest, personal: bool) -> str:
    lines = (RankingLine(entry.rank, entry.name, _format_score(entry)) for entry in result.entries)
    return pictures.ranking(result.title, lines, theme=given.theme)


def _list_messages(result: BoardData, given: BoardRequest) -> str:
    """One line per message, even if the message has several."""
    return "".join(f"{one.timestamp}\t{one.author}\t{' '.join(one.message.split())}\n" for one in result.messages)


def _draw_board(result: BoardData, given: BoardRequest, personal: bool) -> str:
    lines = (BoardLine(one.author, one.message) for one in result.messages)
    return pictures.bbs(result.title, lines, theme=given.theme, limit=given.limit)


def _draw_welcome(result: WelcomeData, given: WelcomeRequest, personal: bool) -> str:
    if result.mode == "badge":
        return pictures.welcome_badge(result.message, theme=given.theme)
    year, month, day = result.updated_at[:10].split("-")
    date = f"{month}-{day}-{year}" if given.lang == "en" else f"{year}-{month}-{day}"
    return pictures.welcome_card(result.message, name=result.name, avatar=result.avatar, date=date, theme=given.theme)


COUNTER: Final = View(
    ("type", "theme", "digits"),
    lambda result, given: str(_count_visits(result, given)),
    _draw_counter,
    missing_is_0=True,
)
LIKE: Final = View(
    ("theme",), lambda result, given: str(0 if result is None else result.total), _draw_like, missing_is_0=True
)
RANKING: Final = View(("theme",), _list_entries, _draw_ranking)
BOARD: Final = View(("theme",), _list_messages, _draw_board)
WELCOME: Final = View(("theme", "lang"), lambda result, given: result.message, _draw_welcome)
