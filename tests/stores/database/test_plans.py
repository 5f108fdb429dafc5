"""The number of rows a database reads per call, while it grows from empty."""

from typing import Any

import psycopg
import pytest

from keystead import Store, connect
from tests.servers import DatabaseServer
from tests.stores.database.others import connections, end_connections, fresh
from tests.stores.sqlite.processes import until

KEYS = 3_000


@pytest.fixture
async def never_analyzed(postgres_server: DatabaseServer) -> str:
    """A database of its own, which has counted nothing yet and whose statistics stay those of empty tables, as in its
    first minute."""
    url = fresh(postgres_server)
    async with connect(url) as store:
        await store.run([("SET", "first", 1)])
    for table in ("keys", "fields", "scored"):
        asked(url, f"ALTER TABLE keystead.{table} SET (autovacuum_enabled = false)")
    return url


def asked(url: str, words: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(words.encode())
        return cursor.fetchall() if cursor.description else []


async def _filled(store: Store) -> None:
    for first in range(0, KEYS, 50):
        names = [f"k:{number}" for number in range(first, first + 50)]
        await store.run([("HSET", f"{name}:h", "a", "1", "b", "2") for name in names])
        await store.run([("ZADD", f"{name}:z", 1, "a") for name in names])


async def test_filling_a_fresh_postgresql_reads_no_more_for_each_key_the_more_there_are(
    postgres_server: DatabaseServer, never_analyzed: str
) -> None:
    end_connections(postgres_server)
    async with connect(never_analyzed) as store:
        await _filled(store)
    # What a connection has read is counted when it ends, a moment after it was closed.
    await until(lambda: connections(postgres_server) == 0, "its connections have ended")
    [[written, read]] = asked(
        never_analyzed,
        "SELECT sum(n_tup_ins), sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
        " WHERE schemaname = 'keystead'",
    )
    assert int(written) > 2 * KEYS  # all has been counted
    # Its own rows a few times; as many as there are in the table, where a plan for empty tables is kept.
    assert int(read) < 2 * KEYS * 20
