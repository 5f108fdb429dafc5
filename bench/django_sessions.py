"""Django's database sessions (`django.contrib.sessions.backends.db`), without a web server.

Each thread has a persistent connection to each database, as Django's documentation recommends. MariaDB uses PyMySQL,
like the other contenders; Django's default, mysqlclient, must be compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEY = "ViewMode"


class Router:
    """Selects the current database."""

    alias = "default"

    def db_for_read(self, model: object, **hints: object) -> str:
        return self.alias

    def db_for_write(self, model: object, **hints: object) -> str:
        return self.alias


ROUTER = Router()


def set_up(databases: Mapping[str, Mapping[str, Any]], **others: Any) -> None:
    """Configure Django with these databases, and create their session tables. Call it once per process."""
    import django
    import pymysql
    from django.conf import settings
    from django.core.management import call_command

    pymysql.install_as_MySQLdb()
    settings.configure(
        DATABASES={"default": {}, **{name: {"CONN_MAX_AGE": None, **options} for name, options in databases.items()}},
        DATABASE_ROUTERS=[ROUTER],
        INSTALLED_APPS=["django.contrib.sessions"],
        SECRET_KEY="of a benchmark",
        SESSION_ENGINE="django.contrib.sessions.backends.db",
        USE_TZ=True,
        **others,
    )
    django.setup()
    for name in databases:
        call_command("migrate", "sessions", database=name, verbosity=0)


def postgresql(port: int) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "keystead",
        "USER": "postgres",
        "HOST": "127.0.0.1",
        "PORT": port,
    }


def mariadb(port: int) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "keystead",
        "USER": "root",
        "HOST": "127.0.0.1",
        "PORT": port,
    }


def sqlite(path: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
            "timeout": 60,
            "transaction_mode": "IMMEDIATE",
        },
    }


class DjangoSessions:
    """Sessions in one of the databases. All methods are called in threads."""

    def __init__(self, alias: str) -> None:
        ROUTER.alias = alias

    def begin(self, value: str) -> str:
        """Create a session with a value. Returns its key."""
        store = _store()(None)
        store[KEY] = value
        store.create()
        return str(store.session_key)

    def read(self, session: str) -> str:
        value: str = _store()(session)[KEY]
        return value

    def write(self, session: str, value: str) -> None:
        """Read, change and write the session, as a request does."""
        store = _store()(session)
        store[KEY] = value
        store.save()

    def save(self, session: str, value: str) -> None:
        """Write the session without reading it first."""
        store = _store()(session)
        store._session_cache = {KEY: value}
        store.save()

    def close(self) -> None:
        """Close the connections of this thread."""
        from django.db import connections

        connections.close_all()


def _store() -> Any:
    from django.contrib.sessions.backends.db import SessionStore

    return SessionStore
