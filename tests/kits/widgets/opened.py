"""The service without HTTP, as a separate process would open it on a store, and access to the raw keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from keystead import KeyRing, Store
from keystead.kits.kit import Site
from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.service import (
    LIMITS,
    Owner,
    Visitor,
    WidgetRefused,
    Widgets,
    WidgetSettings,
    open_widgets,
)
from keystead.kits.widgets.service.services import Service
from keystead.parts.outbox import OutboxKeys
from keystead.schema.doctor import examine
from keystead.stores import Command
from tests.kits.sharing.visiting import Clock
from tests.parts.sessions.relays import Actor

RING = KeyRing({"test": b"k" * 32})
SITE = "http://127.0.0.1:8713"
URL = "https://example.com/page"
TOKEN, OTHER_TOKEN = "Ann+likes-tea", "Bob+likes-milk"
SERVICES = ("counter", "like", "ranking", "bbs")

_READS: dict[str, Callable[[str], Command]] = {
    "string": lambda key: ("GET", key),
    "set": lambda key: ("SMEMBERS", key),
    "zset": lambda key: ("ZRANGE", key, 0, -1, "WITHSCORES"),
    "hash": lambda key: ("HGETALL", key),
    "list": lambda key: ("LRANGE", key, 0, -1),
    "stream": lambda key: ("XRANGE", key, "-", "+"),
}


class Kept:
    """The raw content of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def ask(self, *command: str | bytes | float) -> Any:
        return (await self.store.run([command]))[0]

    async def keys(self, *, requests: bool = False) -> set[str]:
        """All keys; those that count requests are left out, unless they are wanted."""
        found = {key.decode() async for page in self.store.scan() for key in page}
        return {key for key in found if requests or not key.startswith("widgets:requests:")}

    async def kind(self, key: str) -> str:
        kind: str | bytes = await self.ask("TYPE", key)
        return kind.decode() if isinstance(kind, bytes) else kind

    async def held(self, key: str) -> Any:
        return await self.ask(*_READS[await self.kind(key)](key))

    async def left_ms(self, key: str) -> int:
        left: int = await self.ask("PTTL", key)
        return left

    async def ends_ms(self, key: str) -> int:
        ends: int = await self.ask("PEXPIRETIME", key)
        return ends

    async def everything(self) -> str:
        """All keys and all that they hold, as text."""
        return "\n".join([f"{key} {await self.held(key)!r}" for key in sorted(await self.keys(requests=True))])

    async def empty(self) -> None:
        for key in await self.keys(requests=True):
            await self.ask("DEL", key)


def somebody(number: int = 0) -> Visitor:
    """A visitor, each with an address of their own."""
    return Visitor(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}", "a browser")


ME = somebody(60_000)


def owner(url: str = URL, token: str = TOKEN) -> Owner:
    return Owner(token, url=url)


def settings(**said: Any) -> WidgetSettings:
    return WidgetSettings(**{"limits": dict.fromkeys(LIMITS, 0), **said})


def site(clock: Callable[[], int]) -> Site:
    return Site(SITE, SITE, True, clock, lambda *_, **__: "")


def keys_on(store: Store, clock: Callable[[], int]) -> WidgetKeys:
    return WidgetKeys(store, seal=RING, now_ms=clock)


def service_on(store: Store, clock: Callable[[], int] | None = None, **said: Any) -> Widgets:
    """The service of one process, which delivers nothing."""
    clock = clock or Clock()
    return Widgets(keys_on(store, clock), settings(**said), site(clock), cast("Any", None))


@asynccontextmanager
async def delivering(store: Store, clock: Callable[[], int] | None = None, **said: Any) -> AsyncIterator[Widgets]:
    """The same, and it delivers events."""
    clock = clock or Clock()
    async with open_widgets(keys_on(store, clock), settings(**said), site(clock)) as widgets:
        yield widgets


def service_of(widgets: Widgets, name: str) -> Any:
    service: Service[Any] = widgets.services[name]
    return service


async def used(widgets: Widgets, name: str, id: str, number: int = 1, *, first: int = 0) -> None:
    """Use a widget, once by each visitor."""
    for one in range(first, first + number):
        visitor = somebody(one)
        match name:
            case "counter":
                await widgets.counters.increment(id, visitor)
            case "like":
                await widgets.likes.toggle(id, visitor)
            case "ranking":
                await widgets.rankings.submit(id, visitor, f"player {one}", 100 + one, f"{one} s")
            case "yokoso":
                await widgets.welcomes.get(id, visitor)
            case _:
                await widgets.boards.post(id, visitor, f"message {one}", "Ann")


async def found_by_doctor(store: Store) -> list[str]:
    """The doctor's findings in a store of this kit."""
    clock = Clock()
    report = await examine([keys_on(store, clock), OutboxKeys(store, now_ms=clock)])
    return [str(one.finding) for one in report.found]


class Reason:
    """The reason of a refusal; empty if there was none."""

    def __init__(self) -> None:
        self.word = ""
        self.more: dict[str, Any] = {}
        self.sentence = ""

    def __enter__(self) -> Reason:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, WidgetRefused):
            return False
        more = {"field": error.field, "retry_after_s": error.retry_after_s}
        self.word, self.sentence = error.reason, str(error)
        self.more = {name: value for name, value in more.items() if value is not None}
        return True


async def refused(action: Any) -> str:
    """The reason of a refusal; empty if there was none."""
    with Reason() as reason:
        await action
    return reason.word


def names(entries: Sequence[Any]) -> list[tuple[str, int]]:
    return [(one.name, one.score) for one in entries]


def turns_of(actor: Actor, number: int) -> list[Actor]:
    """For `in_order`: the same one so often in a row."""
    return [actor] * number
