"""Teamwork: token revocation, user sessions, real-time notices, deadlines and dashboards for teams."""

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

_LAZY = {
    **dict.fromkeys(("KIT", "teamwork_kit"), "routes"),
    **dict.fromkeys(("Teamwork", "TeamworkSettings"), "service"),
}


def __getattr__(name: str) -> Any:
    """Lazy imports: commands such as `keystead check` never load the web framework."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
