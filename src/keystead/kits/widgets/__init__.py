"""Widgets: counters, like buttons, rankings, boards and welcome cards that any page can show, each for one address."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.models import (
    BbsMessage,
    BbsRecord,
    BbsSettings,
    CounterRecord,
    LikeRecord,
    RankingEntry,
    RankingMeta,
    RankingRecord,
    WelcomeRecord,
)

if TYPE_CHECKING:
    from keystead.kits.widgets.routes import KIT
    from keystead.kits.widgets.service import WidgetRefused, Widgets, WidgetSettings

__all__ = [
    "KIT",
    "BbsMessage",
    "BbsRecord",
    "BbsSettings",
    "CounterRecord",
    "LikeRecord",
    "RankingEntry",
    "RankingMeta",
    "RankingRecord",
    "WelcomeRecord",
    "WidgetKeys",
    "WidgetRefused",
    "WidgetSettings",
    "Widgets",
]

_LATER = {"KIT": "routes", **dict.fromkeys(("WidgetRefused", "WidgetSettings", "Widgets"), "service")}


def __getattr__(name: str) -> Any:
    """What needs a web framework is imported when it is asked for: `keystead check` and its like never do."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
