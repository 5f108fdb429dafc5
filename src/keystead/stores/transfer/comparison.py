"""Compare the contents of a store with what is expected, key by key."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from keystead.errors import printable
from keystead.stores.transfer.records import EXAMPLES, Record


@dataclass(slots=True)
class Compared:
    """The number of keys that match, and how the others differ.

    An expired key that is gone counts as `expired`, not as a difference. A key that a program changed since cannot be
    distinguished from one that was written wrongly. `examples` name the first keys of each difference.
    """

    keys: int = 0
    equal: int = 0
    expired: int = 0
    missing: int = 0
    other_kind: int = 0
    other_value: int = 0
    other_expiry: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return self.missing + self.other_kind + self.other_value + self.other_expiry

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "differences": self.differences}

    def describe_examples(self) -> list[str]:
        """The examples, for people: `other value: sess:1`"""
        return [f"{what.replace('_', ' ')}: {key}" for what, keys in self.examples.items() for key in keys]

    def add(self, record: Record, held: Record | None, now_ms: int) -> None:
        self.keys += 1
        what = difference(record, held, now_ms)
        setattr(self, what, getattr(self, what) + 1)
        if what not in ("equal", "expired") and len(named := self.examples.setdefault(what, [])) < EXAMPLES:
            named.append(printable(record.key))


def difference(record: Record, held: Record | None, now_ms: int = 0) -> str:
    """The field of Compared that counts this key. If both the value and the deadline differ, it is the value."""
    if held is None:
        return "expired" if record.is_expired(now_ms) else "missing"
    if held.kind != record.kind:
        return "other_kind"
    # Most values are in the same order in both stores, which is compared fast.
    if held.parts != record.parts and held.content != record.content:
        return "other_value"
    return "equal" if held.expires_at_ms == record.expires_at_ms else "other_expiry"
