"""A keyspace to look at in the console."""

from pydantic import BaseModel

from keystead.schema import Keyspace, Sealed, Set, SortedSet, Value, after, never, sliding


class Cart(BaseModel):
    owner: str
    items: int = 0
    note: str = ""
    api_key: str = ""


class Login(BaseModel):
    uid: str
    token: Sealed[str] | None = None


class AppKeys(Keyspace):
    """Carts and logins."""

    carts = SortedSet("carts", str, lifetime=never("emptied with the carts"), doc="all carts")
    cart = Value(
        "cart:{uid}", Cart, lifetime=after("1d"), listed_in=carts, owns="draft", member_of="user:{uid}", doc="a cart"
    )
    draft = Value("draft:{uid}", str, lifetime=after("1d"), doc="a draft")
    logins = Set("logins:{uid}", str, lifetime=sliding("30d", touch_every="1m"), doc="the logins of a user")
    login = Value(
        "login:{sid:token}", Login, lifetime=sliding("30d", touch_every="1m"), listed_in=logins, doc="a login"
    )
