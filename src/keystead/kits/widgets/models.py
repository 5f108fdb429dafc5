"""The values of the widgets kit, with the names that their fields have in the stored JSON."""

# ruff: noqa: N815 - fields are named as they are stored

from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from keystead.schema import IsoTime, OmittedIfNone, Sealed

ServiceName: TypeAlias = Literal["counter", "like", "ranking", "bbs", "yokoso"]
SortOrder: TypeAlias = Literal["desc", "asc"]
WelcomeMode: TypeAlias = Literal["badge", "card"]
Icon: TypeAlias = Literal["heart", "star", "thumb", "peta"]

LAYOUT: Final = 2  # how the rows of a widget are written


class WidgetName(NamedTuple):
    """One of the services of one address."""

    service: str
    id: str


class Hook(BaseModel):
    """Where the events of a widget are told, and what they are signed with. Both are secrets."""

    url: Sealed[str]
    secret: Sealed[str]


class WidgetRecord(BaseModel):
    """What all of them have in common. It changes only when its owner changes it."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner",)  # which an upgrade moves elsewhere

    service: ServiceName
    id: str
    url: str
    """the page that it stands on"""
    created: IsoTime
    webhook: OmittedIfNone[Hook] = None
    """where its events are told"""
    ending: OmittedIfNone[str] = None
    """set while it is being deleted: from then on it is gone for everybody, and what belongs to it follows"""
    layout: int = 1
    """how its rows are written; rows of an older layout are upgraded when the widget is next used"""
    moved: OmittedIfNone[IsoTime] = None
    """when its rows were upgraded"""
    owner: OmittedIfNone[str] = None
    """of the first layout: the hash of the owner's token"""

    @property
    def is_old(self) -> bool:
        """Whether its rows are to be upgraded. What is being deleted is not worth it."""
        return self.layout < LAYOUT and self.ending is None


class CounterRecord(WidgetRecord):
    """A counter of visits to the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "totalCount", "lastVisit")

    service: Literal["counter"] = "counter"
    totalCount: OmittedIfNone[int] = None
    """of the first layout"""
    lastVisit: OmittedIfNone[IsoTime] = None
    """of the first layout"""


class LikeRecord(WidgetRecord):
    """A like button of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "totalLikes", "lastLike")

    service: Literal["like"] = "like"
    icon: OmittedIfNone[Icon] = None
    """what the button shows; left out: a heart"""
    totalLikes: OmittedIfNone[int] = None
    """of the first layout"""
    lastLike: OmittedIfNone[IsoTime] = None
    """of the first layout"""


class RankingRecord(WidgetRecord):
    """A ranking of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "totalEntries", "lastSubmit")

    service: Literal["ranking"] = "ranking"
    maxEntries: int
    """how many are kept"""
    sortOrder: SortOrder = "desc"
    """which score is the best: the highest (`desc`) or the lowest (`asc`)"""
    totalEntries: OmittedIfNone[int] = None
    """of the first layout"""
    lastSubmit: OmittedIfNone[IsoTime] = None
    """of the first layout"""


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
    at: OmittedIfNone[IsoTime] = None
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

    @field_validator("selects", mode="before")
    @classmethod
    def _known_selects(cls, given: Any) -> Any:
        """The document calls them objects and says no more: those of another shape cannot be chosen from here."""
        if not isinstance(given, list):
            return given
        return [one for one in given if isinstance(one, BbsSelect) or {"label", "options"} <= set(one)]


class BbsRecord(WidgetRecord):
    """A board of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "totalMessages", "lastMessage")

    service: Literal["bbs"] = "bbs"
    settings: BbsSettings = Field(default_factory=BbsSettings)
    totalMessages: OmittedIfNone[int] = None
    """of the first layout"""
    lastMessage: OmittedIfNone[IsoTime] = None
    """of the first layout"""


class WelcomeRecord(WidgetRecord):
    """A welcome to the page at `url`: what it says, and who says it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    service: Literal["yokoso"] = "yokoso"
    message: str
    mode: WelcomeMode = "badge"
    """a badge of one line, or a card"""
    name: OmittedIfNone[str] = None
    """who says it"""
    avatar: OmittedIfNone[str] = None
    """what they look like: the address of a picture, or the picture itself"""
    updated: IsoTime
    """when its owner last changed it"""


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

    @model_validator(mode="before")
    @classmethod
    def _as_first_written(cls, given: Any) -> Any:
        """The system that the document describes writes `authorHash`, and what was chosen as a list."""
        if not isinstance(given, dict):
            return given
        read = dict(given)
        if "userHash" not in read and "authorHash" in read:
            read["userHash"] = read.pop("authorHash")
        if isinstance(read.get("selects"), list):
            read["selects"] = {f"select{at}": one for at, one in enumerate(read["selects"], 1) if one} or None
        return read
