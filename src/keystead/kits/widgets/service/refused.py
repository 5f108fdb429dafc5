"""What is refused, with a stable word for it."""

from __future__ import annotations

from keystead.errors import KeysteadError


class WidgetRefused(KeysteadError):
    """Something is refused, and nothing was stored. `reason` is a stable word; `more` is told beside the sentence."""

    code = "widget-refused"

    def __init__(self, reason: str, sentence: str, **more: object) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.more = more


def wrong(field: str, sentence: str) -> WidgetRefused:
    """A value that is not let in. The sentence does not repeat it."""
    return WidgetRefused("VALIDATION_ERROR", sentence, field=field)


def unknown(service: str) -> WidgetRefused:
    return WidgetRefused("NOT_FOUND", f"there is no such {service}; create it first, or look at its id again")


def not_owner() -> WidgetRefused:
    return WidgetRefused("UNAUTHORIZED", "this is not the owner's token")


def too_soon(wait_s: int, what: str) -> WidgetRefused:
    return WidgetRefused("COOLDOWN", f"{what}; wait {wait_s} seconds", retryAfter=wait_s)
