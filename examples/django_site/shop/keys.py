"""The key document of the shop. Django finds it by its name."""

from keystead import Counter, Keyspace, Steps, Value, after, never, procedure
from keystead.integrations.django import CachedPage
from keystead.parts.decorators import Cached, Limited


class ShopKeys(Keyspace):
    """Stock, orders, and what protects the pages of the shop."""

    stock = Counter("shop:stock:{sku}", lifetime=never("inventory"), tag="sku", doc="how many are left")
    order = Value("shop:order:{sku}:{number}", str, lifetime=after("90d"), tag="sku", doc="who bought it")
    searches = Limited("shop:limit:{client}", "10/minute", doc="searches of a client in a minute")
    page = Cached("shop:page:{path<=200}", CachedPage, lifetime=after("1m"), doc="a page for everybody")

    @procedure
    def buy(self, sku: str, number: str, buyer: str) -> Steps[int]:
        """Take one from the stock and write the order, if one is left: one atomic step."""
        left = self.stock(sku).decrement()
        return Steps(
            self.stock(sku).at_least(1).otherwise("sold out"),
            self.order(sku, number).add(buyer).required(),
            left,
        ).giving(left)
