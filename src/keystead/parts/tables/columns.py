"""Text columns that store and compare the same on every database."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import MetaData, Table, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

from keystead.errors import BadValue

PREFIX: Final = "keystead_"  # an application in the same database may have a table `profiles`
_MYSQL: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def table(name: str, metadata: MetaData, *items: SchemaItem) -> Table:
    """A table named `keystead_` and `name`, which starts with its owner, as in `membership_profiles`.

    The MySQL store has tables such as `keystead_keys`: without the owner, names could collide.
    """
    return Table(PREFIX + name, metadata, *items, **_MYSQL)


class Name(TypeDecorator[str]):
    """Text that is compared byte by byte, so it can be a key: an id, a month, a word.

    In MySQL it is binary, because even a binary collation treats `a` and `a ` as equal. Text that some database cannot
    store (more than `max_bytes` in UTF-8, a NUL, a lone surrogate) is a BadValue before anything is sent.
    """

    impl = Text
    cache_ok = True

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects.mysql import VARBINARY  # imported here: few need this dialect

            return dialect.type_descriptor(VARBINARY(self.max_bytes))
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        encoded = checked_name(value, self.max_bytes)
        return encoded if dialect.name in ("mysql", "mariadb") else value

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return value.decode() if isinstance(value, bytes | bytearray) else value


class Words(TypeDecorator[str]):
    """Text for reading, up to 16 MB. NULs and lone surrogates become U+FFFD, because no database stores both."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name not in ("mysql", "mariadb"):
            return dialect.type_descriptor(Text())
        from sqlalchemy.dialects.mysql import MEDIUMTEXT

        return dialect.type_descriptor(MEDIUMTEXT())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        readable = value.replace("\0", "\ufffd")
        return (
            "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in readable)
            if _has_lone_surrogate(readable)
            else readable
        )


def checked_name(text: str, max_bytes: int) -> bytes:
    """A name in UTF-8. Raises BadValue for text that some database cannot store."""
    if not isinstance(text, str):
        raise BadValue(f"a name must be text, not {type(text).__name__}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise BadValue("a name contains half a character (a lone surrogate); send valid UTF-8") from None
    if b"\0" in encoded:
        raise BadValue("a name contains a NUL character; remove it")
    if len(encoded) > max_bytes:
        raise BadValue(f"a name has {len(encoded):,} bytes; the maximum is {max_bytes:,}")
    return encoded


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
