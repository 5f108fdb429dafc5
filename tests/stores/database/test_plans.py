"""How much a database reads for what is asked, while it grows from nothing."""

import pytest

from keystead import Store, connect
from keystead.testing.servers import DatabaseServer

pytestmark = pytest.mark.xdist_group("postgres")

KEYS = 3_000


@pytest.fixture
async def never_analyzed(postgres_server: DatabaseServer) -> DatabaseServer:
    """A fresh database whose statistics stay those of empty tables, as in its first minute."""
    postgres_server.empty()
    async with connect(postgres_server.url) as store:
        await store.run([("SET", "first", 1)])
    for table in ("keys", "fields", "scored"):
        postgres_server.query(f"ALTER TABLE keystead.{table} SET (autovacuum_enabled = false)")
    return postgres_server


async def _filled(store: Store) -> None:
    for first in range(0, KEYS, 50):
        names = [f"k:{number}" for number in range(first, first + 50)]
        await store.run([("HSET", f"{name}:h", "a", "1", "b", "2") for name in names])
        await store.run([("ZADD", f"{name}:z", 1, "a") for name in names])


async def test_filling_a_fresh_postgresql_reads_no_more_for_each_key_the_more_there_are(
    never_analyzed: DatabaseServer,
) -> None:
    async with connect(never_analyzed.url) as store:
        await _filled(store)
    read = never_analyzed.query(
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
        " WHERE schemaname = 'keystead'"
    )
    # Its own rows a few times; as many as there are in the table, where a plan for empty tables is kept.
    assert int(read[0][0]) < 2 * KEYS * 20
