"""The setting `KEYSTEAD` of a Django project."""

from __future__ import annotations

from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

DEFAULTS: Final[dict[str, Any]] = {
    "STORE": None,
    "SESSION_PREFIX": "django",
    "SESSIONS_PER_USER": None,
    "SESSION_MAX_AGE": "400d",
    "ANONYMOUS_SESSION_AGE": None,
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


def wrong_value(given: dict[str, Any]) -> str | None:
    """A sentence about a setting of a wrong type; None if there is none."""
    store, prefix = given.get("STORE"), given.get("SESSION_PREFIX", "django")
    most = given.get("SESSIONS_PER_USER")
    if store is not None and not isinstance(store, str):
        return f"KEYSTEAD['STORE'] must be a URL as text, not {type(store).__name__}"
    if not isinstance(prefix, str):
        return f"KEYSTEAD['SESSION_PREFIX'] must be text, not {type(prefix).__name__}"
    if most is not None and (type(most) is not int or most < 1):
        return f"KEYSTEAD['SESSIONS_PER_USER'] must be a number of at least 1, or None, not {most!r}"
    for name in ("SESSION_MAX_AGE", "ANONYMOUS_SESSION_AGE"):
        age = given.get(name, DEFAULTS[name])
        if not isinstance(age, str | timedelta) and not (age is None and DEFAULTS[name] is None):
            return f"KEYSTEAD['{name}'] must be a duration such as '400d' or a timedelta, not {age!r}"
    return None


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
