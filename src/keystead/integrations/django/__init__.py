"""Django: a cache, sessions, rate limits, keyspaces and commands. See docs/django.md."""

from keystead.extras import from_extra

with from_extra("django", "the Django integration"):
    from keystead.integrations.django.django_cache import KeysteadCache

__all__ = ["KeysteadCache"]
