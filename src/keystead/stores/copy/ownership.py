"""Ownership of a key at the target, from its journal entry and its current value: whether a copy may write it.

Two rules. The target wins: a key that was changed or deleted there after it was copied stays so. With `overwrite` the
source wins, once, at the start of a run; but keys deleted at the target stay deleted even then.
"""

from __future__ import annotations

from typing import NamedTuple

from keystead.stores.copy.journal import Entry, State


class Ownership(NamedTuple):
    """`earlier_id` is the last entry of earlier runs: the current state of those keys at the target is unknown.

    `lags`: the target may show an earlier state of what this copy wrote, which cannot be told from a change there. So
    the source wins for every key that a copy has written.
    """

    overwrite: bool
    earlier_id: int
    lags: bool = False

    def must_check(self, entry: Entry, written: bytes) -> bool:
        """Whether the target has to be read. `written` is the current fingerprint at the source."""
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
        """The owner of the key; None: it may be written, if the target still holds `held` then."""
        if entry is None or entry.state in (State.IN_THE_WAY, State.UNFIT):
            return self._decide_foreign(written, held)
        if self.lags:
            return entry.state if held == written else None
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
        """For a key that no copy has written."""
        if held is None:
            return None
        if held == written:
            return State.EQUAL
        return None if self.overwrite else State.IN_THE_WAY

    def _decide_equal(self, entry: Entry, written: bytes, held: bytes, replaces: bool) -> State | None:
        """For a key that was equal before, and that no copy has written."""
        if held == written:
            return State.EQUAL
        if replaces or (self.overwrite and held == entry.written):
            return None
        return State.CHANGED if written == entry.written else State.IN_THE_WAY

    def _decide_uncertain(self, entry: Entry, written: bytes, held: bytes) -> State | None:
        """For a key that was about to be written when an earlier run was killed."""
        if held == written:
            return State.OURS
        if self.overwrite or entry.is_ours(held):
            return None
        return State.CHANGED if entry.before_is_ours else State.IN_THE_WAY


def may_be_missing(entry: Entry, now_ms: int) -> bool:
    """Whether a key can be missing at the target without a delete there: it expired, or the copy was killed before it
    was written.
    """
    if not entry.uncertain:
        return entry.ends_at_ms is not None and entry.ends_at_ms <= now_ms
    if entry.before is None:
        return True
    ends = [at_ms for at_ms in (entry.ends_at_ms, entry.before_ends_at_ms) if at_ms is not None]
    return bool(ends) and min(ends) <= now_ms
