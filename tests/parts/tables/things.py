"""A set of tables for tests."""

from sqlalchemy import BigInteger, Column, Index, MetaData

from keystead.parts.tables import Name, TableChange, TableSet, Words, create, table

THINGS = table(
    "test_things",
    MetaData(),
    Column("name", Name(40), primary_key=True),
    Column("words", Words),
    Column("number", BigInteger, nullable=False),
)
Index("keystead_test_things_by_number", THINGS.c.number)
FIRST = TableChange(1, "makes the things", create(THINGS))
TEST_TABLES = TableSet("test", (FIRST,))
