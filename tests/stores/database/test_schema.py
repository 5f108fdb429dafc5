"""Tables that are made, upgraded, and left alone where they are of a later version."""

import dataclasses
import json
from pathlib import Path

import pytest

from keystead import Store, StoreDamaged, connect
from keystead.stores.database.schema import Change
from keystead.stores.database.session import Statement
from keystead.stores.database.store import DatabaseStore
from keystead.testing.servers import DatabaseServer, PostgresServer
from tests import forking
from tests.serving import environment
from tests.stores.database.others import fresh
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio


def version_table(server: DatabaseServer) -> str:
    return "keystead.version" if isinstance(server, PostgresServer) else "keystead_version"


class Later:
    """What a Keystead of the next version is to its store: the same, and one change more."""

    def __init__(self, server: DatabaseServer) -> None:
        table = "keystead.garbage" if isinstance(server, PostgresServer) else "keystead_garbage"
        step = Change(2, "remembers since when", (Statement(f"ALTER TABLE {table} ADD COLUMN since bigint"),))
        store = connect(server.url)
        assert isinstance(store, DatabaseStore)
        self.store = store
        self.store.schema = dataclasses.replace(store.schema, changes=(*store.schema.changes, step))
        self._table = table
        self._server = server

    def undo(self) -> None:
        self._server.query(f"DELETE FROM {version_table(self._server)} WHERE version > 1")
        self._server.query(f"ALTER TABLE {self._table} DROP COLUMN since")


async def test_tables_of_an_older_version_are_upgraded_and_keep_what_is_in_them(
    server: DatabaseServer, store: Store
) -> None:
    await store.run([("SET", "a", 1), ("HSET", "h", "f", 1)])
    later = Later(server)
    plan = await later.store.upgrade(dry_run=True)
    assert (plan.found, plan.version, [step.what for step in plan.changes]) == (1, 2, ["remembers since when"])
    assert server.query(f"SELECT max(version) FROM {version_table(server)}") == [(1,)]
    try:
        async with later.store as upgraded:
            assert await upgraded.run([("GET", "a"), ("HGETALL", "h")]) == [b"1", {b"f": b"1"}]
        assert server.query(f"SELECT max(version) FROM {version_table(server)}") == [(2,)]
        assert (await later.store.upgrade()).changes == ()
        with pytest.raises(StoreDamaged, match=r"made by a later Keystead \(version 2, this one knows 1\)"):
            await connect(server.url).open()
    finally:
        later.undo()


async def test_an_upgrade_that_fails_is_said_and_can_be_made_again(server: DatabaseServer, store: Store) -> None:
    later = Later(server)
    good = later.store.schema
    broken = Change(2, "breaks", (Statement("SELECT nonsense FROM nowhere"),))
    later.store.schema = dataclasses.replace(good, changes=(good.changes[0], broken))
    with pytest.raises(Exception, match="nowhere"):
        await later.store.open()
    assert server.query(f"SELECT max(version) FROM {version_table(server)}") == [(1,)]
    later.store.schema = good
    try:
        assert (await later.store.upgrade()).version == 2
    finally:
        later.undo()


def test_an_operator_sees_what_an_upgrade_would_do_and_did(server: DatabaseServer, tmp_path: Path) -> None:
    url = fresh(server)
    settings = environment({"KEYSTEAD_STORE": url})
    shown = forking.run(["store", "upgrade", "--dry-run"], tmp_path, settings)
    assert "would go from version 0 to 1" in shown.stdout, shown
    assert "version 1 makes the " in shown.stdout
    done = forking.run(["store", "upgrade", "--json"], tmp_path, settings)
    [told] = json.loads(done.stdout)
    assert (told["found"], told["version"], told["done"]) == (0, 1, True)
    again = forking.run(["store", "upgrade"], tmp_path, settings)
    assert "has version 1, which is that of this Keystead; nothing to do" in again.stdout
    embedded = forking.run(["store", "upgrade", "--store", "memory://"], tmp_path, settings)
    assert embedded.stdout == "memory:// has no tables that need an upgrade\n"


async def test_what_has_expired_goes_by_itself_with_all_that_it_held(server: DatabaseServer, store: Store) -> None:
    pairs = [part for m in range(70) for part in (m, m)]
    await store.run([("SET", f"s{n}", "x", "PX", 1) for n in range(300)])
    await store.run([("HSET", f"h{n}", *pairs) for n in range(10)])
    await store.run([("PEXPIRE", f"h{n}", 1) for n in range(10)])
    await store.run([("ZADD", "z", *pairs), ("DEL", "z"), ("SET", "stays", 1)])
    prefix = "keystead." if isinstance(server, PostgresServer) else "keystead_"
    left = {"keys": 1, "fields": 0, "scored": 0, "garbage": 0}
    await until(
        lambda: {table: server.query(f"SELECT count(*) FROM {prefix}{table}")[0][0] for table in left} == left,
        "everything is swept",
    )
    assert await store.run([("GET", "stays"), ("DBSIZE",)]) == [b"1", 1]
