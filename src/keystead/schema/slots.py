"""What one atomic step of a store may span."""

from __future__ import annotations

from collections.abc import Sequence

from keystead.stores import Store
from keystead.stores.store_contract import Step, keys_of


def one_step(store: Store, *keys: str) -> bool:
    """Whether these keys can be part of one atomic step: always, except across slots of a cluster."""
    return store.guarantees.atomic == "any keys" or len({slot_name(store, key) for key in keys}) == 1


def spans_keys(store: Store) -> bool:
    """Whether an atomic step may span several keys: any, or those of one slot."""
    return store.guarantees.atomic in ("any keys", "one slot")


def has_slots(store: Store) -> bool:
    """Whether keys that are changed atomically need the same hash tag."""
    return store.guarantees.atomic == "one slot"


def slots_of(store: Store, steps: Sequence[Step]) -> set[str]:
    """The names of the slots that these steps touch. A message has none."""
    return {slot_name(store, key) for step in steps for key in keys_of(step)}


def slot_name(store: Store, key: str | bytes) -> str:
    """The hash tag, or the key itself: keys with the same slot name can be changed atomically."""
    text = key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")
    if not has_slots(store):
        return text
    _, opened, rest = text.partition("{")
    tag, closed, _ = rest.partition("}")
    return tag if opened and closed and tag else text
