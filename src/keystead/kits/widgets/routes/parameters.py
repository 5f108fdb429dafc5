"""The parameters of actions: what each is called, what it takes, and how it is read from a query or from JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.widgets.service import COUNTER_TYPES, BatchItem, boards, rankings, welcomes
from keystead.kits.widgets.service.checks import ID_MAX, LARGEST, TOKEN_MAX, TOKEN_MIN
from keystead.kits.widgets.themes import BADGE, ICON_PATHS, THEMES

# One spelling a number: no sign, no leading zero, no exponent, no digits but these. `-0` and `٣` are none.
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")


def invalid(sentence: str, *, status: int = 400, **more: object) -> Refusal:
    """What is said of a request that cannot be understood. The sentence names the parameter, and not what was sent."""
    return refusal(status, "VALIDATION_ERROR", sentence, more=more)


def refusal(
    status: int,
    code: str,
    sentence: str,
    *,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, object] | None = None,
) -> Refusal:
    """A refusal as clients of the original read it, beside the shape that all refusals have."""
    told = {**(more or {}), "success": False, "statusCode": status}
    return Refusal(status, code, sentence, headers=NO_STORE | dict(headers or {}), more=told)


@dataclass(frozen=True)
class Shape:
    """What a parameter takes.

    says     for people, as in "is a whole number"
    schema   for the OpenAPI document: its JSON Schema
    of_text  its value, of the text in a query; raises ValueError where it is none
    of_json  its value, of what stands in a body; raises ValueError where it is none
    """

    says: str
    schema: Mapping[str, Any]
    of_text: Callable[[str], Any]
    of_json: Callable[[Any], Any]


class MinusZero(int):
    """`-0` in JSON, which is not the same as `0`, and no number that anybody means."""


def _text_of_json(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError
    given.encode()  # half a surrogate pair is no text
    return given


def _number_of_text(given: str) -> int:
    if not _NUMBER.fullmatch(given):
        raise ValueError
    return int(given)


def _number_of_json(given: Any) -> int:
    if type(given) is not int:  # neither 5.0 nor true nor -0
        raise ValueError
    return given


def _boolean_of_text(given: str) -> bool:
    return {"true": True, "false": False}[given]


def _boolean_of_json(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError
    return given


def number(least: int, most: int) -> Shape:
    def within(read: int) -> int:
        if not least <= read <= most:
            raise ValueError
        return read

    return Shape(
        f"is a whole number from {least} to {most:,}",
        {"type": "integer", "minimum": least, "maximum": most},
        lambda given: within(_number_of_text(given)),
        lambda given: within(_number_of_json(given)),
    )


def choice(*words: str) -> Shape:
    def one_of(given: Any) -> str:
        if not isinstance(given, str) or given not in words:
            raise ValueError
        return given

    return Shape(f"is one of {', '.join(words)}", {"type": "string", "enum": list(words)}, one_of, one_of)


def _ids_of_json(given: Any) -> list[str]:
    if not isinstance(given, list):
        raise ValueError
    return [_text_of_json(one) for one in given]


def _items_of_json(given: Any) -> list[BatchItem]:
    if not isinstance(given, list):
        raise ValueError
    items = []
    for one in given:
        if not isinstance(one, dict) or one.keys() != {"id", "url"}:
            raise ValueError
        items.append(BatchItem(id=_text_of_json(one["id"]), url=_text_of_json(one["url"])))
    return items


def _never_as_text(given: str) -> Any:
    raise ValueError


def _removable(given: Any) -> str | None:
    return None if given is None else _text_of_json(given) or None


TEXT: Final = Shape("is a text", {"type": "string"}, str, _text_of_json)
BOOLEAN: Final = Shape("is true or false", {"type": "boolean"}, _boolean_of_text, _boolean_of_json)
IDS: Final = Shape(
    "is a list of ids, divided by commas in a query",
    {"type": "array", "items": {"type": "string"}},
    lambda given: given.split(",") if given else [],
    _ids_of_json,
)
ITEMS: Final = Shape(
    'is a list of {"id", "url"} in the body of a POST',
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "url": {"type": "string"}},
            "required": ["id", "url"],
            "additionalProperties": False,
        },
    },
    _never_as_text,
    _items_of_json,
)
REMOVABLE: Final = Shape(
    "is a text; empty, or null in JSON, takes it away",
    {"type": ["string", "null"]},
    lambda given: given or None,
    _removable,
)


@dataclass(frozen=True)
class Parameter:
    """One parameter.

    keyword  what the service calls it; its own name where that is the same
    also     further names that it goes by
    header   the header that it can come in instead; what has one is a secret, and does not belong into an address
    """

    name: str
    shape: Shape
    doc: str
    keyword: str = ""
    also: tuple[str, ...] = ()
    header: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    def read(self, given: Any, *, is_text: bool) -> Any:
        """Its value. Raises Refusal, which names the parameter and says what it takes."""
        try:
            return (self.shape.of_text if is_text else self.shape.of_json)(given)
        except (ValueError, KeyError):
            raise invalid(f"{self.name} {self.shape.says}", field=self.name) from None


def named(parameters: Iterable[Parameter]) -> dict[str, Parameter]:
    """Each of them by all its names."""
    return {name: one for one in parameters for name in one.names}


URL: Final = Parameter("url", TEXT, "The address of the page, https://…")
TOKEN: Final = Parameter(
    "token", TEXT, f"The owner's token: {TOKEN_MIN} to {TOKEN_MAX} characters.", header="x-owner-token"
)
ID: Final = Parameter("id", TEXT, "The public id, such as example-a1b2c3d4.")
NEW_ID: Final = Parameter(
    "id", TEXT, f"An id of your own: up to {ID_MAX} letters, digits, _ and -; without it, one is made."
)
WEBHOOK: Final = Parameter("webhookUrl", REMOVABLE, "Where events are sent; empty: nowhere.", "webhook_url")
TOTAL: Final = Parameter("total", number(0, LARGEST), "The new total.", also=("value",))
VALUE: Final = Parameter("value", number(0, LARGEST), "The new total.", also=("total",))
LIKE_ICON: Final = Parameter("icon", choice(*ICON_PATHS), "What the button shows.")
PREFIX: Final = Parameter("prefix", TEXT, "How the ids begin.")
IDS_WANTED: Final = Parameter("ids", IDS, "At most 1,000 ids; one that is not there counts 0.")
NEW_ITEMS: Final = Parameter("items", ITEMS, "At most 100 of them.")

TYPE: Final = Parameter("type", choice(*COUNTER_TYPES), "Which number is shown: total without this.")
FORMAT: Final = Parameter("format", choice("json", "text", "image"), "How it is answered; image is SVG.")
THEME: Final = Parameter("theme", choice(*THEMES), "How a picture looks: dark without this.")
COUNTER_THEME: Final = Parameter("theme", choice(*THEMES, BADGE), "How a picture looks: dark without this.")
DIGITS: Final = Parameter("digits", number(1, 10), "How many digits a picture has at least, with zeros before.")

RANKING_TITLE: Final = Parameter("title", TEXT, f"Its title: at most {rankings.TITLE_MAX} characters.")
DESCRIPTION: Final = Parameter(
    "description", TEXT, f"A line below the title: at most {rankings.DESCRIPTION_MAX} characters."
)
MAX_ENTRIES: Final = Parameter(
    "max",
    number(1, rankings.MAX_ENTRIES),
    f"How many entries are kept: {rankings.DEFAULT_ENTRIES} without this.",
    "max_entries",
    also=("maxEntries",),
)
SORT_ORDER: Final = Parameter(
    "sortOrder", choice("desc", "asc"), "Which score is the best: the highest (desc), or the lowest.", "sort_order"
)
NAME: Final = Parameter("name", TEXT, f"The name of the entry: 1 to {rankings.NAME_MAX} characters.")
SCORE: Final = Parameter("score", number(0, LARGEST), "The score.")
DISPLAY_SCORE: Final = Parameter(
    "displayScore",
    TEXT,
    f"How the score is shown, such as 1:23.4: 1 to {rankings.DISPLAY_MAX} characters.",
    "display_score",
)
LIMIT: Final = Parameter(
    "limit", number(1, rankings.SHOWN_MAX), f"How many entries are shown: {rankings.SHOWN} without this."
)

BOARD_TITLE: Final = Parameter("title", TEXT, f"Its title: at most {boards.TITLE_MAX} characters.")
PER_PAGE: Final = Parameter(
    "messagesPerPage",
    number(1, boards.PAGE_MAX),
    f"How many messages a page has: {boards.DEFAULT_PAGE} without this.",
    "messages_per_page",
)
MAX_MESSAGES: Final = Parameter(
    "max",
    number(1, boards.MAX_MESSAGES),
    f"How many messages are kept: {boards.DEFAULT_MESSAGES} without this.",
    "max_messages",
    also=("maxMessages",),
)
ICONS_ON: Final = Parameter("enableIcons", BOOLEAN, "Whether messages can have an icon: true.", "enable_icons")
SELECTS_ON: Final = Parameter("enableSelects", BOOLEAN, "Whether they can have choices: false.", "enable_selects")
AUTHOR: Final = Parameter("author", TEXT, f"Who writes: at most {boards.AUTHOR_MAX} characters.")
MESSAGE: Final = Parameter("message", TEXT, f"What is written: 1 to {boards.MESSAGE_MAX} characters.")
ICON: Final = Parameter("icon", TEXT, "One of the icons of the board.")
SELECTS: Final = tuple(
    Parameter(f"select{at}", TEXT, f"A choice of list {at} of the board.", "selects") for at in (1, 2, 3)
)
MESSAGE_ID: Final = Parameter("messageId", TEXT, "Which message.", "message_id")
EDIT_TOKEN: Final = Parameter(
    "editToken", TEXT, "The secret that the author was told.", "edit_token", header="x-edit-token"
)
MESSAGES: Final = Parameter(
    "limit",
    number(1, boards.LIMIT_MAX),
    "How many messages are shown: as many as a page of the board has without this. A picture has 3 without this, and "
    "10 at most.",
)
WELCOME: Final = Parameter(
    "message", TEXT, f"What it says: {welcomes.BADGE_MAX} characters on a badge, {welcomes.CARD_MAX} on a card."
)
MODE: Final = Parameter("mode", choice(*welcomes.MODES), "How it is shown: badge without this.")
WELCOMER: Final = Parameter("name", REMOVABLE, f"Who says it: at most {welcomes.NAME_MAX} characters.")
AVATAR: Final = Parameter("avatar", REMOVABLE, "A picture of them: its address, or data:image/png;base64,….")
LANG: Final = Parameter("lang", choice("ja", "en", "ko"), "How the date of a card is written: ja without this.")

ADMIN_TOKEN: Final = Parameter(
    "adminToken", TEXT, "The secret of the setting admin_token.", "admin_token", header="x-admin-token"
)
TARGET: Final = Parameter("targetId", TEXT, "The id of the widgets.", "target_id")
SERVICE: Final = Parameter(
    "service", choice("counter", "like", "ranking", "bbs", "yokoso"), "Which of them: all without this."
)
URL_PATTERN: Final = Parameter(
    "urlPattern",
    TEXT,
    "The address of pages, such as https://example.com/*; * is any text.",
    "url_pattern",
    also=("url",),
)
DRY_RUN: Final = Parameter("dryRun", BOOLEAN, "Only say what would be deleted.", "dry_run")

PAGE: Final = Parameter("page", number(1, 1_000_000), "Which page: 1, the newest, without this.")
