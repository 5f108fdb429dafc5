"""The keys of Django's cache."""

from __future__ import annotations

from typing import Any, Final, Unpack

from keystead import Keyspace, Value, until
from keystead.integrations.django.value_codec import CachedValueCodec
from keystead.schema.family import Options

NEVER_MS: Final = 100 * 365 * 86_400_000
"""The lifetime of an entry with `timeout=None`: a hundred years. So every entry has a deadline."""


class CachedValue(Value[Any]):
    """A family of whatever Django may cache, as tagged JSON."""

    def __init__(self, pattern: str, **options: Unpack[Options]) -> None:
        options.setdefault("role", "cache")
        super().__init__(pattern, bytes, **options)
        self.codec = CachedValueCodec()


class DjangoCacheKeys(Keyspace):
    """Django's cache: `CACHES` with the backend `keystead.integrations.django.KeysteadCache`.

    A key prefix comes last: `django:cache:v1:home@shop`.
    """

    entry = CachedValue(
        "django:cache:v{version}:{name<=200}[@{prefix}]",
        lifetime=until("timeout"),
        doc="what `cache.set` stores, by version and name, and by KEY_PREFIX if there is one",
    )
    made = CachedValue(
        "django:cache:key:{name<=200}[@{prefix}]",
        lifetime=until("timeout"),
        doc="the same for a KEY_FUNCTION of your own, by the name that it returns",
    )
