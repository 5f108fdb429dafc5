"""What each token may do, and for how long."""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import connect
from keystead.errors import BadValue, StoreUnavailable
from keystead.gateway import GatewayApp, GatewayKeys, GatewayTokens, event_stream, gateway_tokens
from keystead.gateway.gateway_keys import RESERVED
from tests import servers
from tests.gateway.conftest import EVERY, Client, on, unavailable
from tests.gateway.shop_keys import ShopKeys
from tests.servers import GatewayServer

NO_KEY = "NOPERM No permissions to access a key"


@pytest.fixture
async def shop(client: Client) -> Client:
    """A client of a gateway that knows ShopKeys."""
    keys = GatewayKeys(client.store)
    made = Client(GatewayApp(client.store, keys, keyspaces=[ShopKeys]), GatewayTokens(keys), client.store)
    await made.login()
    return made


# --- access --------------------------------------------------------------------------------------------------------


async def test_a_token_that_reads_does_not_write_or_list_keys(client: Client) -> None:
    await client.send("SET", "a", "b")
    await client.login("read")
    assert await client.send("GET", "a") == "b"
    for command in (
        *(["SET", "a", "c"], ["DEL", "a"], ["GETDEL", "a"], ["EXPIRE", "a", 1], ["APPEND", "a", "c"], ["INCR", "n"]),
        *(["PUBLISH", "a", "b"], ["SCAN", 0], ["KEYS", "*"], ["GETEX", "a", "EX", 1], ["RENAME", "a", "b"]),
    ):
        refused = (
            f"NOPERM this user has no permissions to run the '{str(command[0]).lower()}' command or its subcommand"
        )
        assert await client.send(*command) == refused
    batch = await client.batch("/pipeline", ["GET", "a"], ["SET", "a", "c"])
    assert batch == [
        {"result": "b"},
        {"error": "NOPERM this user has no permissions to run the 'set' command or its subcommand"},
    ]
    assert await client.batch("/multi-exec", ["GET", "a"], ["SET", "a", "c"]) == batch[1]
    assert await client.send("GET", "a") == "b"


@on(*EVERY)
def test_scripts_need_a_token_for_them_and_a_store_that_runs_them(gateway: GatewayServer) -> None:
    outcomes = {access: gateway.send("EVAL", "return 1", 0, access=access) for access in gateway.tokens}
    if gateway.store_url.startswith("redis://"):
        refused = {"error": "NOPERM this user has no permissions to run the 'eval' command or its subcommand"}
        assert outcomes == {"read": refused, "write": refused, "scripts": {"result": 1}, "admin": {"result": 1}}
    else:
        assert [*outcomes.values()] == 4 * [{"error": unavailable("EVAL")}]


@on("redis", "valkey")
def test_an_administrator_passes_any_command_through_unless_it_would_hold_up_others(gateway: GatewayServer) -> None:
    assert gateway.send("PFADD", "p", "a", access="admin") == {"result": 1}
    assert gateway.send("OBJECT", "ENCODING", "p", access="admin") == {"result": "raw"}
    for command in (
        *(["BLPOP", "l", 0], ["SUBSCRIBE", "c"], ["SELECT", 1], ["XREAD", "BLOCK", 0, "STREAMS", "s", "0"]),
        *(["script", "debug", "yes"], ["SCRIPT", "DEBUG", "SYNC"], ["client", "reply", "off"], ["\u017fubscribe", "c"]),
    ):
        refused = {"error": unavailable(str(command[0]).upper())}
        assert gateway.send(*command, access="admin") == refused
    for access in ("read", "write", "scripts"):
        assert gateway.send("PFADD", "p", "b", access=access) == {"error": unavailable("PFADD")}
        assert "error" in gateway.send("SCRIPT", "FLUSH", access=access)
    assert gateway.send("FLUSHALL", access="admin") == {"result": "OK"}
    assert gateway.send("DBSIZE") == {"result": 0}


@on("sqlite", "cluster")
def test_a_store_without_foreign_commands_refuses_them_to_an_administrator(gateway: GatewayServer) -> None:
    for command in (
        ["PFADD", "p", "a"],
        ["EVAL", "return 1", 0],
        ["FLUSHALL"],
        ["SETBIT", "b", 1, 1],
        ["CONFIG", "GET"],
    ):
        refused = unavailable(str(command[0]))
        assert gateway.send(*command, access="admin") == {"error": refused}
        assert gateway.batch("/multi-exec", ["SET", "a", "b"], command, access="admin") == {"error": refused}
        assert gateway.batch("/pipeline", ["PING"], command, access="admin") == [{"result": "PONG"}, {"error": refused}]
    assert gateway.send("DBSIZE") == {"result": 0}


async def test_every_command_that_the_reference_leaves_out_is_refused(client: Client) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/commands.md").read_text()
    rows = page.partition("## Commands that are left out")[2].splitlines()
    names = [name for row in rows if row.startswith("| `") for name in re.findall(r"`([A-Z.]+)`", row.split("|")[1])]
    assert {"XREAD", "JSON.SET", "ZUNION", "LMPOP", "FLUSHDB", "HEXPIRE"} < set(names)
    assert {name: await client.send(name, "a", "b") for name in names} == {name: unavailable(name) for name in names}


@on("cluster")
def test_a_cluster_names_the_keys_that_one_step_cannot_span(gateway: GatewayServer) -> None:
    gateway.send("SET", "a", 1)
    for commands in ([["RENAME", "a", "b"]], [["MSET", "a", 1, "b", 2]], [["SET", "a", 1], ["SET", "b", 2]]):
        refused = gateway.batch("/multi-exec", *commands)["error"]
        assert refused.startswith("CROSSSLOT Keys in request don't hash to the same slot: 'a' and 'b'"), refused
    assert gateway.send("DEL", "a", "b") == {"result": 1}
    spread = [["SET", f"k{n}", n] for n in range(100)]
    assert gateway.batch("/pipeline", *spread, ["MGET", "k1", "k99"], ["DEL", "k1", "k2"])[-2:] == [
        {"result": ["1", "99"]},
        {"result": 2},
    ]
    assert len(gateway.send("KEYS", "k*")["result"]) == 98


@on("redis", "valkey")
def test_a_failed_command_of_the_engine_is_reported_in_its_own_words(gateway: GatewayServer) -> None:
    assert gateway.send("SET", "a", "b") == {"result": "OK"}
    assert gateway.send("EVALSHA", "0" * 40, 0)["error"].startswith("NOSCRIPT No matching script.")
    assert gateway.send("GETBIT", "a", "x", access="admin")["error"].startswith("ERR bit offset is not an integer")


# --- limits --------------------------------------------------------------------------------------------------------


async def test_a_token_is_limited_to_the_keys_of_its_user(shop: Client) -> None:
    for key in ("item:42:tea", "item:7:tea", "offer:tea", "other"):
        await shop.send("SET", key, "x")
    await shop.login("write", families=["ShopKeys.item"], values={"uid": "42"})
    assert await shop.send("GET", "item:42:tea") == "x"
    assert await shop.send("SET", "item:42:milk", "y") == "OK"
    for key in ("item:7:tea", "offer:tea", "other", "item:42", "item:042:tea", "item:42:a:b", "ITEM:42:tea"):
        assert await shop.send("GET", key) == NO_KEY, key
        assert await shop.send("SET", key, "z") == NO_KEY, key
    for command in (
        ["MGET", "item:42:tea", "item:7:tea"],
        ["DEL", "item:42:tea", "offer:tea"],
        ["RENAME", "item:42:tea", "item:7:new"],
        ["MSET", "item:42:tea", "z", "item:7:tea", "z"],
        ["COPY", "item:7:tea", "item:42:stolen"],
    ):
        assert await shop.send(*command) == NO_KEY, command
    assert sorted((await shop.send("SCAN", 0))[1]) == ["item:42:milk", "item:42:tea"]
    assert sorted(await shop.send("KEYS", "*")) == ["item:42:milk", "item:42:tea"]
    assert "NOPERM" in await shop.send("DBSIZE")
    assert await shop.send("PING") == "PONG"


async def test_a_token_is_limited_to_its_families_in_all_keyspaces(shop: Client) -> None:
    await shop.login("write", families=["ShopKeys.offer"])
    assert await shop.send("SET", "offer:tea", "1") == "OK"
    assert await shop.send("SET", "item:1:tea", "1") == NO_KEY
    await shop.login("write", values={"uid": "42"})
    assert await shop.send("SET", "item:42:tea", "1") == "OK"
    assert await shop.send("SET", "offer:tea", "1") == NO_KEY
    await shop.login("write", families=["ShopKeys.gone"])
    assert await shop.send("GET", "offer:tea") == NO_KEY


async def test_a_token_is_limited_to_patterns_of_keys_and_to_channels(shop: Client) -> None:
    await shop.login("write", keys=["a:*", "b"])
    assert [await shop.send("SET", key, 1) for key in ("a:1", "b")] == ["OK", "OK"]
    assert [await shop.send("SET", key, 1) for key in ("a", "b:1", "c", "xa:1")] == [NO_KEY] * 4
    assert await shop.send("PUBLISH", "a:news", "x") == 0
    assert await shop.send("PUBLISH", "news", "x") == NO_KEY
    refused = await shop.request("POST", "/subscribe/news")
    assert (refused.status_code, refused.json()) == (400, {"error": "NOPERM No permissions to access a channel"})
    await shop.login("write", families=["ShopKeys.news"], values={"uid": "42"})
    assert await shop.send("PUBLISH", "news:42", "x") == 0
    assert await shop.send("PUBLISH", "news:7", "x") == NO_KEY


@pytest.mark.parametrize("access", ["scripts", "admin"])
async def test_a_token_whose_commands_reach_every_key_cannot_be_limited(client: Client, access: Any) -> None:
    with pytest.raises(BadValue, match="cannot be limited"):
        await client.tokens.create("x", access, keys=["a:*"])


# --- tokens are safe -----------------------------------------------------------------------------------------------


async def test_no_client_reaches_the_tokens(client: Client) -> None:
    token_id = await client.login("write")
    key = f"{RESERVED.decode()}token:{token_id}"
    assert await client.send("GET", key) == NO_KEY
    assert await client.send("SET", key, "{}") == NO_KEY
    assert await client.send("DEL", "a", key) == NO_KEY
    assert await client.send("RENAME", "a", key) == NO_KEY
    assert (await client.request("POST", f"/subscribe/{key}")).status_code == 400
    assert await client.send("KEYS", "*") == []
    assert (await client.send("SCAN", 0))[1] == []
    assert await client.send("PING") == "PONG"


async def test_a_revoked_token_is_refused_within_the_stated_second(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(gateway_tokens, "monotonic", lambda: now)
    token_id = await client.login("write")
    assert await client.send("PING") == "PONG"
    assert await client.tokens.revoke_token(token_id) is True
    assert await client.tokens.revoke_token(token_id) is False
    now += 1.0
    assert await client.send("PING") == "WRONGPASS invalid or missing auth token"


async def test_a_stream_ends_soon_after_its_token_was_revoked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(gateway_tokens, "monotonic", lambda: now)
    monkeypatch.setattr(event_stream, "CHECK_TOKEN_EVERY_S", 0.01)
    token_id, publisher = await client.login("read"), (await client.tokens.create("other", "write")).token
    reader, client.token = client.token, publisher
    headers = {"authorization": f"Bearer {reader}"}
    streaming = asyncio.create_task(client.request("POST", "/subscribe/news", headers))
    while await client.send("PUBLISH", "news", "x") != 1:
        pass
    await client.tokens.revoke_token(token_id)
    now += 1.0
    answer = await asyncio.wait_for(streaming, 30)
    assert answer.text.startswith("data: subscribe,news,1\n\n")
    assert (await client.request("POST", "/subscribe/news", headers)).status_code == 401


async def test_tokens_are_stored_as_digests_and_their_history_is_audited(client: Client) -> None:
    token_id = await client.login("read", by="operator:ann")
    await client.tokens.revoke_token(token_id, by="operator:bob")
    entries = await GatewayKeys(client.store).audit().newest(2)
    found = [(one.event, one.who, one.what) for one in entries]
    assert found == [("token-revoked", "operator:bob", token_id), ("token-created", "operator:ann", token_id)]
    kept = await client.tokens.records()
    assert all(client.token not in record.model_dump_json() for _, record in kept)


async def test_a_refused_token_is_in_no_log(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.token = "ks_0123456789abcdef_" + "s" * 43
    await client.send("PING")
    answer = await client.request("GET", f"/ping?_token={client.token}", headers={"authorization": "Basic x"})
    assert answer.status_code == 401
    assert "a token of the gateway was refused" in caplog.text
    assert client.token not in caplog.text


async def test_a_pipeline_is_one_round_trip(client: Client) -> None:
    calls = 0
    run = client.store.run

    async def counted(commands: Any) -> Any:
        nonlocal calls
        calls += 1
        return await run(commands)

    client.store.run = counted  # type: ignore[method-assign]
    await client.send("PING")  # the token is known now
    calls = 0
    batch = await client.batch(
        "/pipeline", *([["SET", f"k{n}", n] for n in range(32)] + [["TTL", "k1"], ["INCR", "k1"]])
    )
    assert batch[-2:] == [{"result": -1}, {"result": 2}]
    assert calls == 1


async def test_an_outage_within_a_pipeline_keeps_the_replies_of_what_ran_before(client: Client) -> None:
    async def lost(steps: Any) -> Any:
        raise StoreUnavailable("the store is away", "unknown")

    client.store.atomically = lost  # type: ignore[method-assign]
    batch = await client.batch("/pipeline", ["SET", "a", "b"], ["RENAME", "a", "c"], ["GET", "a"])
    assert batch[0] == {"result": "OK"}
    assert ["may or may not have taken effect" in one["error"] for one in batch[1:]] == [True, True]
    alone = await client.request("POST", "/", json=["RENAME", "a", "c"])
    assert alone.status_code == 503


@on("redis", "valkey")
def test_listing_all_keys_never_blocks_the_server(gateway: GatewayServer, request: pytest.FixtureRequest) -> None:
    server: servers.Server = request.getfixturevalue(f"{request.node.callspec.params['gateway']}_server")
    server.ask("CONFIG", "RESETSTAT")
    headers = {"authorization": f"Bearer {gateway.tokens['admin']}"}
    commands = [["SET", "a", "b"], ["APPEND", "a", "c"], ["OBJECT", "REFCOUNT", "a"], ["KEYS", "*"], ["GET", "a"]]
    answer = httpx2.post(f"{gateway.url}/pipeline", json=commands, headers=headers).json()
    assert [one["result"] for one in answer] == ["OK", 2, 1, ["a"], "bc"]
    used = server.ask("INFO", "commandstats")
    assert b"cmdstat_scan:" in used
    assert b"cmdstat_keys:" not in used


async def test_of_concurrent_transactions_none_sees_another_half_done(client: Client) -> None:
    async def move(amount: int) -> None:
        await client.batch("/multi-exec", ["INCRBY", "from", -amount], ["INCRBY", "to", amount])

    async def total() -> int:
        pair = await client.batch("/multi-exec", ["MGET", "from", "to"])
        return sum(int(one or 0) for one in pair[0]["result"])

    found = await asyncio.gather(*(job for n in range(20) for job in (move(n), total())))
    assert {one for one in found if one is not None} == {0}


async def test_the_tokens_can_be_in_a_store_of_their_own(client: Client) -> None:
    async with connect("memory://") as own:
        keys = GatewayKeys(client.store, gateway=own)
        apart = Client(GatewayApp(client.store, keys), GatewayTokens(keys), client.store)
        await apart.login("write")
        assert await apart.send("SET", "a", "b") == "OK"
        assert (await client.store.run([("DBSIZE",)]))[0] - 1 == len(await client.tokens.records()) + 2
        await apart.close()
