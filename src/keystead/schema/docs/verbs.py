"""The verbs of a family: the public methods of its keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import isfunction
from typing import Any, Final

from keystead.schema.family import Family
from keystead.schema.lifetime import Sliding
from keystead.schema.procedure_tracing import READS

OF_EVERY_KEY: Final = (
    *("exists", "absent", "remaining", "left_ms", "shorten", "extend", "clock", "lasting"),
    *("delete", "plan_delete"),
)

_MOST_WRITES = 5
_MOST_READS = 2


@dataclass(frozen=True)
class Operations:
    """Verbs, in the order in which their kind declares them."""

    writes: tuple[str, ...]
    reads: tuple[str, ...]

    @property
    def few(self) -> tuple[str, ...]:
        """A short selection, writes first. An ellipsis replaces the others."""
        shown = self.writes[:_MOST_WRITES] + self.reads[:_MOST_READS]
        return shown if len(shown) == len(self.writes) + len(self.reads) else (*shown, "…")


def operations(family: Family[Any]) -> Operations:
    """The verbs of one family, without those that make no sense for it and those of every key."""
    return _divide(verb for verb in _methods(family.verbs) if _makes_sense(verb, family))


def verbs_of_kind(verbs: type[Any]) -> Operations:
    """All verbs of a kind, without those of every key. `verbs` is the class of its keys."""
    return _divide(_methods(verbs))


def _divide(verbs: Iterable[str]) -> Operations:
    own = [verb for verb in verbs if verb not in OF_EVERY_KEY]
    return Operations(
        writes=tuple(verb for verb in own if verb not in READS),
        reads=tuple(verb for verb in own if verb in READS),
    )


def _methods(verbs: type[Any]) -> Iterator[str]:
    for cls in verbs.__mro__:
        yield from (name for name, one in vars(cls).items() if isfunction(one) and not name.startswith("_"))


def _makes_sense(verb: str, family: Family[Any]) -> bool:
    match verb:
        case "touch" | "use":
            return isinstance(family.lifetime, Sliding)
        case "live":
            return bool(family.lists)
        case "compare_and_set":  # it compares stored bytes, and such a value has several stored forms
            return not any(codec.sealed or codec.versions for codec in family.codecs.values())
        case _:
            return True
