"""Refusals of the widgets service, each with a stable reason code."""

from __future__ import annotations

from keystead.errors import KeysteadError


class WidgetRefused(KeysteadError):
    """The request was refused, and nothing was stored.

    reason         a stable code for programs
    field          the JSON name of the invalid parameter, or None
    retry_after_s  seconds until a retry makes sense; None: a retry does not help
    """

    code = "widget-refused"

    def __init__(
        self, reason: str, sentence: str, *, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.field = field
        self.retry_after_s = retry_after_s


def invalid(field: str, sentence: str) -> WidgetRefused:
    """An invalid value. The sentence does not repeat the value."""
    return WidgetRefused("VALIDATION_ERROR", sentence, field=field)


def not_found(noun: str) -> WidgetRefused:
    return WidgetRefused("NOT_FOUND", f"there is no such {noun}; create it first, or check the id")


def not_owner() -> WidgetRefused:
    return WidgetRefused("UNAUTHORIZED", "this is not the owner token")


def try_again(sentence: str) -> WidgetRefused:
    return WidgetRefused("TRY_AGAIN", sentence, retry_after_s=1)


def in_cooldown(wait_s: int, what: str) -> WidgetRefused:
    return WidgetRefused("COOLDOWN", f"{what}; wait {wait_s} seconds", retry_after_s=wait_s)
