"""Checks of the settings, which Django runs at the start and in `manage.py check`. No store is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core import checks

from keystead import connect
from keystead.errors import KeysteadError
from keystead.integrations.django.app_settings import unknown_setting
from keystead.integrations.django.project_keys import app_keyspaces, cache_urls, uses_sessions
from keystead.integrations.django.session_parts import session_keyspace
from keystead.schema.check import check


@checks.register("keystead")  # type: ignore[untyped-decorator]  # Django has no types
def check_settings(app_configs: Any, **options: Any) -> list[checks.CheckMessage]:
    """What is wrong with `KEYSTEAD`, with our caches, and with the keyspaces of the applications."""
    given = getattr(settings, "KEYSTEAD", {})
    problem = unknown_setting(given)
    if problem:
        return [checks.Error(problem, id="keystead.E001")]
    keyspaces = [*app_keyspaces(), *([session_keyspace()] if uses_sessions() else [])]
    found = [*_check_store(given.get("STORE"), keyspaces), *_check_caches()]
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
        try:
            connect(url)
        except KeysteadError as error:
            yield checks.Error(f"{place}: {error}", id="keystead.E003")
        else:
            yield from _check_memory(url, place)


def _check_memory(url: str, place: str) -> Iterator[checks.CheckMessage]:
    if url.startswith("memory:"):
        hint = "Use sqlite:///keystead.db."
        yield checks.Warning(
            f"{place}: in memory, each process and each event loop has data of its own", hint=hint, id="keystead.W005"
        )
