"""The values of the widgets kit, with the names that their fields have in the stored JSON."""

# ruff: noqa: N815 - fields are named as they are stored

from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from keystead.schema import IsoTime, OmittedIfNone, Sealed

ServiceName: TypeAlias = Literal["counter", "like", "ranking", "bbs"]
SortOrder: TypeAlias = Literal["desc", "asc"]
Icon: TypeAlias = Literal["heart", "star", "thumb", "peta"]


class WidgetName(NamedTuple):
    """One of the four services of one address."""

    service: str
    id: str


class Hook(BaseModel):
    """Where the events of a widget are told, and what they are signed with. Both are secrets."""

    url: Sealed[str]
    secret: Sealed[str]


class WidgetRecord(BaseModel):
    """What all four have in common. It changes only when its owner changes it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: ServiceName
    id: str
    url: str
    """the page that it stands on"""
    created: IsoTime
    webhook: OmittedIfNone[Hook] = None
    """where its events are told"""
    ending: OmittedIfNone[str] = None
    """set while it is being deleted: from then on it is gone for everybody, and what belongs to it follows"""


class CounterRecord(WidgetRecord):
    """A counter of visits to the page at `url`."""

    service: Literal["counter"] = "counter"


class LikeRecord(WidgetRecord):
    """A like button of the page at `url`."""

    service: Literal["like"] = "like"
    icon: OmittedIfNone[Icon] = None
    """what the button shows; left out: a heart"""


class RankingRecord(WidgetRecord):
    """A ranking of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: Literal["ranking"] = "ranking"
    maxEntries: int
    """how many are kept"""
    sortOrder: SortOrder = "desc"
    """which score is the best: the highest (`desc`) or the lowest (`asc`)"""


class RankingMeta(BaseModel):
    """What is shown above a ranking."""

    title: OmittedIfNone[str] = None
    description: OmittedIfNone[str] = None


class RankingEntry(NamedTuple):
    """An entry of a ranking: the name that is shown, and what tells it from others of the same name."""

    name: str
    unique_id: str


class RankingDetail(BaseModel):
    """What an entry shows besides its score."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    displayScore: OmittedIfNone[str] = None
    """how the score is shown"""
    at: IsoTime
    """when it was sent"""


class BbsSelect(BaseModel):
    """Something to choose beside a message."""

    label: str
    options: list[str]


class BbsSettings(BaseModel):
    """How a board is shown, and how much it holds."""

    title: OmittedIfNone[str] = None
    maxMessages: OmittedIfNone[int] = None
    messagesPerPage: OmittedIfNone[int] = None
    icons: OmittedIfNone[list[str]] = None
    selects: OmittedIfNone[list[BbsSelect]] = None


class BbsRecord(WidgetRecord):
    """A board of the page at `url`."""

    service: Literal["bbs"] = "bbs"
    settings: BbsSettings = Field(default_factory=BbsSettings)


class BbsMessage(BaseModel):
    """A message on a board."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    timestamp: IsoTime
    edited: OmittedIfNone[IsoTime] = None
    """when it was last changed"""
    author: str
    message: str
    icon: OmittedIfNone[str] = None
    selects: OmittedIfNone[dict[str, JsonValue]] = None
    """what was chosen, by label"""
    userHash: str
    """who wrote it, as everybody may see"""
    editDigest: OmittedIfNone[str] = None
    """SHA-256 of the secret that lets its author change it"""
