"""Widgets: counters, like buttons, rankings, boards and welcome cards for any page."""

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

_LAZY = {"KIT": "routes", **dict.fromkeys(("WidgetRefused", "WidgetSettings", "Widgets"), "service")}


def __getattr__(name: str) -> Any:
    """Import what needs the web framework on demand: `keystead check` does without it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
