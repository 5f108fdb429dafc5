"""On a store that bills commands, long commands say beforehand what they will use; and no command shows the token."""

import re
from collections.abc import Iterator

import pytest

from tests import servers
from tests.cli.program import Program

KEYS = 300


@pytest.fixture(scope="module")
def gateway() -> Iterator[servers.GatewayServer]:
    with servers.gateway_on_redis() as running:
        yield running


@pytest.fixture
def sessions(gateway: servers.GatewayServer) -> int:
    """Sessions without users: as many findings."""
    gateway.empty()
    assert gateway.behind is not None
    with gateway.behind.wire() as wire:
        for number in range(KEYS):
            wire.call("SET", f"sess:{number}", '{"uid":"ann"}', "EX", 86400)
    return KEYS


def used(gateway: servers.GatewayServer) -> int:
    """The commands that the server has run, without those of the test."""
    assert gateway.behind is not None
    lines = gateway.behind.ask("INFO", "commandstats").decode().splitlines()
    found = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_"))
    return sum(int(rest.partition(",")[0]) for name, rest in found if name not in ("info", "hello", "config|resetstat"))


def stated(text: str) -> int:
    found = re.search(r"bills [a-z ]+: to \w+ 300 keys takes about ([\d,]+) of them, in about \d+ requests", text)
    assert found, text
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    "arguments",
    [("copy", "UPSTASH", "sqlite:///other.db", "--yes"), ("backup", "file.backup", "--store", "UPSTASH")],
    ids=["copy", "backup"],
)
def test_what_is_stated_beforehand_is_what_is_used(
    program: Program, gateway: servers.GatewayServer, sessions: int, arguments: tuple[str, ...]
) -> None:
    assert gateway.behind is not None
    gateway.behind.ask("CONFIG", "RESETSTAT")
    done = program.keystead(*(gateway.upstash_url if one == "UPSTASH" else one for one in arguments))
    assert done.returncode == 0, done.stderr
    assert stated(done.stderr) == pytest.approx(used(gateway), rel=0.15)
    assert gateway.token not in done.stdout + done.stderr


def test_a_copy_into_such_a_store_states_it_too(
    program: Program, gateway: servers.GatewayServer, sessions: int
) -> None:
    assert program.keystead("copy", gateway.upstash_url, "sqlite:///other.db", "--yes").returncode == 0
    gateway.empty()
    assert gateway.behind is not None
    gateway.behind.ask("CONFIG", "RESETSTAT")
    done = program.keystead("copy", "sqlite:///other.db", gateway.upstash_url, "--yes")
    assert done.returncode == 0, done.stderr
    # The marker of the earlier copy is one key more.
    assert "to write 30" in done.stderr
    assert gateway.token not in done.stdout + done.stderr


def test_the_doctor_states_it_and_check_knows_the_store(
    program: Program, gateway: servers.GatewayServer, sessions: int
) -> None:
    done = program.keystead("doctor", "myapp.keys:AppKeys", "--store", gateway.upstash_url)
    assert stated(done.stderr) == 3 * KEYS
    assert done.returncode == 1  # sessions that are not listed
    checked = program.keystead("check", "myapp.keys:AppKeys", "--store", gateway.upstash_url)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert gateway.token not in done.stdout + done.stderr + checked.stdout + checked.stderr


def test_a_store_that_bills_nothing_is_not_mentioned(program: Program) -> None:
    done = program.keystead("copy", program.url, "sqlite:///other.db", "--yes")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.matrix
def test_a_backup_of_cloudflare_kv_states_its_reads(program: Program) -> None:
    with servers.cloudflare() as kv:
        for number in range(KEYS):
            kv.put(f"plan:{number}", b"pro")
        done = program.keystead("backup", "file.backup", "--store", kv.url)
    assert done.returncode == 0, done.stderr
    assert "bills reads and writes" in done.stderr
    assert stated(done.stderr) == KEYS
