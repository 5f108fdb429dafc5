"""Bearer tokens with real applications and servers: a revocation takes effect in all processes."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from keystead import connect
from keystead.errors import BadDeclaration
from keystead.integrations.asgi import BearerMiddleware
from keystead.parts.jwt import SigningKeys
from tests import servers
from tests.integrations.serving import Served, serving
from tests.parts.admission.conftest import App
from tests.serving import wait_until

MODULE = "tests.integrations.bearer_apps"
KEYS = f"k1:{SigningKeys.new_key('EdDSA')}"
INVALID = 'Bearer realm="api", error="invalid_token", error_description="The token is invalid, expired or revoked."'


def send_request(served: Served, path: str, token: str | None = None, method: str = "GET") -> httpx2.Response:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return httpx2.request(method, f"{served.url}{path}", headers=headers, timeout=300)


def log_in(served: Served, user: int) -> str:
    token: str = send_request(served, f"/login?user={user}", method="POST").json()["token"]
    return token


def is_refused(answer: httpx2.Response) -> bool:
    return (answer.status_code, answer.headers.get("www-authenticate")) == (401, INVALID)


@pytest.mark.everyday("redis")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_token_revoked_at_one_server_is_refused_at_the_other_even_after_a_restart(kind: str, tmp_path: Path) -> None:
    with ExitStack() as ends:
        store, redis = f"sqlite:///{tmp_path}/kept.db", None
        if kind == "redis":
            redis = ends.enter_context(servers.redis("--appendonly", "yes", "--appendfsync", "always"))
            store = f"{redis.url}?timeout=1s&connect_timeout=300ms"
        one = ends.enter_context(serving(tmp_path, "starlette", module=MODULE, store=store, keys=KEYS))
        other = ends.enter_context(serving(tmp_path, "litestar", module=MODULE, store=store, keys=KEYS))
        first, second, third = log_in(one, 42), log_in(other, 42), log_in(one, 7)
        assert send_request(other, "/me", first).json() == {"user": "user 42", "sub": "42"}
        assert send_request(one, "/logout", first, "POST").json() == {"ended": True}
        assert is_refused(send_request(other, "/me", first))
        assert send_request(other, "/me", second).status_code == 200
        assert send_request(one, "/logout-all", second, "POST").json() == {"ended": True}
        assert is_refused(send_request(other, "/me", second))
        assert is_refused(send_request(one, "/logout", second, "POST"))
        assert send_request(one, "/me", log_in(one, 42)).status_code == 200  # the next login
        if redis is not None:
            redis.kill()
            away = send_request(other, "/me", third)
            assert (away.status_code, away.json()["code"]) == (503, "STORE_UNAVAILABLE")
            assert away.headers["retry-after"] == "1"
            assert "www-authenticate" not in away.headers
            assert is_refused(send_request(other, "/me", "made.up.token"))  # for that nobody is asked
            redis.restart()
            wait_until(lambda: send_request(other, "/me", third).status_code == 200, "the store is back")
        else:
            other = ends.enter_context(serving(tmp_path, "litestar", module=MODULE, store=store, keys=KEYS))
        for token in (first, second):
            assert is_refused(send_request(other, "/me", token))


def test_only_admitted_requests_reach_the_application(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/kept.db"
    with serving(tmp_path, "starlette", module=MODULE, store=store, keys=KEYS, required=False) as served:
        token = log_in(served, 42)
        assert send_request(served, "/me").json() == {"user": None}
        assert is_refused(send_request(served, "/me", f"{token}x"))  # a token that does not count is none in no case
        assert "no user was admitted here" in send_request(served, "/login/unseen", token).json()["error"]
        assert send_request(served, "/login-as").json() == {"reached": True}
        in_the_address = send_request(served, f"/me?access_token={token}")
        assert in_the_address.json() == {"user": None}
        two = httpx2.get(f"{served.url}/me", headers=[("authorization", f"Bearer {token}")] * 2)
        assert two.status_code == 400
        assert token not in served.said
    with serving(tmp_path, "starlette", module=MODULE, store=store, keys=KEYS, realm="team") as served:
        nothing = send_request(served, "/me")
        assert nothing.status_code == 401
        assert nothing.json() == {
            "ok": False,
            "error": "Send a token in the header Authorization: Bearer.",
            "code": "NO_TOKEN",
        }
        assert nothing.headers["www-authenticate"] == 'Bearer realm="team"'
        assert nothing.headers["cache-control"] == "no-store"
        assert send_request(served, "/login-as").status_code == 401  # it is not below /login
        assert send_request(served, "/login/unseen").status_code == 200


async def test_a_refused_websocket_is_closed_before_it_is_accepted() -> None:
    """The close becomes a 403, with a WebSocket close code."""
    async with connect("memory://") as store:
        own = App({"default": store})
        reached: list[str] = []

        async def app(scope: dict[str, object], receive: object, send: object) -> None:
            state = scope["state"]
            assert isinstance(state, dict)
            reached.append(state["admitted"].user.name)

        async def socket(token: str) -> list[dict[str, object]]:
            sent: list[dict[str, object]] = []

            async def send(message: object) -> None:
                assert isinstance(message, dict)
                sent.append(message)

            headers = [(b"authorization", f"Bearer {token}".encode())]
            middleware = BearerMiddleware(app, admission=own.admission)
            await middleware({"type": "websocket", "path": "/", "headers": headers}, None, send)  # type: ignore[arg-type]
            return sent

        assert await socket(own.token()) == []
        assert reached == ["Ann"]
        assert await socket("made.up.token") == [{"type": "websocket.close", "code": 1008, "reason": "INVALID_TOKEN"}]
        assert reached == ["Ann"]


@pytest.mark.parametrize("skip", ["/login", ["login"]])
def test_skip_takes_a_list_of_paths(skip: object) -> None:
    with pytest.raises(BadDeclaration, match="takes paths"):
        BearerMiddleware(None, admission=None, skip=skip)  # type: ignore[arg-type]
