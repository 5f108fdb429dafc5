"""The table of the guestbook: the number of entries of each day."""

from sqlalchemy import BigInteger, Column, MetaData

from keystead.parts.tables import Name, TableChange, TableSet, create, table

DAYS = table(
    "guestbook_days",
    MetaData(),
    Column("day", Name(10), primary_key=True),
    Column("entries", BigInteger, nullable=False),
)
GUESTBOOK_TABLES = TableSet("guestbook", (TableChange(1, "creates the table of days", create(DAYS)),))
