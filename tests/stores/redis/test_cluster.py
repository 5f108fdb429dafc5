"""A real cluster of three masters and three replicas: every slot, moving slots, dying masters."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

import keystead
from keystead.errors import BadUrl, CrossSlot, StoreUnavailable, WrongKind
from keystead.stores import Step, Store, at_most, field_holds, holds, required
from keystead.testing.reply_comparison import replies_of
from tests import servers
from tests.servers import Cluster
from tests.stores.redis.fail_over import serves_again_as_soon_as_the_cluster
from tests.stores.redis.load import Load
from tests.stores.redis.slot_move import Move
from tests.stores.redis.waits import takes_at_most, until

pytestmark = pytest.mark.everyday("redis")
FAST = "?timeout=1s&connect_timeout=1s"
KEYS = [f"key:{i}" for i in range(60)]  # more than enough for all three masters


@pytest.fixture(scope="module", params=["valkey", "redis"])
def nodes(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    program = servers.valkey_program() if request.param == "valkey" else servers.redis_program()
    with servers.cluster(program=program) as running:
        yield running


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    nodes.flush()
    return nodes


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[Store]:
    async with keystead.connect(cluster.url + FAST) as store:
        yield store


@pytest.fixture
async def patient(cluster: Cluster) -> AsyncIterator[Store]:
    """For what must cost nothing: on a busy machine a server may take seconds."""
    async with keystead.connect(cluster.url) as store:
        yield store


# --- the verbs --------------------------------------------------------------------------------------------------


async def test_one_batch_reaches_all_nodes_and_keeps_its_order(cluster: Cluster, store: Store) -> None:
    assert len({cluster.owner(key).port for key in KEYS}) == 3
    batch = [command for key in KEYS for command in (("SET", key, key), ("GET", key), ("INCRBY", f"n:{key}", 2))]
    assert await store.run(batch) == [reply for key in KEYS for reply in (b"OK", key.encode(), 2)]


async def test_an_error_of_one_command_leaves_the_others_their_replies(store: Store) -> None:
    await store.run([("SET", key, key) for key in KEYS])
    replies = await replies_of(
        store, [("HGET", key, "f") if i % 7 == 0 else ("GET", key) for i, key in enumerate(KEYS)]
    )
    for i, (key, reply) in enumerate(zip(KEYS, replies, strict=True)):
        if i % 7 == 0:
            assert isinstance(reply, WrongKind)
            assert key in str(reply)
        else:
            assert reply == key.encode()


async def test_commands_with_many_keys_cross_the_slots(store: Store) -> None:
    await store.run([("SET", key, key) for key in KEYS])
    mixed = [KEYS[3], "no:1", KEYS[40], KEYS[3], "no:2", KEYS[21]]
    [values, there, twice] = await store.run([("MGET", *mixed), ("EXISTS", *mixed), ("EXISTS", KEYS[5], KEYS[5])])
    assert values == [KEYS[3].encode(), None, KEYS[40].encode(), KEYS[3].encode(), None, KEYS[21].encode()]
    assert (there, twice) == (4, 2)
    assert await store.run([("DBSIZE",)]) == [len(KEYS)]
    assert await store.run([("DEL", *KEYS, "no:1"), ("DBSIZE",)]) == [len(KEYS), 0]


async def test_a_scan_walks_every_node_and_so_does_its_cursor(store: Store) -> None:
    await store.run([("SET", key, key) for key in KEYS])
    await store.run([("HSET", f"h:{key}", "f", "v") for key in KEYS])
    walked, cursor = [], b""
    while cursor != b"0":
        [[cursor, keys]] = await store.run([("SCAN", cursor or 0, "MATCH", "key:*", "COUNT", 10)])
        walked += keys
    assert sorted(walked) == sorted(key.encode() for key in KEYS)
    found = [key async for page in store.scan("key:*", page=10) for key in page]
    assert sorted(found) == sorted(key.encode() for key in KEYS)
    hashes = [key async for page in store.scan(kind="hash") for key in page]
    assert sorted(hashes) == sorted(f"h:{key}".encode() for key in KEYS)


async def test_an_atomic_step_works_within_each_hash_tag(cluster: Cluster, store: Store) -> None:
    for key in KEYS:
        visit, total, user = f"{{{key}}}:visit", f"{{{key}}}:total", f"{{{key}}}:user"
        steps: list[Step] = [required(("SET", visit, "1", "NX")), ("INCRBY", total, 1), ("HSET", user, "seen", "1")]
        assert await store.atomically(steps)
        again = await store.atomically(steps)
        assert (bool(again), again.stopped_at) == (False, 0)
        assert (await store.atomically([at_most(("GET", total), 0), ("INCRBY", total, 1)])).stopped_at == 0
        assert await store.atomically(
            [at_most(("HLEN", user), 1), holds(visit, "1"), field_holds(user, "seen", "1"), ("DEL", visit)]
        )
        assert await store.run([("GET", total), ("EXISTS", visit)]) == [b"1", 0]


async def test_an_atomic_step_across_slots_is_refused_with_both_keys_named(store: Store) -> None:
    with pytest.raises(CrossSlot, match=r"'key:1' and 'key:2' are in different slots.*hash tag") as error:
        await store.atomically([("SET", "key:1", "v"), ("SET", "key:2", "v")])
    with pytest.raises(CrossSlot, match=r"'key:1' and 'key:2' are in different slots"):
        await store.atomically([at_most(("SCARD", "key:1"), 4), ("SET", "key:2", "v")])
    assert error.value.code == "cross-slot"
    assert await store.run([("EXISTS", "key:1", "key:2")]) == [0]
    assert store.guarantees.atomic == "one slot"


async def test_messages_reach_subscribers_on_other_nodes(cluster: Cluster, store: Store) -> None:
    async with store.subscribe("news", "more") as messages:
        for node in cluster.masters():
            node.ask("PUBLISH", "news", f"{node.port}")
        got = {(await anext(messages)).data for _ in range(3)}
        assert got == {b"%d" % node.port for node in cluster.masters()}
        await store.run([("PUBLISH", "more", "last")])
        assert (await anext(messages)).data == b"last"


async def test_one_living_node_of_the_url_is_enough(cluster: Cluster) -> None:
    dead, living = servers.free_port(), cluster.nodes[-1].port
    url = f"redis+cluster://127.0.0.1:{dead},127.0.0.1:{living}{FAST}"
    async with keystead.connect(url) as store:
        assert await store.run([("SET", key, key) for key in KEYS]) == [b"OK"] * len(KEYS)
    with takes_at_most(1.5), pytest.raises(StoreUnavailable, match=f"no node of .* responds: .*{dead}"):
        await keystead.connect(f"redis+cluster://127.0.0.1:{dead}{FAST}").open()


async def test_a_cluster_has_one_database() -> None:
    with pytest.raises(BadUrl, match="only database 0"):
        keystead.connect("redis+cluster://127.0.0.1:1/1")


async def test_nodes_without_a_host_name_are_found_at_the_asked_address(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        async with keystead.connect(cluster.url + FAST) as store:
            assert await store.run([("SET", key, key) for key in KEYS]) == [b"OK"] * len(KEYS)
    finally:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


# --- slots that move ----------------------------------------------------------------------------------------------


async def test_a_moving_slot_is_followed_key_by_key(cluster: Cluster, store: Store) -> None:
    names = [f"{{move}}:{i}" for i in range(20)]
    await store.run([("SET", name, name) for name in names])
    move = Move(cluster, "{move}")
    asked, moved = move.redirections("ASK"), move.redirections("MOVED")
    move.begin()
    assert move.carry(10) == 10
    assert await store.run([("GET", name) for name in names]) == [name.encode() for name in names]
    assert await store.run([("INCRBY", "{move}:new", 5), ("GET", "{move}:new")]) == [5, b"5"]
    for name in names:
        assert (await store.atomically([holds(name, name), ("SET", name, name + "!")])).replies == [1, b"OK"]
    assert move.redirections("ASK") > asked
    move.finish()
    assert await store.run([("GET", name) for name in names]) == [(name + "!").encode() for name in names]
    assert move.redirections("MOVED") > moved
    after = move.redirections("MOVED")
    assert await store.run([("MGET", *names)]) == [[(name + "!").encode() for name in names]]
    assert await store.atomically([("INCRBY", "{move}:new", 1), ("INCRBY", names[0] + ":n", 1)])
    assert move.redirections("MOVED") == after  # it has learnt the new owner


async def test_slots_that_move_under_load_cost_nothing(cluster: Cluster, patient: Store) -> None:
    load = Load(patient, named="{{busy}}:{}".format)
    async with load.running():
        await until(lambda: len(load.acknowledged) > 300, "there is something to move")
        for _ in range(3):  # on to the next master, and back in the end
            move = Move(cluster, "{busy}")
            await asyncio.to_thread(move.begin)
            before = len(load.acknowledged)
            await asyncio.to_thread(move.carry, 100)
            await until(lambda before=before: len(load.acknowledged) > before + 100, "work goes on in between")  # type: ignore[misc]
            await asyncio.to_thread(move.finish)
            before = len(load.acknowledged)
            await until(lambda before=before: len(load.acknowledged) > before + 100, "work goes on after it")  # type: ignore[misc]
    assert load.sentences == set()
    assert await load.verify(patient, 0, 0, lambda key: False) == 0


async def test_many_keys_of_a_slot_in_the_middle_of_its_move_are_waited_for(cluster: Cluster, store: Store) -> None:
    """The cluster says TRYAGAIN while some keys of one command are here and others there."""
    names = [f"{{split}}:{i}" for i in range(4)]
    await store.run([("SET", name, name) for name in names])
    move = Move(cluster, "{split}")
    move.begin()
    move.carry(2)
    reading = asyncio.create_task(store.run([("MGET", *names)]))
    step = asyncio.create_task(store.atomically([("DEL", *names[:2]), ("DEL", *names[2:])]))
    await asyncio.wait({reading, step}, timeout=0.1)
    assert not step.done()
    await asyncio.to_thread(move.finish)
    assert (await step).replies == [2, 2]
    assert await reading in ([[name.encode() for name in names]], [[None] * 4])


@pytest.mark.matrix
async def test_a_master_that_is_killed_under_load_costs_nothing_but_time(cluster: Cluster) -> None:
    await serves_again_as_soon_as_the_cluster(cluster, "killed", "")
