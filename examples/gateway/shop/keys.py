"""The key document."""

from pydantic import BaseModel

from keystead import Counter, Keyspace, Set, Value, after


class Profile(BaseModel):
    name: str
    plan: str = "free"


class ShopKeys(Keyspace):
    """A shop: who its customers are, what they wish for, and how often pages are viewed."""

    profile = Value("profile:{uid:int}", Profile, lifetime=after("30d"), doc="who a customer is")
    wishes = Set("wishes:{uid:int}", str, lifetime=after("90d"), doc="the items that a customer wishes for")
    views = Counter("views:{page}", lifetime=after("1d"), doc="views of a page, for a day")
