"""A key document that a gateway holds its clients to."""

from pydantic import BaseModel

from keystead import Channel, Counter, Hash, Keyspace, List, Log, Set, SortedSet, Value, after, never, until
from keystead.schema import EpochMs


class Cart(BaseModel):
    items: list[str]
    note: str = ""


class Offer(BaseModel):
    price: int
    ends_at: EpochMs


class Order(BaseModel):
    made_at: EpochMs


class Address(BaseModel):
    city: str
    floor: int = 0


class Notice(BaseModel):
    text: str


class ShopKeys(Keyspace):
    """A shop, whose carts belong to users."""

    cart = Value("cart:{uid:int}", Cart, lifetime=after("1h"), doc="the cart of a user")
    item = Value("item:{uid:int}:{name}", str, lifetime=after("1h"), doc="an item of a user")
    offers = SortedSet("offers", str, lifetime=never("pruned with the offers"), doc="the offers by price")
    offer = Value("offer:{name}", Offer, lifetime=until("ends_at", at_most="7d"), doc="an offer until it ends")
    visits = Counter("visits:{day}", lifetime=after("2d"), doc="visits by day")
    tags = Set("tags:{name}", str, lifetime=never("removed with the item"), doc="tags of an item")
    profile = Hash("profile:{uid:int}", dict[str, str], lifetime=after("30d"), doc="what a user told us")
    address = Hash("address:{uid:int}", Address, lifetime=after("30d"), doc="where a user lives")
    recent = List("recent:{uid:int}", str, keep=3, lifetime=after("1d"), doc="what a user looked at, newest first")
    repairs = Log("repairs:{name}", Notice, keep=3, lifetime=never("the newest three"), doc="repairs of an item")
    orders = SortedSet("orders", str, lifetime=never("emptied with the orders"), doc="the orders by time")
    order = Value(
        "order:{id:alnum}",
        Order,
        lifetime=never("removed by hand"),
        listed_in=orders.by(score="made_at"),
        owns="receipt",
        doc="an order",
    )
    receipt = Value("receipt:{id:alnum}", str, lifetime=after("1h"), doc="what was paid for an order")
    news = Channel("news:{uid:int}", Notice, doc="news for a user")
