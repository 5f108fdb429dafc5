"""The parameters of each service, as one model a service. Each action takes some of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from keystead.kits.camel_model import CamelBody
from keystead.kits.widgets.models import Icon, ServiceName, SortOrder, WelcomeMode
from keystead.kits.widgets.pictures import DEFAULT_THEME
from keystead.kits.widgets.service import COUNTER_TYPES, BatchItem, boards, rankings, welcomes
from keystead.kits.widgets.service.checks import ID_MAX, LARGEST, TOKEN_MAX, TOKEN_MIN
from keystead.kits.widgets.themes import BADGE, THEMES

Format: TypeAlias = Literal["json", "text", "image"]

# One spelling a number: no sign, no leading zero, no exponent, no digits but these. `-0` and `٣` are not numbers.
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_BOOLEANS: Final = {"true": True, "false": False}

# --- types of parameters -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Secret:
    """Marks a parameter that may come in a header, and not in an address.

    is_bearer  an action that writes also takes it from `Authorization: Bearer …`
    """

    header: str
    is_bearer: bool = False


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`: in JSON an integer, and neither 5.0 nor true; in a query its digits."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        number = core_schema.int_schema(strict=True, ge=self.least, le=self.most)
        return core_schema.with_info_before_validator_function(_parse_number, number)


class OneOf:
    """One of these words."""

    def __init__(self, *words: str) -> None:
        self._words = list(words)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema(self._words)


def _is_query(info: ValidationInfo) -> bool:
    return str(info.mode) == "string"  # JSON has numbers, booleans and lists of its own


def _parse_number(given: Any, info: ValidationInfo) -> Any:
    if _is_query(info) and not _NUMBER.fullmatch(given):
        raise ValueError
    return int(given) if _is_query(info) else given


def _parse_boolean(given: Any, info: ValidationInfo) -> Any:
    return _BOOLEANS.get(given) if _is_query(info) else given


def _parse_ids(given: Any, info: ValidationInfo) -> Any:
    return (given.split(",") if given else []) if _is_query(info) else given


def _refuse_half_pairs(text: str) -> str:
    text.encode()  # half a surrogate pair, which JSON can hold, is not text
    return text


Text = Annotated[str, AfterValidator(_refuse_half_pairs)]
Boolean = Annotated[bool, Field(strict=True), BeforeValidator(_parse_boolean)]
Total = Annotated[int, Whole(0, LARGEST)]
Removable = Annotated[Text | None, AfterValidator(lambda text: text or None)]  # empty takes it away, as null in JSON
Ids = Annotated[list[Text], BeforeValidator(_parse_ids)]
Items = Annotated[list[BatchItem], WithJsonSchema({"type": "array", "items": TypeAdapter(BatchItem).json_schema()})]


def _parameter(doc: str, *examples: Any, names: tuple[str, ...] = ()) -> Any:
    """A parameter that may be left out, of several names where they are given: the first is the one in errors.

    It is never read where it was left out: `model_fields_set` says what was given.
    """
    more: dict[str, Any] = {"validation_alias": AliasChoices(*names)} if names else {}
    return Field(None, description=doc, examples=list(examples) or None, **more)


@dataclass(frozen=True)
class Names:
    """The names of the parameters of a request.

    field    the field of each name that a client may use
    shown    of each field, the name that errors and the guide use
    secrets  the fields that may come in a header
    """

    field: dict[str, str]
    shown: dict[str, str]
    secrets: dict[str, Secret]


@cache
def names_of(model: type[CamelBody]) -> Names:
    found = Names({}, {}, {})
    for field, info in model.model_fields.items():
        alias = info.validation_alias
        names = [str(one) for one in alias.choices] if isinstance(alias, AliasChoices) else [str(alias)]
        found.field.update(dict.fromkeys(names, field))
        found.shown[field] = names[0]
        found.secrets.update((field, mark) for mark in info.metadata if isinstance(mark, Secret))
    return found


@cache
def schema_of(model: type[CamelBody], field: str) -> dict[str, Any]:
    """The JSON Schema of a parameter."""
    schema = dict(model.model_json_schema()["properties"][names_of(model).shown[field]])
    return {name: value for name, value in schema.items() if name not in ("title", "default", "examples")}


def describe_expectation(schema: Mapping[str, Any]) -> str:
    """What a parameter accepts, by its JSON Schema, as it follows its name in a sentence."""
    if "enum" in schema:
        return f"is one of {', '.join(schema['enum'])}"
    match schema.get("type"):
        case "integer":
            return f"is a whole number from {schema['minimum']} to {schema['maximum']:,}"
        case "boolean":
            return "is true or false"
        case "string":
            return "is a text"
        case "array" if schema["items"]["type"] == "string":
            return "is a list of ids, divided by commas in a query"
        case "array":
            return 'is a list of {"id", "url"} in the body of a POST'
    return "is a text; empty, or null in JSON, takes it away"


# --- the models ----------------------------------------------------------------------------------------------------


class WidgetRequest(CamelBody):
    """What all services take. Each action says what it needs, and what it takes of the rest."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: Annotated[Text, Secret("x-owner-token", is_bearer=True)] = _parameter(
        f"The owner's token: {TOKEN_MIN} to {TOKEN_MAX} characters.", "my-own-token"
    )
    url: Text = _parameter("The address of the page, https://…", "https://example.com/page")
    id: Text = _parameter(
        f"The public id, such as example-a1b2c3d4. Of create: an id of your own, up to {ID_MAX} letters, digits, _ "
        "and -; without it, one is made.",
        "example-a1b2c3d4",
    )
    webhook_url: Removable = _parameter("Where events are sent; empty: nowhere.", "https://example.com/hook")
    theme: Annotated[str, OneOf(*THEMES)] = Field(DEFAULT_THEME, description="How a picture looks: dark without this.")
    format: Format = Field("json", description="How it is answered; image is SVG.")


class _TotalsRequest(WidgetRequest):
    ids: Ids = _parameter("At most 1,000 ids; one that is not there counts 0.", ["example-a1b2c3d4"])
    prefix: Text = _parameter("How the ids begin.", "example-")
    items: Items = _parameter("At most 100 of them.", [{"id": "my-page", "url": "https://example.com/page"}])


class CounterRequest(_TotalsRequest):
    type: Annotated[str, OneOf(*COUNTER_TYPES)] = Field(
        "total", description="Which number is shown: total without this."
    )
    theme: Annotated[str, OneOf(*THEMES, BADGE)] = Field(
        DEFAULT_THEME, description="How a picture looks: dark without this."
    )
    digits: Annotated[int, Whole(1, 10)] = _parameter("How many digits a picture has at least, with zeros before.")
    total: Total = _parameter("The new total.", 100, names=("total", "value"))


class LikeRequest(_TotalsRequest):
    icon: Icon = _parameter("What the button shows.")
    value: Total = _parameter("The new total.", 100, names=("value", "total"))


class RankingRequest(WidgetRequest):
    title: Text = _parameter(f"Its title: at most {rankings.TITLE_MAX} characters.")
    description: Text = _parameter(f"A line below the title: at most {rankings.DESCRIPTION_MAX} characters.")
    max_entries: Annotated[int, Whole(1, rankings.MAX_ENTRIES)] = _parameter(
        f"How many entries are kept: {rankings.DEFAULT_ENTRIES} without this.", names=("max", "maxEntries")
    )
    sort_order: SortOrder = _parameter("Which score is the best: the highest (desc), or the lowest.")
    name: Text = _parameter(f"The name of the entry: 1 to {rankings.NAME_MAX} characters.", "Ann")
    score: Total = _parameter("The score.", 4200)
    display_score: Text = _parameter(f"How the score is shown, such as 1:23.4: 1 to {rankings.DISPLAY_MAX} characters.")
    limit: Annotated[int, Whole(1, rankings.SHOWN_MAX)] = _parameter(
        f"How many entries are shown: {rankings.SHOWN} without this."
    )


class BoardRequest(WidgetRequest):
    title: Text = _parameter(f"Its title: at most {boards.TITLE_MAX} characters.")
    messages_per_page: Annotated[int, Whole(1, boards.PAGE_MAX)] = _parameter(
        f"How many messages a page has: {boards.DEFAULT_PAGE} without this."
    )
    max_messages: Annotated[int, Whole(1, boards.MAX_MESSAGES)] = _parameter(
        f"How many messages are kept: {boards.DEFAULT_MESSAGES} without this.", names=("max", "maxMessages")
    )
    enable_icons: Boolean = _parameter("Whether messages can have an icon: true.")
    enable_selects: Boolean = _parameter("Whether they can have choices: false.")
    message: Text = _parameter(f"What is written: 1 to {boards.MESSAGE_MAX} characters.", "Hello!")
    author: Text = _parameter(f"Who writes: at most {boards.AUTHOR_MAX} characters.")
    icon: Text = _parameter("One of the icons of the board.")
    select1: Text = _parameter("A choice of list 1 of the board.")
    select2: Text = _parameter("A choice of list 2 of the board.")
    select3: Text = _parameter("A choice of list 3 of the board.")
    message_id: Text = _parameter("Which message.", "example-a1b2c3d4_m1_abc123")
    edit_token: Annotated[Text, Secret("x-edit-token")] = _parameter("The secret that the author was told.", "…")
    page: Annotated[int, Whole(1, 1_000_000)] = _parameter("Which page: 1, the newest, without this.")
    limit: Annotated[int, Whole(1, boards.LIMIT_MAX)] = _parameter(
        "How many messages are shown: as many as a page of the board has without this. A picture has 3 without this, "
        "and 10 at most."
    )


class WelcomeRequest(WidgetRequest):
    message: Text = _parameter(
        f"What it says: {welcomes.BADGE_MAX} characters on a badge, {welcomes.CARD_MAX} on a card.", "Hello!"
    )
    mode: WelcomeMode = _parameter("How it is shown: badge without this.")
    name: Removable = _parameter(f"Who says it: at most {welcomes.NAME_MAX} characters.")
    avatar: Removable = _parameter("A picture of them: its address, or data:image/png;base64,….")
    lang: Literal["ja", "en", "ko"] = _parameter("How the date of a card is written: ja without this.")


class CleanUpRequest(CamelBody):
    """What the clean-up takes, from whoever runs the server."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    admin_token: Annotated[Text, Secret("x-admin-token", is_bearer=True)] = _parameter(
        "The secret of the setting admin_token.", "…"
    )
    target_id: Text = _parameter("The id of the widgets.", "example-a1b2c3d4")
    service: ServiceName = _parameter("Which of them: all without this.")
    url_pattern: Text = _parameter(
        "The address of pages, such as https://example.com/*; * is any text.",
        "https://example.com/*",
        names=("urlPattern", "url"),
    )
    dry_run: Boolean = _parameter("Only say what would be deleted.")
