"""Tables are created, upgraded, and left alone if they have a later version."""

import asyncio
import dataclasses
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from keystead import Store, connect
from keystead.errors import StoreDamaged
from keystead.stores.database.database_schema import SchemaChange
from keystead.stores.database.database_session import Statement
from tests import forking
from tests.servers import DatabaseServer, PostgresServer
from tests.serving import environment
from tests.stores.database.others import fresh, garbage_table, next_version
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio


def version_table(server: DatabaseServer) -> str:
    return "keystead.version" if isinstance(server, PostgresServer) else "keystead_version"


class Later:
    """The next version of Keystead, and the way back."""

    def __init__(self, server: DatabaseServer) -> None:
        self.store = next_version(server.url)
        self._server = server

    def undo(self) -> None:
        self._server.query(f"DELETE FROM {version_table(self._server)} WHERE version > 1")
        self._server.query(f"ALTER TABLE {garbage_table(self._server.url)} DROP COLUMN since")


async def test_older_tables_are_upgraded_and_keep_their_rows(server: DatabaseServer, store: Store) -> None:
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
        with pytest.raises(StoreDamaged, match=r"created by a later Keystead \(version 2, this one knows 1\)"):
            await connect(server.url).open()
    finally:
        later.undo()


async def test_a_failed_upgrade_is_reported_and_can_be_repeated(server: DatabaseServer, store: Store) -> None:
    later = Later(server)
    good = later.store.schema
    broken = SchemaChange(2, "breaks", (Statement("SELECT nonsense FROM nowhere"),))
    later.store.schema = dataclasses.replace(good, changes=(good.changes[0], broken))
    with pytest.raises(Exception, match="nowhere"):
        await later.store.open()
    assert server.query(f"SELECT max(version) FROM {version_table(server)}") == [(1,)]
    later.store.schema = good
    try:
        assert (await later.store.upgrade()).version == 2
    finally:
        later.undo()


def test_an_upgrade_reports_its_plan_and_its_result(server: DatabaseServer, tmp_path: Path) -> None:
    url = fresh(server)
    settings = environment({"KEYSTEAD_STORE": url})
    shown = forking.run(["store", "upgrade", "--dry-run"], tmp_path, settings)
    assert "would be upgraded from version 0 to 1" in shown.stdout, shown
    assert "version 1 creates the " in shown.stdout
    done = forking.run(["store", "upgrade", "--json"], tmp_path, settings)
    [told] = json.loads(done.stdout)
    assert (told["found"], told["version"], told["done"]) == (0, 1, True)
    again = forking.run(["store", "upgrade"], tmp_path, settings)
    assert "has version 1, the current one; nothing to do" in again.stdout
    embedded = forking.run(["store", "upgrade", "--store", "memory://"], tmp_path, settings)
    assert embedded.stdout == "memory:// has no tables that need an upgrade\n"


def _upgrading(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.database.programs", "upgrades", url],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.everyday("postgres")
async def test_of_two_processes_that_upgrade_tables_one_does(server: DatabaseServer, store: Store) -> None:
    """The migration is not idempotent, so a process that did not wait for the other one would fail."""
    await store.run([("SET", "a", 1), ("HSET", "h", "f", 1)])
    processes = [_upgrading(server.url) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
        told = await asyncio.gather(*(asyncio.to_thread(process.communicate, "go\n", 60) for process in processes))
        assert sorted(out for out, _ in told) == ["[2] since 1, has 1 1\n", "[] since 2, has 1 1\n"]
        assert server.query(f"SELECT count(*) FROM {version_table(server)} WHERE version = 2") == [(1,)]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        Later(server).undo()


def test_two_concurrent_upgrades_both_report_existing_tables(server: DatabaseServer, tmp_path: Path) -> None:
    settings = environment({"KEYSTEAD_STORE": fresh(server)})
    with ExitStack() as stack:
        files = [stack.enter_context(open(tmp_path / f"{n}.txt", "w+")) for n in range(4)]
        running = [
            forking.start(["store", "upgrade", "--json"], tmp_path, settings, out, error)
            for out, error in (files[:2], files[2:])
        ]
        codes = [command.wait(300) for command in running]
        for file in files:
            file.seek(0)
        assert codes == [0, 0], [file.read() for file in files]
        told = [json.load(out)[0] for out in (files[0], files[2])]
    assert [(each["version"], each["done"]) for each in told] == [(1, True), (1, True)]


async def test_expired_collections_are_swept_with_their_entries(server: DatabaseServer, store: Store) -> None:
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
