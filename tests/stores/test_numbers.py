"""Number parsing equals that of the server."""

import asyncio

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keystead import Store, connect
from keystead.errors import NotANumber
from keystead.stores import at_most
from keystead.stores.commands import INT64_MAX, INT64_MIN, amount_of, integer, score
from keystead.testing.resp_client import WireError
from tests.servers import Server

AS_ON_THE_SERVER = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@AS_ON_THE_SERVER
@given(st.one_of(st.text(alphabet="0123456789+- ", max_size=6), st.integers(-(2**64), 2**64).map(str)))
@example("-0")
@example("00")
@example("9223372036854775808")
@example("-9223372036854775809")
def test_the_server_reads_integers_alike(redis: Server, text: str) -> None:
    try:
        ours = integer(text.encode())
    except NotANumber:
        ours = None
    try:
        with redis.wire() as wire:
            wire.call("DEL", "n")
            theirs = wire.call("INCRBY", "n", text)
    except WireError:
        theirs = None
    assert ours == theirs


@AS_ON_THE_SERVER
@given(st.one_of(st.text(alphabet="0123456789+-.eEinfINFty ", max_size=7), st.floats(allow_nan=False).map(repr)))
@example("infinity")
@example("-Inf")
@example("+inf")
@example("1e400")
@example("1e-400")
@example("5e-324")
@example(".5")
@example("5.")
@example(".")
@example("")
@example("nan")
@example("1e5 ")
@example("0e-999")
def test_the_server_reads_scores_alike(redis: Server, text: str) -> None:
    try:
        ours = score(text.encode())
    except NotANumber:
        ours = None
    try:
        with redis.wire() as wire:
            wire.call("DEL", "z")
            wire.call("ZADD", "z", text, "m")
            theirs = wire.call("ZSCORE", "z", "m")
    except WireError:
        theirs = None
    assert ours == theirs


SIGN = st.sampled_from((1, -1))
WHOLE = st.integers(INT64_MIN, INT64_MAX)
NEAR_A_POWER = st.builds(lambda power, by, sign: sign * (2**power + by), st.integers(0, 64), st.integers(-2, 2), SIGN)
TEXTS = st.one_of(
    st.text(alphabet="0123456789+-.eEinfINFtyx \0", max_size=8),
    st.one_of(WHOLE, NEAR_A_POWER, st.floats(allow_nan=False)).map(str),
)
LIMITS = st.one_of(WHOLE, NEAR_A_POWER.filter(lambda n: INT64_MIN <= n <= INT64_MAX), st.floats(allow_nan=False))


@pytest.mark.matrix
@AS_ON_THE_SERVER
@given(st.lists(st.tuples(TEXTS, LIMITS), min_size=1, max_size=20))
@example([("9007199254740993", 9007199254740992), ("9007199254740993", 2.0**53), ("9223372036854775807", 2.0**63)])
@example([("9223372036854775808", INT64_MAX), ("9223372036854775808", 2.0**63), ("-9223372036854775809", INT64_MIN)])
def test_the_script_on_the_server_reads_and_compares_amounts_alike(
    redis: Server, amounts: list[tuple[str, int | float]]
) -> None:
    async def theirs() -> list[bool | None]:
        async with connect(redis.url) as store:
            return list(await asyncio.gather(*(guarded(store, *one) for one in enumerate(amounts))))

    async def guarded(store: Store, place: int, amount: tuple[str, int | float]) -> bool | None:
        text, limit = amount
        try:
            return bool(await store.atomically([("SET", f"n:{place}", text), at_most(("GET", f"n:{place}"), limit)]))
        except NotANumber:
            return None

    def ours(text: str, limit: int | float) -> bool | None:
        try:
            return amount_of(text.encode()) <= limit
        except NotANumber:
            return None

    assert asyncio.run(theirs()) == [ours(text, limit) for text, limit in amounts]
