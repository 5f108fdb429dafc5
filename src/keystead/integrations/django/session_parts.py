"""The data sessions of a Django project, made from its settings."""

from __future__ import annotations

from functools import lru_cache

from keystead.integrations.django.app_settings import setting, store_url
from keystead.integrations.loop_stores import store_of_loop, synchronous_store
from keystead.parts.datasessions import DataSessionKeys, DataSessions, data_session_keys
from keystead.parts.sessions import Policy
from keystead.stores import Store


def session_keyspace() -> type[DataSessionKeys]:
    """The keyspace of the sessions, by the settings."""
    return _keyspace(setting("SESSION_PREFIX"), *_policies())


def data_sessions() -> DataSessions:
    """The sessions, for synchronous callers."""
    return synchronous_store(store_url()).bind(_sessions_on)


async def data_sessions_of_loop() -> DataSessions:
    """The sessions, in the store of the running event loop."""
    return (await store_of_loop(store_url())).bind(_sessions_on)


def _sessions_on(store: Store) -> DataSessions:
    users, visitors = _policies()
    return DataSessions(session_keyspace()(store), users, visitors)


def _policies() -> tuple[Policy, Policy]:
    """For signed-in users and for visitors. Each session states its own times: see `SessionStore`."""
    longest = setting("SESSION_MAX_AGE")
    idle = setting("ANONYMOUS_SESSION_AGE") or longest
    users = Policy(idle=longest, absolute=longest, cap=setting("SESSIONS_PER_USER"))
    # No cap per address: behind one address, as of a company, visitors would end the carts of others.
    return users, Policy(idle=idle, absolute=longest, cap=None)


@lru_cache(maxsize=8)
def _keyspace(prefix: str, users: Policy, visitors: Policy) -> type[DataSessionKeys]:
    return data_session_keys(users, visitors, prefix=prefix)
