"""Combined rate limits: ten per second and a hundred per minute."""

from __future__ import annotations

from keystead.errors import BadDeclaration, DoesNotFit
from keystead.parts.limit.limit import Limit, Limits
from keystead.parts.limit.windows import AlignedWindow
from keystead.schema.slots import spans_keys


class CombinedLimit(Limits):
    """Several limits that must all allow a request; counted in all of them or in none. One atomic step and round trip.

        limit = CombinedLimit(FixedWindow(keys.seconds, "10/second"), SlidingWindow(keys.minutes, "100/minute"))

    The verdict is that of the strictest limit; `each` has all of them, and the headers name them. During a store outage
    each limit applies its own `when_down`. On a cluster the families need one `tag`. Raises DoesNotFit for limits in
    different stores, or in a store whose atomic steps cover one key.
    """

    def __init__(self, *limits: Limit) -> None:
        if len(limits) < 2 or not all(isinstance(limit, Limit) for limit in limits):
            raise BadDeclaration(
                "several limits are two or more, as in CombinedLimit(FixedWindow(…), SlidingWindow(…))"
            )
        if len({limit.family.family for limit in limits}) < len(limits):
            raise BadDeclaration("each of several limits counts in a family of its own")
        if len({limit.name for limit in limits}) < len(limits):
            raise BadDeclaration("each of several limits has a name of its own, because the headers name them")
        super().__init__(*limits)
        if any(limit.store is not self.store for limit in limits):
            raise DoesNotFit("several limits live in one store; give their families one role")
        if not spans_keys(self.store):
            raise DoesNotFit(f"{self.store.url} counts one limit at a time, because its atomic steps are about one key")
        if any(isinstance(limit, AlignedWindow) for limit in limits):
            raise BadDeclaration(
                "an AlignedWindow may have to be counted again, so it stands alone; take a FixedWindow"
            )
