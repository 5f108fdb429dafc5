"""Databases of every kind that relational tables can be in, by name, each without any table of Keystead's."""

from pathlib import Path

import pytest

from tests.real_servers import mariadb_server, postgres_server
from tests.servers import DatabaseServer, PostgresServer

__all__ = ["DATABASES", "database_url", "mariadb_server", "on_databases", "postgres_server"]

DATABASES = ("memory", "sqlite", "postgres", "mariadb")
_OURS = ("keystead_tables", "keystead_membership_%", "keystead_teamwork_%", "keystead_test_%")


def on_databases(*names: str) -> pytest.MarkDecorator:
    """Run a test on each of these."""
    return pytest.mark.parametrize("database_url", names or DATABASES, indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kept.tables.db"
    server: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    _drop(server)
    return server.url


def _drop(server: DatabaseServer) -> None:
    schema = "'public'" if isinstance(server, PostgresServer) else "DATABASE()"
    like = " OR ".join(f"table_name LIKE '{one}'" for one in _OURS)
    found = server.query(f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema} AND ({like})")
    if not found:
        return
    names = ", ".join(name for (name,) in found)
    if isinstance(server, PostgresServer):
        server.query(f"DROP TABLE {names} CASCADE")
    else:
        server.query(f"SET FOREIGN_KEY_CHECKS = 0; DROP TABLE {names}; SET FOREIGN_KEY_CHECKS = 1")
