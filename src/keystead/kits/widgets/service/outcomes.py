"""What comes of an action, with the names that it has in JSON."""

# ruff: noqa: N815 - as clients of the original read them

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel

from keystead.kits.widgets.models import BbsSelect, Icon, SortOrder, WelcomeMode


@dataclass(frozen=True)
class Visitor:
    """Who asks: told apart by address and browser."""

    address: str
    agent: str = ""


@dataclass(frozen=True)
class Owner:
    """Whoever shows the owner's token of a widget, which is named by the address of its page or by its id."""

    token: str = field(repr=False)
    url: str | None = None
    id: str | None = None


class Created(BaseModel):
    id: str
    url: str
    webhookSecret: str | None = None  # told once: what events are signed with


class Deleted(BaseModel):
    id: str
    message: str


class CleanedWidget(BaseModel):
    type: str
    id: str
    url: str


class Cleaned(BaseModel):
    """What a clean-up has deleted, or would delete where it was only asked."""

    deletedServices: list[CleanedWidget]
    foundInstances: list[str]
    deletedKeys: list[str]
    errors: list[str]
    totalDeleted: int


class CounterData(BaseModel):
    id: str
    url: str
    total: int
    today: int
    yesterday: int
    week: int
    month: int
    lastVisit: str | None = None
    duplicate: bool | None = None  # of an increment: this visitor was counted today already
    webhookUrl: str | None = None  # for its owner alone: where events are told
    webhookSecret: str | None = None  # of new settings: what events are signed with; told once


class LikeData(BaseModel):
    id: str
    url: str
    total: int
    userLiked: bool
    icon: Icon = "heart"
    lastLike: str | None = None
    webhookUrl: str | None = None  # for its owner alone: where events are told
    webhookSecret: str | None = None  # of new settings: what events are signed with; told once


class Entry(BaseModel):
    rank: int
    name: str
    score: int
    displayScore: str | None = None


class RankingData(BaseModel):
    id: str
    url: str
    title: str | None = None
    description: str | None = None
    entries: list[Entry]
    totalEntries: int
    maxEntries: int
    sortOrder: SortOrder
    lastSubmit: str | None = None
    improved: bool | None = None  # of a submit: whether it was better than what stood there
    rank: int | None = None  # of a submit: where the name stands now
    webhookUrl: str | None = None  # for its owner alone: where events are told
    webhookSecret: str | None = None  # of new settings: what events are signed with; told once


class MessageData(BaseModel):
    id: str
    timestamp: str
    edited: str | None = None
    author: str
    message: str
    icon: str | None = None
    selects: dict[str, str] | None = None
    userHash: str


class WelcomeData(BaseModel):
    id: str
    url: str
    message: str
    mode: WelcomeMode
    name: str | None = None
    avatar: str | None = None
    updatedAt: str
    webhookUrl: str | None = None  # for its owner alone: where events are told
    webhookSecret: str | None = None  # of new settings: what events are signed with; told once


class Pagination(BaseModel):
    page: int
    totalPages: int
    hasPrev: bool
    hasNext: bool


class BoardSettings(BaseModel):
    title: str
    messagesPerPage: int
    maxMessages: int
    icons: list[str] | None = None
    selects: list[BbsSelect] | None = None


class BoardData(BaseModel):
    id: str
    url: str
    title: str
    messages: list[MessageData]
    totalMessages: int
    currentPage: int
    totalPages: int
    pagination: Pagination
    settings: BoardSettings
    lastMessage: str | None = None
    currentUserHash: str | None = None  # whoever asks, as their messages name them
    webhookUrl: str | None = None  # for its owner alone: where events are told
    webhookSecret: str | None = None  # of new settings: what events are signed with; told once


@dataclass(frozen=True)
class Posted:
    """A message that stands on the board. The edit token changes it and takes it away; it is told once."""

    data: BoardData
    message_id: str
    edit_token: str = field(repr=False)


@dataclass(frozen=True)
class BatchItem:
    id: str
    url: str
