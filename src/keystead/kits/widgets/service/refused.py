"""Refusals of the service, each with a stable word for it."""

from __future__ import annotations

from keystead.errors import KeysteadError


class WidgetRefused(KeysteadError):
    """Something is refused, and nothing was stored.

    reason         a stable word for programs
    field          the parameter that is not accepted, under its name in JSON; None: it is not about one
    retry_after_s  how many seconds to wait before the next try; None: waiting does not help
    """

    code = "widget-refused"

    def __init__(
        self, reason: str, sentence: str, *, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.field = field
        self.retry_after_s = retry_after_s


def wrong(field: str, sentence: str) -> WidgetRefused:
    """A value that is not accepted. The sentence does not repeat it."""
    return WidgetRefused("VALIDATION_ERROR", sentence, field=field)


def unknown(service: str) -> WidgetRefused:
    return WidgetRefused("NOT_FOUND", f"there is no such {service}; create it first, or look at its id again")


def not_owner() -> WidgetRefused:
    return WidgetRefused("UNAUTHORIZED", "this is not the owner's token")


def too_soon(wait_s: int, what: str) -> WidgetRefused:
    return WidgetRefused("COOLDOWN", f"{what}; wait {wait_s} seconds", retry_after_s=wait_s)
