"""Many keys of one person."""

from keystead.schema import Keyspace, Value, after


class WishKeys(Keyspace):
    """Wishes."""

    wish = Value(
        "wish:{uid}:{number:int}", str, lifetime=after("7d"), member_of="shop:{uid}", doc="A wish of a customer."
    )
