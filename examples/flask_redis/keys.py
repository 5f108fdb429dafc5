"""The key document: the draft of `keystead infer`, corrected by hand."""

from pydantic import BaseModel

from keystead import Counter, EpochMs, Hash, Keyspace, Value, after, never, sliding


class Login(BaseModel):
    user: str
    since: EpochMs


class ShopKeys(Keyspace):
    """What the shop keeps in Redis."""

    login = Value("login:{token:hex}", Login, lifetime=after("30m"), doc="who is logged in")
    cart = Hash(
        "cart:{user}", dict[str, int], lifetime=sliding("30d", touch_every="1h"), doc="how many of each product"
    )
    views = Counter("views:{sku}", lifetime=never("there are as many as products"), doc="how often a product was seen")
