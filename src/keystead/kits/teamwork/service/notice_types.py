"""The types of notices, and the preference that turns each of them on or off."""

from collections.abc import Mapping
from typing import Final

ASSIGNED, STATUS_CHANGED, DEADLINE = "담당자배정", "상태변경", "마감임박"
DEFECT_REGISTERED, COMMENTED, MENTIONED = "결함등록", "댓글등록", "멘션"
DEPLOYED, DEPLOYMENT_FAILED = "배포완료", "배포실패"
TEAM_INVITED, IDEA_ADOPTED, ACTION_ASSIGNED = "팀초대", "아이디어채택", "액션아이템배정"
TYPES: Final = (
    STATUS_CHANGED,
    ASSIGNED,
    DEADLINE,
    DEFECT_REGISTERED,
    COMMENTED,
    DEPLOYED,
    DEPLOYMENT_FAILED,
    TEAM_INVITED,
    IDEA_ADOPTED,
    ACTION_ASSIGNED,
    MENTIONED,
)
# Types without a preference are always sent.
PREFERENCE_OF: Final[Mapping[str, str]] = {
    ASSIGNED: "assign",
    ACTION_ASSIGNED: "assign",
    COMMENTED: "comment",
    DEADLINE: "deadline",
    STATUS_CHANGED: "status",
    DEPLOYED: "deploy",
    DEPLOYMENT_FAILED: "deploy",
    MENTIONED: "mention",
}
PREFERENCES: Final = ("assign", "comment", "deadline", "status", "deploy", "mention")
