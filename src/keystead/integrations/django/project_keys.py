"""The keyspaces of a Django project: those in `keys.py` of its applications, and those of cache and sessions."""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple, TypeVar

from django.apps import apps
from django.conf import settings

from keystead import Keyspace
from keystead.integrations.django.app_settings import setting, store_url
from keystead.integrations.django.cache_keys import DjangoCacheKeys
from keystead.integrations.django.session_parts import session_keyspace
from keystead.integrations.loop_stores import store_of_loop, synchronous_store

K = TypeVar("K", bound=Keyspace)

CACHE_BACKEND: Final = "keystead.integrations.django.KeysteadCache"
SESSION_ENGINE: Final = "keystead.integrations.django.sessions"

# That of the sessions is made from the settings; the command finds it under a fixed name.
_SESSION_KEYS: Final = "keystead.integrations.django.command_keys:DjangoSessionKeys"


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


class StoredKeyspaces(NamedTuple):
    """The keyspaces of the project in one store. `store` is None if no store is set."""

    store: str | None
    keyspaces: list[type[Keyspace]]

    def names(self) -> list[str]:
        """The keyspaces as arguments of the `keystead` command."""
        made = session_keyspace() if uses_sessions() else None
        return [_SESSION_KEYS if one is made else f"{one.__module__}:{one.__name__}" for one in self.keyspaces]

    def has_family(self, name: str) -> bool:
        """Whether a family has this name: `page`, or `ShopKeys.page`."""
        keyspace, _, family = name.rpartition(".")
        return any(family in one.families and keyspace in ("", one.__name__) for one in self.keyspaces)


def stored_keyspaces() -> list[StoredKeyspaces]:
    """The keyspaces of the project by the stores that hold them: `KEYSTEAD`, and the LOCATION of each cache."""
    groups: dict[str | None, list[type[Keyspace]]] = {}
    own = [*app_keyspaces(), *([session_keyspace()] if uses_sessions() else [])]
    if own:
        groups[setting("STORE")] = own
    for url in dict.fromkeys(cache_urls().values()):
        groups.setdefault(url, []).append(DjangoCacheKeys)
    return [StoredKeyspaces(url, found) for url, found in groups.items()]
