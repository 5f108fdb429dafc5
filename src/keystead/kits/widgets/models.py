"""The values of the widgets kit. The stored JSON has the same names in camelCase."""

from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from keystead.kits.camel_model import CamelModel
from keystead.schema import IsoTime, OmittedIfNone, Sealed

ServiceName: TypeAlias = Literal["counter", "like", "ranking", "bbs", "yokoso"]
SortOrder: TypeAlias = Literal["desc", "asc"]
WelcomeMode: TypeAlias = Literal["badge", "card"]
Icon: TypeAlias = Literal["heart", "star", "thumb", "peta"]

LAYOUT: Final = 2  # version of the stored layout


class WidgetName(NamedTuple):
    """A widget, by service and id."""

    service: str
    id: str


class Hook(CamelModel):
    """A webhook: the URL that receives events, and the signing secret. Both are sealed."""

    url: Sealed[str]
    secret: Sealed[str]


class WidgetRecord(CamelModel):
    """The fields of every widget record. A record changes only when its owner changes it."""

    model_config = ConfigDict(use_attribute_docstrings=True)
    old_fields: ClassVar[tuple[str, ...]] = ("owner",)  # removed by an upgrade, which moves them to their own keys

    service: ServiceName
    id: str
    url: str
    """the page that shows it"""
    created: IsoTime
    webhook: OmittedIfNone[Hook] = None
    """the receiver of its events"""
    ending: OmittedIfNone[str] = None
    """set when a delete starts: the widget is hidden immediately, and its other keys are deleted next"""
    layout: int = 1
    """version of the stored layout; an older one is upgraded on the next use"""
    moved: OmittedIfNone[IsoTime] = None
    """when it was upgraded"""
    owner: OmittedIfNone[str] = None
    """layout 1 only: the hash of the owner token"""

    @property
    def is_old(self) -> bool:
        """Whether it needs an upgrade. A widget that is being deleted does not."""
        return self.layout < LAYOUT and self.ending is None


class CounterRecord(WidgetRecord):
    """The visit counter of a page."""

    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_count", "last_visit")

    service: Literal["counter"] = "counter"
    total_count: OmittedIfNone[int] = None
    """layout 1 only"""
    last_visit: OmittedIfNone[IsoTime] = None
    """layout 1 only"""


class LikeRecord(WidgetRecord):
    """The like button of a page."""

    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_likes", "last_like")

    service: Literal["like"] = "like"
    icon: OmittedIfNone[Icon] = None
    """a heart if left out"""
    total_likes: OmittedIfNone[int] = None
    """layout 1 only"""
    last_like: OmittedIfNone[IsoTime] = None
    """layout 1 only"""


class RankingRecord(WidgetRecord):
    """The ranking of a page."""

    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_entries", "last_submit")

    service: Literal["ranking"] = "ranking"
    max_entries: int
    """only the best entries are stored, up to this number"""
    sort_order: SortOrder = "desc"
    """`desc`: the highest score is the best; `asc`: the lowest"""
    total_entries: OmittedIfNone[int] = None
    """layout 1 only"""
    last_submit: OmittedIfNone[IsoTime] = None
    """layout 1 only"""


class RankingMeta(CamelModel):
    title: OmittedIfNone[str] = None
    description: OmittedIfNone[str] = None


class RankingEntry(NamedTuple):
    """An entry of a ranking: the displayed name, and a digest of it."""

    name: str
    unique_id: str


class RankingDetail(CamelModel):
    """Details of a ranking entry besides its score."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    display_score: OmittedIfNone[str] = None
    """the score as displayed, such as `1:23.4`"""
    at: OmittedIfNone[IsoTime] = None
    """when it was submitted"""


class BbsSelect(CamelModel):
    """A drop-down list of the message form."""

    label: str
    options: list[str]


class BbsSettings(CamelModel):
    title: OmittedIfNone[str] = None
    max_messages: OmittedIfNone[int] = None
    messages_per_page: OmittedIfNone[int] = None
    icons: OmittedIfNone[list[str]] = None
    selects: OmittedIfNone[list[BbsSelect]] = None

    @field_validator("selects", mode="before")
    @classmethod
    def _drop_unknown_selects(cls, given: Any) -> Any:
        """The document only calls them objects. Ignore those of another shape."""
        if not isinstance(given, list):
            return given
        return [select for select in given if isinstance(select, BbsSelect) or {"label", "options"} <= set(select)]


class BbsRecord(WidgetRecord):
    """The message board of a page."""

    old_fields: ClassVar[tuple[str, ...]] = ("owner", "total_messages", "last_message")

    service: Literal["bbs"] = "bbs"
    settings: BbsSettings = Field(default_factory=BbsSettings)
    total_messages: OmittedIfNone[int] = None
    """layout 1 only"""
    last_message: OmittedIfNone[IsoTime] = None
    """layout 1 only"""


class WelcomeRecord(WidgetRecord):
    """The welcome card of a page."""

    service: Literal["yokoso"] = "yokoso"
    message: str
    mode: WelcomeMode = "badge"
    """a one-line badge, or a card"""
    name: OmittedIfNone[str] = None
    """who it is from"""
    avatar: OmittedIfNone[str] = None
    """a picture of them: a URL or a data URL"""
    updated: IsoTime
    """when the owner last changed it"""


class BbsMessage(CamelModel):
    """A message on a board."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    timestamp: IsoTime
    edited: OmittedIfNone[IsoTime] = None
    """when it was last edited"""
    author: str
    message: str
    icon: OmittedIfNone[str] = None
    selects: OmittedIfNone[dict[str, JsonValue]] = None
    """the chosen options, by label"""
    user_hash: str
    """public pseudonym of the author"""
    edit_digest: OmittedIfNone[str] = None
    """SHA-256 of the edit token"""

    @model_validator(mode="before")
    @classmethod
    def _read_original(cls, given: Any) -> Any:
        """The original system writes `authorHash`, and `selects` as a list."""
        if not isinstance(given, dict):
            return given
        read = dict(given)
        if "userHash" not in read and "authorHash" in read:
            read["userHash"] = read.pop("authorHash")
        if isinstance(read.get("selects"), list):
            read["selects"] = {f"select{at}": one for at, one in enumerate(read["selects"], 1) if one} or None
        return read
