"""Checks of the settings, which Django runs at the start and in `manage.py check`. No store is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.cache import caches

from keystead import connect
from keystead.errors import KeysteadError
from keystead.integrations.django.app_settings import unknown_setting, wrong_value
from keystead.integrations.django.cache_keys import DjangoCacheKeys
from keystead.integrations.django.project_keys import app_keyspaces, cache_urls, uses_sessions
from keystead.integrations.django.session_parts import session_keyspace
from keystead.schema.check import check


@checks.register("keystead")  # type: ignore[untyped-decorator]  # Django has no types
def check_settings(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """What is wrong with `KEYSTEAD`, with our caches, and with the keyspaces of the applications."""
    given = getattr(settings, "KEYSTEAD", {})
    problem = unknown_setting(given) or wrong_value(given)
    if problem:
        return [checks.Error(problem, id="keystead.E001")]
    keyspaces = app_keyspaces()
    if uses_sessions():
        try:
            keyspaces.append(session_keyspace())
        except KeysteadError as error:
            return [checks.Error(f"KEYSTEAD: {error}", id="keystead.E001")]
    found = [*_check_store(given.get("STORE"), keyspaces), *_check_caches(), *_check_serializer()]
    findings = [
        checks.Warning(f"{one.where}: {one.sentence}", hint=one.remedy, id="keystead.W004") for one in check(keyspaces)
    ]
    return [*found, *findings]


def _check_store(url: Any, keyspaces: list[Any]) -> Iterator[checks.CheckMessage]:
    if not url:
        if keyspaces:
            hint = 'KEYSTEAD = {"STORE": "redis://localhost:6379/0"}, or sqlite:///keystead.db'
            yield checks.Error("sessions and keyspaces need a store", hint=hint, id="keystead.E002")
        return
    try:
        store = connect(url)
        for keyspace in keyspaces:
            keyspace(store, needs_seal=False)
    except KeysteadError as error:
        yield checks.Error(f"KEYSTEAD['STORE']: {error}", id="keystead.E002")
    else:
        yield from _check_memory(url, "KEYSTEAD['STORE']")


def _check_caches() -> Iterator[checks.CheckMessage]:
    for name, url in cache_urls().items():
        place = f"CACHES[{name!r}]['LOCATION']"
        problem = getattr(caches[name], "problem", None)
        if problem:
            yield checks.Error(f"CACHES[{name!r}]: {problem}", id="keystead.E003")
        try:
            DjangoCacheKeys(connect(url))
        except KeysteadError as error:
            yield checks.Error(f"{place}: {error}", id="keystead.E003")
        else:
            yield from _check_memory(url, place)


def _check_serializer() -> Iterator[checks.CheckMessage]:
    if uses_sessions() and not settings.SESSION_SERIALIZER.endswith(".JSONSerializer"):
        yield checks.Warning(
            "SESSION_SERIALIZER has no effect: values of sessions are stored as JSON, never as pickle",
            hint="Remove the setting, and store text, numbers, lists and dicts.",
            id="keystead.W006",
        )


def _check_memory(url: str, place: str) -> Iterator[checks.CheckMessage]:
    if url.startswith("memory:"):
        hint = "Use sqlite:///keystead.db."
        yield checks.Warning(
            f"{place}: in memory, each process and each event loop has data of its own", hint=hint, id="keystead.W005"
        )
