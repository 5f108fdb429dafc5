"""Moving a slot of a cluster, in the steps of an operator."""

from __future__ import annotations

from keystead.stores.redis.cluster_nodes import slot_of
from tests.servers import Cluster


class Move:
    """A slot on its way from its owner to the next master, in the steps of `redis-cli --cluster reshard`."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self.slot = slot_of(key.encode())
        self.source = cluster.owner(key)
        self.others = [node for node in cluster.masters() if node is not self.source]
        self.target = self.others[0]

    def begin(self) -> None:
        source_id, target_id = self.source.ask("CLUSTER", "MYID"), self.target.ask("CLUSTER", "MYID")
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", source_id)
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", target_id)

    def carry(self, count: int) -> int:
        """Move up to so many keys; returns how many."""
        keys = self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, count)
        if keys:
            self.source.ask("MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def finish(self) -> None:
        target_id = self.target.ask("CLUSTER", "MYID")
        while self.carry(100):
            pass
        for node in (self.target, self.source, *self.others[1:]):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", target_id)

    def redirections(self, word: str) -> int:
        """How often the source has sent somebody elsewhere."""
        stats = self.source.ask("INFO", "errorstats").decode()
        return sum(int(line.partition("count=")[2]) for line in stats.split() if line.startswith(f"errorstat_{word}:"))
