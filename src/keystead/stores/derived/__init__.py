"""Derived commands: what else Redis clients send, in terms of the commands that every store has.

The stores know a small command language (`keystead.stores.commands`). Commands such as SETEX, TTL, APPEND or RENAME are
made of it here, once for all stores, with the semantics of Redis 7. The gateway uses this; the schema does not.
"""

from keystead.stores.derived.derived_command import Attempt, Derived, Exchange, attempts
from keystead.stores.derived.derived_table import DERIVED, derive, run_derived

__all__ = ["DERIVED", "Attempt", "Derived", "Exchange", "attempts", "derive", "run_derived"]
