"""The values of the widgets kit, with the names that their fields have in the stored JSON."""

# ruff: noqa: N815 - fields are named as they are stored

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from keystead.schema import IsoTime, OmittedIfNone


class CounterRecord(BaseModel):
    """A counter of visits to the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: Literal["counter"] = "counter"
    id: str
    url: str
    created: IsoTime
    lastVisit: IsoTime | None = None
    totalCount: int = 0
    """as of the last write of the record"""
    owner: str | None = None
    """the hash of the owner's token"""


class LikeRecord(BaseModel):
    """A like button of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: Literal["like"] = "like"
    id: str
    url: str
    created: IsoTime
    lastLike: IsoTime | None = None
    totalLikes: int = 0
    """as of the last write of the record"""
    owner: str | None = None
    """the hash of the owner's token"""


class RankingRecord(BaseModel):
    """A ranking of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: Literal["ranking"] = "ranking"
    id: str
    url: str
    created: IsoTime
    lastSubmit: IsoTime | None = None
    totalEntries: int = 0
    """as of the last write of the record"""
    maxEntries: int
    """how many are kept"""
    owner: str | None = None
    """the hash of the owner's token"""


class RankingMeta(BaseModel):
    """What is shown above a ranking."""

    title: OmittedIfNone[str] = None
    description: OmittedIfNone[str] = None


class RankingEntry(NamedTuple):
    """An entry of a ranking: the name that is shown, and what tells it from others of the same name."""

    name: str
    unique_id: str


class BbsSettings(BaseModel):
    """How a board is shown, and how much it holds."""

    title: OmittedIfNone[str] = None
    maxMessages: OmittedIfNone[int] = None
    messagesPerPage: OmittedIfNone[int] = None
    icons: OmittedIfNone[list[str]] = None
    selects: OmittedIfNone[list[dict[str, JsonValue]]] = None


class BbsRecord(BaseModel):
    """A board of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: Literal["bbs"] = "bbs"
    id: str
    url: str
    created: IsoTime
    lastMessage: IsoTime | None = None
    totalMessages: int = 0
    """as of the last write of the record"""
    settings: BbsSettings = Field(default_factory=BbsSettings)
    owner: str | None = None
    """the hash of the owner's token"""


class BbsMessage(BaseModel):
    """A message on a board."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    timestamp: IsoTime
    author: str
    message: str
    icon: OmittedIfNone[str] = None
    selects: OmittedIfNone[dict[str, JsonValue]] = None
    userHash: str
    """who wrote it, as everybody may see"""
    editDigest: OmittedIfNone[str] = None
    """SHA-256 of the secret that lets its author change it"""
