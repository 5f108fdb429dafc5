"""The store on MySQL and MariaDB."""

from __future__ import annotations

from keystead.stores.mysql.mysql_store import MysqlStore

__all__ = ["MysqlStore"]
