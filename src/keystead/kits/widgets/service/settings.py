"""What the widgets kit can be told."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from keystead.kits.setting_types import LimitsByName, Words, known

# Requests of one client in a minute, by what they ask for.
LIMITS: Final = {"read": 600, "write": 100, "post": 5, "owner": 20, "create": 120}

_SECRET_MIN: Final = 16
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")


def folded_text(text: str) -> str:
    """A text by what it says: without case, wide and other forms of letters, and what cannot be seen between them."""
    return "".join(
        char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) != "Cf"
    ).casefold()


class WidgetSettings(BaseModel):
    """The table `[widgets]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    zone: str = Field("UTC", description="Where a day ends, such as `Asia/Tokyo`: a visitor counts once a day.")
    get_writes: Literal["all", "visits", "none"] = Field(
        "all",
        description="What may be written by GET: everything, only visits, or nothing, so that it takes a POST.",
    )
    tokens_in_urls: bool = Field(
        False,
        description="Whether owners' tokens are taken from addresses, where logs and histories keep them.",
    )
    origins: Words = Field(
        ("*",), description="Sites whose pages may use the widgets, such as `https://example.com`; `*`: all."
    )
    banned_words: Words = Field((), description="Words that no name and no message may hold, whatever their case.")
    allow_links: bool = Field(False, description="Whether names and messages may hold links.")
    max_repeats: int = Field(
        4, ge=0, le=1000, description="How often a character may stand in a row; 0: any number of times."
    )
    default_author: str = Field(
        "Anonymous", min_length=1, max_length=20, description="Who has written a message without a name."
    )
    webhooks: bool = Field(True, description="Whether owners can have events sent to an address of theirs.")
    private_webhooks: bool = Field(
        False, description="Whether such an address may be one of this machine or of its network."
    )
    idle_days: int = Field(
        365, ge=0, le=36_500, description="After how many days without a use a widget is deleted; 0: never."
    )
    admin_token: SecretStr | None = Field(
        None, description="The secret of whoever may delete any widget by `/api/admin/cleanup`; without it nobody may."
    )
    limits: Annotated[LimitsByName, known(LIMITS)] = Field(
        default_factory=dict, description=f"Requests of one client in a minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("zone")
    @classmethod
    def _is_zone(cls, given: str) -> str:
        try:
            ZoneInfo(given)
        except (ValueError, OSError, LookupError):
            raise ValueError("no time zone; write it as UTC, Asia/Tokyo or Europe/Berlin") from None
        return given

    @field_validator("admin_token")
    @classmethod
    def _is_long(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and len(given.get_secret_value().strip()) < _SECRET_MIN:
            raise ValueError(f"at least {_SECRET_MIN} characters; `openssl rand -hex 32` makes a good one")
        return given

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if one != "*" and not _ORIGIN.fullmatch(one):
                raise ValueError(f"{one!r} is no origin; write https://example.com, in lower case, with nothing behind")
        return given

    @field_validator("banned_words")
    @classmethod
    def _are_words(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if any(not one.strip() for one in given):
            raise ValueError("a word that is empty would stand in every message")
        return tuple(map(folded_text, given))
