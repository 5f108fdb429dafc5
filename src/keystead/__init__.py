"""Keystead: declare each key once, and get typed, atomic, expiring state on SQLite, Redis and more.

This module exports what an application needs first. Errors are in `keystead.errors`, other declarations in
`keystead.schema`, guards and messages in `keystead.stores`, and each part in its own module of `keystead.parts`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keystead.deprecation import forward_old_names

if TYPE_CHECKING:
    from keystead.errors import KeysteadError
    from keystead.parts.cache import Cache
    from keystead.parts.limit import RateLimit
    from keystead.parts.lock import Lock
    from keystead.parts.sessions import Policy, SessionRecord, Sessions
    from keystead.schema import (
        Channel,
        Counter,
        Hash,
        KeyRing,
        Keyspace,
        List,
        Log,
        Sealed,
        Set,
        SortedSet,
        Steps,
        Value,
        after,
        attempts,
        end_of_day,
        link,
        never,
        procedure,
        sliding,
        until,
    )
    from keystead.stores import Store, connect
    from keystead.stores.synchronous import wait

__version__ = "1.0.0rc1"

__all__ = [
    "Cache",
    "Channel",
    "Counter",
    "Hash",
    "KeyRing",
    "Keyspace",
    "KeysteadError",
    "List",
    "Lock",
    "Log",
    "Policy",
    "RateLimit",
    "Sealed",
    "SessionRecord",
    "Sessions",
    "Set",
    "SortedSet",
    "Steps",
    "Store",
    "Value",
    "after",
    "attempts",
    "connect",
    "end_of_day",
    "link",
    "never",
    "procedure",
    "sliding",
    "until",
    "wait",
]

# Lazy imports: a program that only reads a key does not wait for the parts, and `keystead --help` for nothing.
_HOMES: Final = {
    "Cache": "keystead.parts.cache",
    "KeysteadError": "keystead.errors",
    "Lock": "keystead.parts.lock",
    "Policy": "keystead.parts.sessions",
    "RateLimit": "keystead.parts.limit",
    "SessionRecord": "keystead.parts.sessions",
    "Sessions": "keystead.parts.sessions",
    "Store": "keystead.stores",
    "connect": "keystead.stores",
    "wait": "keystead.stores.synchronous",
}

# New homes of names that were importable from here before 0.2. Until 0.3 they still are, with a DeprecationWarning.
_MOVED: Final = {
    "keystead.errors": """
        BadArgument BadDeclaration BadKey BadLifetime BadOption BadUrl BadValue CommandError Contended CrossSlot
        DoesNotFit KeyTooLong MissingExtra NotANumber StoreClosed StoreDamaged StoreError StoreFull StoreReadOnly
        StoreRefused StoreUnavailable UnknownCommand Unreadable WrongArity WrongEventLoop WrongKind
    """,
    "keystead.schema": """
        VALUE BigInt Codec Done EpochMs EpochSeconds IsoSeconds IsoTime LogEntry OmittedIfNone Operation Pattern
        Plan Procedure Versions packed placeholder
    """,
    "keystead.stores": "Guarantees Message Outcome absent at_most field_holds holds more_than required still store_ms",
}


_moved = forward_old_names(
    __name__, {name: f"{module}.{name}" for module, names in _MOVED.items() for name in names.split()}, stacklevel=3
)


def __getattr__(name: str) -> Any:
    if name in ("errors", "schema", "stores"):
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        return _moved(name)
    found = globals()[name] = getattr(import_module(_HOMES.get(name, "keystead.schema")), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
