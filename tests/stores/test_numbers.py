"""Which texts are numbers is for the server to say; ours must say the same."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keystead.errors import NotANumber
from keystead.stores.commands import integer, score
from keystead.testing.servers import Server
from keystead.testing.wire import WireError

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
