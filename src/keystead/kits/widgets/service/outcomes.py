"""The results of the service. Their JSON has the same names in camelCase, as clients of the original read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from keystead.kits.camel_model import CamelModel
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


class Created(CamelModel):
    id: str
    url: str
    webhook_secret: str | None = None  # told once: what events are signed with


class Deleted(CamelModel):
    id: str
    message: str


class CleanedWidget(CamelModel):
    type: str
    id: str
    url: str


class Cleaned(CamelModel):
    """What a clean-up has deleted, or would delete where it was only asked."""

    deleted_services: list[CleanedWidget]
    found_instances: list[str]
    deleted_keys: list[str]
    errors: list[str]
    total_deleted: int


class CounterData(CamelModel):
    id: str
    url: str
    total: int
    today: int
    yesterday: int
    week: int
    month: int
    last_visit: str | None = None
    duplicate: bool | None = None  # of an increment: this visitor was counted today already
    webhook_url: str | None = None  # for its owner alone: where events are told
    webhook_secret: str | None = None  # of new settings: what events are signed with; told once


class LikeData(CamelModel):
    id: str
    url: str
    total: int
    user_liked: bool
    icon: Icon = "heart"
    last_like: str | None = None
    webhook_url: str | None = None  # for its owner alone: where events are told
    webhook_secret: str | None = None  # of new settings: what events are signed with; told once


class Entry(CamelModel):
    rank: int
    name: str
    score: int
    display_score: str | None = None


class RankingData(CamelModel):
    id: str
    url: str
    title: str | None = None
    description: str | None = None
    entries: list[Entry]
    total_entries: int
    max_entries: int
    sort_order: SortOrder
    last_submit: str | None = None
    improved: bool | None = None  # of a submit: whether it was better than what stood there
    rank: int | None = None  # of a submit: where the name stands now
    webhook_url: str | None = None  # for its owner alone: where events are told
    webhook_secret: str | None = None  # of new settings: what events are signed with; told once


class MessageData(CamelModel):
    id: str
    timestamp: str
    edited: str | None = None
    author: str
    message: str
    icon: str | None = None
    selects: dict[str, str] | None = None
    user_hash: str


class WelcomeData(CamelModel):
    id: str
    url: str
    message: str
    mode: WelcomeMode
    name: str | None = None
    avatar: str | None = None
    updated_at: str
    webhook_url: str | None = None  # for its owner alone: where events are told
    webhook_secret: str | None = None  # of new settings: what events are signed with; told once


class Pagination(CamelModel):
    page: int
    total_pages: int
    has_prev: bool
    has_next: bool


class BoardSettings(CamelModel):
    title: str
    messages_per_page: int
    max_messages: int
    icons: list[str] | None = None
    selects: list[BbsSelect] | None = None


class BoardData(CamelModel):
    id: str
    url: str
    title: str
    messages: list[MessageData]
    total_messages: int
    current_page: int
    total_pages: int
    pagination: Pagination
    settings: BoardSettings
    last_message: str | None = None
    current_user_hash: str | None = None  # whoever asks, as their messages name them
    webhook_url: str | None = None  # for its owner alone: where events are told
    webhook_secret: str | None = None  # of new settings: what events are signed with; told once


@dataclass(frozen=True)
class Posted:
    """A message that stands on the board. The edit token changes it and takes it away; it is told once."""

    data: BoardData
    message_id: str
    edit_token: str = field(repr=False)


@dataclass(frozen=True)
class BatchItem:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    url: str
