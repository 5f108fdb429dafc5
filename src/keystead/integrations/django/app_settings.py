"""The setting `KEYSTEAD` of a Django project."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

DEFAULTS: Final[dict[str, Any]] = {
    "STORE": None,
    "SESSION_PREFIX": "django",
    "SESSIONS_PER_USER": None,
    "SESSION_MAX_AGE": "400d",
}


def setting(name: str) -> Any:
    """One setting, or its default. Raises ImproperlyConfigured for an unknown name in `KEYSTEAD`."""
    given = getattr(settings, "KEYSTEAD", {})
    problem = unknown_setting(given)
    if problem:
        raise ImproperlyConfigured(problem)
    return given.get(name, DEFAULTS[name])


def store_url() -> str:
    """The store of sessions, keyspaces and rate limits. Raises ImproperlyConfigured if there is none."""
    url = setting("STORE")
    if not isinstance(url, str) or not url:
        raise ImproperlyConfigured('set KEYSTEAD = {"STORE": "redis://localhost:6379/0"}, or another URL of a store')
    return url


def unknown_setting(given: Any) -> str | None:
    """A sentence about what is wrong with `KEYSTEAD`; None if nothing is."""
    if not isinstance(given, dict):
        return f"KEYSTEAD must be a dict, not {type(given).__name__}"
    for name in given:
        if name not in DEFAULTS:
            near = get_close_matches(str(name), DEFAULTS, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"the settings are: {', '.join(DEFAULTS)}"
            return f"KEYSTEAD has no setting {name!r}; {advice}"
    return None
