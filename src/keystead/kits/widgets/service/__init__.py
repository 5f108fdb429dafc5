"""The widgets service, independent of HTTP."""

from keystead.kits.widgets.service.outcomes import BatchItem, Owner, Visitor
from keystead.kits.widgets.service.refused import WidgetRefused
from keystead.kits.widgets.service.settings import LIMITS, WidgetSettings
from keystead.kits.widgets.service.widgets import Widgets, open_widgets

__all__ = [
    "LIMITS",
    "BatchItem",
    "Owner",
    "Visitor",
    "WidgetRefused",
    "WidgetSettings",
    "Widgets",
    "open_widgets",
]
