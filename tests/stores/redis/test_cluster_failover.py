"""A cluster whose masters die or hang, each in its own way."""

from collections.abc import Iterator

import pytest

import keystead
from keystead.stores import Store
from keystead.testing.reply_comparison import replies_of
from tests import servers
from tests.servers import Cluster
from tests.stores.redis.fail_over import restored, serves_again_as_soon_as_the_cluster
from tests.stores.redis.waits import takes_at_most, works_again

FAST = "?timeout=1s&connect_timeout=1s"
KEYS = [f"key:{i}" for i in range(60)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with servers.cluster() as running:
        yield running


@pytest.mark.matrix
@pytest.mark.everyday("short timeouts")
@pytest.mark.parametrize("options", ["", FAST], ids=["default timeouts", "short timeouts"])
@pytest.mark.parametrize("end", ["killed", "hung"])
async def test_a_master_that_dies_under_load_costs_nothing_but_time(cluster: Cluster, end: str, options: str) -> None:
    cluster.flush()
    await serves_again_as_soon_as_the_cluster(cluster, end, options)


async def test_other_nodes_are_served_while_one_is_down(cluster: Cluster) -> None:
    async with keystead.connect(cluster.url + FAST) as store:
        await others_are_served(cluster, store)


async def others_are_served(cluster: Cluster, store: Store) -> None:
    await store.run([("SET", key, key) for key in KEYS])
    victim = cluster.owner(KEYS[0])
    others = [key for key in KEYS if cluster.owner(key) is not victim]
    try:
        victim.pause()
        with takes_at_most(0.5):
            assert await store.run([("GET", key) for key in others]) == [key.encode() for key in others]
        with takes_at_most(1.5):
            replies = await replies_of(store, [("GET", key) for key in KEYS])
        assert [reply for key, reply in zip(KEYS, replies, strict=True) if key in others] == [
            k.encode() for k in others
        ]
    finally:
        victim.resume()
        await restored(cluster)
    await works_again(lambda: store.run([("GET", key) for key in KEYS]))
