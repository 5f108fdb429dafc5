"""Django: a cache, sessions, rate limits, keyspaces and commands. See docs/django.md."""

from keystead.extras import from_extra

with from_extra("django", "the Django integration"):
    from keystead.integrations.django.cache_keys import CachedValue
    from keystead.integrations.django.django_cache import KeysteadCache
    from keystead.integrations.django.project_keys import abind, bind
    from keystead.integrations.django.view_decorators import cached_view, rate_limit

__all__ = ["CachedValue", "KeysteadCache", "abind", "bind", "cached_view", "rate_limit"]
