"""A master with two replicas, watched by three sentinels: failover under load, and an old master that comes back."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

import keystead
from keystead.errors import BadUrl, StoreUnavailable
from keystead.stores import required
from keystead.testing.resp_client import WireError
from tests import servers
from tests.servers import Sentinels, Server
from tests.stopwatch import Stopwatch
from tests.stores.redis.load import Load
from tests.stores.redis.waits import takes_at_most, until, works_again

pytestmark = pytest.mark.timeout(180)

FAST = "?timeout=1s&connect_timeout=1s"
FAIL_OVER_S = 25.0


@pytest.fixture(scope="module")
def watched() -> Iterator[Sentinels]:
    with servers.sentinel() as running:
        yield running


def role_of(server: Server) -> str:
    """Or nothing, where a fail-over has just closed its connections."""
    try:
        role: bytes = server.ask("ROLE")[0]
    except (OSError, WireError):
        return ""
    return role.decode()


def promoted(watched: Sentinels, old: Server) -> bool:
    """Some sentinel names another server, and that one takes writes."""
    for sentinel in watched.sentinels:
        try:
            port = int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])
        except (OSError, WireError):
            continue
        if port != old.port:
            new = next(server for server in watched.servers if server.port == port)
            return role_of(new) == "master"
    return False


async def test_a_planned_failover_is_followed_before_the_old_master_is_demoted(watched: Sentinels) -> None:
    """The old master keeps running with its connections, and accepts writes for some ten seconds that will be lost."""
    async with keystead.connect(watched.url + FAST) as store:
        await store.run([("SET", "k", "v")])
        old = watched.master()
        watched.sentinels[0].ask("SENTINEL", "FAILOVER", "main")
        await until(lambda: promoted(watched, old), "there is a new master", FAIL_OVER_S)
        switched = time.monotonic()
        new = next(server for server in watched.servers if server is not old and role_of(server) == "master")
        while new.ask("GET", "written") is None:
            assert time.monotonic() - switched < FAIL_OVER_S, "writes still go to the old master"
            await works_again(lambda: store.run([("SET", "written", "v")]))
        assert role_of(old) == "master"
        assert await store.atomically([("SET", "after", "atomically")])
        assert new.ask("GET", "after") == b"atomically"
        async with store.subscribe("news") as messages:
            await store.run([("PUBLISH", "news", "from the new one")])
            assert (await anext(messages)).data == b"from the new one"


async def test_an_unknown_name_of_the_master_is_a_sentence(watched: Sentinels) -> None:
    url = watched.url.replace("/main/", "/mian/")
    with takes_at_most(2.5), pytest.raises(StoreUnavailable, match="does not know a master 'mian'"):
        await keystead.connect(url + FAST).open()
    with pytest.raises(BadUrl, match="needs the name of the master"):
        keystead.connect("redis+sentinel://127.0.0.1:26379")


async def test_no_sentinel_at_all_is_a_sentence_that_names_each(watched: Sentinels) -> None:
    ports = [servers.free_port(), servers.free_port()]
    url = f"redis+sentinel://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/main{FAST}"
    with takes_at_most(2.5), pytest.raises(StoreUnavailable, match=f"{ports[0]}.*{ports[1]}"):
        await keystead.connect(url).open()


@pytest.mark.parametrize("state", ["dead", "hung"])
async def test_an_unresponsive_sentinel_is_skipped(watched: Sentinels, state: str) -> None:
    first, *rest = watched.sentinels
    hosts = ",".join(f"127.0.0.1:{port}" for port in (first.port, rest[0].port))
    url = f"redis+sentinel://{hosts}/main/0{FAST}"
    try:
        if state == "hung":
            first.pause()
        else:
            url = url.replace(str(first.port), str(servers.free_port()))
        watch = Stopwatch()
        async with keystead.connect(url) as store:
            assert await store.run([("SET", "k", "v")]) == [b"OK"]
            assert watch.seconds < 1.0 + 0.5
    finally:
        first.resume()


def info(server: Server, name: str) -> str:
    lines: list[str] = server.ask("INFO").decode().splitlines()
    return next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:"))


async def test_atomic_steps_alone_notice_that_their_master_became_a_replica(watched: Sentinels) -> None:
    """The connection stays open, and only the script's own answer says that it leads to a replica."""
    async with keystead.connect(watched.url + FAST) as store:
        await store.atomically([("SET", "k", "v")])
        master = watched.master()
        other = next(server for server in watched.servers if server is not master)
        connections = int(info(master, "total_connections_received"))
        try:
            master.ask("REPLICAOF", "127.0.0.1", other.port)
            with takes_at_most(1.5), pytest.raises(StoreUnavailable, match="replica"):
                await store.atomically([("SET", "k", "new")])
            assert int(info(master, "total_connections_received")) > connections + 1
        finally:
            master.ask("REPLICAOF", "NO", "ONE")
            await works_again(lambda: store.atomically([("SET", "k", "v")]), 30)


@pytest.mark.matrix
async def test_a_master_that_is_killed_under_load_costs_nothing_but_time() -> None:
    with servers.sentinel() as watched:
        await killed_under_load(watched)


async def killed_under_load(watched: Sentinels) -> None:
    async with keystead.connect(watched.url + FAST) as store:
        assert await store.atomically([required(("SET", "script", "known"))])
        load = Load(store)
        victim = watched.master()
        async with load.running():
            dead = await brought_down(load, victim.kill)
            watch = Stopwatch()
            engine_s = await failed_over(watched, victim, dead)
            await until(lambda: bool(load.acknowledged_since(dead + 0.2)), "writes work again")
            back_at = time.monotonic()
            held_up_s = back_at - dead - watch.seconds
            await until(lambda: len(load.acknowledged_since(back_at)) > 500, "it goes on after that")
        await judge(load, store, dead, engine_s, held_up_s)
        assert await store.atomically([("SET", "script", "known anew")])


@pytest.mark.matrix
async def test_a_replaced_master_gets_no_more_writes() -> None:
    """Woken up, it believes to be the master still, for the ten seconds until the sentinels tell it otherwise."""
    with servers.sentinel(replicas=1) as watched:
        async with keystead.connect(watched.url + FAST) as store:
            load = Load(store)
            old = watched.master()
            async with load.running():
                dead = await brought_down(load, old.pause)
                watch = Stopwatch()
                engine_s = await failed_over(watched, old, dead)
                await until(lambda: bool(load.acknowledged_since(dead + 0.2)), "writes work again")
                old.resume()
                woken = time.monotonic()
                held_up_s = woken - dead - watch.seconds
                await until(lambda: len(load.acknowledged_since(woken)) > 500, "it goes on while there are two masters")
                assert role_of(old) == "master"
                await until(lambda: role_of(old) == "slave", "the old master is told to follow", FAIL_OVER_S)
                demoted = time.monotonic()
                await until(lambda: len(load.acknowledged_since(demoted)) > 500, "it goes on after that")
            await judge(load, store, dead, engine_s, held_up_s)


async def brought_down(load: Load, end: Callable[[], None]) -> float:
    """Let more than a second's worth be written, then end it, and say when that was."""
    began = time.monotonic()
    await until(lambda: time.monotonic() - began > 1.3 and len(load.acknowledged) > 500, "there is load")
    dead = time.monotonic()
    end()
    return dead


async def failed_over(watched: Sentinels, old: Server, dead: float) -> float:
    """Seconds from its end until the sentinels have another master."""
    while not await asyncio.to_thread(promoted, watched, old):
        assert time.monotonic() - dead < FAIL_OVER_S, "the sentinels did not fail over"
    return time.monotonic() - dead


async def judge(load: Load, store: keystead.Store, dead: float, engine_s: float, held_up_s: float) -> None:
    """`held_up_s` is for how long this process was ready to run and a busy machine ran others."""
    keystead_s = min(load.acknowledged[key][1] for key in load.acknowledged_since(dead + 0.2)) - dead
    assert keystead_s - engine_s - held_up_s < 1.5
    lost = await load.verify(store, dead - 1.0, dead + 0.2, lambda key: True)
    print(f"\nfail-over: sentinels {engine_s:.2f} s, Keystead {keystead_s:.2f} s; {load.summary(lost)}")
