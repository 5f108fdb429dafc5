"""Recurring steps get a generated script, with the same results as without it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystead import Counter, Keyspace, Store, after, connect
from keystead.errors import BadArgument, BadLifetime, NotANumber, StoreError, StoreRefused, WrongKind
from keystead.parts.limit import FixedWindow
from keystead.stores import Outcome, Step, absent, at_most, holds, required, store_ms
from keystead.stores.redis.atomic_script import DIGEST
from keystead.stores.redis.compiled_steps import CompiledCache, CompiledSteps, shape_of
from keystead.stores.redis.redis_store import RedisStore
from keystead.stores.store_contract import field_holds, still
from tests import servers
from tests.servers import Server
from tests.stores.redis.test_access import signed_in
from tests.stores.redis.waits import works_again

PATIENT = "?timeout=5s&connect_timeout=5s"
FAR_MS = 4_102_444_800_000  # 2100


@pytest.fixture(params=["valkey", "redis"])
def engine(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.valkey() if request.param == "valkey" else servers.redis() as running:
        yield running


@pytest.fixture
async def store(engine: Server) -> AsyncIterator[Store]:
    async with connect(engine.url + PATIENT) as store:
        yield store


def counting(key: bytes) -> list[Step]:
    return [("GET", key), at_most(("GET", key), 9), ("INCRBY", key, 1), ("PEXPIRE", key, 60_000, "NX")]


def scripts_kept(server: Server) -> int:
    found = dict(line.split(":", 1) for line in server.ask("INFO", "memory").decode().splitlines() if ":" in line)
    return int(found["number_of_cached_scripts"])


async def test_they_never_need_the_script_for_whatever_steps(engine: Server, store: Store) -> None:
    for name in (b"once", b"again"):
        await store.atomically(counting(name))
    engine.ask("SCRIPT", "FLUSH")
    outcomes = [await store.atomically(counting(b"n")) for _ in range(11)]
    assert [outcome.stopped_at for outcome in outcomes] == [*[None] * 10, 1]
    assert outcomes[0].replies == [None, 1, 1, 1]
    assert outcomes[-1].replies == [b"10", 0]
    assert engine.ask("SCRIPT", "EXISTS", DIGEST) == [0]


async def test_a_hundred_limits_of_one_kind_are_one_script_for_the_server(engine: Server, store: Store) -> None:
    for number in range(100):
        window_s = 60 + number
        keys = type("Keys", (Keyspace,), {"n": Counter(f"hits:{number}:{{client}}", lifetime=after(f"{window_s}s"))})
        assert await FixedWindow(keys(store).n, f"{2 * number + 10}/{window_s}s").hit("ann")
    assert scripts_kept(engine) == 1


async def test_a_server_without_its_scripts_gets_them_again(engine: Server, store: Store) -> None:
    def count(key: bytes) -> Awaitable[Outcome]:
        return store.atomically([("INCRBY", key, 1)])

    assert [(await count(b"other")).replies for _ in range(2)] == [[1], [2]]
    assert (await count(b"n")).replies == [1]
    engine.ask("SCRIPT", "FLUSH")
    outcomes = await asyncio.gather(*(count(b"n") for _ in range(20)))
    assert sorted(outcome.replies[0] for outcome in outcomes) == list(range(2, 22))
    engine.restart()
    await works_again(lambda: count(b"n"))
    assert engine.ask("GET", "n") == b"1"


async def test_cases_beyond_the_generated_script_are_decided_exactly(store: Store) -> None:
    def count(key: bytes) -> Awaitable[Outcome]:
        return store.atomically([("TIME",), at_most(("GET", key), 2**62), ("INCRBY", key, 1)])

    for _ in range(2):
        await count(b"other")
    for held, result in ((2**62, 2**62 + 1), (2**53, 2**53 + 1), (-5, -4), (-(2**62), -(2**62) + 1)):
        await store.run([("SET", "n", held)])
        assert (await count(b"n")).replies[1:] == [1, result]
    await store.run([("SET", "n", 2**62 + 1)])
    assert (await count(b"n")).stopped_at == 1
    for text in ("", " 7", "abc", "1e3x"):
        await store.run([("SET", "n", text)])
        with pytest.raises(NotANumber) as no_number:
            await count(b"n")
        assert no_number.value.key == b"n"
    await store.run([("DEL", "n"), ("RPUSH", "n", "x")])
    with pytest.raises(WrongKind) as wrong:
        await count(b"n")
    assert wrong.value.key == b"n"
    assert await store.run([("LRANGE", "n", 0, -1)]) == [[b"x"]]


async def test_a_key_of_another_kind_after_the_first_write_rolls_back(store: Store) -> None:
    def both(a: bytes, b: bytes) -> Awaitable[Outcome]:
        return store.atomically([("SET", a, "1"), ("ZADD", b, 1, "m"), ("INCRBY", a, 1)])

    for _ in range(2):
        await both(b"other", b"another")
    with pytest.raises(WrongKind):
        await both(b"same", b"same")
    await store.run([("SET", "b", "a text")])
    with pytest.raises(WrongKind) as wrong:
        await both(b"a", b"b")
    assert wrong.value.key == b"b"
    assert await store.run([("EXISTS", "a", "same")]) == [0]


async def test_a_missing_permission_makes_all_steps_fail(engine: Server) -> None:
    async with connect(signed_in(engine, "app", "~*", "+@all", "-pexpire")) as store:
        for _ in range(3):
            with pytest.raises(StoreRefused, match="PEXPIRE"):
                await store.atomically(counting(b"n"))
        assert await store.run([("EXISTS", "n")]) == [0]


def test_shapes_that_come_once_take_no_room_from_those_that_come_again() -> None:
    cache = CompiledCache()

    def of(steps: list[Step]) -> CompiledSteps | None:
        asked = shape_of(steps)
        return None if asked is None else cache.get(asked[0])

    for number in range(2_000):
        assert of([at_most(("GET", "n"), 0.5 + number), ("INCRBY", "n", 1)]) is None
    assert of(counting(b"a")) is None
    assert of(counting(b"b")) is of(counting(b"c")) is not None
    for number in range(2_000):
        steps: list[Step] = [("GET", f"{number}")] * (1 + number % 30)
        of([*steps, at_most(("GET", "n"), 0.5 + number % 50)])
    assert len(cache._known) <= 256 >= len(cache._seen_once)


@pytest.mark.parametrize(
    "step",
    [
        ("SET", "n", 2**60),
        ("SET", "n", True),
        ("SET", 7, "n"),
        ("SET", "n", "\ud800"),
        ("NOPE", "n"),
        ("GET",),
        (),
        "GET n",
        None,
        still(("GET", "n"), b"1"),
        [("GET", "n")],
    ],
    ids=repr,
)
async def test_steps_without_a_shape_raise_the_usual_errors(store: Store, step: Any) -> None:
    said: list[Any] = []
    for run in (store.atomically, partial(Store.atomically, store)) * 2:
        try:
            outcome = await run([("EXISTS", "n"), step])
            said.append((outcome.stopped_at, outcome.replies[1:]))
        except Exception as error:
            said.append((type(error), str(error)))
    assert said[0] == said[1] == said[2] == said[3]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
async def test_a_number_that_may_fail_behind_the_first_write_writes_nothing(store: Store, score: float) -> None:
    def steps(by: float) -> list[Step]:
        return [("SET", "a", "1"), ("ZADD", "z", "INCR", by, "m")]

    await store.run([("ZADD", "z", float("-inf"), "m")])
    for by in (1.5, 2.5, 3.5):
        await store.atomically(steps(by))
    await store.run([("DEL", "a")])
    try:
        await store.atomically(steps(score))
    except NotANumber:
        assert await store.run([("EXISTS", "a")]) == [0]
    else:
        assert score == float("-inf")


@pytest.mark.parametrize("limit", [True, [1], None, "1"], ids=repr)
async def test_a_limit_that_is_not_a_number_is_refused_though_an_equal_one_was_compiled(
    store: Store, limit: Any
) -> None:
    for _ in range(3):
        await store.atomically([at_most(("GET", "n"), 1.0), ("SET", "a", "1")])
    with pytest.raises(BadArgument, match="a limit must be an int or a float"):
        await store.atomically([at_most(("GET", "n"), limit), ("SET", "a", "1")])


async def test_a_lifetime_in_seconds_is_held_to_its_bound(store: Store) -> None:
    for seconds in (60, 61, 62):
        assert await store.atomically([("SET", "a", "1", "EX", seconds)])
    with pytest.raises(BadLifetime):
        await store.atomically([("SET", "a", "1", "EX", 10**12)])


async def test_an_argument_that_is_the_same_key_as_a_constant_writes_nothing_where_it_fails(store: Store) -> None:
    both = store.prepared(lambda a: [("SET", a, "1"), ("ZADD", "z", 1, "m"), ("INCRBY", a, 1)], 1)
    assert (await both(b"a")).replies == [b"OK", 1, 2]
    await store.run([("DEL", "z")])
    with pytest.raises(WrongKind):
        await both(b"z")
    assert await store.run([("EXISTS", "z")]) == [0]


# --- random steps -----------------------------------------------------------------------------------------------

# Made of a text and of a sorted set. Behind the names stands what each test of a kind finds there.
READS: list[Callable[[bytes, bytes], Step]] = [
    lambda a, z: ("GET", a),
    lambda a, z: ("PTTL", "nothing"),
    lambda a, z: ("ZSCORE", z, "m"),
    lambda a, z: ("ZRANGE", z, 0, -1, "WITHSCORES"),
    lambda a, z: ("ZCOUNT", z, store_ms(-60_000), "+inf"),
    lambda a, z: required(("EXISTS", a)),
    lambda a, z: required(("ZSCORE", z, "m")),
    lambda a, z: at_most(("GET", a), 3),
    lambda a, z: at_most(("GET", a), 3.5),
    lambda a, z: at_most(("ZSCORE", z, "m"), 7.25),
    lambda a, z: at_most(("ZSCORE", z, "m"), store_ms(-1000.5)),
    lambda a, z: at_most(("ZCARD", z), 1),
    lambda a, z: at_most(("ZCOUNT", z, 0, "inf"), float("-inf")),
    lambda a, z: holds(a, "3"),
    lambda a, z: holds(a, None),
    lambda a, z: absent(z),
    lambda a, z: field_holds("h", "f", None),
]
WRITES: list[Callable[[bytes, bytes], Step]] = [
    lambda a, z: ("INCRBY", a, 1),
    lambda a, z: ("DECRBY", a, 2**53),
    lambda a, z: ("HINCRBY", "h", "f", 5),
    lambda a, z: ("SET", a, "7"),
    lambda a, z: ("SET", a, "7", "NX", "PX", 600_000),
    lambda a, z: ("SET", a, "8", "PXAT", FAR_MS, "GET"),
    lambda a, z: required(("SET", a, "7", "NX")),
    lambda a, z: required(("SET", a, "9", "XX")),
    lambda a, z: required(("ZADD", z, "XX", 2, "m")),
    lambda a, z: required(("INCRBY", a, 0)),
    lambda a, z: ("ZADD", z, 2.5, "m", 3, "other"),
    lambda a, z: ("ZADD", z, "INCR", 0.5, "m"),
    lambda a, z: ("ZADD", z, "XX", "INCR", 0.5, "none"),
    lambda a, z: ("ZREMRANGEBYSCORE", z, "-inf", 2),
    lambda a, z: ("ZREM", z, "m"),
    lambda a, z: ("PEXPIREAT", z, FAR_MS),
    lambda a, z: ("DEL", a, z),
    lambda a, z: ("ZADD", a, 1, "m"),
]
BEFORE: list[tuple[str, Callable[[bytes, bytes], Sequence[Any]]]] = [
    ("nothing", lambda a, z: []),
    ("numbers", lambda a, z: [("SET", a, "3"), ("ZADD", z, 7.25, "m", 1, "other")]),
    ("large", lambda a, z: [("SET", a, 2**62), ("ZADD", z, FAR_MS, "m")]),
    ("texts", lambda a, z: [("SET", a, "3.5"), ("ZADD", z, 2, "m")]),
    ("other kinds", lambda a, z: [("RPUSH", a, "x"), ("SET", z, "x")]),
]


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    with servers.redis() as running:
        yield running


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.sampled_from(READS), max_size=4).flatmap(
        lambda reads: st.lists(st.sampled_from([*READS, *WRITES]), min_size=1, max_size=4).map(
            lambda all_: reads + all_
        )
    ),
    before=st.sampled_from(BEFORE),
)
def test_compiled_or_not_they_do_the_same(
    one_server: Server, steps: list[Callable[[bytes, bytes], Step]], before: tuple[str, Callable[..., Sequence[Any]]]
) -> None:
    async def done(how: str) -> tuple[Any, Any]:
        one_server.ask("FLUSHALL")
        async with connect(one_server.url) as store:
            if commands := before[1](b"a", b"z"):
                await store.run(commands)
            assert isinstance(store, RedisStore)

            def make(a: bytes, z: bytes) -> list[Step]:
                return [step(a, z) for step in steps]

            made = make(b"a", b"z")
            if (asked := shape_of(made)) is not None:
                for _ in range(2):  # or it would be compiled when it comes again
                    store._compiled.get(asked[0])
            try:
                match how:
                    case "planned":
                        outcome = await Store.atomically(store, made)
                    case "compiled":
                        outcome = await store.atomically(made)
                    case _:
                        outcome = await store.prepared(make, 2)(b"a", b"z")
                said: Any = (outcome.stopped_at, outcome.replies)
            except StoreError as error:
                said = (type(error), str(error), getattr(error, "key", None))
            held = [one_server.ask("DUMP", key) for key in ("a", "z", "h")]
            held += [one_server.ask("PEXPIRETIME", key) if key == "z" else None for key in ("a", "z")]
            return said, held

    planned = asyncio.run(done("planned"))
    assert asyncio.run(done("compiled")) == planned
    assert asyncio.run(done("prepared")) == planned


def admitting(record: bytes, members: bytes, name: str, most: int) -> list[Step]:
    """A record first, and guards of another key behind it."""
    return [
        required(("SET", record, "x", "NX")),
        at_most(("SCARD", members), most - 1),
        required(("EXISTS", members)),
        absent(record + b":over"),
        ("SADD", members, name),
        ("SCARD", members),
    ]


async def test_guards_behind_a_write_are_looked_at_first_where_that_is_the_same(engine: Server, store: Store) -> None:
    await store.run([("SADD", "members", "first")])
    for number in range(3):
        assert await store.atomically(admitting(b"r%d" % number, b"members", f"m{number}", 9))
    engine.ask("SCRIPT", "FLUSH")
    done = await store.atomically(admitting(b"r3", b"members", "m3", 9))
    assert done.replies == [b"OK", 1, 1, 1, 1, 5]
    assert engine.ask("SCRIPT", "EXISTS", DIGEST) == [0]  # a script of its own did it
    taken = await store.atomically(admitting(b"r3", b"members", "m4", 1))
    assert (taken.stopped_at, taken.replies) == (0, [None])  # the first that stops is told, as without it
    full = await store.atomically(admitting(b"r4", b"members", "m4", 5))
    assert (full.stopped_at, full.replies) == (1, [b"OK", 0])
    await store.run([("SET", "r5:over", "1")])
    over = await store.atomically(admitting(b"r5", b"members", "m4", 9))
    assert (over.stopped_at, over.replies) == (3, [b"OK", 1, 1, 0])
    none = await store.atomically(admitting(b"r6", b"nobody", "m4", 9))
    assert (none.stopped_at, none.replies) == (2, [b"OK", 1, 0])
    assert await store.run([("EXISTS", "r4", "r5", "r6", "nobody"), ("SCARD", "members")]) == [0, 5]


async def test_a_guard_on_a_key_written_by_an_earlier_step_is_not_checked_early(store: Store) -> None:
    def steps(key: bytes) -> list[Step]:
        return [("INCRBY", key, 1), at_most(("GET", key), 2), ("SET", key + b":seen", "1")]

    outcomes = [await store.atomically(steps(b"n")) for _ in range(4)]
    assert [one.stopped_at for one in outcomes] == [None, None, 1, 1]
    assert await store.run([("GET", "n")]) == [b"2"]
