"""The real clients of Upstash work with any store behind the gateway."""

from typing import Any

import pytest
from upstash_ratelimit import FixedWindow, Ratelimit
from upstash_redis import Redis
from upstash_redis.errors import UpstashError

from tests.gateway.conftest import EVERY, SCRIPTS, on, run_file, run_script, unavailable
from tests.servers import GatewayServer

SAID: dict[str, Any] = {
    "strings": [
        *("OK", "text", 7, 7, "text", 0, "textual", "OK", "OK", ["OK", 1, {"d": [True, None]}, None], "OK"),
        *("OK", True, "OK", None, "OK", 1.5, "OK", '🔑 "quoted"\n'),
    ],
    "numbers": [1, 42, 41, 1.5],
    "keys": [1, "string", -2, 1, True, 1, "OK", ["{a}a"], 1, 1, 1, True],
    "scan": ["e", "emoji"],
    "hashes": [
        3,
        {"deep": "x"},
        {"one": 1, "two": {"deep": "x"}, "three": "text"},
        {"one": 1, "none": None},
        *(["one", "three", "two"], 3, 3, 0, 1, None, 0),
    ],
    "sets": [3, [3, "a", "b"], 1, [1, 0], 3, 1, []],
    "sorted": [
        *(2, ["one", {"id": 2}], [{"id": 2}, 2.5, "one", 1], 1, None, 3, 1, 2, [{"id": 2}], [3, None]),
        *([{"id": 2}, 2.5], 1),
    ],
    "lists": [3, ["a", {"b": 1}, 3], "a", 3, 2, "OK", 0, {"b": 1}, None],
    "streams": ["1-1", {"1-1": {"field": "value", "n": 1}}, 1],
    "pipeline": [
        {"result": "OK"},
        {"error": "ERR value is not an integer or out of range"},
        {"result": "x"},
        {"result": 1},
    ],
    "piped": ["OK", 1, {"a": 1}, 1],
    "transaction": ["OK", 2, [2, None]],
    "plain": ["OK", "OK", ["four", "4", "three", "text", "two", '{"deep":"x"}'], None],
    "errors": [
        "Command failed: WRONGTYPE Operation against a key holding the wrong kind of value",
        f'{unavailable("NOPE")}, command was: ["NOPE","x"]',
        "ERR wrong number of arguments for 'get' command, command was: [\"GET\"]",
        f'{unavailable("BLPOP")}, command was: ["BLPOP","l","0"]',
    ],
    "ping": ["PONG", "hé", True, 2],
}


@on("sqlite", "postgres", "mariadb", "redis", "valkey", "cluster")
def test_the_script_of_the_key_document_runs_unmodified(gateway: GatewayServer) -> None:
    said = run_script((SCRIPTS / "seed_test_entry.mjs").read_text(), gateway, "write")
    assert said == "seeded test entry { id: 'TESTKEY123' }\n"
    assert gateway.send("TYPE", "receive:edge:index") == {"result": "zset"}
    assert gateway.send("GET", "receive:token:short-demo") == {"result": "TESTKEY123"}
    done = run_file("clean_up_and_sessions.mjs", gateway, "write")
    assert done["session"]["name"] == "あん"
    assert all(2_590_000 < left <= 2_592_000 for left in done["ttl"])
    assert done["sessions"] == ["s1"]
    assert done["lock"] == ["OK", None]
    assert done["gone"] == [None, 0]
    assert sorted(one is None for one in done["consumed"]) == [False, True, True]
    assert (done["due"], done["deleted"], done["left"]) == (["TESTKEY123"], 2, 0)
    assert done["meta"]["short_token"] == "short-demo"
    assert set(gateway.send("KEYS", "*")["result"]) <= {"lock:sess:s1"}


@on(*EVERY)
@pytest.mark.matrix
def test_the_everyday_commands_of_the_javascript_client_reply_as_with_upstash(gateway: GatewayServer) -> None:
    said = run_file("everyday_commands.mjs", gateway, "write")
    flat = said["plain"][2]  # a hash has no order
    said["plain"][2] = [word for pair in sorted(zip(flat[::2], flat[1::2], strict=True)) for word in pair]
    assert said == SAID


@on("sqlite", "postgres", "mariadb", "redis", "valkey", "cluster")
@pytest.mark.matrix
def test_a_javascript_subscriber_gets_the_messages_of_its_channel(gateway: GatewayServer) -> None:
    assert run_file("messages.mjs", gateway, "write") == [
        1,
        {"channel": "news", "message": {"hello": "wörld"}},
        {"channel": "news", "message": "plain, with commas"},
    ]


@on("redis", "valkey")
@pytest.mark.matrix
def test_the_rate_limits_of_upstash_count_where_the_store_runs_scripts(gateway: GatewayServer) -> None:
    said = run_file("rate_limits.mjs", gateway)
    for name in ("fixed", "sliding", "bucket"):
        assert (said[name], said[f"{name} left"]) == ([True, True, True, False, False], 0)


@on(*EVERY)
def test_the_python_client_works(gateway: GatewayServer) -> None:
    with Redis(gateway.url, gateway.tokens["write"]) as redis:
        assert redis.set("key", "välue", ex=100)
        assert redis.get("key") == "välue"
        assert 0 < redis.ttl("key") <= 100
        assert redis.hset("hash", values={"a": "1", "b": "2"}) == 2
        assert redis.hgetall("hash") == {"a": "1", "b": "2"}
        assert redis.zadd("sorted", {"x": 1.5, "y": 2}) == 2
        assert redis.zrange("sorted", 0, -1, withscores=True) == [("x", 1.5), ("y", 2.0)]
        cursor, found = redis.scan(0, match="k*")
        while cursor != 0:  # a cluster is walked node by node
            cursor, more = redis.scan(cursor, match="k*")
            found += more
        assert found == ["key"]
        pipeline = redis.pipeline()
        pipeline.incr("count")
        pipeline.smembers("none")
        assert pipeline.exec() == [1, []]
        transaction = redis.multi()
        transaction.set("one", "1")
        transaction.incr("one")
        assert transaction.exec() == [True, 2]
        with pytest.raises(UpstashError, match="WRONGTYPE"):
            redis.lpush("key", "x")


@on("redis", "valkey")
@pytest.mark.matrix
def test_the_python_rate_limit_works_where_the_store_runs_scripts(gateway: GatewayServer) -> None:
    with Redis(gateway.url, gateway.token) as redis:
        limit = Ratelimit(redis=redis, limiter=FixedWindow(max_requests=2, window=3600, unit="s"))
        assert [limit.limit("user").allowed for _ in range(3)] == [True, True, False]
