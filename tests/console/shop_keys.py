"""A shop: the keyspace of the console's pictures and browser tests, and how to fill it."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from keystead.parts.limit import FixedWindow
from keystead.parts.outbox import GivenUp, OutboxKeys, QueueName, Trouble
from keystead.parts.outbox.outbox_keys import StoredMessage
from keystead.parts.sessions import Policy, SessionRecord, Sessions
from keystead.schema import Counter, Hash, KeyRing, Keyspace, Log, Sealed, Set, SortedSet, Value, after, never, sliding
from keystead.schema import link as relation
from keystead.stores import Store

SEAL_KEYS = "shop:" + "A" * 43
RING = KeyRing.from_text(SEAL_KEYS)
HOSTILE = "<img src=x onerror=document.title='broken'>"


class Cart(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    owner: str
    items: int = 0
    """how many products are in it"""
    state: Literal["open", "paid", "sent"] = "open"
    note: str = ""
    products: list[str] = []


class Visitor(SessionRecord):
    name: str
    refresh_token: Sealed[str] | None = None


class ShopKeys(Keyspace):
    """A shop: carts, stock, visitors and orders."""

    part_keyspaces = (OutboxKeys,)

    carts = SortedSet("shop:carts", str, lifetime=never("emptied with the carts"), doc="All carts, by time.")
    cart = Value(
        "shop:cart:{uid}",
        Cart,
        lifetime=after("7d"),
        listed_in=carts,
        owns=("draft", "seen"),
        member_of="shop:{uid}",
        doc="The cart of a customer.",
    )
    draft = Value("shop:draft:{uid}", str, lifetime=after("7d"), doc="An order that was not sent yet.")
    seen = Set("shop:seen:{uid}", str, lifetime=after("7d"), doc="The products that a customer looked at.")
    stock = Hash("shop:stock:{product}", dict[str, int], lifetime=never("the truth about the stock"), doc="The stock.")
    hits = Counter("shop:hits:{client}", lifetime=after("1m"), doc="Requests of a client in a minute.")
    orders = Log("shop:orders:{day:date}", str, keep=1_000, lifetime=after("30d"), doc="The orders of a day.")
    visits = Set("shop:visits:{uid}", str, lifetime=sliding("30d", touch_every="1h"), doc="The sessions of a customer.")
    visit = Value(
        "shop:visit:{sid:token}",
        Visitor,
        lifetime=sliding("30d", touch_every="1h"),
        listed_in=relation("visits", admits=True),
        tag="sid",
        doc="A session of a customer.",
    )


def shop_limit(keys: ShopKeys) -> FixedWindow:
    return FixedWindow(keys.hits, "100/minute")


def shop_sessions(keys: ShopKeys) -> Sessions[Visitor]:
    return Sessions(keys.visit, Policy(idle="30d", absolute="90d"))


async def fill(store: Store, *, carts: int = 40, orphans: int = 0) -> ShopKeys:
    """Fill a store with a little of everything; `orphans` drafts whose cart is gone."""
    keys = ShopKeys(store, seal=RING)
    for number in range(carts):
        cart = Cart(owner=f"Customer {number}", items=number % 7, products=[f"p-{number}", "p-7"])
        await keys.cart(f"{number}").set(cart)
        await keys.seen(f"{number}").add(f"p-{number}", "p-7")
    await keys.draft("1").set("two lamps, one table")
    await keys.cart(HOSTILE).set(Cart(owner=HOSTILE, note=HOSTILE))
    await keys.draft(HOSTILE).set(HOSTILE)
    for number in range(12):
        await keys.stock(f"p-{number}").set({"store": number * 3, "warehouse": number * 40})
    for number in range(orphans):
        await keys.draft(f"gone-{number}").set("nobody's")
    limit, sessions = shop_limit(keys), shop_sessions(keys)
    for number in range(20):
        await limit.hit(f"10.0.0.{number}")
        await sessions.create(Visitor(uid=f"{number % 5}", name=f"Customer {number % 5}", refresh_token="secret"))
    for number in range(1, 8):
        await keys.orders(date(2026, 11, number)).append(f"order {number}")
    await store.run([("SET", f"legacy:{number}:user", "x") for number in range(9)])
    await store.run([("SET", f"tmp:{number:08x}{HOSTILE}", "x") for number in range(3)])
    await _fill_queue(store)
    return keys


async def _fill_queue(store: Store) -> None:
    outbox, now_ms = OutboxKeys(store), 1_794_000_000_000
    queue: Any = QueueName("webhook", "orders")
    await outbox.queue(*queue).append(StoredMessage(id="msg_1", created_ms=now_ms, payload={"order": 7}))
    await outbox.waiting().put({queue: now_ms})
    trouble = Trouble(
        failures=3, since_ms=now_ms, next_ms=now_ms + 60_000, error="the receiver is down", id="msg_1", attempts=3
    )
    await outbox.trouble(*queue).set(trouble)
    await outbox.given_up(*queue).append(GivenUp(at_ms=now_ms, why="undeliverable", count=1, id="msg_0", attempts=1))
    await outbox.dead(*queue).append(StoredMessage(id="msg_0", created_ms=now_ms, payload={"order": 6}))
