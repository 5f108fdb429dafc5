"""Unreadable content: one log line with the family and the code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from keystead.errors import Unreadable
from keystead.stores import Store

if TYPE_CHECKING:
    from keystead.schema.keyspace import Keyspace

_log = logging.getLogger("keystead.schema")

# The keyspaces in use, by store: an error has its key, and only they know the family of a key. Used only for
# unreadable content, so that no other access pays for it.
_in_use: WeakKeyDictionary[Store, WeakSet[Keyspace]] = WeakKeyDictionary()

NO_FAMILY = "(no family)"


def remember(keys: Keyspace) -> None:
    """Register this keyspace, so that the log can name its families, for as long as it is in use."""
    for store in keys.stores:
        _in_use.setdefault(store, WeakSet()).add(keys)


def log_unreadable(store: Store | None, error: Unreadable) -> None:
    """Log one line for this error, and set its family. Another call with the same error does nothing.

    The line never contains the key, which may be a secret, nor the content.
    """
    if error.family:
        return
    try:
        error.family = _family_of(store, error.key)
    except RuntimeError:  # a keyspace was created in another thread at this moment
        error.family = NO_FAMILY
    _log.warning(
        "%s has unreadable content (%s); `keystead doctor` explains it",
        error.family,
        error.code,
        extra={"family": error.family, "code": error.code},
    )


@contextmanager
def logging_unreadable(store: Store) -> Iterator[None]:
    """Log and re-raise Unreadable errors of the block."""
    try:
        yield
    except Unreadable as error:
        log_unreadable(store, error)
        raise


def _family_of(store: Store | None, key: Any) -> str:
    stores = list(_in_use) if store is None else [store]
    for keys in (keys for one in stores for keys in list(_in_use.get(one, ()))):
        for bound in keys.bounds():
            if key is not None and (store is None or bound.store is store) and bound.parse(key) is not None:
                return f"{type(keys).__name__}.{bound.family.name}"
    return NO_FAMILY
