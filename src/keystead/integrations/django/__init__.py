"""Django: a cache, sessions, rate limits, keyspaces and commands. See docs/django.md."""

from keystead.extras import from_extra

with from_extra("django", "the Django integration"):
    from keystead.integrations.cached_page import CachedPage
    from keystead.integrations.django.cached_views import cached_view
    from keystead.integrations.django.django_cache import KeysteadCache
    from keystead.integrations.django.limited_views import rate_limit
    from keystead.integrations.django.outage_middleware import StoreOutageMiddleware
    from keystead.integrations.django.project_keys import abind, bind

__all__ = ["CachedPage", "KeysteadCache", "StoreOutageMiddleware", "abind", "bind", "cached_view", "rate_limit"]
