"""The store on PostgreSQL: `postgresql://user:password@host:5432/database`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keystead.errors import BadUrl
from keystead.stores.database.database_feed import DatabaseFeed
from keystead.stores.database.database_session import Session, Statement
from keystead.stores.database.database_settings import DatabaseSettings, TlsReader, yes_or_no
from keystead.stores.database.database_store import DatabaseStore
from keystead.stores.postgres.postgres_dialect import PostgresDialect
from keystead.stores.postgres.postgres_feed import PostgresFeed
from keystead.stores.postgres.postgres_schema import SCHEMA
from keystead.stores.postgres.postgres_session import PostgresSession, connect
from keystead.stores.store_contract import Guarantees

# Hosting providers use these in the URLs they issue.
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


class _Tls(TlsReader):
    def __call__(self, options: dict[str, str]) -> Mapping[str, Any]:
        mode = options.pop("sslmode", None)
        if mode is not None:
            if mode not in SSL_MODES:
                raise BadUrl(f"sslmode must be one of {', '.join(SSL_MODES)}")
            options.pop("channel_binding", None)
        given = {
            ours: options.pop(name, None)
            for name, ours in (("ca", "sslrootcert"), ("cert", "sslcert"), ("key", "sslkey"))
        }
        wanted = yes_or_no(options, "tls", "yes" if given["sslrootcert"] else "no")
        verified = yes_or_no(options, "verify", "yes")
        if mode is None and wanted:
            mode = "verify-full" if verified else "require"
            if verified and given["sslrootcert"] is None:
                given["sslrootcert"] = "system"
        return {name: value for name, value in {"sslmode": mode, **given}.items() if value is not None}


class PostgresStore(DatabaseStore):
    dialect = PostgresDialect
    schema = SCHEMA
    value_max_bytes = 900_000_000  # a field of a row takes 1 GB

    @classmethod
    def of(cls, url: str) -> PostgresStore:
        return cls(DatabaseSettings.of(url, port=5432, tls=_Tls()))

    def connect(self) -> PostgresSession:
        return connect(self.settings)

    def read_guarantees(self, session: Session) -> Guarantees:
        [settings] = session.ask(
            [Statement("SELECT current_setting('fsync')::text, current_setting('synchronous_commit')::text")]
        )
        fsync, commit = settings.fetchone()
        durability = "memory" if fsync == "off" else "seconds" if commit == "off" else "disk"
        return Guarantees(durability=durability, value_max_bytes=self.value_max_bytes)  # type: ignore[arg-type]

    def feed(self) -> DatabaseFeed:
        return PostgresFeed(self.write, self.read, self.connect, self.url)
