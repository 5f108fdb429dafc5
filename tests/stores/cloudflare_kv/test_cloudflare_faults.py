"""Answers that are errors, late or not Cloudflare's: clear errors, and nothing is sent twice that must not be."""

from typing import Any

import pytest

from keystead import connect
from keystead.errors import StoreError, StoreRefused, StoreUnavailable
from tests.servers import CloudflareServer, free_port

pytestmark = pytest.mark.anyio


def fail(server: CloudflareServer, kind: str, times: int = 1, **fault: Any) -> None:
    server.control(faults=[{"kind": kind, "times": times, **fault}])


def quick(server: CloudflareServer) -> str:
    return server.url_with("timeout=500ms", "write_interval=1ms")


async def test_a_read_that_fails_is_sent_again(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        await store.run([("SET", "a", "1")])
        fail(server, "POST /bulk/get", 2, status=500)
        assert await store.run([("GET", "a")]) == [b"1"]
        assert server.requests["POST /bulk/get"] == 3


@pytest.mark.parametrize("applies", [False, True])
async def test_a_write_whose_answer_is_an_error_has_an_unknown_outcome_and_is_sent_once(
    server: CloudflareServer, applies: bool
) -> None:
    async with connect(server.url) as store:
        fail(server, "PUT /bulk", status=502, applies=applies)
        with pytest.raises(StoreUnavailable, match="status 502") as raised:
            await store.run([("SET", "a", "1")])
        assert raised.value.outcome == "unknown"
        assert server.requests["PUT /bulk"] == 1
        assert await store.run([("GET", "a")]) == [b"1" if applies else None]


async def test_a_write_that_is_refused_for_the_rate_is_sent_again(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        fail(server, "PUT /bulk", 2, status=429)
        await store.run([("SET", "a", "1")])
        assert server.requests["PUT /bulk"] == 3
        assert await store.run([("GET", "a")]) == [b"1"]


async def test_a_retry_after_beyond_the_time_limit_is_an_error_at_once(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        for kind, command in (("PUT /bulk", ("SET", "a", "1")), ("POST /bulk/get", ("GET", "a"))):
            fail(server, kind, status=429, headers={"retry-after": "3600"})
            with pytest.raises(StoreUnavailable, match=r"limits the rate.* after 3600 s") as raised:
                await store.run([command])
            assert raised.value.outcome == "not-sent"
            assert server.requests[kind] == 1


async def test_a_server_that_hangs_ends_with_the_time_limit(server: CloudflareServer) -> None:
    async with connect(quick(server)) as store:
        for kind, command, outcome in (
            ("PUT /bulk", ("SET", "a", "1"), "unknown"),
            ("POST /bulk/get", ("GET", "a"), "not-sent"),
            ("GET /keys", ("DBSIZE",), "not-sent"),
        ):
            fail(server, kind, 9, delayMs=20_000)
            with pytest.raises(StoreUnavailable) as raised:
                await store.run([command])
            assert raised.value.outcome == outcome
        server.control(faults=[])
        assert await store.run([("GET", "b")]) == [None]


@pytest.mark.parametrize("body", ["", "<html>", "[]", '{"success": true}', '{"success": true, "result": 5}', "nan" * 9])
async def test_an_answer_that_is_not_cloudflares_is_an_error_and_never_a_missing_key(
    server: CloudflareServer, body: str
) -> None:
    async with connect(server.url) as store:
        await store.run([("SET", "a", "1")])
        for kind, command in (("POST /bulk/get", ("GET", "a")), ("GET /keys", ("DBSIZE",))):
            fail(server, kind, status=200, body=body)
            with pytest.raises(StoreUnavailable, match="check the option api"):
                await store.run([command])


async def test_a_token_that_was_revoked_is_an_error_of_every_caller(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        fail(server, "PUT /bulk", status=401, body="{}")
        with pytest.raises(StoreRefused, match="rejects the token"):
            await store.run([("SET", "a", "1"), ("SET", "b", "1")])
        fail(server, "POST /bulk/get", status=403, body="{}")
        with pytest.raises(StoreRefused, match="may not do this") as raised:
            await store.run([("GET", "a"), ("GET", "b")])
        assert raised.value.replies is not None
        assert all(isinstance(reply, StoreError) for reply in raised.value.replies)


async def test_keys_that_cloudflare_reports_as_unwritten_are_errors_of_their_callers(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        body = '{"success": true, "result": {"successful_key_count": 1, "unsuccessful_keys": ["a"]}}'
        fail(server, "PUT /bulk", status=200, body=body)
        with pytest.raises(StoreUnavailable, match="not written completely") as raised:
            await store.run([("SET", "a", "1"), ("SET", "b", "1")])
        assert raised.value.replies is not None
        assert raised.value.replies[1] == b"OK"


async def test_a_server_that_is_down_is_an_error_before_anything_is_sent() -> None:
    url = f"cloudflare-kv://:token@account/keys?api=http://127.0.0.1:{free_port()}/client/v4&connect_timeout=200ms"
    with pytest.raises(StoreUnavailable, match="unreachable") as raised:
        await connect(url).open()
    assert raised.value.outcome == "not-sent"
