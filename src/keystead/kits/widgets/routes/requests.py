"""The parameters of each service, as one model per service. Each action accepts some of them."""

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
from keystead.kits.widgets.service import BatchItem, boards, rankings, welcomes
from keystead.kits.widgets.service.checks import ID_MAX, LARGEST, TOKEN_MAX, TOKEN_MIN
from keystead.kits.widgets.service.counters import COUNTER_TYPES
from keystead.kits.widgets.themes import BADGE, THEMES

Format: TypeAlias = Literal["json", "text", "image"]

# One spelling per number: no sign, leading zero, exponent or non-ASCII digit, as in `-0` or `٣`.
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_BOOLEANS: Final = {"true": True, "false": False}

# --- types of parameters -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Secret:
    """Marks a parameter that may come in a header, but not in a URL.

    is_bearer  actions that write also accept it as `Authorization: Bearer …`
    """

    header: str
    is_bearer: bool = False


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`: an integer in JSON (not 5.0 or true), digits in a query."""

    least: int
    most: int

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        number = core_schema.int_schema(strict=True, ge=self.least, le=self.most)
        return core_schema.with_info_before_validator_function(_parse_number, number)


class OneOf:
    def __init__(self, *words: str) -> None:
        self._words = list(words)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema(self._words)


def _is_query(info: ValidationInfo) -> bool:
    return str(info.mode) == "string"  # and not JSON, which has numbers, booleans and lists


def _parse_number(given: Any, info: ValidationInfo) -> Any:
    if _is_query(info) and not _NUMBER.fullmatch(given):
        raise ValueError
    return int(given) if _is_query(info) else given


def _parse_boolean(given: Any, info: ValidationInfo) -> Any:
    return _BOOLEANS.get(given) if _is_query(info) else given


def _parse_ids(given: Any, info: ValidationInfo) -> Any:
    return (given.split(",") if given else []) if _is_query(info) else given


def _refuse_lone_surrogates(text: str) -> str:
    text.encode()  # raises for a lone surrogate, which JSON can contain
    return text


Text = Annotated[str, AfterValidator(_refuse_lone_surrogates)]
Boolean = Annotated[bool, Field(strict=True), BeforeValidator(_parse_boolean)]
Total = Annotated[int, Whole(0, LARGEST)]
Removable = Annotated[
    Text | None, AfterValidator(lambda text: text or None)
]  # empty, or null in JSON, removes the value
Ids = Annotated[list[Text], BeforeValidator(_parse_ids)]
Items = Annotated[list[BatchItem], WithJsonSchema({"type": "array", "items": TypeAdapter(BatchItem).json_schema()})]


def _parameter(doc: str, *examples: Any, names: tuple[str, ...] = ()) -> Any:
    """An optional parameter, with alternative names if given; error messages use the first.

    Its default is never read: `model_fields_set` tells what was given.
    """
    more: dict[str, Any] = {"validation_alias": AliasChoices(*names)} if names else {}
    return Field(None, description=doc, examples=list(examples) or None, **more)


@dataclass(frozen=True)
class Names:
    """The names of the parameters of a request.

    field    the field of each accepted name
    shown    the name of each field in error messages and the guide
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
def _properties_of(model: type[CamelBody]) -> dict[str, dict[str, Any]]:
    properties: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    return properties


@cache
def schema_of(model: type[CamelBody], field: str) -> dict[str, Any]:
    """The JSON Schema of a parameter."""
    schema = _properties_of(model)[names_of(model).shown[field]]
    return {name: value for name, value in schema.items() if name not in ("title", "default", "examples")}


def describe_expectation(schema: Mapping[str, Any]) -> str:
    """What a parameter accepts, from its JSON Schema: the rest of a sentence that starts with its name."""
    if "enum" in schema:
        return f"must be one of {', '.join(schema['enum'])}"
    match schema.get("type"):
        case "integer":
            return f"must be a whole number from {schema['minimum']} to {schema['maximum']:,}"
        case "boolean":
            return "must be true or false"
        case "string":
            return "must be text"
        case "array" if schema["items"]["type"] == "string":
            return "must be a list of ids, separated by commas in a query"
        case "array":
            return 'must be a list of {"id", "url"} in the body of a POST'
    return "must be text; empty, or null in JSON, removes it"


# --- the models ----------------------------------------------------------------------------------------------------


class WidgetRequest(CamelBody):
    """The parameters of all services."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: Annotated[Text, Secret("x-owner-token", is_bearer=True)] = _parameter(
        f"The owner token: {TOKEN_MIN} to {TOKEN_MAX} characters.", "my-own-token"
    )
    url: Text = _parameter("The URL of the page, https://…", "https://example.com/page")
    id: Text = _parameter(
        f"The public id, such as example-a1b2c3d4. In create: a custom id of up to {ID_MAX} letters, digits, _ and -; "
        "by default, it is derived from the URL.",
        "example-a1b2c3d4",
    )
    webhook_url: Removable = _parameter("The webhook URL; empty removes it.", "https://example.com/hook")
    theme: Annotated[str, OneOf(*THEMES)] = Field(DEFAULT_THEME, description="The theme of a picture: dark by default.")
    format: Format = Field("json", description="The response format; image is SVG.")


class _TotalsRequest(WidgetRequest):
    ids: Ids = _parameter("At most 1,000 ids; a missing one counts as 0.", ["example-a1b2c3d4"])
    prefix: Text = _parameter("The prefix of the ids.", "example-")
    items: Items = _parameter(
        "The widgets to create, at most 100.", [{"id": "my-page", "url": "https://example.com/page"}]
    )


class CounterRequest(_TotalsRequest):
    type: Annotated[str, OneOf(*COUNTER_TYPES)] = Field("total", description="Which count is shown: total by default.")
    theme: Annotated[str, OneOf(*THEMES, BADGE)] = Field(
        DEFAULT_THEME, description="The theme of a picture: dark by default."
    )
    digits: Annotated[int, Whole(1, 10)] = _parameter("The minimum number of digits in a picture, with leading zeros.")
    total: Total = _parameter("The new total.", 100, names=("total", "value"))


class LikeRequest(_TotalsRequest):
    icon: Icon = _parameter("The icon of the button.")
    value: Total = _parameter("The new total.", 100, names=("value", "total"))


class RankingRequest(WidgetRequest):
    title: Text = _parameter(f"The title: at most {rankings.TITLE_MAX} characters.")
    description: Text = _parameter(f"A line below the title: at most {rankings.DESCRIPTION_MAX} characters.")
    max_entries: Annotated[int, Whole(1, rankings.MAX_ENTRIES)] = _parameter(
        f"The maximum number of entries: {rankings.DEFAULT_ENTRIES} by default.", names=("max", "maxEntries")
    )
    sort_order: SortOrder = _parameter("Which score is the best: the highest (desc) or the lowest (asc).")
    name: Text = _parameter(f"The name of the entry: 1 to {rankings.NAME_MAX} characters.", "Ann")
    score: Total = _parameter("The score.", 4200)
    display_score: Text = _parameter(f"The score as displayed, such as 1:23.4: 1 to {rankings.DISPLAY_MAX} characters.")
    limit: Annotated[int, Whole(1, rankings.SHOWN_MAX)] = _parameter(
        f"How many entries are shown: {rankings.SHOWN} by default."
    )


class BoardRequest(WidgetRequest):
    title: Text = _parameter(f"The title: at most {boards.TITLE_MAX} characters.")
    messages_per_page: Annotated[int, Whole(1, boards.PAGE_MAX)] = _parameter(
        f"Messages per page: {boards.DEFAULT_PAGE} by default."
    )
    max_messages: Annotated[int, Whole(1, boards.MAX_MESSAGES)] = _parameter(
        f"The maximum number of messages: {boards.DEFAULT_MESSAGES} by default.", names=("max", "maxMessages")
    )
    enable_icons: Boolean = _parameter("Whether messages can have an icon: true by default.")
    enable_selects: Boolean = _parameter("Whether messages can have choices: false by default.")
    message: Text = _parameter(f"The message: 1 to {boards.MESSAGE_MAX} characters.", "Hello!")
    author: Text = _parameter(f"The author: at most {boards.AUTHOR_MAX} characters.")
    icon: Text = _parameter("One of the icons of the board.")
    select1: Text = _parameter("A choice from list 1 of the board.")
    select2: Text = _parameter("A choice from list 2 of the board.")
    select3: Text = _parameter("A choice from list 3 of the board.")
    message_id: Text = _parameter("The id of the message.", "example-a1b2c3d4_m1_abc123")
    edit_token: Annotated[Text, Secret("x-edit-token")] = _parameter(
        "The edit token from the response to the post.", "…"
    )
    page: Annotated[int, Whole(1, 1_000_000)] = _parameter("The page: 1, the newest, by default.")
    limit: Annotated[int, Whole(1, boards.LIMIT_MAX)] = _parameter(
        "How many messages are shown: the page size of the board by default. A picture shows 3 by default, and at most "
        "10."
    )


class WelcomeRequest(WidgetRequest):
    message: Text = _parameter(
        f"The message: {welcomes.BADGE_MAX} characters on a badge, {welcomes.CARD_MAX} on a card.", "Hello!"
    )
    mode: WelcomeMode = _parameter("The form: badge by default.")
    name: Removable = _parameter(f"Who it is from: at most {welcomes.NAME_MAX} characters.")
    avatar: Removable = _parameter("A picture of them: a URL, or data:image/png;base64,….")
    lang: Literal["ja", "en", "ko"] = _parameter("The language of the date on a card: ja by default.")


class CleanUpRequest(CamelBody):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    admin_token: Annotated[Text, Secret("x-admin-token", is_bearer=True)] = _parameter(
        "The value of the setting admin_token.", "…"
    )
    target_id: Text = _parameter("The id of the widgets.", "example-a1b2c3d4")
    service: ServiceName = _parameter("The service: all by default.")
    url_pattern: Text = _parameter(
        "A page URL, or a pattern such as https://example.com/*; * matches any text.",
        "https://example.com/*",
        names=("urlPattern", "url"),
    )
    dry_run: Boolean = _parameter("Only report what would be deleted.")
