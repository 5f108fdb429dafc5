"""`request.session` in parallel requests: in every order of their calls to the store, and on every store."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from keystead import Store, connect
from keystead.integrations.asgi import (
    RequestSession,
)
from keystead.parts.datasessions import DataSessions, Policy, data_session_keys
from tests.every_store import mariadb_server, on, postgres_server, store, stores
from tests.integrations.request_apps import app_with, asked, browser_of
from tests.parts.sessions.relays import Actor, Gated, Slots, every_order, in_order
from tests.real_servers import redis_server, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

more: list[Any] = [pytest.param(name, marks=pytest.mark.matrix) for name in ("cluster", "postgres", "mariadb")]
everywhere = on("memory", "redis", "sqlite", *more)


Check = Callable[[dict[Actor, httpx2.Response], httpx2.AsyncClient], Any]


async def in_every_order_of(
    make_store: Callable[[], Any], switches: int | None, begin: Sequence[str], paths: dict[Actor, str], check: Check
) -> int:
    """Two requests of one browser, in every order of their calls to the store; each order in an empty one."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        async with make_store() as empty:
            gated = Gated(empty)
            async with browser_of(app_with(store=gated)) as browser:
                for path in begin:
                    assert (await browser.get(path)).status_code == 200
                programs: dict[Actor, Callable[[], Any]] = {
                    actor: partial(browser.get, path) for actor, path in paths.items()
                }
                order, found = await in_order(gated, programs, first)
                await check(found, browser)
        return order

    return await every_order(one, switches=switches)


def in_memory() -> Any:
    return connect("memory://")


# In `make test` the turn goes from one request to the other at most twice.
orders = pytest.mark.parametrize(
    ("make_store", "switches"),
    [
        pytest.param(in_memory, 2, id="memory"),
        pytest.param(in_memory, None, id="memory-all", marks=pytest.mark.matrix),
        pytest.param(Slots, 3, id="slots", marks=pytest.mark.matrix),
    ],
)


@orders
async def test_parallel_requests_that_change_different_keys_both_succeed(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        assert (await asked(browser, "/read"))["data"] == {"kept": "1", "theme": "dark", "language": "ko"}

    paths: dict[Actor, str] = {"a": "/put?theme=dark", "b": "/put?language=ko"}
    assert await in_every_order_of(make_store, switches, ["/put?kept=1"], paths, check) > 2


@orders
async def test_parallel_changes_of_one_key_by_a_function_both_succeed(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        assert {one.json() for one in found.values()} == {True}
        assert sorted((await asked(browser, "/read"))["data"]["cart"]) == ["apple", "nut", "pear"]

    paths: dict[Actor, str] = {"a": "/add?item=apple", "b": "/add?item=pear"}
    assert await in_every_order_of(make_store, switches, ["/add?item=nut"], paths, check) > 5


@orders
@pytest.mark.parametrize("end", ["/sign-out", pytest.param("/clear", marks=pytest.mark.matrix)])
async def test_a_session_that_ends_during_a_request_is_never_revived(
    make_store: Callable[[], Any], switches: int | None, end: str
) -> None:
    """A request that arrives after the end begins a new, anonymous session, without anything of the old one."""

    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        after = await asked(browser, "/read")
        assert after["user"] is None
        assert after["data"] in ({}, {"late": "1"})

    paths: dict[Actor, str] = {"a": end, "b": "/put?late=1"}
    assert await in_every_order_of(make_store, switches, ["/put?secret=1", "/sign-in?user=ann"], paths, check) > 2


@orders
async def test_a_cart_in_two_tabs_survives_sign_in_whenever_that_happens(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    """A request that comes with the old token right after the sign-in is a 503; sent again, it finds its cart."""
    refused = 0

    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        nonlocal refused
        if found["b"].status_code == 503:
            assert (found["b"].json()["code"], found["b"].headers["retry-after"]) == ("CONTENDED", "1")
            assert "set-cookie" not in found["b"].headers
            refused += 1
            await browser.get("/add?item=pear")
        after = await asked(browser, "/read")
        assert (after["user"], after["data"]) == ("ann", {"cart": ["apple", "pear"]})

    paths: dict[Actor, str] = {"a": "/sign-in?user=ann", "b": "/add?item=pear"}
    assert await in_every_order_of(make_store, switches, ["/add?item=apple"], paths, check) > 5
    assert refused > 0


@orders
async def test_two_sign_ins_of_one_browser_both_have_the_cart(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        assert [one.status_code for one in found.values()] == [200, 200]
        for response in found.values():
            browser.cookies = httpx2.Cookies()
            browser.cookies.set("__Host-sid", response.headers["set-cookie"].partition(";")[0].partition("=")[2])
            after = await asked(browser, "/read")
            assert (after["user"], after["data"]) == ("ann", {"cart": ["apple"]})

    paths: dict[Actor, str] = {"a": "/sign-in?user=ann", "b": "/sign-in?user=ann"}
    assert await in_every_order_of(make_store, switches, ["/add?item=apple"], paths, check) > 2


@everywhere
async def test_a_cart_filled_in_two_tabs_is_merged_with_that_of_the_user(store: Store) -> None:
    saved = {"cart": ["honey"]}

    async def check_out(session: RequestSession, request: Request) -> Any:
        session["seen"] = True
        await session.sign_in("ann", lambda data: {**data, "cart": [*saved["cart"], *data["cart"]]})

    async with browser_of(app_with({"check-out": check_out}, store=store)) as browser:
        await browser.get("/add?item=nut")
        tabs = [browser.get(f"/add?item=apple-{n}") for n in range(5)]
        assert {response.status_code for response in await asyncio.gather(*tabs)} == {200}
        anonymous = browser.cookies["__Host-sid"]
        await browser.get("/check-out")
        after = await asked(browser, "/read")
        assert (after["user"], after["data"]["seen"], after["data"]["cart"][:2]) == ("ann", True, ["honey", "nut"])
        assert sorted(after["data"]["cart"][2:]) == [f"apple-{n}" for n in range(5)]
        async with browser_of(app_with(store=store)) as thief:  # the token from before the sign-in
            thief.cookies.set("__Host-sid", anonymous)
            assert (await asked(thief, "/read"))["data"] == {}


@everywhere
@pytest.mark.matrix
async def test_fifty_sign_ins_at_once_respect_the_cap(store: Store) -> None:
    policy = Policy(cap=3)
    app = app_with(store=store, policy=policy)

    async def device(n: int) -> bool:
        async with browser_of(app) as browser:
            await browser.get(f"/put?n={n}")
            assert (await browser.get("/sign-in?user=ann")).status_code == 200
            return bool(browser.cookies["__Host-sid"])

    assert await asyncio.gather(*map(device, range(50))) == [True] * 50
    sessions = DataSessions(data_session_keys(policy)(store), policy)
    assert len(await sessions.list_for("ann")) == 3
