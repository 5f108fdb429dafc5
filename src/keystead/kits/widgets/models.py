"""The values of the widgets kit. The stored JSON has the same names in camelCase."""

from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from keystead.kits.camel_model import CamelModel
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


class Hook(CamelModel):
    """Where the events of a widget are told, and what they are signed with. Both are secrets."""

    url: Sealed[str]
    secret: Sealed[str]


class WidgetRecord(CamelModel):
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
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_count", "last_visit")

    service: Literal["counter"] = "counter"
    total_count: OmittedIfNone[int] = None
    """of the first layout"""
    last_visit: OmittedIfNone[IsoTime] = None
    """of the first layout"""


class LikeRecord(WidgetRecord):
    """A like button of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_likes", "last_like")

    service: Literal["like"] = "like"
    icon: OmittedIfNone[Icon] = None
    """what the button shows; left out: a heart"""
    total_likes: OmittedIfNone[int] = None
    """of the first layout"""
    last_like: OmittedIfNone[IsoTime] = None
    """of the first layout"""


class RankingRecord(WidgetRecord):
    """A ranking of the page at `url`."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_entries", "last_submit")

    service: Literal["ranking"] = "ranking"
    max_entries: int
    """how many are kept"""
    sort_order: SortOrder = "desc"
    """which score is the best: the highest (`desc`) or the lowest (`asc`)"""
    total_entries: OmittedIfNone[int] = None
    """of the first layout"""
    last_submit: OmittedIfNone[IsoTime] = None
    """of the first layout"""


class RankingMeta(CamelModel):
    """What is shown above a ranking."""

    title: OmittedIfNone[str] = None
    description: OmittedIfNone[str] = None


class RankingEntry(NamedTuple):
    """An entry of a ranking: the name that is shown, and what tells it from others of the same name."""

    name: str
    unique_id: str


class RankingDetail(CamelModel):
    """What an entry shows besides its score."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    display_score: OmittedIfNone[str] = None
    """how the score is shown"""
    at: OmittedIfNone[IsoTime] = None
    """when it was sent"""


class BbsSelect(CamelModel):
    """Something to choose beside a message."""

    label: str
    options: list[str]


class BbsSettings(CamelModel):
    """How a board is shown, and how much it holds."""

    title: OmittedIfNone[str] = None
    max_messages: OmittedIfNone[int] = None
    messages_per_page: OmittedIfNone[int] = None
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
    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_messages", "last_message")

    service: Literal["bbs"] = "bbs"
    settings: BbsSettings = Field(default_factory=BbsSettings)
    total_messages: OmittedIfNone[int] = None
    """of the first layout"""
    last_message: OmittedIfNone[IsoTime] = None
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


class BbsMessage(CamelModel):
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
    user_hash: str
    """who wrote it, as everybody may see"""
    edit_digest: OmittedIfNone[str] = None
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
