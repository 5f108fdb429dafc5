"""`infer` on a real cluster: hash tags become those of the families."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from keystead import connect
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.infer import infer
from keystead.stores import Command
from tests.real_servers import valkey_cluster
from tests.schema.drafted_keyspace import keyspace_of
from tests.servers import Cluster

__all__ = ["valkey_cluster"]

pytestmark = pytest.mark.matrix


def test_placeholders_in_braces_are_hash_tags(valkey_cluster: Cluster) -> None:
    """`{1}:visits` has its id in braces, the tag of the family; `{user:1}:cart` has more, so its braces are literal."""
    valkey_cluster.flush()
    commands: list[Command] = []
    for at in range(1, 61):
        commands += [
            ("SET", f"{{user:{at}}}:cart", json.dumps({"items": [at]})),
            ("SET", f"{{{at}}}:visits", at),
            ("SADD", f"orders:{{{at}}}:open", f"order {at}"),
            ("SET", f"plain:{at}", f"text {at}"),
        ]

    async def look() -> None:
        async with connect(valkey_cluster.url) as store:
            for command in commands:
                await store.run([command])
            found = await infer(store)
            keyspace = keyspace_of(found)
            assert check([keyspace]) == []
            families = {one.name: (one.pattern.text, one.pattern.tag) for one in keyspace.families.values()}
            assert families == {
                "user_cart": ("{{user:{user_id:int}}}:cart", None),
                "visits": ("{id:int}:visits", "id"),
                "orders_open": ("orders:{order_id:int}:open", "order_id"),
                "plain": ("plain:{plain_id:int}", None),
            }
            keys: Any = keyspace(store)
            assert (await keys.user_cart(user_id=7).get()).items == [7]
            assert await keys.visits(id=7).get() == 7
            report = await examine([keyspace(store)])
            assert sum(report.keys.values()) == 240
            assert (report.counts, report.unknown.as_json()) == ({}, [])

    asyncio.run(look())
