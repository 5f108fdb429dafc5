"""Two `keystead serve` processes on one Redis, as in production behind a load balancer."""

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests import servers
from tests.kits.login.browsing import ACCOUNT, BASE, JSON, RING, login_table
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in
from tests.serving import Keystead, keystead_serving, wait_until


def toml(table: dict[str, Any], name: str) -> str:
    """A table of texts, and the tables in it."""
    own = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    inner = [toml(value, f"{name}.{key}") for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([f"[{name}]", *own, *inner])


@contextmanager
def two_servers(folder: Path, store: str, table: dict[str, Any]) -> Iterator[list[Keystead]]:
    with ExitStack() as stack:
        found = []
        for name in ("one", "two"):
            own = folder / name
            own.mkdir(parents=True)
            (own / "keystead.toml").write_text(toml(table, "login"))
            serving = keystead_serving(own, store, "--kits", "login", KEYSTEAD_PUBLIC_URL=BASE, KEYSTEAD_SEAL_KEYS=RING)
            found.append(stack.enter_context(serving))
        yield found


async def test_a_login_spans_two_processes_and_twenty_requests_refresh_once(
    tmp_path: Path, redis_server: servers.Server, redis_url: str, provider: OidcProvider, front: Front
) -> None:
    with two_servers(tmp_path, redis_url, login_table(provider, front)) as (one, two):
        async with httpx2.AsyncClient(headers=JSON, trust_env=False) as http:
            started = await http.get(f"{one.url}/api/auth/discord/start")
            parts = urlsplit(await log_in(started.json()["authorizeUrl"], ACCOUNT))
            finished = await http.get(f"{two.url}{parts.path}?{parts.query}")
            assert finished.status_code == 200, finished.text
            replayed = await http.get(f"{one.url}{parts.path}?{parts.query}")
            assert replayed.json()["code"] == "STATE_INVALID"

            for ver in (2, 3):
                expire_tokens(redis_server)
                answers = await asyncio.gather(
                    *(http.get(f"{server.url}/api/auth/me") for server in (one, two) for _ in range(10))
                )
                assert {answer.status_code for answer in answers} == {200}
                assert front.refreshes() == ver - 1
                assert session(redis_server)["ver"] == ver

            logout = await http.post(f"{one.url}/api/auth/logout", headers={"origin": BASE})
            assert logout.json() == {"ok": True}
            assert (await http.get(f"{two.url}/api/auth/me?soft=1")).json()["loggedIn"] is False
            assert redis_server.ask("KEYS", "sess:*") == []
        said = one.said + two.said
        assert not re.search("Traceback|WARNING|ERROR", said), said


async def test_fifty_requests_at_two_processes_send_a_spent_refresh_token_once(
    tmp_path: Path, redis_server: servers.Server, redis_url: str, provider: OidcProvider, front: Front
) -> None:
    with two_servers(tmp_path, redis_url, login_table(provider, front)) as (one, two):
        async with httpx2.AsyncClient(headers=JSON, trust_env=False) as http:
            await signed_in(http, one)
            expire_tokens(redis_server)
            front.refusing = "invalid_grant"
            for _ in range(2):
                answers = await asyncio.gather(
                    *(http.get(f"{server.url}/api/auth/me") for server in (one, two) for _ in range(25))
                )
                assert {answer.status_code for answer in answers} == {200}
            assert [one.json()["providerSignInRequired"] for one in answers] == [True] * 50
            assert front.refreshes() == 1
            assert redis_server.ask("KEYS", "lock:*") == []


async def test_a_revocation_survives_a_killed_process(
    tmp_path: Path, redis_server: servers.Server, redis_url: str, provider: OidcProvider, front: Front
) -> None:
    with two_servers(tmp_path, redis_url, login_table(provider, front)) as (one, two):
        two.stop()
        async with httpx2.AsyncClient(headers=JSON, trust_env=False) as http:
            await signed_in(http, one)
            front.down = True
            assert (await http.post(f"{one.url}/api/auth/logout", headers={"origin": BASE})).json() == {"ok": True}
            one.stop(signal.SIGKILL)
    front.down = False
    assert len(redis_server.ask("KEYS", "outbox:queue:login-revoke:*")) == 1
    # Time passes: the lease of whoever was killed ends, and so does the wait after an attempt in vain.
    for key in redis_server.ask("KEYS", "outbox:lease:*") + redis_server.ask("KEYS", "outbox:trouble:*"):
        redis_server.ask("DEL", key)
    for member in redis_server.ask("ZRANGE", "outbox:waiting", "0", "-1"):
        redis_server.ask("ZADD", "outbox:waiting", "0", member)
    with two_servers(tmp_path / "again", redis_url, login_table(provider, front)):
        await front.until_revoked(2)
        forgotten = "the tokens are forgotten"
        await asyncio.to_thread(wait_until, lambda: not redis_server.ask("KEYS", "login:revoke:*"), forgotten)
    events = [json.loads(fields[1])["event"] for _, fields in redis_server.ask("XRANGE", "audit:login", "-", "+")]
    assert events == ["signed-in", "signed-out"]


async def signed_in(http: httpx2.AsyncClient, server: Keystead) -> None:
    started = await http.get(f"{server.url}/api/auth/discord/start")
    parts = urlsplit(await log_in(started.json()["authorizeUrl"], ACCOUNT))
    assert (await http.get(f"{server.url}{parts.path}?{parts.query}")).status_code == 200


def session(server: servers.Server) -> dict[str, Any]:
    [key] = server.ask("KEYS", "sess:*")
    read: dict[str, Any] = json.loads(server.ask("GET", key))
    return read


def expire_tokens(server: servers.Server) -> None:
    [key] = server.ask("KEYS", "sess:*")
    server.ask("SET", key, json.dumps({**session(server), "access_expires_at": 1_700_000_000_000}), "KEEPTTL")
