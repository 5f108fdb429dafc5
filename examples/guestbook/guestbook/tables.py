"""The table of the guestbook: how many entries there were on each day."""

from sqlalchemy import BigInteger, Column, MetaData

from keystead.parts.tables import Name, TableChange, TableSet, create, table

DAYS = table(
    "guestbook_days",
    MetaData(),
    Column("day", Name(10), primary_key=True),
    Column("entries", BigInteger, nullable=False),
)
GUESTBOOK_TABLES = TableSet("guestbook", (TableChange(1, "makes the table of days", create(DAYS)),))
