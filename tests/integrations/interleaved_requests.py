"""Requests of a web framework in every order of their steps in the store.

The requests run in threads, as in a server. Their store is a `Gated` one in the loop of synchronous callers, which lets
one call through at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from keystead import connect, wait
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import Actor, Gated, every_order, in_order

Request = Callable[[], Any]
SWITCHES = 3  # how often the turn goes over: no known defect of this kind needs more

WORK = ("save", "touch", "rotate", "refresh", "read")
ENDS = ("logout", "revoke-all", "expire")


class Site:
    """One application on an empty store. A subclass sends the requests of its framework."""

    def __init__(self) -> None:
        self.inner = connect("memory://")
        self.store = Gated(self.inner)
        self.clock = Clock()
        self.refused: list[str] = []
        """The actions that were answered by an error."""

    def send(self, action: str, cookie: str = "") -> tuple[str, Any]:
        """One request with this cookie: the cookie that the browser has afterwards, and the JSON of the response.

        The actions: sign-in, those of `WORK` and `ENDS`, `set/<name>`, names, whoami, and count: of ann's sessions.
        """
        raise NotImplementedError

    def expire(self) -> None:
        self.clock.pass_ms(40 * 86_400_000)

    async def stored(self) -> set[str]:
        return {key.decode() async for page in self.inner.scan() for key in page}

    async def _both(self, requests: dict[Actor, Request], first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        def program(actor: Actor) -> Callable[[], Any]:
            return lambda: asyncio.to_thread(requests[actor])

        order, self.results = await in_order(self.store, {"a": program("a"), "b": program("b")}, first)
        return order


def check_pairing(make: Callable[[], Site], work: str, end: str) -> int:
    """An end is final whatever is under way: in each order of both requests no session, old or new, is alive after it.

    Returns the number of orders.
    """

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        site = make()
        cookie, _ = await asyncio.to_thread(site.send, "sign-in")
        site.clock.pass_ms(5 * 60_000)  # so that a touch is due
        changed: list[str] = []

        def ending() -> None:
            if end == "expire":
                site.expire()
                site.send("touch", cookie)
            else:
                site.send(end, cookie)

        requests: dict[Actor, Request] = {"a": lambda: changed.append(site.send(work, cookie)[0]), "b": ending}
        order = await site._both(requests, first)
        for one in (cookie, *changed):
            assert (await asyncio.to_thread(site.send, "whoami", one))[1] is None, (work, end, order)
        assert (await asyncio.to_thread(site.send, "count"))[1] == 0, (work, end, order)
        # A request that found no session may have begun an anonymous one. Nothing is left of the one that ended.
        ended = cookie.split(".")[0]
        left = {key for key in await site.stored() if ":end:" not in key and (ended in key or ":user:ann:" in key)}
        assert left == set(), (work, end, order)
        await site.inner.close()
        return order

    return wait(every_order(one, switches=SWITCHES))


def check_lost_updates(make: Callable[[], Site]) -> int:
    """Two requests that change different keys of a session both survive, in each order. Returns their number."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        site = make()
        cookie, _ = await asyncio.to_thread(site.send, "sign-in")
        site.clock.pass_ms(5 * 60_000)
        actions: dict[Actor, Request] = {
            "a": lambda: site.send("set/apple", cookie),
            "b": lambda: site.send("set/pear", cookie),
        }
        order = await site._both(actions, first)
        assert (await asyncio.to_thread(site.send, "names", cookie))[1] == ["apple", "pear"], order
        await site.inner.close()
        return order

    return wait(every_order(one, switches=SWITCHES))


def check_tabs_at_sign_in(make: Callable[[], Site]) -> int:
    """A tab with the anonymous token, during and right after a sign-in in another tab, gets no token of a new session,
    which would replace the user's in the browser. What it could not store is answered by an error. Returns the number
    of orders."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        site = make()
        cookie, _ = await asyncio.to_thread(site.send, "set/apple")
        cookies: dict[Actor, str] = {}

        def act(actor: Actor, action: str) -> None:
            cookies[actor], _ = site.send(action, cookie)

        order = await site._both({"a": lambda: act("a", "sign-in"), "b": lambda: act("b", "set/pear")}, first)
        await asyncio.to_thread(act, "b", "set/plum")  # the browser is about to have the new token
        assert cookies["b"] == cookie, order
        assert (await asyncio.to_thread(site.send, "whoami", cookies["a"]))[1] == "ann", order
        names = (await asyncio.to_thread(site.send, "names", cookies["a"]))[1]
        assert "apple" in names, order
        assert "pear" in names or "set/pear" in site.refused, order
        assert "set/plum" in site.refused, order
        assert (await asyncio.to_thread(site.send, "sign-in", cookie))[0] not in ("", cookie), "a sign-in gets its own"
        site.clock.pass_ms(60_000)
        assert (await asyncio.to_thread(site.send, "set/plum", cookie))[0] != cookie, "a visitor again"
        await site.inner.close()
        return order

    return wait(every_order(one, switches=SWITCHES))
