"""Settings of the widgets kit."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from keystead.kits.setting_types import LimitsByName, Words, check_limit_names

# Requests of one client per minute, by kind.
LIMITS: Final = {"read": 600, "write": 100, "post": 5, "owner": 20, "create": 120}

_SECRET_MIN: Final = 16
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")


def fold_text(text: str) -> str:
    """The text without case, compatibility forms (such as wide letters) and invisible characters, for comparison."""
    return "".join(
        char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) != "Cf"
    ).casefold()


class WidgetSettings(BaseModel):
    """The table `[widgets]` of keystead.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    zone: str = Field("UTC", description="The time zone of a day, such as `Asia/Tokyo`. A visitor counts once a day.")
    get_writes: Literal["all", "visits", "none"] = Field(
        "all", description="What GET requests may write: everything, only visits, or nothing (POST only)."
    )
    tokens_in_urls: bool = Field(
        False, description="Whether owner tokens are accepted in URLs, where they end up in logs and histories."
    )
    origins: Words = Field(
        ("*",), description="Origins whose pages may use the widgets, such as `https://example.com`; `*`: all."
    )
    banned_words: Words = Field((), description="Words that names and messages must not contain; case is ignored.")
    allow_links: bool = Field(False, description="Whether names and messages may contain links.")
    max_repeats: int = Field(
        4, ge=0, le=1000, description="How many times a character may occur in a row; 0: no limit."
    )
    default_author: str = Field(
        "Anonymous", min_length=1, max_length=20, description="The author of messages without a name."
    )
    webhooks: bool = Field(True, description="Whether owners can set a webhook.")
    private_webhooks: bool = Field(
        False, description="Whether a webhook may point to this machine or a private network."
    )
    idle_days: int = Field(
        365, ge=0, le=36_500, description="Days without use after which a widget is deleted; 0: never."
    )
    admin_token: SecretStr | None = Field(
        None, description="The secret for `/api/admin/cleanup`, which deletes any widget; without it, that is disabled."
    )
    limits: Annotated[LimitsByName, check_limit_names(LIMITS)] = Field(
        default_factory=dict, description=f"Requests of one client per minute: {', '.join(LIMITS)}; 0: no limit."
    )

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, given: str) -> str:
        try:
            ZoneInfo(given)
        except (ValueError, OSError, LookupError):
            raise ValueError("not a time zone; examples are UTC, Asia/Tokyo and Europe/Berlin") from None
        return given

    @field_validator("admin_token")
    @classmethod
    def _check_admin_token(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and len(given.get_secret_value().strip()) < _SECRET_MIN:
            raise ValueError(f"at least {_SECRET_MIN} characters; `openssl rand -hex 32` makes a good one")
        return given

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            if one != "*" and not _ORIGIN.fullmatch(one):
                raise ValueError(f"{one!r} is not an origin; write https://example.com, in lower case, without a path")
        return given

    @field_validator("banned_words")
    @classmethod
    def _fold_words(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if any(not one.strip() for one in given):
            raise ValueError("an empty word would match every message")
        return tuple(map(fold_text, given))
