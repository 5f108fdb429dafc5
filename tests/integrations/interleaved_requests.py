"""Requests of a web framework in every order of their steps in the store.

The requests run in threads, as in a server, or come to a real server over HTTP. Their store is a `Gated` one in the
loop of synchronous callers, which lets one call through at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from typing import Any, ClassVar

import httpx2
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client

from keystead import connect, wait
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import ACTOR, Actor, Gated, every_order, in_order

Request = Callable[[], Any]
Answer = tuple[int, list[str], Any]  # status, Set-Cookie, JSON
SWITCHES = 3  # how often the turn goes over: no known defect of this kind needs more
FEWER = 2  # on servers and files, and over HTTP

WORK = ("save", "touch", "rotate", "refresh", "read")
ENDS = ("logout", "revoke-all", "expire")


class InProcess:
    """Calls the application in the thread of the caller."""

    def get(self, app: Any, path: str, cookie: str) -> Answer:
        answer = Client(app, use_cookies=False).get(path, headers={"Cookie": cookie})
        return answer.status_code, answer.headers.getlist("Set-Cookie"), answer.get_json(silent=True)


class OverHttp:
    """Sends requests to a server with a thread for each, which passes them to the latest application."""

    def __init__(self, port: int) -> None:
        self.app: Any = None
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def get(self, app: Any, path: str, cookie: str) -> Answer:
        self.app = app
        headers = {"Cookie": cookie, "X-Actor": ACTOR.get("")}
        answer = self._client.get(path, headers=headers)
        self._client.cookies.clear()
        is_json = answer.headers.get("Content-Type") == "application/json"
        return answer.status_code, answer.headers.get_list("Set-Cookie"), answer.json() if is_json else None

    @classmethod
    @contextlib.contextmanager
    def serving(cls) -> Iterator[OverHttp]:
        def serve(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
            if environ["HTTP_X_ACTOR"]:
                ACTOR.set(environ["HTTP_X_ACTOR"])  # each request has a thread of its own
            chunks: Iterable[bytes] = http.app(environ, start)
            return chunks

        class Silent(WSGIRequestHandler):
            def log_request(self, *args: Any) -> None:
                pass

        server = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=Silent)
        http = cls(server.port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield http
        finally:
            http._client.close()
            server.shutdown()
            thread.join()
            server.server_close()


class Site:
    """One application on an empty store. A subclass has the routes of its framework.

    url         `memory://`, `sqlite:///folder`, where each site gets a file of its own, or that of a server
    transport   how requests get to it
    """

    cookie_name: ClassVar[str]
    lost_status: ClassVar[int]
    """of a request whose session ended meanwhile"""
    app: Any
    """a WSGI application with the route `/<action>`, which answers with JSON"""
    _numbers = itertools.count()

    def __init__(self, url: str = "memory://", transport: InProcess | OverHttp | None = None) -> None:
        self.inner = connect(f"{url}/{next(self._numbers)}.db" if url.startswith("sqlite") else url)
        self.store = Gated(self.inner)
        self.clock = Clock()
        self.transport = transport or InProcess()
        self.refused: list[str] = []
        """The actions that were answered by an error."""

    def send(self, action: str, cookie: str = "") -> tuple[str, Any]:
        """One request with this cookie: the cookie that the browser has afterwards, and the JSON of the response.

        The actions: sign-in, those of `WORK` and `ENDS`, `set/<name>`, names, whoami, and count: of ann's sessions.
        """
        sent = f"{self.cookie_name}={cookie}" if cookie else ""
        status, cookies, answer = self.transport.get(self.app, f"/{action}", sent)
        if status == self.lost_status:
            assert cookies == []
            self.refused.append(action)
            return cookie, None
        assert status == 200, (action, status)
        for one in cookies:
            if found := SimpleCookie(one).get(self.cookie_name):
                cookie = found.value
        return cookie, answer["is"]

    def expire(self) -> None:
        self.clock.pass_ms(40 * 86_400_000)

    async def stored(self) -> set[str]:
        return {key.decode() async for page in self.inner.scan() for key in page}

    async def _both(self, requests: dict[Actor, Request], first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        def program(actor: Actor) -> Callable[[], Any]:
            return lambda: asyncio.to_thread(requests[actor])

        order, self.results = await in_order(self.store, {"a": program("a"), "b": program("b")}, first)
        return order


@asynccontextmanager
async def opened(make: Callable[[], Site]) -> AsyncIterator[Site]:
    site = make()
    if left := await site.stored():
        await site.inner.run([("DEL", *left)])
    yield site
    await site.inner.close()


def check_pairing(make: Callable[[], Site], work: str, end: str, switches: int = SWITCHES) -> int:
    """An end is final whatever is under way: in each order of both requests no session, old or new, is alive after it.

    Returns the number of orders.
    """

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        async with opened(make) as site:
            return await in_this(site, first)

    async def in_this(site: Site, first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
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
        return order

    return wait(every_order(one, switches=switches))


def check_lost_updates(make: Callable[[], Site], switches: int = SWITCHES) -> int:
    """Two requests that change different keys of a session both survive, in each order. Returns their number."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        async with opened(make) as site:
            return await in_this(site, first)

    async def in_this(site: Site, first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        cookie, _ = await asyncio.to_thread(site.send, "sign-in")
        site.clock.pass_ms(5 * 60_000)
        actions: dict[Actor, Request] = {
            "a": lambda: site.send("set/apple", cookie),
            "b": lambda: site.send("set/pear", cookie),
        }
        order = await site._both(actions, first)
        assert (await asyncio.to_thread(site.send, "names", cookie))[1] == ["apple", "pear"], order
        return order

    return wait(every_order(one, switches=switches))


def check_tabs_at_sign_in(make: Callable[[], Site], switches: int = SWITCHES) -> int:
    """A tab with the anonymous token, during and right after a sign-in in another tab, gets no token of a new session,
    which would replace the user's in the browser. What it could not store is answered by an error. Returns the number
    of orders."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        async with opened(make) as site:
            return await in_this(site, first)

    async def in_this(site: Site, first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
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
        return order

    return wait(every_order(one, switches=switches))


def check_over_http(make: Callable[[OverHttp], Site]) -> int:
    """One pairing of each way to end, lost updates and tabs at sign-in, by requests to a real server. Returns the
    number of orders."""
    with OverHttp.serving() as http:
        pairs = (("rotate", "logout"), ("save", "revoke-all"), ("refresh", "expire"))
        orders = sum(check_pairing(lambda: make(http), work, end, FEWER) for work, end in pairs)
        return orders + sum(check(lambda: make(http), FEWER) for check in (check_lost_updates, check_tabs_at_sign_in))


def check_bots(make: Callable[[], Site], visits: int = 10_000) -> int:
    """Visits that look at the session, half of them with a made-up cookie, leave no key. Returns how many there are."""
    site = make()
    bogus = ("attackerchosenid", f"{'a' * 43}.{'b' * 43}.dmlzaXRvcg")
    for number in range(visits):
        cookie = bogus[number // 2 % 2] if number % 2 else ""
        assert site.send("whoami", cookie)[1] is None
    left = wait(site.stored())
    wait(site.inner.close())
    return len(left)


def check_cart(make: Callable[[], Site]) -> list[str]:
    """What two tabs of a visitor put into the cart at the same moment, after a sign-in."""

    async def one() -> list[str]:
        async with opened(make) as site:
            cookie, _ = await asyncio.to_thread(site.send, "set/first")
            await asyncio.gather(*(asyncio.to_thread(site.send, f"set/{name}", cookie) for name in ("apple", "pear")))
            signed_in, user = await asyncio.to_thread(site.send, "sign-in", cookie)
            assert (user, signed_in != cookie) == ("ann", True)
            names: list[str] = (await asyncio.to_thread(site.send, "names", signed_in))[1]
            return names

    return wait(one())
