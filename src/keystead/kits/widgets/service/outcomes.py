"""Results of the widgets service. Their JSON has the same names in camelCase, as in the original API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from keystead.kits.camel_model import CamelModel
from keystead.kits.widgets.models import BbsSelect, Icon, SortOrder, WelcomeMode


@dataclass(frozen=True)
class Visitor:
    """A visitor, identified by IP address and browser."""

    address: str
    agent: str = ""


@dataclass(frozen=True)
class Owner:
    """The owner token, and the widget: by the URL of its page, or by its id."""

    token: str = field(repr=False)
    url: str | None = None
    id: str | None = None


class Created(CamelModel):
    id: str
    url: str
    webhook_secret: str | None = None  # shown only once


class Deleted(CamelModel):
    id: str
    message: str


class CleanedWidget(CamelModel):
    type: str
    id: str
    url: str


class Cleaned(CamelModel):
    """What a clean-up deleted, or would delete (dry run)."""

    deleted_services: list[CleanedWidget]
    found_instances: list[str]
    deleted_keys: list[str]
    errors: list[str]
    total_deleted: int


class WidgetData(CamelModel):
    """A widget as everybody sees it, and its webhook for the owner."""

    id: str
    url: str
    webhook_url: str | None = None  # only for the owner
    webhook_secret: str | None = None  # only in the response that sets a new webhook


class CounterData(WidgetData):
    total: int
    today: int
    yesterday: int
    week: int
    month: int
    last_visit: str | None = None
    duplicate: bool | None = None  # after an increment: whether this visitor was already counted today


class LikeData(WidgetData):
    total: int
    user_liked: bool
    icon: Icon = "heart"
    last_like: str | None = None


class Entry(CamelModel):
    rank: int
    name: str
    score: int
    display_score: str | None = None


class RankingData(WidgetData):
    title: str | None = None
    description: str | None = None
    entries: list[Entry]
    total_entries: int
    max_entries: int
    sort_order: SortOrder
    last_submit: str | None = None
    improved: bool | None = None  # after a submit: whether the score beats the previous one
    rank: int | None = None  # after a submit: the rank of the name


class MessageData(CamelModel):
    id: str
    timestamp: str
    edited: str | None = None
    author: str
    message: str
    icon: str | None = None
    selects: dict[str, str] | None = None
    user_hash: str


class WelcomeData(WidgetData):
    message: str
    mode: WelcomeMode
    name: str | None = None
    avatar: str | None = None
    updated_at: str


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


class BoardData(WidgetData):
    title: str
    messages: list[MessageData]
    total_messages: int
    current_page: int
    total_pages: int
    pagination: Pagination
    settings: BoardSettings
    last_message: str | None = None
    current_user_hash: str | None = None  # the `user_hash` of this visitor's messages


@dataclass(frozen=True)
class Posted:
    """A posted message. The edit token, which changes and deletes it, is shown only once."""

    data: BoardData
    message_id: str
    edit_token: str = field(repr=False)


@dataclass(frozen=True)
class BatchItem:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str
    url: str
