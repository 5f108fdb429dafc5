"""The REST API of Upstash: forms of requests, encodings, status codes and error bodies."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import httpx2
import pytest

from keystead.gateway import gateway_app
from tests import servers
from tests.gateway.conftest import EVERY, Client, on, unavailable
from tests.servers import GatewayServer


def post(gateway: GatewayServer, path: str, content: Any, access: str = "write", **headers: str) -> httpx2.Response:
    sent = {"authorization": f"Bearer {gateway.tokens[access]}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return httpx2.post(gateway.url + path, content=body, headers=sent)


def get(gateway: GatewayServer, path: str, **headers: str) -> Any:
    sent = {"authorization": f"Bearer {gateway.tokens['write']}"} | headers
    return httpx2.get(gateway.url + path, headers=sent).json()


# --- forms ---------------------------------------------------------------------------------------------------------


@on("memory", "redis")
def test_a_path_is_a_command_and_the_body_its_last_value(gateway: GatewayServer) -> None:
    assert get(gateway, "/set/a/b/EX/100") == {"result": "OK"}
    assert get(gateway, "/get/a") == {"result": "b"}
    assert post(gateway, "/set/raw?EX=1000&NX", b"\xff/\x00 { }").json() == {"result": "OK"}
    assert 0 < get(gateway, "/ttl/raw")["result"] <= 1000
    encoded = get(gateway, "/get/raw", **{"upstash-encoding": "base64"})
    assert encoded == {"result": b64encode(b"\xff/\x00 { }").decode()}
    assert get(gateway, "/get/raw") == {"result": "\ufffd/\x00 { }"}
    assert get(gateway, "/set/with%2Fslash/%E3%81%82%20b") == {"result": "OK"}
    assert get(gateway, "/mget/with%2Fslash/none") == {"result": ["あ b", None]}
    put = httpx2.put(f"{gateway.url}/set/put", content=b"x", headers={"authorization": f"Bearer {gateway.token}"})
    assert put.json() == {"result": "OK"}


@on(*EVERY)
def test_a_pipeline_is_answered_in_order_with_an_error_in_place_of_each_failure(gateway: GatewayServer) -> None:
    answer = post(
        gateway,
        "/pipeline",
        [
            ["SET", "key1", "valuex"],
            ["SETEX", "{k}2", 1300, "valuez"],
            ["INCR", "key1"],
            ["ZADD", "myset", 11, "item1", 22, "item2"],
            ["NOPE"],
            ["RENAME", "{k}2", "{k}3"],
            ["APPEND", "{k}3", "!"],
            ["GET", "{k}3"],
        ],
    )
    assert answer.status_code == 200
    assert answer.json() == [
        {"result": "OK"},
        {"result": "OK"},
        {"error": "ERR value is not an integer or out of range"},
        {"result": 2},
        {"error": unavailable("NOPE")},
        {"result": "OK"},
        {"result": 7},
        {"result": "valuez!"},
    ]


@on(*EVERY)
def test_a_transaction_with_an_invalid_or_unknown_command_is_discarded(gateway: GatewayServer) -> None:
    good = [["SET", "{t}a", 1], ["INCR", "{t}a"], ["MSET", "{t}b", 2, "{t}c", 3], ["TTL", "{t}a"]]
    answer = post(gateway, "/multi-exec", good)
    assert answer.json() == [{"result": "OK"}, {"result": 2}, {"result": "OK"}, {"result": -1}]
    for bad in (["NOPE"], ["GET"], ["BLPOP", "{t}l", 0], ["SET", "{t}a", 1, "EX", 0], ["SET", "{t}a", 1, "EX"]):
        refused = post(gateway, "/multi-exec", [["SET", "{t}a", "changed"], bad])
        assert refused.status_code == 400, refused.text
        assert set(refused.json()) == {"error"}
    assert gateway.send("GET", "{t}a") == {"result": "2"}


@on(*EVERY)
def test_a_command_that_fails_in_a_transaction_leaves_the_effect_of_the_others(gateway: GatewayServer) -> None:
    gateway.send("SET", "{t}text", "x")
    commands = [["SET", "{t}a", 1], ["LPUSH", "{t}text", "y"], ["INCR", "{t}text"], ["INCR", "{t}a"], ["GET", "{t}a"]]
    answer = post(gateway, "/multi-exec", commands)
    wrong_kind = {"error": "WRONGTYPE Operation against a key holding the wrong kind of value"}
    not_a_number = {"error": "ERR value is not an integer or out of range"}
    if gateway.store_url.startswith("redis+cluster"):  # a script there, which undoes the others
        assert (answer.status_code, answer.json()) == (400, wrong_kind)
        assert gateway.send("EXISTS", "{t}a") == {"result": 0}
    else:
        results = [{"result": "OK"}, wrong_kind, not_a_number, {"result": 2}, {"result": "2"}]
        assert (answer.status_code, answer.json()) == (200, results)
        assert gateway.send("GET", "{t}a") == {"result": "2"}
    assert gateway.send("GET", "{t}text") == {"result": "x"}


@on("redis", "valkey")
def test_a_transaction_that_the_engine_discards_is_one_error(gateway: GatewayServer) -> None:
    for bad, error in ((["OBJECT", "NOPE"], "ERR unknown subcommand"), (["GETBIT", "a"], "ERR wrong number of arg")):
        refused = post(gateway, "/multi-exec", [["SET", "a", "x"], bad, ["SET", "a", "y"]], "admin")
        assert refused.status_code == 400
        assert refused.json()["error"].startswith(error)
    assert gateway.send("GET", "a") == {"result": None}


@on(*EVERY)
def test_commands_that_read_first_are_part_of_a_transaction(gateway: GatewayServer) -> None:
    gateway.send("SADD", "{t}s", "a", "b")
    gateway.send("SET", "{t}old", "x", "EX", 100)
    commands = [
        *(["APPEND", "{t}text", "ab"], ["STRLEN", "{t}text"], ["INCRBYFLOAT", "{t}f", "1.5"]),
        *(["RENAME", "{t}old", "{t}new"], ["TTL", "{t}new"], ["SPOP", "{t}s", 2], ["SPOP", "{t}none"]),
        ["COPY", "{t}missing", "{t}c"],
    ]
    done = [one.get("result") for one in post(gateway, "/multi-exec", commands).json()]
    assert sorted(done.pop(5)) == ["a", "b"]
    assert done == [2, 2, "1.5", "OK", 100, None, 0]
    left = gateway.send("EXISTS", *(f"{{t}}{name}" for name in ("old", "s", "new", "text", "f")))
    assert left == {"result": 3}


@on(*EVERY)
def test_of_a_transaction_with_a_failing_command_no_client_sees_a_part(gateway: GatewayServer) -> None:
    gateway.send("MSET", "{t}text", "x", "{t}from", 0, "{t}to", 0)
    move = [["DECR", "{t}from"], ["LPUSH", "{t}text", "y"], ["INCR", "{t}to"]]
    headers = {"authorization": f"Bearer {gateway.tokens['write']}"}

    async def compete() -> list[int]:
        async with httpx2.AsyncClient(base_url=gateway.url, headers=headers, timeout=60) as client:

            async def total() -> int:
                pair = (await client.post("/", json=["MGET", "{t}from", "{t}to"])).json()["result"]
                return sum(map(int, pair))

            jobs = [job for _ in range(40) for job in (client.post("/multi-exec", json=move), total())]
            return [one for one in await asyncio.gather(*jobs) if isinstance(one, int)]

    assert asyncio.run(compete()) == [0] * 40
    moved = 0 if gateway.store_url.startswith("redis+cluster") else 40
    assert gateway.send("GET", "{t}to") == {"result": str(moved)}


async def test_of_concurrent_transactions_that_read_first_none_is_lost(client: Client) -> None:
    async def add(number: int) -> Any:
        return await client.batch("/multi-exec", ["APPEND", "text", "x"], ["INCR", "count"])

    done = await asyncio.gather(*map(add, range(20)))
    assert sorted(length["result"] for length, _ in done) == list(range(1, 21))
    assert [length["result"] for length, _ in done] == [count["result"] for _, count in done]


async def test_a_command_that_depends_on_an_earlier_write_of_its_transaction_is_refused(client: Client) -> None:
    refused = await client.batch("/multi-exec", ["SET", "a", "x"], ["APPEND", "a", "y"])
    assert refused["error"].startswith("ERR APPEND depends on a key that the transaction wrote before")
    assert await client.send("EXISTS", "a") == 0


async def test_a_name_that_is_not_unicode_leaves_the_replies_of_the_others(client: Client) -> None:
    answer = await client.request("POST", "/pipeline", content=b'[["SET","a","1"],["\\ud800"],["GET","a"]]')
    assert answer.json() == [
        {"result": "OK"},
        {"error": unavailable("?")},
        {"result": "1"},
    ]


def test_numbers_and_booleans_are_stored_as_they_were_written(gateway: GatewayServer) -> None:
    body = b'["RPUSH","l",1.50,12345678901234567890,1e3,-0,true,false,"\\u3042"]'
    assert post(gateway, "/", body).json() == {"result": 7}
    stored = ["1.50", "12345678901234567890", "1e3", "-0", "true", "false", "あ"]
    assert get(gateway, "/lrange/l/0/-1") == {"result": stored}


@on("memory", "redis")
def test_a_resp2_response_is_what_a_redis_server_sends(gateway: GatewayServer) -> None:
    form = {"upstash_response_format": "resp2"}
    commands = [["SET", "a", "b"], ["GET", "a"], ["GET", "none"], ["ZADD", "z", 1.5, "m"], ["NOPE"]]
    answer = post(gateway, "/pipeline", [*commands, ["ZRANGE", "z", 0, -1, "WITHSCORES"]], **form)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.content == (
        b"+OK\r\n$1\r\nb\r\n$-1\r\n:1\r\n-%s\r\n*2\r\n$1\r\nm\r\n$3\r\n1.5\r\n" % unavailable("NOPE").encode()
    )
    assert post(gateway, "/", ["GET", "a"], **form, upstash_encoding="base64").status_code == 400
    assert post(gateway, "/", ["GET", "a"], upstash_response_format="resp3").status_code == 400


def test_a_response_has_a_sync_token_and_is_not_cached(gateway: GatewayServer) -> None:
    answer = post(gateway, "/", ["PING"], upstash_sync_token="abc")
    assert answer.headers["upstash-sync-token"]
    assert answer.headers["cache-control"] == "no-store"


# --- refusals ------------------------------------------------------------------------------------------------------


def test_without_a_valid_token_nothing_runs(gateway: GatewayServer) -> None:
    right = gateway.tokens["write"]
    wrong = (None, "", right[:-1], right[:-2] + "xx", right.upper(), "ks_0123456789abcdef_" + "A" * 43, "ü")
    for token in wrong:
        headers = {} if token is None else {b"authorization": f"Bearer {token}".strip().encode()}
        answer = httpx2.post(gateway.url, json=["SET", "a", "b"], headers=headers)
        assert (answer.status_code, answer.json()) == (401, {"error": "WRONGPASS invalid or missing auth token"})
    assert httpx2.get(f"{gateway.url}/set/a/b?_token=nonsense").status_code == 401
    assert gateway.send("EXISTS", "a") == {"result": 0}
    assert httpx2.get(f"{gateway.url}/set/a/b?_token={right}").json() == {"result": "OK"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/", b"", 400),
        ("/", b"[", 400),
        ("/", b"{}", 400),
        ("/", b"[]", 400),
        ("/", b'"GET"', 400),
        ("/", b'["SET","a",null]', 400),
        ("/", b'["SET","a",{"b":1}]', 400),
        ("/", b'["SET","a",["b"]]', 400),
        ("/", b'["SET","a",NaN]', 400),
        ("/", b"[" * 100_000, 400),
        ("/", b'["SET","a","\xff"]', 400),
        ("/", b'["SET","a","\\ud800"]', 400),
        ("/", b'["SET",5]', 400),
        ("/", b'["\\ud800GET","a"]', 400),
        ("/", b'["SETRANGE","a","536870900","x"]', 400),
        ("/", b'["SRANDMEMBER","a","-9000000000000000000"]', 400),
        ("/", b'["SCAN","abc"]', 400),
        ("/", b'[["SET","a","b"]]', 400),
        ("/pipeline", b'["SET","a","b"]', 400),
        ("/pipeline", b"[]", 400),
        ("/pipeline", b"[[]]", 400),
        ("/pipeline", b'[["SET","a","b"],["SET","a",null]]', 400),
        ("/multi-exec", b'[["SET","a","b"],"x"]', 400),
        ("/multi-exec", b'[["SET","a","b"],["\\ud800"]]', 400),
        ("/multi-exec", b'[["SET","a","b"],["KEYS","*"]]', 400),
        ("/pipeline/more", b'[["GET","a"]]', 404),
        ("/monitor", b"", 400),
        ("/psubscribe/a*", b"", 400),
        ("/subscribe", b"", 400),
    ],
)
def test_a_malformed_request_is_one_clear_error_and_changes_nothing(
    gateway: GatewayServer, path: str, body: bytes, status: int
) -> None:
    answer = post(gateway, path, body)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    assert gateway.send("DBSIZE") == {"result": 0}


def test_a_request_with_two_tokens_is_refused_whichever_comes_first(gateway: GatewayServer) -> None:
    """A proxy that checks one of them must not pass on the other."""
    for tokens in (
        (gateway.tokens["read"], gateway.tokens["write"]),
        ("wrong", gateway.token),
        (gateway.token, "wrong"),
    ):
        headers = [("authorization", f"Bearer {token}") for token in tokens]
        answer = httpx2.post(gateway.url, json=["SET", "a", "b"], headers=headers)
        assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert gateway.send("DBSIZE") == {"result": 0}


@on("memory", "redis")
def test_a_page_of_a_scan_is_bounded_whatever_a_client_asks_for(gateway: GatewayServer) -> None:
    gateway.batch("/pipeline", *(["SET", f"k{n}", n] for n in range(3_000)))
    for count in ("3000", "1" * 18):
        found, cursor, pages = set(), "0", 0
        while pages == 0 or cursor != "0":
            cursor, page = gateway.send("SCAN", cursor, "MATCH", "k*", "count", count)["result"]
            assert len(page) < 1_100
            found.update(page)
            pages += 1
        assert (len(found), pages > 2) == (3_000, True)


async def test_a_huge_pipeline_and_one_too_many(client: Client) -> None:
    commands = [["INCR", "n"]] * 10_000
    answers = await client.batch("/pipeline", *commands)
    assert answers[-1] == {"result": 10_000}
    refused = await client.request("POST", "/pipeline", json=[*commands, ["INCR", "n"]])
    assert (refused.status_code, refused.json()) == (400, {"error": "ERR a request has at most 10000 commands"})
    assert await client.send("GET", "n") == "10000"


async def test_a_client_that_leaves_in_the_middle_of_its_body_has_written_nothing(client: Client) -> None:
    parts = [
        {"type": "http.request", "body": b'[["SET","a","b"],', "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {client.token}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/pipeline", "query_string": b"", "headers": headers}
    await client.app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert await client.send("DBSIZE") == len(await client.tokens.records()) + 2


def test_other_methods_are_refused(gateway: GatewayServer) -> None:
    answer = httpx2.request("DELETE", gateway.url, headers={"authorization": f"Bearer {gateway.token}"})
    assert answer.status_code == 405
    assert set(answer.json()) == {"error"}


def test_an_oversized_body_is_refused_in_the_words_of_upstash(gateway: GatewayServer) -> None:
    limit = gateway_app.MAX_BODY_BYTES
    answer = post(gateway, "/", ["SET", "a", "x" * limit])
    assert answer.status_code == 413
    assert answer.json()["error"].startswith(f"ERR max request size exceeded. Limit: {limit} bytes, Actual: ")

    def parts() -> Any:
        for _ in range(limit // 65536 + 2):
            yield b"x" * 65536

    headers = {"authorization": f"Bearer {gateway.token}"}
    assert httpx2.post(f"{gateway.url}/set/a", content=parts(), headers=headers).status_code == 413
    assert gateway.send("DBSIZE") == {"result": 0}


@pytest.mark.matrix
def test_a_store_that_is_down_is_503_and_the_gateway_recovers() -> None:
    with servers.redis() as redis, servers.gateway(f"{redis.url}?timeout=2s") as gateway:
        assert gateway.send("SET", "a", "b") == {"result": "OK"}
        redis.kill()
        for path, content in (("/", ["SET", "a", "c"]), ("/pipeline", [["GET", "a"]]), ("/multi-exec", [["GET", "a"]])):
            answer = post(gateway, path, content)
            assert answer.status_code == 503, answer.text
            assert "unavailable" in answer.json()["error"] or "may or may not" in answer.json()["error"]
        redis.start()
        servers.wait_until(
            lambda: post(gateway, "/", ["SET", "a", "d"]).status_code == 200, "the gateway has recovered"
        )
        assert gateway.send("GET", "a") == {"result": "d"}


# --- streams -------------------------------------------------------------------------------------------------------


async def test_a_subscription_is_a_stream_of_events(client: Client) -> None:
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    left = asyncio.Event()
    is_begun = False

    async def receive() -> dict[str, Any]:
        nonlocal is_begun
        if not is_begun:
            is_begun = True
            return {"type": "http.request", "body": b"[]"}
        await left.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/subscribe/ch%C3%A4t/b",
        "raw_path": b"/subscribe/ch%C3%A4t/b",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {client.token}".encode())],
    }
    streaming = asyncio.create_task(client.app(scope, receive, sent.put))  # type: ignore[arg-type]
    begun = await asyncio.wait_for(sent.get(), 30)
    assert dict(begun["headers"])[b"content-type"] == b"text/event-stream"
    assert (await sent.get())["body"] == "data: subscribe,chät,1\n\ndata: subscribe,b,2\n\n".encode()
    assert await client.send("PUBLISH", "chät", "one\ntwo") == 1
    assert (await sent.get())["body"] == "data: message,chät,one\ndata: two\n\n".encode()
    left.set()
    await asyncio.wait_for(streaming, 30)


async def test_streams_end_when_the_gateway_stops(client: Client) -> None:
    streaming = asyncio.create_task(client.request("POST", "/subscribe/news"))
    while await client.send("PUBLISH", "news", "x") != 1:
        pass
    client.app.stop()
    answer = await asyncio.wait_for(streaming, 30)
    assert answer.text.startswith("data: subscribe,news,1\n\n")
