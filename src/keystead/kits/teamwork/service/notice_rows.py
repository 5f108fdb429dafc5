"""Notices as Python objects, and as rows of their table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from keystead.kits.teamwork.models import NoticeArguments


@dataclass(frozen=True)
class NewNotice:
    """A notice to write for one user."""

    user: int
    type: str
    title: str
    message: str
    ref_type: str
    ref_id: str
    said: NoticeArguments | None = None  # title and message as an event with arguments, to translate


@dataclass(frozen=True)
class Notice:
    """A stored notice. `place` is its position among the notices of its reader."""

    id: int
    user: int
    place: int
    event_id: str
    type: str
    title: str
    message: str
    ref_type: str
    ref_id: str
    is_read: bool
    slack_sent: bool
    created_at_ms: int
    said: NoticeArguments | None = None


def row_of(event_id: str, new: NewNotice, place: int, at_ms: int) -> dict[str, Any]:
    """The row of a new notice. The database generates the id."""
    return {
        "user_id": new.user,
        "place": place,
        "event_id": event_id,
        "type": new.type,
        "title": new.title,
        "message": new.message,
        "ref_type": new.ref_type,
        "ref_id": new.ref_id,
        "is_read": False,
        "slack_sent": False,
        "created_at_ms": at_ms,
        "said": None if new.said is None else new.said.model_dump_json(),
    }


def notice_of(row: Mapping[Any, Any]) -> Notice:
    """The notice in a row of the table."""
    return Notice(
        row["id"],
        row["user_id"],
        row["place"],
        row["event_id"],
        row["type"],
        row["title"],
        row["message"],
        row["ref_type"],
        row["ref_id"],
        bool(row["is_read"]),
        bool(row["slack_sent"]),
        row["created_at_ms"],
        _parse_said(row["said"]),
    )


def _parse_said(text: str | None) -> NoticeArguments | None:
    try:
        return None if text is None else NoticeArguments.model_validate_json(text)
    except ValidationError:
        return None  # a later Keystead wrote it; title and message in the server's language remain
