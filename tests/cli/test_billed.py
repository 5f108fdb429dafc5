"""On a store that bills, long commands say beforehand what they will use; and no command shows the token."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from keystead import Keyspace, Store, Value, after, connect
from keystead.cli import billing
from keystead.schema.doctor import examine
from keystead.stores.backup import BackupFile, backup, check, restore
from keystead.stores.copy import copy, survey
from keystead.stores.upstash import UpstashStore
from tests import servers
from tests.cli.program import Program

KEYS = 300


class PlanKeys(Keyspace):
    plan = Value("plan:{id}", str, lifetime=after("1d"), role="cache")


@pytest.fixture(scope="module")
def gateway() -> Iterator[servers.GatewayServer]:
    with servers.gateway_on_redis() as running:
        yield running


@pytest.fixture(scope="module")
def kv() -> Iterator[servers.CloudflareServer]:
    with servers.cloudflare() as running:
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


def stated(text: str) -> dict[str, int]:
    """The numbers of an estimate, by unit."""
    [found] = re.findall(r"bills what it does: to [a-z ]+ 300 keys takes (?:about|at most) ([^;\n]*)", text)
    return {unit: int(number.replace(",", "")) for number, unit in re.findall(r"(\d[\d,]*) (\w+)", found)}


# --- the estimates ------------------------------------------------------------------------------------------------


Job = Callable[[Store, Store, Path], Awaitable[Any]]


async def _copy_from(billed: Store, other: Store, folder: Path) -> Any:
    await billing.announce_copy(billed, other, match="*", verified=True, follows=False)
    return await copy(billed, other, progress=folder / "copy.progress")


async def _copy_to(billed: Store, other: Store, folder: Path) -> Any:
    await billing.announce_copy(other, billed, match="*", verified=True, follows=False)
    return await copy(other, billed, progress=folder / "copy.progress")


async def _copy_unverified(billed: Store, other: Store, folder: Path) -> Any:
    await billing.announce_copy(other, billed, match="*", verified=False, follows=False)
    return await copy(other, billed, progress=folder / "copy.progress", verified=False)


async def _survey_from(billed: Store, other: Store, folder: Path) -> Any:
    await billing.announce_survey(billed, other, match="*")
    return await survey(billed, other, progress=folder / "copy.progress")


async def _survey_to(billed: Store, other: Store, folder: Path) -> Any:
    await billing.announce_survey(other, billed, match="*")
    return await survey(other, billed, progress=folder / "copy.progress")


async def _backup(billed: Store, other: Store, folder: Path) -> Any:
    await billing.announce_reading(billed)
    return await backup(billed, folder / "file.backup")


async def _restore(billed: Store, other: Store, folder: Path) -> Any:
    await backup(other, folder / "file.backup")
    billing.announce_writing(billed, KEYS)
    with BackupFile(folder / "file.backup") as file:
        async with connect("memory://") as empty:  # the command has checked the file before it announces what it writes
            checked = await check(empty, file)
        return await restore(billed, file, checked=checked)


async def _examine(billed: Store, other: Store, folder: Path) -> Any:
    keys = PlanKeys(billed)
    await billing.announce_examination([keys], repairs=False)
    return await examine([keys])


# Each with whether the billed store holds the keys, and not the other one.
JOBS: dict[str, tuple[Job, bool]] = {
    "copy from it": (_copy_from, True),
    "copy to it": (_copy_to, False),
    "copy to it without a comparison": (_copy_unverified, False),
    "dry run from it": (_survey_from, True),
    "dry run to it": (_survey_to, False),
    "dry run to what is there": (_survey_to, True),
    "backup": (_backup, True),
    "restore": (_restore, False),
    "doctor": (_examine, True),
}


async def estimate_and_use(
    url: str, job: str, folder: Path, capsys: pytest.CaptureFixture[str], count: Callable[[Store], Mapping[str, int]]
) -> tuple[dict[str, int], dict[str, int]]:
    work, holds = JOBS[job]
    async with AsyncExitStack() as stack:
        billed = await stack.enter_async_context(connect(url))
        other = await stack.enter_async_context(connect(f"sqlite:///{folder}/other.db"))
        fill = [("SET", f"plan:{number}", "pro", "EX", 80_000) for number in range(KEYS)]
        for store in [billed] * holds + [other] * (not holds or job == "dry run to what is there"):
            await store.run(fill)
        before = count(billed)
        await work(billed, other, folder)
        after_ = count(billed)
    return stated(capsys.readouterr().err), {unit: after_[unit] - before.get(unit, 0) for unit in after_}


@pytest.mark.anyio
@pytest.mark.parametrize("job", JOBS)
async def test_what_is_stated_for_upstash_is_what_is_used(
    gateway: servers.GatewayServer, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.empty()

    def count(store: Store) -> dict[str, int]:
        assert isinstance(store, UpstashStore)
        return {"commands": used(gateway), "requests": store.requests}

    said, took = await estimate_and_use(gateway.upstash_url, job, tmp_path, capsys, count)
    assert said.keys() == took.keys()
    # Pipelines meet by chance, and the doctor reads some values many at a time.
    assert said["commands"] == pytest.approx(took["commands"], rel=1 if job == "doctor" else 0.15)
    assert said["requests"] == pytest.approx(took["requests"], rel=0.4, abs=4)


@pytest.mark.matrix
@pytest.mark.anyio
@pytest.mark.parametrize("job", JOBS)
async def test_what_is_stated_for_cloudflare_kv_is_what_is_used(
    kv: servers.CloudflareServer, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kv.empty()

    def count(store: Store) -> dict[str, int]:
        return {**kv.billed, "requests": sum(kv.requests.values())}

    said, took = await estimate_and_use(kv.url, job, tmp_path, capsys, count)
    for unit in ("reads", "writes", "lists", "deletes"):
        assert said.get(unit, 0) == pytest.approx(took[unit], rel=0.15, abs=2), unit
    assert said["requests"] == pytest.approx(took["requests"], rel=0.4, abs=4)


# --- the commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("copy", "UPSTASH", "sqlite:///other.db", "--yes"), ("backup", "file.backup", "--store", "UPSTASH")],
    ids=["copy", "backup"],
)
def test_a_command_states_beforehand_what_it_uses(
    program: Program, gateway: servers.GatewayServer, sessions: int, arguments: tuple[str, ...]
) -> None:
    assert gateway.behind is not None
    gateway.behind.ask("CONFIG", "RESETSTAT")
    done = program.keystead(*(gateway.upstash_url if one == "UPSTASH" else one for one in arguments))
    assert done.returncode == 0, done.stderr
    assert stated(done.stderr)["commands"] == pytest.approx(used(gateway), rel=0.15)
    assert gateway.token not in done.stdout + done.stderr


def test_a_dry_run_states_what_it_takes_at_both_stores(
    program: Program, gateway: servers.GatewayServer, sessions: int
) -> None:
    done = program.keystead("copy", gateway.upstash_url, "sqlite:///other.db", "--dry-run")
    assert stated(done.stderr)["commands"] == 4 * KEYS
    assert program.keystead("copy", gateway.upstash_url, "sqlite:///other.db", "--yes").returncode == 0
    done = program.keystead("copy", "sqlite:///other.db", gateway.upstash_url, "--dry-run")
    assert "to look up 30" in done.stderr  # the marker of the earlier copy is one key more
    assert gateway.token not in done.stdout + done.stderr
    part = program.keystead("copy", gateway.upstash_url, "sqlite:///other.db", "--dry-run", "--match", "sess:1*")
    assert "takes at most 1,200 commands" in part.stderr


def test_a_copy_into_such_a_store_states_it_too(
    program: Program, gateway: servers.GatewayServer, sessions: int
) -> None:
    assert program.keystead("copy", gateway.upstash_url, "sqlite:///other.db", "--yes").returncode == 0
    gateway.empty()
    done = program.keystead("copy", "sqlite:///other.db", gateway.upstash_url, "--yes")
    assert done.returncode == 0, done.stderr
    assert "to write 30" in done.stderr
    assert gateway.token not in done.stdout + done.stderr


@pytest.mark.anyio
async def test_to_follow_is_said_to_read_everything_again(
    gateway: servers.GatewayServer, sessions: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with connect(gateway.upstash_url) as store, connect("memory://") as other:
        await billing.announce_copy(store, other, match="*", verified=True, follows=True)
    assert "; --follow reads them all again and again" in capsys.readouterr().err


def test_the_doctor_states_it_and_check_knows_the_store(
    program: Program, gateway: servers.GatewayServer, sessions: int
) -> None:
    done = program.keystead("doctor", "myapp.keys:AppKeys", "--store", gateway.upstash_url)
    assert stated(done.stderr)["commands"] == 2 * KEYS
    assert "; each finding takes about three more" in done.stderr
    assert done.returncode == 1  # sessions that are not listed
    checked = program.keystead("check", "myapp.keys:AppKeys", "--store", gateway.upstash_url)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert gateway.token not in done.stdout + done.stderr + checked.stdout + checked.stderr


def test_a_store_that_bills_nothing_is_not_mentioned(program: Program) -> None:
    for more in ("--yes", "--dry-run"):
        done = program.keystead("copy", program.url, "sqlite:///other.db", more)
        assert (done.returncode, done.stderr) == (0, "")
