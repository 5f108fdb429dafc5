"""Whose a key at the target is, by what is noted of it and by what is there now; and so, whether it may be written.

Two rules lead to all answers. The target has the last word: what somebody changed or deleted there since it was copied
stays so. With `overwrite` the source has it, once, at the beginning of a run; but what was deleted at the target stays
deleted even then.
"""

from __future__ import annotations

from typing import NamedTuple

from keystead.stores.copy.notes import Note, State


class Judge(NamedTuple):
    """`earlier_id` is the last note of an earlier run: what became of such keys at the target is not known yet."""

    overwrite: bool
    earlier_id: int

    def is_due(self, note: Note, written: bytes) -> bool:
        """Whether the target has to be looked at: `written` is the fingerprint of the key at the source now."""
        is_earlier = note.id <= self.earlier_id
        match note.state:
            case State.OURS | State.EQUAL:
                return is_earlier or note.uncertain or note.written != written
            case State.IN_THE_WAY:
                return self.overwrite
            case State.UNFIT:
                return True
            case _:
                return is_earlier and self.overwrite

    def verdict(self, note: Note | None, written: bytes, held: bytes | None, now_ms: int) -> State | None:
        """Whose the key is; None: it may be written, if it still is what was `held` there when it was looked at."""
        if note is None or note.state in (State.IN_THE_WAY, State.UNFIT):
            return self._of_stranger(written, held)
        replaces = self.overwrite and note.id <= self.earlier_id
        if held is None:
            is_deleted = note.state is State.DELETED or not may_be_missing(note, now_ms)
            return State.DELETED if is_deleted else None
        if note.uncertain:
            return self._of_uncertain(note, written, held)
        if note.state is State.EQUAL:
            return self._of_equal(note, written, held)
        if note.state is State.OURS and held == note.written:
            return State.OURS if held == written else None
        if not replaces:
            return State.CHANGED
        return State.EQUAL if held == written else None

    def _of_stranger(self, written: bytes, held: bytes | None) -> State | None:
        if held is None:
            return None
        if held == written:
            return State.EQUAL
        return None if self.overwrite else State.IN_THE_WAY

    def _of_uncertain(self, note: Note, written: bytes, held: bytes) -> State | None:
        """It was about to be written when an earlier run was killed."""
        if held == written:
            return State.OURS
        if self.overwrite or note.is_ours(held):
            return None
        return State.CHANGED if note.before_is_ours else State.IN_THE_WAY

    def _of_equal(self, note: Note, written: bytes, held: bytes) -> State | None:
        """It was there before, the same, and no copy has written it."""
        if held == written:
            return State.EQUAL
        if self.overwrite and (held == note.written or note.id <= self.earlier_id):
            return None
        return State.CHANGED if written == note.written else State.IN_THE_WAY


def may_be_missing(note: Note, now_ms: int) -> bool:
    """Whether a key can be absent at the target although nobody deleted it there: it expired, or it was never written,
    since this copy was killed before.
    """
    if not note.uncertain:
        return note.ends_at_ms is not None and note.ends_at_ms <= now_ms
    if note.before is None:
        return True
    ends = [at_ms for at_ms in (note.ends_at_ms, note.before_ends_at_ms) if at_ms is not None]
    return bool(ends) and min(ends) <= now_ms
