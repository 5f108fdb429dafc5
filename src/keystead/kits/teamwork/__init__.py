"""Teamwork: revoked tokens, who is working, notices as they happen, deadlines and dashboards of teams."""

from keystead.kits.teamwork.keys import TeamworkKeys, deadline_score
from keystead.kits.teamwork.models import DashboardSummary, Deadline, Notification, UserSession

__all__ = [
    "DashboardSummary",
    "Deadline",
    "Notification",
    "TeamworkKeys",
    "UserSession",
    "deadline_score",
]
