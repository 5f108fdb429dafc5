"""The failover of a cluster and of its store, measured together."""

from __future__ import annotations

import asyncio
import time

import keystead
from keystead.stores.redis.cluster_nodes import slot_of
from tests.servers import Cluster, Server
from tests.stores.redis.load import Load
from tests.stores.redis.waits import until


async def serves_again_as_soon_as_the_cluster(cluster: Cluster, end: str, options: str) -> None:
    """End the master that is the worst to lose, killed or hung, under load; then restore the cluster.

    No wrong reply, only StoreUnavailable; what was acknowledged is there, but for what was in the last second before;
    and the first acknowledged write follows within 1.5 s of the moment when the cluster itself serves again.
    """
    async with keystead.connect(cluster.url + options) as store:
        load = Load(store)
        # The master of slot 0 is the first that a store asks who owns what: the worst to lose.
        with cluster.nodes[0].wire() as wire:
            port = next(master[1] for first, _, master, *_ in wire.call("CLUSTER", "SLOTS") if first == 0)
        victim = cluster.node(port)
        ranges = [(a, b) for a, b, master, *_ in victim.ask("CLUSTER", "SLOTS") if master[1] == port]

        def of_victim(key: str) -> bool:
            return any(first <= slot_of(key.encode()) <= last for first, last in ranges)

        try:
            async with load.running():
                began = time.monotonic()
                await until(lambda: time.monotonic() - began > 1.3, "more than a second's worth is written")
                dead = time.monotonic()
                victim.kill() if end == "killed" else victim.pause()
                engine_s = None
                while engine_s is None or not any(map(of_victim, load.acknowledged_since(dead + 0.2))):
                    if engine_s is None and await asyncio.to_thread(serves_without, cluster, victim):
                        engine_s = time.monotonic() - dead
                    assert time.monotonic() - dead < 20, "the service did not come back"
                    await asyncio.sleep(0.005)
                back_at = time.monotonic()
                await until(lambda: time.monotonic() - back_at > 0.3, "it goes on after that")
            first = (
                min(load.acknowledged[key][1] for key in load.acknowledged_since(dead + 0.2) if of_victim(key)) - dead
            )
            assert first - engine_s < 1.5
            lost = await load.verify(store, dead - 1.0, dead + 0.2, of_victim)
            print(f"\nfail-over ({end}): cluster {engine_s:.2f} s, Keystead {first:.2f} s; {load.summary(lost)}")
            assert load.acknowledged_since(back_at)
        finally:
            await restored(cluster)


def serves_without(cluster: Cluster, gone: Server) -> bool:
    """Every living node says that all is well, and names another owner for the slots of the one that is gone."""
    for node in cluster.nodes:
        if node is gone:
            continue
        with node.wire() as wire:
            if b"cluster_state:ok" not in wire.call("CLUSTER", "INFO"):
                return False
            owners = {master[1] for _, _, master, *_ in wire.call("CLUSTER", "SLOTS")}
            if gone.port in owners:
                return False
    return True


async def restored(cluster: Cluster) -> None:
    """Until all six run again, and each master has its replica."""
    for node in cluster.nodes:
        node.resume()
        if node._process is None:
            node.start()

    def is_restored() -> bool:
        return all(shape_of(node) == [1, 1, 1] for node in cluster.nodes) and cluster.is_whole()

    await until(is_restored, "the cluster has three masters with a replica each", 30)


def shape_of(node: Server) -> list[int]:
    """How many replicas each master has in the eyes of this node; -1 stands for a replica that does not follow yet."""
    followers = {master[1]: len(rest) for _, _, master, *rest in node.ask("CLUSTER", "SLOTS")}
    role = node.ask("ROLE")
    return [-1] if role[0] == b"slave" and role[3] != b"connected" else list(followers.values())
