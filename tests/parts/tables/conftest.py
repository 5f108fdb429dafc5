"""Shared by the table tests."""

from tests.every_database import database_url, mariadb_server, postgres_server

__all__ = ["database_url", "mariadb_server", "postgres_server"]
