"""Whose a key at the target is, by its journal entry and by what is there now; and so, whether it may be written.

Two rules lead to all answers. The target has the last word: what was changed or deleted there since it was copied
stays so. With `overwrite` the source has it, once, at the beginning of a run; but what was deleted at the target stays
deleted even then.
"""

from __future__ import annotations

from typing import NamedTuple

from keystead.stores.copy.journal import Entry, State


class Ownership(NamedTuple):
    """`earlier_id` is the last entry of earlier runs: what became of such keys at the target is not known yet."""

    overwrite: bool
    earlier_id: int

    def must_check(self, entry: Entry, written: bytes) -> bool:
        """Whether the target has to be read: `written` is the fingerprint of the key at the source now."""
        is_earlier = entry.id <= self.earlier_id
        match entry.state:
            case State.OURS | State.EQUAL:
                return is_earlier or entry.uncertain or entry.written != written
            case State.IN_THE_WAY:
                return self.overwrite
            case State.UNFIT:
                return True
            case _:
                return is_earlier and self.overwrite

    def decide(self, entry: Entry | None, written: bytes, held: bytes | None, now_ms: int) -> State | None:
        """Whose the key is; None: it may be written, if the target still holds `held` then."""
        if entry is None or entry.state in (State.IN_THE_WAY, State.UNFIT):
            return self._decide_foreign(written, held)
        if held is None:
            is_deleted = entry.state is State.DELETED or not may_be_missing(entry, now_ms)
            return State.DELETED if is_deleted else None
        if entry.uncertain:
            return self._decide_uncertain(entry, written, held)
        replaces = self.overwrite and entry.id <= self.earlier_id
        if entry.state is State.EQUAL:
            return self._decide_equal(entry, written, held, replaces)
        if entry.state is State.OURS and held == entry.written:
            return State.OURS if held == written else None
        if not replaces:
            return State.CHANGED
        return State.EQUAL if held == written else None

    def _decide_foreign(self, written: bytes, held: bytes | None) -> State | None:
        """No copy has written the key."""
        if held is None:
            return None
        if held == written:
            return State.EQUAL
        return None if self.overwrite else State.IN_THE_WAY

    def _decide_equal(self, entry: Entry, written: bytes, held: bytes, replaces: bool) -> State | None:
        """It was there before, with the same content, and no copy has written it."""
        if held == written:
            return State.EQUAL
        if replaces or (self.overwrite and held == entry.written):
            return None
        return State.CHANGED if written == entry.written else State.IN_THE_WAY

    def _decide_uncertain(self, entry: Entry, written: bytes, held: bytes) -> State | None:
        """It was about to be written when an earlier run was killed."""
        if held == written:
            return State.OURS
        if self.overwrite or entry.is_ours(held):
            return None
        return State.CHANGED if entry.before_is_ours else State.IN_THE_WAY


def may_be_missing(entry: Entry, now_ms: int) -> bool:
    """Whether a key can be missing at the target although nobody deleted it there: it expired, or it was never written,
    because the copy was killed before.
    """
    if not entry.uncertain:
        return entry.ends_at_ms is not None and entry.ends_at_ms <= now_ms
    if entry.before is None:
        return True
    ends = [at_ms for at_ms in (entry.ends_at_ms, entry.before_ends_at_ms) if at_ms is not None]
    return bool(ends) and min(ends) <= now_ms
