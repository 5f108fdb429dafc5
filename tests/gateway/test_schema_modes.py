"""A gateway with a key document: writes of any client are observed, fixed or refused."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from keystead import connect
from keystead.gateway import GatewayApp, GatewayKeys, GatewayTokens
from keystead.gateway.gateway_app import SchemaMode
from keystead.schema.doctor import examine
from tests import servers
from tests.gateway.conftest import Client, run_file
from tests.gateway.shop_keys import ShopKeys

CART = json.dumps({"items": ["tea"]})
BAD_WRITES = {
    "unknown-key": ["SET", "stray:1", "x"],
    "wrong-kind": ["LPUSH", "cart:1", "x"],
    "unreadable": ["SET", "cart:1", '{"items": 5}', "EX", "3600"],
    "no-deadline": ["SET", "cart:1", CART],
}

Opens = Callable[[SchemaMode], Any]


@pytest.fixture
async def shop() -> AsyncIterator[Opens]:
    """A client of a gateway to an empty store, with ShopKeys in this mode."""
    async with AsyncExitStack() as opened:

        async def open_shop(mode: SchemaMode) -> Client:
            store = await opened.enter_async_context(connect("memory://"))
            keys = GatewayKeys(store, gateway=await opened.enter_async_context(connect("memory://")))
            app = GatewayApp(store, keys, keyspaces=[ShopKeys], schema=mode)
            client = Client(app, GatewayTokens(keys), store)
            opened.push_async_callback(client.close)
            await client.login("write")
            return client

        yield open_shop


@pytest.mark.parametrize("code", BAD_WRITES)
async def test_an_enforced_schema_refuses_a_write_with_the_code_of_the_finding(shop: Opens, code: str) -> None:
    client = await shop("enforce")
    refused = await client.send(*BAD_WRITES[code])
    assert refused.startswith(f"WRITEREFUSED {code}: "), refused
    batch = await client.batch("/pipeline", ["SET", "item:1:tea", "x", "EX", 3600], BAD_WRITES[code], ["PING"])
    assert [*batch[0], *batch[1], *batch[2]] == ["result", "error", "result"]
    transaction = await client.request("POST", "/multi-exec", json=[["SADD", "tags:a", "b"], BAD_WRITES[code]])
    assert transaction.status_code == 400
    assert f"WRITEREFUSED {code}" in transaction.json()["error"]
    assert await client.send("KEYS", "*") == ["item:1:tea"]


async def test_an_enforced_schema_lets_good_writes_and_all_reads_pass(shop: Opens) -> None:
    client = await shop("enforce")
    assert await client.send("SET", "cart:1", CART, "EX", 3600) == "OK"
    assert await client.send("GET", "cart:1") == CART
    assert await client.send("GET", "stray") is None
    assert await client.send("DEL", "stray") == 0
    transaction = await client.batch("/multi-exec", ["INCR", "visits:today"], ["EXPIRE", "visits:today", 172800])
    assert transaction == [{"result": 1}, {"result": 1}]
    assert await client.send("PUBLISH", "news:1", '{"text": "hello"}') == 0


async def test_an_enforced_schema_refuses_messages_that_no_subscriber_expects(shop: Opens) -> None:
    client = await shop("enforce")
    for code, channel, message in (("unknown-key", "stray:1", "x"), ("unreadable", "news:1", '{"txt": "hello"}')):
        assert (await client.send("PUBLISH", channel, message)).startswith(f"WRITEREFUSED {code}: ")
        transaction = await client.batch("/multi-exec", ["SADD", "tags:a", "b"], ["PUBLISH", channel, message])
        assert f"WRITEREFUSED {code}: " in transaction["error"]
    assert await client.send("DBSIZE") == 0


async def test_fixing_sets_the_declared_lifetime(shop: Opens) -> None:
    client = await shop("fix")
    assert await client.send("SET", "cart:1", CART) == "OK"
    assert 3000 < await client.send("TTL", "cart:1") <= 3600
    assert await client.send("INCR", "visits:today") == 1
    assert 172_000 < await client.send("TTL", "visits:today") <= 172_800
    assert client.app.reports.counts["no-deadline", "ShopKeys.cart"] == 1


async def test_observing_lets_everything_pass_and_counts_it(shop: Opens, caplog: pytest.LogCaptureFixture) -> None:
    client = await shop("observe")
    for command in BAD_WRITES.values():
        await client.send("DEL", "cart:1")
        assert await client.send(*command) in ("OK", 1)
    assert await client.send("TTL", "cart:1") == -1
    assert set(client.app.reports.counts) == {
        ("unknown-key", "stray:…"),
        ("wrong-kind", "ShopKeys.cart"),
        ("unreadable", "ShopKeys.cart"),
        ("no-deadline", "ShopKeys.cart"),
    }
    assert "a write does not fit the schema: wrong-kind in ShopKeys.cart (1 so far)" in caplog.text
    assert "stray:1" not in caplog.text


async def test_a_flood_of_findings_is_a_handful_of_log_lines(shop: Opens, caplog: pytest.LogCaptureFixture) -> None:
    client = await shop("observe")
    await client.batch("/pipeline", *([["SET", "stray:1", "x"]] * 1234))
    assert client.app.reports.counts["unknown-key", "stray:…"] == 1234
    assert caplog.text.count("unknown-key") == 4  # the 1st, 10th, 100th and 1000th


@pytest.mark.matrix
def test_scripts_do_not_get_around_an_enforced_schema(redis_server: servers.Server) -> None:
    redis_server.ask("FLUSHALL")
    with servers.gateway(redis_server.url, "tests.gateway.shop_keys:ShopKeys", "enforce") as gateway:
        assert "error" in gateway.send("EVAL", "return redis.call('set', 'stray', 1)", 0)
        assert "error" in gateway.send("SETBIT", "stray", 1, 1, access="admin")
        assert "error" in gateway.send("APPEND", "stray", "x", access="admin")
        assert gateway.send("DBSIZE") == {"result": 0}
    with servers.gateway(redis_server.url, "tests.gateway.shop_keys:ShopKeys", "observe") as gateway:
        assert gateway.send("EVAL", "return redis.call('set', 'stray', 1)", 0) == {"result": "OK"}


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["sqlite", "redis"])
async def test_after_ten_thousand_random_writes_the_doctor_finds_nothing(
    name: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    if name == "redis":
        redis = request.getfixturevalue("redis_server")
        redis.ask("FLUSHALL")
        url = redis.url
    else:
        url = f"sqlite:///{tmp_path}/kept.db"
    with servers.gateway(url, "tests.gateway.shop_keys:ShopKeys", "enforce") as gateway:
        counts = run_file("random_writes.mjs", gateway, "write")
    assert sum(counts.values()) == 10_000
    assert counts["done"] > 1000
    refused = {word.removeprefix("WRITEREFUSED ") for word in counts if word.startswith("WRITEREFUSED")}
    relations = {"not-listed:", "wrong-score:", "dead-entry:", "orphan:"}
    lifetimes = {"no-deadline:", "early-deadline:", "late-deadline:", "unexpected-deadline:"}
    assert {"unknown-key:", "wrong-kind:", "unreadable:", "too-long:", *lifetimes, *relations} <= refused, refused
    async with connect(url) as store:
        kinds = await store.run([("TYPE", key) async for page in store.scan() for key in page])
        assert set(kinds) == {b"string", b"hash", b"set", b"zset", b"list", b"stream"}
        report = await examine([ShopKeys(store)])
        assert (report.counts, report.examined > 3) == ({}, True)
