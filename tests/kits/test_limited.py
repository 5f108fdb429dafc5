"""Limits on routes: what a client is told."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import Depends, FastAPI, Request

from keystead import Counter, Keyspace, after, connect
from keystead.http.dependencies import limited
from keystead.parts.limit import FixedWindow, Verdict
from keystead.server.error_responses import add_error_responses


class Keys(Keyspace):
    hits = Counter("limit:{client}", lifetime=after("1m"))
    calls = Counter("limit:{route:slug}:{user}", lifetime=after("1m"))


@pytest.fixture
async def app() -> AsyncIterator[FastAPI]:
    async with connect("memory://") as store:
        keys = Keys(store)
        app = FastAPI()
        add_error_responses(app)
        app.state.limit = FixedWindow(keys.calls, "3/minute")

        @app.get("/reports", dependencies=[Depends(limited(FixedWindow(keys.hits, "2/minute")))])
        async def reports() -> dict[str, bool]:
            return {"ok": True}

        def find(request: Request) -> FixedWindow:
            found: FixedWindow = request.app.state.limit
            return found

        def who(request: Request) -> tuple[str, str]:
            return "search", request.headers["x-user"]

        counted = Depends(limited(find, client=who, by=2))

        @app.get("/search")
        async def search(verdict: Verdict = counted) -> int:
            return verdict.remaining

        yield app


def client_at(app: FastAPI, address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app, client=(address, 1)), base_url="http://test")


async def test_a_route_tells_what_is_left_and_refuses_in_the_shape_of_all_errors(app: FastAPI) -> None:
    async with client_at(app, "2001:db8::1") as client, client_at(app, "2001:db8::2") as neighbour:
        first = await client.get("/reports")
        assert (first.status_code, first.headers["ratelimit-remaining"]) == (200, "1")
        assert first.headers["ratelimit-policy"] == '"hits";q=2;w=60'
        assert "retry-after" not in first.headers
        assert (await neighbour.get("/reports")).headers["ratelimit"].startswith('"hits";r=0;t=')
        refused = await client.get("/reports")
        assert refused.status_code == 429
        body = refused.json()
        assert (body["ok"], body["code"]) == (False, "RATE_LIMITED")
        assert body["retryAfter"] == int(refused.headers["retry-after"])
        assert 55 < body["retryAfter"] <= 60
        assert (refused.headers["cache-control"], refused.headers["ratelimit-remaining"]) == ("no-store", "0")
    async with client_at(app, "2001:db8:0:1::1") as other:
        assert (await other.get("/reports")).status_code == 200


async def test_a_limit_may_be_found_and_its_client_named_by_the_request(app: FastAPI) -> None:
    async with client_at(app, "192.0.2.1") as client:
        assert (await client.get("/search", headers={"x-user": "ann"})).json() == 1
        assert (await client.get("/search", headers={"x-user": "ann"})).status_code == 429
        assert (await client.get("/search", headers={"x-user": "bob"})).json() == 1


async def test_a_route_whose_limit_is_none_lets_everything_through() -> None:
    app = FastAPI()

    def find(request: Request) -> None:
        return None

    @app.get("/free")
    async def free(verdict: Verdict | None = Depends(limited(find))) -> bool:  # noqa: B008
        return verdict is None

    async with client_at(app, "192.0.2.1") as client:
        answer = await client.get("/free")
    assert answer.json() is True
    assert not [name for name in answer.headers if name.startswith("ratelimit")]
