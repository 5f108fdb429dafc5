"""The key document of the shop: `keystead docs fruitshop.keys:ShopKeys`."""

from pydantic import BaseModel

from keystead import Counter, Hash, Keyspace, Steps, Value, after, never, procedure
from keystead.parts.datasessions import data_session_keys
from keystead.parts.limit import Limited

SessionKeys = data_session_keys(prefix="shop", creations="100/minute")  # for `keystead check` and `keystead doctor`


class Item(BaseModel):
    sku: str
    amount: int


class Order(BaseModel):
    items: list[Item]
    cents: int


class ShopKeys(Keyspace):
    """Stock, orders, and what a sign-in by code needs."""

    stock = Counter("shop:stock:{sku:slug}", lifetime=never("inventory"), doc="how many are left")
    orders = Hash(
        "shop:orders:{user}", dict[str, Order], lifetime=after("90d"), member_of="user:{user}", doc="orders by number"
    )
    left_cart = Value(
        "shop:cart:{user}",
        dict[str, int],
        lifetime=after("30d"),
        member_of="user:{user}",
        doc="the cart at the last sign-out",
    )
    code = Value("shop:code:{digest:token}", str, lifetime=after("10m"), doc="digest of e-mail and code -> e-mail")
    code_requests = Limited("shop:limit:send:{client}", "5/10m", doc="codes that a client address asked for")
    guesses = Limited("shop:limit:guess:{email}", "5/10m", doc="codes that somebody tried for an address")

    @procedure
    def buy(self, user: str, number: str, order: Order) -> Steps[bool]:
        """Take all items from the stock and write the order, or do nothing: the stock never goes below zero.

        A second click sends the same number, and buys nothing again.
        """
        written = self.orders(user).add_field(number, order)
        return Steps(
            written.otherwise("ordered"),
            *(self.stock(item.sku).at_least(item.amount).otherwise(item.sku) for item in order.items),
            *(self.stock(item.sku).decrement(item.amount) for item in order.items),
        ).giving(written)
