"""Rate limits: fixed window, sliding window, token bucket; counted by the store in one round trip."""

from typing import TYPE_CHECKING

from keystead.deprecation import forward_old_names
from keystead.parts.limit.bucket import TokenBucket
from keystead.parts.limit.client_address import client_of, network_of
from keystead.parts.limit.combined import CombinedLimit
from keystead.parts.limit.limit import Limit, Limits
from keystead.parts.limit.named_limits import Counting, NamedLimits
from keystead.parts.limit.outage import WhenDown
from keystead.parts.limit.rate import Rate
from keystead.parts.limit.rate_limit import Limited, RateLimit
from keystead.parts.limit.sliding import SlidingWindow
from keystead.parts.limit.verdict import LimitReached, Verdict
from keystead.parts.limit.windows import AlignedWindow, FixedWindow

__all__ = [
    "AlignedWindow",
    "CombinedLimit",
    "Counting",
    "FixedWindow",
    "Limit",
    "LimitReached",
    "Limited",
    "Limits",
    "NamedLimits",
    "Rate",
    "RateLimit",
    "SlidingWindow",
    "TokenBucket",
    "Verdict",
    "WhenDown",
    "client_of",
    "network_of",
]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(__name__, {"Together": "CombinedLimit"})
