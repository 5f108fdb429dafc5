"""Widgets: counters, like buttons, rankings and boards that any page can show, each for one address."""

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
)

__all__ = [
    "BbsMessage",
    "BbsRecord",
    "BbsSettings",
    "CounterRecord",
    "LikeRecord",
    "RankingEntry",
    "RankingMeta",
    "RankingRecord",
    "WidgetKeys",
]
