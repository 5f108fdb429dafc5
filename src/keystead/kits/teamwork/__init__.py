"""Teamwork: revoked tokens, who is working, notices as they happen, deadlines and dashboards of teams."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keystead.kits.teamwork.keys import TeamworkKeys, deadline_score
from keystead.kits.teamwork.models import (
    DashboardSummary,
    Deadline,
    DueItem,
    Notification,
    TeamSettings,
    UserSession,
)

if TYPE_CHECKING:
    from keystead.kits.teamwork.routes import KIT, teamwork_kit
    from keystead.kits.teamwork.service import Teamwork, TeamworkSettings

__all__ = [
    "KIT",
    "DashboardSummary",
    "Deadline",
    "DueItem",
    "Notification",
    "TeamSettings",
    "Teamwork",
    "TeamworkKeys",
    "TeamworkSettings",
    "UserSession",
    "deadline_score",
    "teamwork_kit",
]

_LATER = {
    **dict.fromkeys(("KIT", "teamwork_kit"), "routes"),
    **dict.fromkeys(("Teamwork", "TeamworkSettings"), "service"),
}


def __getattr__(name: str) -> Any:
    """What needs a web framework is imported when it is asked for: `keystead check` and its like never do."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
