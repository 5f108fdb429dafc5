"""The families of a rate limit, and the errors for those that do not fit."""

import asyncio
import re

import pytest

from keystead import Counter, Hash, Keyspace, SortedSet, Store, Value, after, connect, never, sliding
from keystead.errors import BadDeclaration, DoesNotFit
from keystead.http.rate_limits import rate_limit_headers
from keystead.kits.membership.keys import MembershipKeys
from keystead.parts.limit import (
    AlignedWindow,
    CombinedLimit,
    FixedWindow,
    Rate,
    RateLimit,
    SlidingWindow,
    TokenBucket,
    Verdict,
)
from keystead.schema.seal import KeyRing
from tests.parts.limit.conftest import LimitKeys, Window, here

MINUTE = 60_000


@pytest.mark.parametrize(
    ("text", "amount", "window_ms"),
    [
        ("10/minute", 10, MINUTE),
        ("100 per 60s", 100, MINUTE),
        ("1/s", 1, 1_000),
        ("5 per second", 5, 1_000),
        ("1_000/hour", 1_000, 3_600_000),
        ("20,000 / 2 days", 20_000, 2 * 86_400_000),
        ("3/15m", 3, 15 * MINUTE),
        ("3 PER Minute", 3, MINUTE),
        ("3/minutes", 3, MINUTE),
        ("7/250ms", 7, 250),
        ("7 per 1h 30m", 7, 90 * MINUTE),
        ("7 per 10 minutes", 7, 10 * MINUTE),
        ("1/d", 1, 86_400_000),
    ],
)
def test_a_rate_is_read_from_text(text: str, amount: int, window_ms: int) -> None:
    assert Rate.of(text) == Rate(amount, window_ms) == Rate.of(Rate(amount, window_ms))


@pytest.mark.parametrize(
    "text",
    [
        *("", "10", "/minute", "10/", "10/60", "-1/minute", "1.5/minute", "10/fortnight", "10 minute", "ten/minute"),
        *("10/minute/hour", "10//minute", "10/0s", "10 per", "per minute", "10/1x", None, 10, b"10/minute"),
    ],
)
def test_an_invalid_rate_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(BadDeclaration, match=re.escape('such as "10/minute" or "100 per 60s", not ')):
        Rate.of(text)  # type: ignore[arg-type]


def test_a_rate_must_allow_something() -> None:
    for text in ("0/minute", f"{10**12 + 1}/minute"):
        with pytest.raises(BadDeclaration, match="at least 1 and at most"):
            Rate.of(text)
    with pytest.raises(BadDeclaration):
        Rate(1, 0)
    assert str(Rate.of("1000/90s")) == "1,000 in 1 minute 30 seconds"


class OtherKeys(Keyspace):
    """Families that do not fit a limit, and some that do."""

    fixed = Counter("fixed:{client}", lifetime=after("1m"))
    again = Counter("again:{client}", lifetime=after("1m"))
    longer = Counter("longer:{client}", lifetime=after("2m"))
    kept = Counter("kept:{client}", lifetime=never("a test"))
    slides = Counter("slides:{client}", lifetime=sliding("1m", touch_every="1s"))
    text = Value("text:{client}", str, lifetime=after("1m"))
    other = Hash("other:{client}", dict[str, int], lifetime=after("1m"))
    record = Hash("record:{client}", Window, lifetime=after("1m"))
    aligned = Counter("aligned:{client}:{windowStart:int}", lifetime=after("2m"))
    short = Counter("short:{client}:{windowStart:int}", lifetime=after("59s"))
    log = SortedSet("log:{client}", str, lifetime=sliding("61s", touch_every="1s"))
    minute = SortedSet("minute:{client}", str, lifetime=sliding("60s", touch_every="1s"))
    ends = SortedSet("ends:{client}", str, lifetime=after("1h"))
    numbers = SortedSet("numbers:{client}", int, lifetime=sliding("61s", touch_every="1s"))
    apart = SortedSet("apart:{client}", str, lifetime=sliding("61s", touch_every="1s"), role="durable")


@here
async def test_a_limit_of_another_family_is_refused(store: Store) -> None:
    keys = OtherKeys(store)
    for make, family, why in (
        (FixedWindow, keys.text, "Counter"),
        (FixedWindow, keys.other, "fields count and windowStart"),
        (FixedWindow, keys.longer, "the window of the limit, which is 1 minute; it is 2 minutes"),
        (FixedWindow, keys.kept, "its lifetime is the window"),
        (FixedWindow, keys.slides, "its lifetime is the window"),
        (FixedWindow, keys.fixed("ann"), "a family of a keyspace"),
        (FixedWindow, OtherKeys.fixed, "a family of a keyspace"),
        (AlignedWindow, keys.longer, r"\{windowStart:int\} in its pattern"),
        (AlignedWindow, keys.short, "as long as its window"),
        (SlidingWindow, keys.fixed, "SortedSet"),
        (SlidingWindow, keys.numbers, "of texts"),
        (SlidingWindow, keys.minute, "outlives its window"),
        (SlidingWindow, keys.ends, "outlives its window"),
        (TokenBucket, keys.fixed, "SortedSet"),
        (TokenBucket, keys.ends, "until its bucket is full"),
    ):
        with pytest.raises(BadDeclaration, match=why):
            make(family, "10/minute")  # type: ignore[arg-type]
    for wrong, said in (
        ({"when_down": "shrug"}, "deny, allow, raise"),
        ({"name": 'a"b'}, "without quotes"),
        ({"name": ""}, "without quotes"),
        ({"name": "ü"}, "without quotes"),
    ):
        with pytest.raises(BadDeclaration, match=said):
            FixedWindow(keys.fixed, "10/minute", **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadDeclaration, match="take a TokenBucket"):
        SlidingWindow(keys.log, "100001/minute")
    with pytest.raises(BadDeclaration, match=r"at least 0\.01 ms"):
        TokenBucket(keys.log, "100001/second")
    for burst in (0, -1, 1.5, True, 11):
        with pytest.raises(BadDeclaration):
            TokenBucket(keys.log, "10/minute", burst=burst)  # type: ignore[arg-type]


@here
async def test_several_limits_are_different_and_in_one_store(store: Store) -> None:
    keys = OtherKeys(store)
    fixed = FixedWindow(keys.fixed, "10/minute")
    for others, why in (
        ((), "two or more"),
        ((keys.fixed,), "two or more"),
        ((FixedWindow(keys.fixed, "5/minute"),), "a family of its own"),
        ((FixedWindow(keys.again, "5/minute", name="fixed"),), "a name of its own"),
        ((AlignedWindow(keys.aligned, "5/minute"),), "stands alone"),
    ):
        with pytest.raises(BadDeclaration, match=why):
            CombinedLimit(fixed, *others)
    async with connect("memory://") as other:
        apart = SlidingWindow(OtherKeys(store, durable=other).apart, "10/minute")
        with pytest.raises(DoesNotFit, match="one role"):
            CombinedLimit(fixed, apart)


async def test_memcached_keeps_fixed_windows_one_at_a_time(memcached: Store) -> None:
    class Keys(Keyspace):
        fixed = Counter("fixed:{client}", lifetime=after("1m"), role="cache")
        again = Counter("again:{client}", lifetime=after("1m"), role="cache")

    keys = Keys(cache=memcached)
    limit = FixedWindow(keys.fixed, "10/minute")
    assert sum([bool(await limit.hit("ann")) for _ in range(200)]) == 10
    with pytest.raises(DoesNotFit, match="one key"):
        CombinedLimit(limit, FixedWindow(keys.again, "10/minute"))
    with pytest.raises(DoesNotFit):
        LimitKeys(memcached)


@here
async def test_the_rows_of_the_membership_document_hold_its_limits(store: Store) -> None:
    keys = MembershipKeys(store, seal=KeyRing({"k": b"k" * 32}))
    crash_reports = FixedWindow(keys.crash_report_limit, "10 per 60s")
    assert [bool(await crash_reports.hit("2001:db8::")) for _ in range(11)].count(True) == 10
    held = await keys.crash_report_limit("2001:db8::").get()
    assert held is not None
    assert held.count == 10
    webhook = AlignedWindow(keys.rate_limit, "100 per 60s")
    assert [bool(await webhook.hit("webhook:192.0.2.1", by=10)) for _ in range(11)].count(True) == 10


def test_the_headers_are_those_of_the_drafts_and_of_rfc_9110() -> None:
    verdict = Verdict(True, 10, 9, 0, 59_001, 60_000, "reports")
    assert rate_limit_headers(verdict) == {
        "ratelimit-policy": '"reports";q=10;w=60',
        "ratelimit": '"reports";r=9;t=60',
        "ratelimit-limit": "10",
        "ratelimit-remaining": "9",
        "ratelimit-reset": "60",
    }
    refused = Verdict(False, 10, 0, 1, 59_000, 60_000, "reports")
    assert rate_limit_headers(refused)["retry-after"] == "1"
    more = rate_limit_headers(refused, x_ratelimit=True, now_s=1_790_000_000.5)
    assert [more[f"x-ratelimit-{name}"] for name in ("limit", "remaining", "reset")] == ["10", "0", "1790000059"]
    never = Verdict(False, 10, 3, None, 59_000, 60_000, "reports")
    assert "retry-after" not in rate_limit_headers(never)
    down = Verdict(False, 10, 0, 1_000, 1_000, 60_000, "reports", store_is_down=True)
    assert rate_limit_headers(down) == {"retry-after": "1"}
    both = Verdict(True, 5, 1, 0, 900, 1_000, "a", each=(Verdict(True, 5, 1, 0, 900, 1_000, "a"), verdict))
    assert rate_limit_headers(both)["ratelimit-policy"] == '"a";q=5;w=1, "reports";q=10;w=60'
    assert rate_limit_headers(both)["ratelimit"] == '"a";r=1;t=1, "reports";r=9;t=60'


async def test_a_rate_limit_counts_as_its_family_is_declared() -> None:
    class Keys(Keyspace):
        hits = Counter("hits:{client}", lifetime=after("1m"))
        log = SortedSet("log:{client}", str, lifetime=sliding("2m", touch_every="1s"))

    async with connect("memory://") as store:
        keys = Keys(store)
        for family, kind in ((keys.hits, FixedWindow), (keys.log, SlidingWindow)):
            limit = RateLimit(family, "5/minute", name="api")
            assert [type(one) for one in limit.limits] == [kind]
            verdicts = await asyncio.gather(*(limit.hit("ann") for _ in range(200)))
            assert sum(map(bool, verdicts)) == 5
            assert verdicts[0].name == "api"
            await limit.reset("ann")
            assert await limit.hit("ann")
    with pytest.raises(BadDeclaration, match="a limit counts in a family"):
        RateLimit("hits", "5/minute")  # type: ignore[arg-type]
