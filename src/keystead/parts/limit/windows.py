"""Fixed window rate limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from keystead.errors import BadKey
from keystead.parts.limit.limit import Limit, LimitCheck, with_outcome
from keystead.parts.limit.outage import WhenDown
from keystead.parts.limit.rate import Rate
from keystead.parts.limit.verdict import Verdict
from keystead.schema import Bound, Counter, Hash
from keystead.schema.lifetime import After, in_words
from keystead.stores import store_ms

_FIELDS: Final = frozenset({"count", "windowStart"})
_TRIES: Final = 3
_DRIFT_MS: Final = 60_000
_SET_BACK_MS: Final = 1_000


class FixedWindow(Limit):
    """Fixed window that starts with the first request of a client, and ends by the store's clock.

        hits = Counter("limit:{client}", lifetime=after("1m"))        # its lifetime is the window
        limit = FixedWindow(keys.hits, "10/minute")

    It may also be a hash with the fields `count` and `windowStart` (in ms). Refused requests do not extend the window.
    At the edge of two windows twice the limit may pass within a moment: if that matters, use a SlidingWindow. It costs
    one number per client, and works on every store with atomic steps, Memcached included.
    """

    def _check_family(self) -> None:
        family = self.family.family
        is_hash = isinstance(family, Hash)
        fields = {family.stored_name(name): name for name in family.field_names}
        if not isinstance(family, Counter) and not (is_hash and fields.keys() == _FIELDS):
            self._refuse(
                "a fixed window is counted in a Counter(…), or in a Hash(…) with the fields count and windowStart"
            )
        if family.lifetime != After(self.rate.window_ms):
            words = in_words(self.rate.window_ms)
            self._refuse(
                f"its lifetime is the window of the limit, which is {words}; it is {family.lifetime.describe()}"
            )
        self._is_hash = is_hash
        self._start = fields.get("windowStart", "")  # as Python names it

    def _check_for(self, key: Any, by: int, hit: str) -> LimitCheck:
        most = self.rate.amount - by
        if not self._is_hash:
            return LimitCheck((key.get(), key.left_ms()), key.at_most(most), (key.increment(by),), self._judge)
        writes = (key.add_field(self._start, store_ms()), key.increment("count", by))
        return LimitCheck((key.field("count"), key.left_ms()), key.field_at_most("count", most), writes, self._judge)

    def _judge(self, found: Sequence[Any], by: int, counted: bool) -> Verdict:
        limit, held, left_ms = self.rate.amount, found[0] or 0, found[1]
        if left_ms < 0:  # there is no window yet
            left_ms = self._window_ms
        allowed = held <= limit - by
        remaining = limit - held - (by if allowed and counted else 0)
        return self._verdict(allowed, limit, remaining, None if by > limit else left_ms, left_ms)


class AlignedWindow(Limit):
    """Fixed windows aligned to the clock: each minute at :00, each hour at :00:00.

        hits = Counter("limit:{client}:{windowStart:int}", lifetime=after("2m"))     # longer than the window
        limit = AlignedWindow(keys.hits, "10/minute")

    start   the placeholder for the start of the window, in ms since 1970

    Time is the store's clock: the first hit of a process reads it (one more round trip), and every hit returns it. A
    hit that arrives after its window has ended is counted again in the right one.
    """

    def __init__(
        self,
        family: Bound[Any],
        rate: str | Rate,
        *,
        start: str = "windowStart",
        when_down: WhenDown = "deny",
        name: str | None = None,
    ) -> None:
        self._start = start
        self._clock = _StoreClock()
        super().__init__(family, rate, when_down=when_down, name=name)

    def _check_family(self) -> None:
        family = self.family.family
        if not isinstance(family, Counter) or self._start not in family.pattern.names:
            self._refuse(f"an aligned window is counted in a Counter(…) with {{{self._start}:int}} in its pattern")
        if not isinstance(family.lifetime, After) or family.lifetime.ms < self.rate.window_ms:
            words = in_words(self.rate.window_ms)
            self._refuse(f"it lives as long as its window, {words}, or longer, as in after(…)")
        self._place = family.pattern.names.index(self._start)

    async def _hit(self, client: tuple[Any, ...], by: int) -> Verdict:
        if not self._clock.is_known:
            self._clock.saw(await self._key(client).clock())
        for _ in range(_TRIES):
            start_ms = self._start_ms()
            is_counted, found = await self._count(self._key_in(start_ms, client), by)
            verdict = with_outcome(self._judge_in(start_ms, found, by, True), is_counted)
            if start_ms <= found[0] < start_ms + self.rate.window_ms:
                break
        return verdict

    async def _count(self, key: Any, by: int) -> tuple[bool, Sequence[Any]]:
        """Count a hit in this window. Returns whether it was counted, and the values just before."""
        if by == 1:
            prepared, _ = self._prepared_hit or self._prepare()
            done = await prepared(key.key.encode())
            return bool(done), done.values if done else done.before
        checks = self._check_for(key, by, "")
        done = await self.family.keyspace.atomically(*checks.looks, checks.guard, *checks.writes)
        return bool(done), done.values if done else done.before

    def _start_ms(self) -> int:
        now_ms = self._clock.now_ms() if self._clock.is_known else self.family.now_ms()
        return now_ms - now_ms % self.rate.window_ms

    def _key_in(self, start_ms: int, client: tuple[Any, ...]) -> Any:
        if len(client) != len(self.family.family.pattern.names) - 1:
            raise BadKey(f"{self.family.family.place}: give the values of all placeholders but {self._start}")
        return super()._key((*client[: self._place], start_ms, *client[self._place :]))

    def _key(self, client: tuple[Any, ...]) -> Any:
        return self._key_in(self._start_ms(), client)

    def _check_for(self, key: Any, by: int, hit: str) -> LimitCheck:
        judge = partial(self._judge_in, self._start_ms())
        return LimitCheck((key.clock(), key.get()), key.at_most(self.rate.amount - by), (key.increment(by),), judge)

    def _judge_in(self, start_ms: int, found: Sequence[Any], by: int, counted: bool) -> Verdict:
        limit, window_ms, now_ms, held = self.rate.amount, self.rate.window_ms, found[0], found[1]
        self._clock.saw(now_ms)
        left_ms = min(max(start_ms + window_ms - now_ms, 0), window_ms)
        allowed = held <= limit - by
        remaining = limit - held - (by if allowed and counted else 0)
        return self._verdict(allowed, limit, remaining, None if by > limit else left_ms, left_ms)


class _StoreClock:
    """An estimate of the store's clock: its last reply plus the time elapsed here since.

    It is never ahead of the store, because replies are old when they arrive. So it may pick a window that has just
    ended, but never one that has not begun.
    """

    def __init__(self, passed_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._passed_ms = passed_ms
        self._offset_ms: int | None = None
        self._seen_ms = 0

    @property
    def is_known(self) -> bool:
        return self._offset_ms is not None

    def saw(self, store_ms: int) -> None:
        here_ms = self._passed_ms()
        offset_ms = store_ms - here_ms
        known_ms = offset_ms if self._offset_ms is None else self._offset_ms
        # The reply with the least delay is the best estimate, unless the clocks have drifted apart, or the store's was
        # set back: after a failover it is another server's clock.
        is_old = here_ms - self._seen_ms > _DRIFT_MS or offset_ms < known_ms - _SET_BACK_MS
        if self._offset_ms is None or offset_ms > known_ms or is_old:
            self._offset_ms, self._seen_ms = offset_ms, here_ms

    def now_ms(self) -> int:
        return self._passed_ms() + (self._offset_ms or 0)
