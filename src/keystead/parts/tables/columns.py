"""Text columns that store and compare alike on every database."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import MetaData, Table, Text
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARBINARY
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeDecorator, TypeEngine

from keystead.errors import BadValue

PREFIX: Final = "keystead_"  # a database may be shared with an application that has a table `profiles` itself
_MYSQL: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_row_format": "DYNAMIC",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def table(name: str, metadata: MetaData, *items: SchemaItem) -> Table:
    """A table of Keystead's: `keystead_` and its name, which begins with its owner's, as in `membership_profiles`.

    The tables of the stores in MySQL are called `keystead_keys` and so on: without the owner, two could meet.
    """
    return Table(PREFIX + name, metadata, *items, **_MYSQL)


class Name(TypeDecorator[str]):
    """A text that is compared byte by byte, and so can be a key: an id, a month, a word.

    In MySQL it is binary: there, even a binary collation takes `a` and `a ` for one. What cannot be kept everywhere
    (more than `max_bytes` in UTF-8, a NUL, half of a surrogate pair) is a BadValue before anything is sent.
    """

    impl = Text
    cache_ok = True

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in ("mysql", "mariadb"):
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
    """A text that is kept for reading, of up to 16 MB. A NUL and half of a surrogate pair become U+FFFD: no database
    keeps both, and a report is not lost for a character."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(MEDIUMTEXT() if dialect.name in ("mysql", "mariadb") else Text())

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        readable = value.replace("\0", "\ufffd")
        return (
            "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in readable) if _halves(readable) else readable
        )


def checked_name(text: str, max_bytes: int) -> bytes:
    """A name in UTF-8. Raises BadValue for what not every database can keep."""
    if not isinstance(text, str):
        raise BadValue(f"a name is text, not a {type(text).__name__}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise BadValue("a name holds half of a character (a lone surrogate); send it as whole UTF-8") from None
    if b"\0" in encoded:
        raise BadValue("a name holds a NUL character; leave it out")
    if len(encoded) > max_bytes:
        raise BadValue(f"a name has {len(encoded):,} bytes; at most {max_bytes:,} fit here")
    return encoded


def _halves(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
