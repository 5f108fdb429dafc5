"""What can be done with widgets. It knows no HTTP."""

from keystead.kits.widgets.service.boards import Boards
from keystead.kits.widgets.service.counters import COUNTER_TYPES, Counters
from keystead.kits.widgets.service.likes import ICONS, Likes
from keystead.kits.widgets.service.outcomes import (
    BatchItem,
    BoardData,
    CounterData,
    Created,
    Deleted,
    LikeData,
    Owner,
    Posted,
    RankingData,
    Visitor,
)
from keystead.kits.widgets.service.rankings import Rankings
from keystead.kits.widgets.service.refused import WidgetRefused
from keystead.kits.widgets.service.services import UNSET
from keystead.kits.widgets.service.settings import LIMITS, WidgetSettings
from keystead.kits.widgets.service.widgets import Widgets, open_widgets

__all__ = [
    "COUNTER_TYPES",
    "ICONS",
    "LIMITS",
    "UNSET",
    "BatchItem",
    "BoardData",
    "Boards",
    "CounterData",
    "Counters",
    "Created",
    "Deleted",
    "LikeData",
    "Likes",
    "Owner",
    "Posted",
    "RankingData",
    "Rankings",
    "Visitor",
    "WidgetRefused",
    "WidgetSettings",
    "Widgets",
    "open_widgets",
]
