"""The store on MySQL and MariaDB: `mysql://user:password@host:3306/database`, or `mariadb://`."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from keystead.errors import BadUrl, StoreRefused
from keystead.stores.database.database_feed import DatabaseFeed
from keystead.stores.database.database_session import Session, Statement, StatementFailed
from keystead.stores.database.database_settings import DatabaseSettings, TlsReader, yes_or_no
from keystead.stores.database.database_store import DatabaseStore
from keystead.stores.mysql.mysql_dialect import MysqlDialect
from keystead.stores.mysql.mysql_feed import MysqlFeed
from keystead.stores.mysql.mysql_schema import SCHEMA
from keystead.stores.mysql.mysql_session import MysqlSession, connect
from keystead.stores.store_contract import Guarantees

# for SKIP LOCKED, and for ids that are not reused after a restart
OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}


class _Tls(TlsReader):
    def __call__(self, options: dict[str, str]) -> Mapping[str, Any]:
        ca, cert, key = (options.pop(name, None) for name in ("ca", "cert", "key"))
        wanted = yes_or_no(options, "tls", "yes" if ca else "no")
        verified = yes_or_no(options, "verify", "yes")
        if not wanted:
            return {"ssl_disabled": True}
        try:
            context = ssl.create_default_context(cafile=ca)
            if cert:
                context.load_cert_chain(cert, key)
        except OSError as error:
            raise BadUrl(f"the certificates of the URL cannot be read: {error}") from None
        if not verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return {"ssl": context}


class MysqlStore(DatabaseStore):
    dialect = MysqlDialect
    schema = SCHEMA
    value_max_bytes = 8_000_000  # until the server states its own

    @classmethod
    def of(cls, url: str) -> MysqlStore:
        return cls(DatabaseSettings.of(url, port=3306, tls=_Tls()))

    def connect(self) -> MysqlSession:
        return connect(self.settings)

    def read_guarantees(self, session: Session) -> Guarantees:
        [answer] = session.ask(
            [Statement("SELECT @@version, @@innodb_flush_log_at_trx_commit, @@max_allowed_packet, @@innodb_page_size")]
        )
        version, flush, packet, _ = answer.fetchone()
        _check_version(version, self.url)
        return Guarantees(
            durability="disk" if flush in (1, 3) else "seconds", value_max_bytes=max((packet - 8_192) // 2, 0)
        )

    def feed(self) -> DatabaseFeed:
        return MysqlFeed(self.write, self.read)


def _check_version(text: str, url: str) -> None:
    engine = "MariaDB" if "mariadb" in text.lower() else "MySQL"
    numbers = tuple(int(part) for part in text.split("-")[0].split(".")[:2] if part.isdigit())
    if numbers < OLDEST[engine]:
        oldest = ".".join(map(str, OLDEST[engine]))
        raise StatementFailed(StoreRefused(f"{url} is {engine} {text}; Keystead needs {engine} {oldest} or later"))
