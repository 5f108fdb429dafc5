"""Durations and lifetimes in the language of a page. In English they are what the key document says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from keystead.catalogue import Speaker
from keystead.schema.lifetime import After, EndOfDay, Lifetime, Never, Sliding, Spread, Until

_UNITS: Final[Sequence[tuple[int, Callable[[Speaker, int], str]]]] = (
    (86_400_000, lambda say, count: say.plural("{count} day", "{count} days", count)),
    (3_600_000, lambda say, count: say.plural("{count} hour", "{count} hours", count)),
    (60_000, lambda say, count: say.plural("{count} minute", "{count} minutes", count)),
    (1_000, lambda say, count: say.plural("{count} second", "{count} seconds", count)),
    (1, lambda say, count: say.plural("{count} millisecond", "{count} milliseconds", count)),
)


def duration_words(ms: int, say: Speaker, most: int = len(_UNITS)) -> str:
    """`1 hour 30 minutes`: at most so many units."""
    phrases = []
    for size_ms, phrase in _UNITS:
        count, ms = divmod(ms, size_ms)
        if count:
            phrases.append(phrase(say, count))
    return " ".join(phrases[:most])


def lifetime_words(lifetime: Lifetime, say: Speaker) -> str:
    """As `Lifetime.describe`. The reason of a `never` stays as it was declared."""
    match lifetime:
        case After():
            return duration_words(lifetime.ms, say)
        case Spread():
            longest, jitter = duration_words(lifetime.ms, say), duration_words(lifetime.jitter_ms, say)
            return say("{longest}, or up to {jitter} less", longest=longest, jitter=jitter)
        case Sliding():
            idle, touch = duration_words(lifetime.ms, say), duration_words(lifetime.touch_every_ms, say)
            return say("{idle} after the last use; touched at most once in {touch}", idle=idle, touch=touch)
        case Until(at_most_ms=None):
            return say("until `{field}`", field=lifetime.field)
        case Until():
            longest = duration_words(lifetime.at_most_ms or 0, say)
            return say("until `{field}`, at most {longest}", field=lifetime.field, longest=longest)
        case EndOfDay():
            return say("end of the day ({zone})", zone=lifetime.zone)
        case Never():
            return say("never expires: {reason}", reason=lifetime.reason)
        case _:
            return lifetime.describe()
