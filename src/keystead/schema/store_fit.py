"""Whether a store has the guarantees that a family needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keystead.errors import DoesNotFit
from keystead.schema.lifetime import After, Lifetime, Sliding, Spread, in_words
from keystead.schema.slots import spans_keys
from keystead.stores import Guarantees, Store

if TYPE_CHECKING:
    from keystead.schema.family import Family
    from keystead.schema.pattern import Pattern

CACHE = "cache"
DURABLE = "durable"
_PACKED = {"Hash": "dict[str, ...] or a model", "Set": "set[...]", "SortedSet": "dict[str, float]", "List": "list[...]"}
SHORT_KEYS = 65_536  # no realistic key reaches a limit beyond this


def misfits(family: Family[Any], guarantees: Guarantees) -> Iterator[str]:
    """Why a store with these guarantees cannot hold this family: a sentence for each reason."""
    if family.kind not in guarantees.kinds:
        yield f"the store does not support {family.kind_name}{_packed_form(family, guarantees)}"
    if family.role != CACHE and family.kind != "channel":
        if guarantees.evicts:
            yield "the store may evict keys, which only the role cache allows"
        if guarantees.consistency == "eventual":
            yield "a read may miss an acknowledged write, which only the role cache allows"
    if guarantees.atomic == "nothing" and family.role != CACHE and family.kind != "channel":
        yield "the store has no atomic steps, so add, replace and consume would not be safe"
    if family.listed_in and guarantees.atomic in ("one key", "nothing"):
        yield "it is listed in an index, but the store cannot write a record and its entry atomically"
    if isinstance(family.lifetime, Sliding) and not guarantees.updates:
        yield "its lifetime is sliding, but the store cannot extend a lifetime without writing the value again"
    shortest_ms = _shortest_ms(family.lifetime)
    if shortest_ms is not None and shortest_ms < guarantees.shortest_lifetime_ms:
        yield (
            f"it lives {in_words(shortest_ms)}, but the shortest lifetime of the store is "
            f"{in_words(guarantees.shortest_lifetime_ms)}"
        )
    yield from family.further_misfits(guarantees)


def _packed_form(family: Family[Any], guarantees: Guarantees) -> str:
    """How a cache of this kind is declared for a store that has only strings: there it is written as a whole."""
    packed = _PACKED.get(family.kind_name)
    if packed is None or family.role != CACHE or "string" not in guarantees.kinds:
        return ""
    return f'; written as a whole it fits, as Value("{family.pattern.text}", {packed}, ...)'


def require_atomic_steps(store: Store, what: str, why: str) -> None:
    """Raise DoesNotFit if a store has no atomic steps on several keys, which `what` needs because of `why`."""
    if not spans_keys(store):
        raise DoesNotFit(f"{what} does not fit {store.url}: {why}, which this store does not have")


def misfits_beside(pattern: Pattern, guarantees: Guarantees, *, one_key_fits: bool = False) -> Iterator[str]:
    """Why a store cannot write a key of this pattern and those beside it in one atomic step."""
    if guarantees.atomic == "one slot" and pattern.tag is None:
        yield "it is written in one step with the keys beside it, so they need one slot; give it a placeholder"
    elif guarantees.atomic == "nothing" or (guarantees.atomic == "one key" and not one_key_fits):
        yield "it is written in one step with the keys beside it, and the store has no atomic steps on two keys"


def has_atomic_steps(guarantees: Guarantees) -> bool:
    """Whether the store has atomic steps, on one key at least, and every later read sees what they did."""
    return guarantees.consistency != "eventual" and guarantees.atomic != "nothing"


def _shortest_ms(lifetime: Lifetime) -> int | None:
    """The shortest TTL of a key, if its lifetime states one."""
    match lifetime:
        case After() | Sliding() if type(lifetime) in (After, Sliding):  # a lifetime of a part states it
            return lifetime.ms
        case Spread():
            return lifetime.shortest_ms
        case _:
            return None


def weaknesses(family: Family[Any], guarantees: Guarantees) -> Iterator[str]:
    """Guarantees that the role states and the store lacks. The program may start; `check` reports them."""
    if family.role == DURABLE and guarantees.durability == "memory":
        yield "its role is durable, but this store loses its data when it stops"
    if guarantees.consistency == "eventual" and any(kind.name == "token" for kind in family.pattern.types.values()):
        yield (
            "its keys are tokens, and a token that was used or revoked may still be found here for a while; "
            "one that works once, or must end at once, needs another role and store"
        )
    longest = family.pattern.max_bytes
    limit = guarantees.key_max_bytes
    if limit is not None and limit < SHORT_KEYS and (longest is None or longest > limit):
        length = "of any length" if longest is None else f"of up to {longest} bytes"
        yield (
            f"its keys may be {length}, but keys of the store have at most {limit} bytes; "
            "declare that long segments are hashed, as in {name<=120}"
        )
