"""A key document that a gateway holds its clients to."""

from pydantic import BaseModel

from keystead import Channel, Counter, Hash, Keyspace, Set, SortedSet, Value, after, never, until
from keystead.schema import EpochMs


class Cart(BaseModel):
    items: list[str]
    note: str = ""


class Offer(BaseModel):
    price: int
    ends_at: EpochMs


class ShopKeys(Keyspace):
    """A shop, whose carts belong to users."""

    cart = Value("cart:{uid:int}", Cart, lifetime=after("1h"), doc="the cart of a user")
    item = Value("item:{uid:int}:{name}", str, lifetime=after("1h"), doc="an item of a user")
    offers = SortedSet("offers", str, lifetime=never("pruned with the offers"), doc="the offers by price")
    offer = Value("offer:{name}", Offer, lifetime=until("ends_at", at_most="7d"), doc="an offer until it ends")
    visits = Counter("visits:{day}", lifetime=after("2d"), doc="visits by day")
    tags = Set("tags:{name}", str, lifetime=never("removed with the item"), doc="tags of an item")
    profile = Hash("profile:{uid:int}", dict[str, str], lifetime=after("30d"), doc="what a user told us")
    news = Channel("news:{uid:int}", str, doc="news for a user")
