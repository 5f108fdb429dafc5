"""Missing permissions are reported on open; guarantees are read from the server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

import keystead
from keystead.errors import (
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    WrongKind,
)
from keystead.stores import Step, at_most, required
from keystead.testing.reply_comparison import replies_of
from tests import servers
from tests.listening import listening, port_of
from tests.servers import Server, wait_until
from tests.stores.redis.waits import takes_at_most, works_again

FAST = "?timeout=1s&connect_timeout=1s"


@pytest.fixture(params=["valkey", "redis"])
def engine(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each engine words its refusals differently."""
    with servers.valkey() if request.param == "valkey" else servers.redis() as running:
        yield running


def signed_in(server: Server, user: str, *rules: str) -> str:
    server.ask("ACL", "SETUSER", user, "on", ">pw", *rules)
    return f"redis://{user}:pw@127.0.0.1:{server.port}/0{FAST}"


# --- read-only --------------------------------------------------------------------------------------------------


async def test_a_replica_is_refused_on_open(engine: Server) -> None:
    with servers.valkey("--replicaof", f"127.0.0.1 {engine.port}") as replica:
        wait_until(lambda: replica.ask("ROLE")[3] in (b"connected", b"connect", b"sync"), "it is a replica")
        replica.ask("CONFIG", "SET", "replica-serve-stale-data", "yes")
        with pytest.raises(StoreReadOnly, match=r"is a read-only replica.*redis\+sentinel://"):
            await keystead.connect(replica.url + FAST).open()


@pytest.mark.parametrize("user", ["reader", "keystead"])
@pytest.mark.parametrize(
    "rules",
    [
        ("~*", "+@read", "+@connection"),
        ("~app:*", "+@read", "+@connection"),
        ("%R~*", "+@all"),
        ("%R~*", "+@all", "-@admin"),
    ],
    ids=["no write commands", "no write commands and few keys", "keys to read only", "keys to read only, no admin"],
)
async def test_a_read_only_user_is_refused_on_open(engine: Server, user: str, rules: tuple[str, ...]) -> None:
    with pytest.raises(StoreReadOnly, match=r"may not write .*@write"):
        await keystead.connect(signed_in(engine, user, *rules)).open()


async def test_a_user_limited_to_some_keys_can_use_them(engine: Server) -> None:
    async with keystead.connect(signed_in(engine, "app", "~app:*", "&app:*", "+@all")) as store:
        assert await store.run([("SET", "app:k", "v"), ("GET", "app:k")]) == [b"OK", b"v"]
        assert await store.atomically([required(("SET", "app:n", "1", "NX")), ("INCRBY", "app:n", 1)])
        assert await store.atomically([at_most(("GET", "app:n"), 2), at_most(("ZCOUNT", "app:z", 1, 2), 0)])
        [own, foreign, last] = await replies_of(store, [("GET", "app:n"), ("GET", "foreign"), ("GET", "app:k")])
        assert (own, last) == (b"2", b"v")
        assert isinstance(foreign, StoreRefused)
        with pytest.raises(StoreRefused, match="denies this to the user"):
            await store.atomically([("SET", "app:k", "new"), ("SET", "foreign", "x")])
        assert await store.run([("GET", "app:k")]) == [b"v"]


async def test_a_user_without_the_rights_of_an_administrator_is_enough(engine: Server) -> None:
    async with keystead.connect(signed_in(engine, "app", "~*", "&*", "+@all", "-@admin", "-config", "-info")) as store:
        assert await store.run([("SET", "k", "v")]) == [b"OK"]
        assert store.guarantees.durability == "memory"
        assert store.guarantees.evicts


@pytest.mark.parametrize(
    ("rules", "steps"),
    [
        (("resetchannels", "~*", "+@all"), [("SET", "a", "1"), ("PUBLISH", "c", "m")]),
        (("&*", "~*", "+@all", "-hset"), [("SET", "a", "1"), ("HSET", "h", "f", "v")]),
        (("&*", "%RW~a", "%R~h", "~keystead:*", "+@all"), [("SET", "a", "1"), ("HSET", "h", "f", "v")]),
        (("&*", "~*", "+@all", "-scard"), [("SET", "a", "1"), at_most(("SCARD", "s"), 4)]),
    ],
)
async def test_a_missing_permission_makes_the_whole_atomic_step_fail(
    engine: Server, rules: tuple[str, ...], steps: list[Step]
) -> None:
    async with keystead.connect(signed_in(engine, "half", *rules)) as store:
        with pytest.raises(StoreRefused):
            await store.atomically(steps)
    assert engine.ask("EXISTS", "a") == 0


async def test_a_server_that_demands_a_password_refuses_those_without(engine: Server) -> None:
    engine.ask("CONFIG", "SET", "requirepass", "pw")
    with pytest.raises(StoreRefused, match="denies access; check user and password"):
        await keystead.connect(engine.url + FAST).open()


async def test_a_changed_password_is_reported_on_reconnect(engine: Server) -> None:
    async with keystead.connect(signed_in(engine, "app", "~*", "&*", "+@all")) as store:
        await store.run([("SET", "k", "v")])
        engine.ask("ACL", "SETUSER", "app", "resetpass", ">other")
        engine.ask("CLIENT", "KILL", "USER", "app")
        with pytest.raises(StoreUnavailable) as error:
            await asyncio.gather(*(store.run([("SET", "k", "v")]) for _ in range(3)))
        assert "pw" not in str(error.value)
        engine.ask("ACL", "SETUSER", "app", "resetpass", ">pw")
        await works_again(lambda: store.run([("SET", "k", "v")]))


async def test_a_demoted_master_is_reported_and_works_when_promoted_again(engine: Server) -> None:
    with servers.valkey() as master:
        async with keystead.connect(engine.url + FAST) as store:
            await store.run([("SET", "k", "v")])
            engine.ask("REPLICAOF", "127.0.0.1", master.port)
            for _ in range(2):
                with takes_at_most(1.5), pytest.raises((StoreReadOnly, StoreUnavailable), match="replica"):
                    await store.run([("SET", "k", "v")])
                with takes_at_most(1.5), pytest.raises((StoreReadOnly, StoreUnavailable), match="replica"):
                    await store.atomically([("SET", "k", "v")])
            engine.ask("REPLICAOF", "NO", "ONE")
            await works_again(lambda: store.run([("SET", "k", "v")]))
            await works_again(lambda: store.atomically([("SET", "k", "v")]))


# --- full -------------------------------------------------------------------------------------------------------


async def test_a_full_server_refuses_writes_that_need_memory_and_serves_the_rest(engine: Server) -> None:
    async with keystead.connect(engine.url + FAST) as store:
        await store.run([("SET", "k", "v"), ("RPUSH", "l", "1")])
        engine.ask("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
        replies = await replies_of(
            store,
            [("GET", "k"), ("SET", "new", "v"), ("LRANGE", "l", 0, -1), ("HGET", "k", "f"), ("DEL", "l"), ("GET", "k")],
        )
        assert isinstance(replies[1], StoreFull)
        assert "maxmemory" in str(replies[1])
        assert isinstance(replies[3], WrongKind)
        assert [replies[0], replies[2], replies[4], replies[5]] == [b"v", [b"1"], 1, b"v"]
        with pytest.raises(StoreFull):
            await store.run([("SET", "new", "v")])
        with pytest.raises(StoreFull):
            await store.atomically([("SET", "k", "changed"), ("SET", "new", "v")])
        assert await store.run([("GET", "k"), ("EXISTS", "new")]) == [b"v", 0]
    async with keystead.connect(engine.url + FAST) as store:  # a full store can be opened, and made smaller
        assert await store.run([("DEL", "k")]) == [1]
        engine.ask("CONFIG", "SET", "maxmemory", "0")
        assert await store.run([("SET", "new", "v")]) == [b"OK"]


async def test_a_server_that_cannot_persist_refuses_writes_and_serves_reads(engine: Server) -> None:
    async with keystead.connect(engine.url + FAST) as store:
        await store.run([("SET", "k", "v")])
        engine.ask("CONFIG", "SET", "min-replicas-to-write", "1")
        [written, read] = await replies_of(store, [("SET", "k", "new"), ("GET", "k")])
        assert isinstance(written, StoreUnavailable)
        assert written.outcome == "not-sent"
        assert read == b"v"
        with pytest.raises(StoreUnavailable, match="is unavailable"):
            await store.atomically([("SET", "k", "new")])
        engine.ask("CONFIG", "SET", "min-replicas-to-write", "0")
        assert await store.run([("SET", "k", "new")]) == [b"OK"]


# --- not a Redis ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that sends one reply to anything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(10_000):
            writer.write(answer)

    async with listening(serve) as server:
        yield f"redis://127.0.0.1:{port_of(server)}/0{FAST}"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"\x00\xff\x16\x03\x01\x02\x00garbage\r\n" * 50,
        b"+OK\r\n" * 50,
        b":1\r\n:2\r\n:3\r\n:4\r\n",
        b"$-1\r\n$-1\r\n$-1\r\n",
        b"*-1\r\n" * 3,
        b"*2\r\n:1\r\n:2\r\n" * 3,
        b"$5\r\nhello",
        b"$999999999999\r\n",
        b"*999999999999\r\n",
        b"-ERR unknown command\r\n" * 3,
        b"",
    ],
)
async def test_a_server_that_is_not_redis_is_a_one_line_error(answer: bytes) -> None:
    async with answering(answer) as url:
        with takes_at_most(2.5), pytest.raises((StoreUnavailable, StoreRefused), match=r"127\.0\.0\.1") as error:
            await keystead.connect(url).open()
        assert isinstance(error.value, StoreError)


async def test_a_redis_that_is_not_a_cluster_is_reported(engine: Server) -> None:
    with pytest.raises(StoreRefused, match="is not a cluster; write redis:// instead"):
        await keystead.connect(f"redis+cluster://127.0.0.1:{engine.port}{FAST}").open()


async def test_a_redis_that_is_not_a_sentinel_names_no_master(engine: Server) -> None:
    with pytest.raises(StoreUnavailable, match="no sentinel names a master"):
        await keystead.connect(f"redis+sentinel://127.0.0.1:{engine.port}/main{FAST}").open()


# --- guarantees ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("append_only", "sync", "durability"),
    [
        ("no", "always", "memory"),
        ("yes", "no", "seconds"),
        ("yes", "everysec", "seconds"),
        ("yes", "always", "disk"),
    ],
)
async def test_durability_follows_the_server_configuration(
    engine: Server, append_only: str, sync: str, durability: str
) -> None:
    engine.ask("CONFIG", "SET", "appendfsync", sync)
    engine.ask("CONFIG", "SET", "appendonly", append_only)
    async with keystead.connect(engine.url + FAST) as store:
        assert store.guarantees.durability == durability
        assert store.guarantees.atomic == "any keys"


@pytest.mark.parametrize(
    ("limit", "policy", "evicts"),
    [
        ("0", "allkeys-lru", False),
        ("100mb", "noeviction", False),
        ("100mb", "allkeys-lru", True),
        ("100mb", "volatile-ttl", True),
    ],
)
async def test_guarantees_state_whether_keys_may_be_evicted(
    engine: Server, limit: str, policy: str, evicts: bool
) -> None:
    engine.ask("CONFIG", "SET", "maxmemory", limit, "maxmemory-policy", policy)
    async with keystead.connect(engine.url + FAST) as store:
        assert store.guarantees.evicts is evicts
