"""Deadlines that contradict the lifetime: missing, too late, too early, or unexpected."""

from __future__ import annotations

from typing import Final

from keystead.errors import BadValue
from keystead.schema.chunked_reading import UNKNOWN
from keystead.schema.doctor import guarded_changes
from keystead.schema.doctor.key_state import KeyState, look_again
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.key import moment
from keystead.schema.kinds import Value
from keystead.schema.lifetime import EndOfDay, Until, in_words
from keystead.stores import Required

# The clock skew allowed between programs and stores.
CLOCKS_MS: Final = 5_000


def wrong_deadline(look: KeyState) -> str | None:
    """The code of what is wrong with the deadline of a key."""
    lifetime = look.bound.family.lifetime
    if not lifetime.ends:
        return "unexpected-deadline" if look.left_ms >= 0 else None
    if look.left_ms < 0:
        return "no-deadline"
    dies_ms, latest_ms = look.now_ms + look.left_ms, _latest_ms(look)
    if latest_ms is None:
        return None
    if dies_ms > latest_ms + CLOCKS_MS:
        return "late-deadline"
    states_deadline = isinstance(look.bound.family, Value) and own_moment_ms(look) is not None
    return "early-deadline" if states_deadline and dies_ms < latest_ms - CLOCKS_MS else None


def _latest_ms(look: KeyState) -> int | None:
    """The latest deadline that the family allows a key now; None: there is no limit."""
    lifetime, now_ms = look.bound.family.lifetime, look.now_ms
    if isinstance(lifetime, EndOfDay):
        return lifetime.at_ms(now_ms + CLOCKS_MS)
    longest_ms = lifetime.longest_ms
    known = [] if longest_ms is None else [now_ms + longest_ms]
    # Only for a Value is the moment in it the deadline: a hash lives until the latest moment of all its writes.
    if isinstance(look.bound.family, Value):
        at_ms = own_moment_ms(look)
        known += [] if at_ms is None else [at_ms]
    return min(known, default=None)


def own_moment_ms(look: KeyState) -> int | None:
    """The deadline that the value states, if it is known."""
    family = look.bound.family
    if not isinstance(family.lifetime, Until) or family.takes_deadline or look.value is UNKNOWN:
        return None
    try:
        return moment(family, look.key, look.value, {})
    except BadValue:
        return None


class WrongDeadline(Suspicion):
    def __init__(self, look: KeyState, code: str) -> None:
        super().__init__(look)
        self.code = code

    @property
    def sentence(self) -> str:
        says = self.family.lifetime.describe()
        if self.code == "no-deadline":
            return f"it has no deadline, but the family states: {says}"
        return f"it has {roughly(self.look.left_ms)} left, but the family states: {says}"

    async def confirm(self) -> bool:
        again = await look_again(self.look)
        if again is None or wrong_deadline(again) != self.code:
            return False
        self.look = again
        return True

    async def fix(self) -> bool:
        look, lifetime = self.look, self.family.lifetime
        if self.code == "unexpected-deadline":
            return await guarded_changes.change(look.store, [], [Required(("PERSIST", look.key))])
        at_ms = own_moment_ms(look)
        # A concurrent write of a new deadline wins: the value is compared in the same step.
        guards = look.unchanged_guards([lifetime.field]) if isinstance(lifetime, Until) and at_ms is not None else []
        if at_ms is not None and at_ms <= look.now_ms:
            self.removes = True
            return await guarded_changes.delete(look.bound, look.key, guards)
        if isinstance(lifetime, Until) and at_ms is None and lifetime.at_most_ms is None:
            self.note = f"its deadline cannot be determined: {lifetime.field} is not stored, and there is no at_most"
            return False
        # NX, LT and GT: only a key without a deadline, or with one earlier than its value says, may live longer.
        condition = {"no-deadline": "NX", "early-deadline": "GT"}.get(self.code, "LT")
        command = (*lifetime.repair(look.key, look.now_ms, at_ms), condition)
        return await guarded_changes.change(look.store, guards, [Required(command)])


def roughly(ms: int) -> str:
    """The time in words, rounded to days, hours, minutes or seconds."""
    step = next((step for step in (86_400_000, 3_600_000, 60_000, 1_000) if ms >= 3 * step), 1_000)
    return in_words(ms // step * step) or "less than a second"
