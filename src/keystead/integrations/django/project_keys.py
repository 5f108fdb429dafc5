"""The keyspaces of a Django project: those in `keys.py` of its applications, and those of cache and sessions."""

from __future__ import annotations

import sys
from typing import Any, Final, TypeVar

from django.apps import apps
from django.conf import settings

from keystead import Keyspace
from keystead.integrations.django.app_settings import setting, store_url
from keystead.integrations.loop_stores import store_of_loop, synchronous_store

K = TypeVar("K", bound=Keyspace)

CACHE_BACKEND: Final = "keystead.integrations.django.KeysteadCache"
SESSION_ENGINE: Final = "keystead.integrations.django.sessions"


def bind(keyspace: type[K]) -> K:
    """This keyspace in the store of `KEYSTEAD`, for synchronous code. The same object in each call."""
    return synchronous_store(store_url()).bind(keyspace)


async def abind(keyspace: type[K]) -> K:
    """This keyspace in the store of `KEYSTEAD`, in the running event loop."""
    return (await store_of_loop(store_url())).bind(keyspace)


def app_keyspaces() -> list[type[Keyspace]]:
    """The keyspaces that the `keys.py` of each application declares."""
    found: list[type[Keyspace]] = []
    for config in apps.get_app_configs():
        module = sys.modules.get(f"{config.name}.keys")
        found += [one for one in vars(module or object).values() if _is_declared_in(one, module)]
    return found


def _is_declared_in(one: Any, module: Any) -> bool:
    return isinstance(one, type) and issubclass(one, Keyspace) and one.__module__ == module.__name__


def cache_urls() -> dict[str, str]:
    """The LOCATION of each cache with our backend, by its name."""
    return {
        name: str(options.get("LOCATION", ""))
        for name, options in settings.CACHES.items()
        if options.get("BACKEND") == CACHE_BACKEND
    }


def uses_sessions() -> bool:
    return bool(settings.SESSION_ENGINE == SESSION_ENGINE)


def command_targets() -> list[str]:
    """The keyspaces of the project, as arguments of the `keystead` command."""
    targets = [f"{one.__module__}:{one.__name__}" for one in app_keyspaces()]
    if uses_sessions():
        targets.append("keystead.integrations.django.command_keys:DjangoSessionKeys")
    if cache_urls():
        targets.append("keystead.integrations.django.cache_keys:DjangoCacheKeys")
    return targets


def command_stores() -> list[str]:
    """Their stores, as arguments of the `keystead` command. Of several caches, the first."""
    stores = [setting("STORE")] if setting("STORE") else []
    caches = list(cache_urls().values())
    if caches:
        stores += [f"cache={caches[0]}"] if stores else caches[:1]
    return stores
