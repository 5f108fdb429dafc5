"""The shop as an application has it: its rate limit is in the module of its keyspace."""

from keystead import connect
from tests.console.shop_keys import ShopKeys, shop_limit

__all__ = ["LIMIT", "ShopKeys"]

LIMIT = shop_limit(ShopKeys(connect("memory://"), needs_seal=False))
