"""The widgets service, independent of HTTP."""

from keystead.kits.widgets.service.admin import Admin
from keystead.kits.widgets.service.boards import Boards
from keystead.kits.widgets.service.counters import COUNTER_TYPES, Counters
from keystead.kits.widgets.service.likes import Likes
from keystead.kits.widgets.service.outcomes import (
    BatchItem,
    BoardData,
    Cleaned,
    CounterData,
    Created,
    Deleted,
    LikeData,
    Owner,
    RankingData,
    Visitor,
    WelcomeData,
)
from keystead.kits.widgets.service.rankings import Rankings
from keystead.kits.widgets.service.refused import WidgetRefused
from keystead.kits.widgets.service.settings import LIMITS, WidgetSettings
from keystead.kits.widgets.service.welcomes import Welcomes
from keystead.kits.widgets.service.widgets import Widgets, open_widgets

__all__ = [
    "COUNTER_TYPES",
    "LIMITS",
    "Admin",
    "BatchItem",
    "BoardData",
    "Boards",
    "Cleaned",
    "CounterData",
    "Counters",
    "Created",
    "Deleted",
    "LikeData",
    "Likes",
    "Owner",
    "RankingData",
    "Rankings",
    "Visitor",
    "WelcomeData",
    "Welcomes",
    "WidgetRefused",
    "WidgetSettings",
    "Widgets",
    "open_widgets",
]
