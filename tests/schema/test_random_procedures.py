"""Random procedures behave the same on every store, and killed ordered ones are repaired."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keystead import (
    Counter,
    Hash,
    Keyspace,
    KeysteadError,
    List,
    Log,
    Set,
    SortedSet,
    Steps,
    Store,
    Value,
    after,
    connect,
    never,
    procedure,
)
from keystead.errors import StoreUnavailable
from keystead.schema import Operation
from keystead.schema.compiled_procedure import compile_procedure
from keystead.schema.procedure_plan import why_not_compiled
from tests import servers
from tests.real_servers import mariadb_server, postgres_server, redis_server, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "valkey_cluster"]

DAY = after("1d")
Call = tuple[str, str, str, tuple[Any, ...], str | None]  # family, id, verb, arguments, reason


class Things(Keyspace):
    """One family of each kind, all keys of a test in one slot."""

    text = Value("text:{run}:{id}", str, lifetime=DAY, tag="run", doc="a text")
    number = Counter("number:{run}:{id}", lifetime=DAY, tag="run", doc="a number")
    record = Hash("record:{run}:{id}", dict[str, str], lifetime=DAY, tag="run", doc="a record")
    members = Set("members:{run}:{id}", str, lifetime=DAY, tag="run", doc="members")
    scores = SortedSet("scores:{run}:{id}", str, lifetime=DAY, tag="run", doc="scores")
    queue = List("queue:{run}:{id}", str, lifetime=DAY, tag="run", doc="a queue")
    events = Log("events:{run}:{id}", str, lifetime=DAY, tag="run", doc="events")

    @procedure
    def do(self, run: str, calls: Sequence[Call]) -> Steps[tuple[Any, ...]]:
        """Whatever is asked."""
        steps: list[Operation[Any]] = []
        for family, id, verb, arguments, reason in calls:
            operation: Operation[Any] = getattr(getattr(self, family)(run, id), verb)(*arguments)
            steps.append(operation if reason is None else operation.otherwise(reason))
        return Steps(*steps).giving(*steps[:2], *steps[2:])


TEXT = st.sampled_from(["", "a", "b", "1", "été", "x" * 300])
NAME = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(-3, 3)
VERBS: dict[str, dict[str, tuple[st.SearchStrategy[Any], ...]]] = {
    "text": {"get": (), "set": (TEXT,), "add": (TEXT,), "replace": (TEXT,), "consume": ()}
    | {"compare_and_set": (TEXT, TEXT)},
    "number": {"get": (), "increment": (SMALL,), "decrement": (SMALL,), "at_most": (SMALL,), "at_least": (SMALL,)}
    | {"start_at": (SMALL,), "set": (SMALL,)},
    "record": {"put": (st.dictionaries(NAME, TEXT, min_size=1, max_size=3),), "has": (NAME,), "remove": (NAME,)}
    | {"count": (), "get": (), "at_most": (st.integers(0, 3),), "add_field": (NAME, TEXT)},
    "members": {"add": (NAME,), "remove": (NAME,), "has": (NAME,), "count": (), "at_most": (st.integers(0, 3),)}
    | {"members": ()},
    "scores": {"add": (NAME, SMALL), "raise_to": (NAME, SMALL), "increment": (NAME, SMALL), "move": (NAME, SMALL)}
    | {"score": (NAME,), "score_at_most": (NAME, SMALL), "remove": (NAME,), "lowest": (st.integers(0, 3),)},
    "queue": {"append": (TEXT,), "prepend": (TEXT,), "pop_first": (), "items": (), "trim": (st.integers(1, 3),)},
    "events": {"append": (TEXT,), "count": ()},
}  # fmt: skip
# Those whose result does not say whether there was something cannot be guards.
NO_GUARDS = {"get", "members", "lowest", "items", "put", "trim", "set", "append", "prepend", "count"}


@st.composite
def calls(draw: st.DrawFn) -> Call:
    family = draw(st.sampled_from(sorted(VERBS)))
    verbs = VERBS[family] | {"exists": (), "delete": ()}
    verb = draw(st.sampled_from(sorted(verbs)))
    arguments = tuple(draw(one) for one in verbs[verb])
    guard = draw(st.booleans()) and verb not in NO_GUARDS
    return (family, draw(st.sampled_from(["1", "2"])), verb, arguments, "stopped here" if guard else None)


Opened = tuple[asyncio.Runner, dict[str, Things]]


@pytest.fixture(scope="module")
def opened(
    tmp_path_factory: pytest.TempPathFactory,
    redis_server: servers.Server,
    valkey_cluster: servers.Cluster,
    postgres_server: servers.PostgresServer,
    mariadb_server: servers.MariadbServer,
) -> Iterator[Opened]:
    """The keyspace in each store, and the event loop in which they are open."""
    database = f"sqlite:///{tmp_path_factory.mktemp('procedures')}/things.db"
    urls = (database, redis_server.url, valkey_cluster.url, postgres_server.url, mariadb_server.url)

    async def enter() -> dict[str, Things]:
        return {url: Things(await stack.enter_async_context(connect(url))) for url in urls}

    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            yield runner, runner.run(enter())
        finally:
            runner.run(stack.aclose())


async def told(keys: Things, run: str, batches: list[list[Call]]) -> list[Any]:
    """What each procedure said, and all that is stored in the end."""
    said: list[Any] = []
    for batch in batches:
        try:
            done = await keys.do(run, batch)
        except KeysteadError as error:
            said.append(error.code)
        else:
            said.append(_without_ids(done.value if done else (done.stopped, done.stopped_at, done.before)))
    for id in ("1", "2"):
        said += await keys.run(
            keys.text(run, id).get(), keys.number(run, id).get(), keys.record(run, id).get(),
            keys.members(run, id).members(), keys.scores(run, id).lowest(9), keys.queue(run, id).items(),
        )  # fmt: skip
        said += [entry.item for entry in await keys.events(run, id).entries()]
    return said


def _without_ids(values: Any) -> Any:
    """Ids of log entries are times, which differ."""
    if isinstance(values, tuple):
        return tuple(map(_without_ids, values))
    return "an id" if isinstance(values, str) and re.fullmatch(r"\d{13}-\d+", values) else values


_number = count()


@pytest.mark.matrix
@settings(max_examples=60)
@example([[("number", "1", "at_least", (1,), "stopped here"), ("number", "1", "decrement", (1,), None)]])
@given(st.lists(st.lists(calls(), min_size=1, max_size=6), min_size=1, max_size=4))
def test_random_procedures_say_and_do_the_same_on_every_store(opened: Opened, batches: list[list[Call]]) -> None:
    runner, stores = opened
    run = f"run{next(_number)}"

    async def compare() -> None:
        found = await asyncio.gather(*(told(keys, run, batches) for keys in stores.values()))
        for url, other in zip(stores, found, strict=True):
            assert other == found[0], url

    runner.run(compare())


# --- compiled or not ----------------------------------------------------------------------------------------


# Their arguments are positions or fields: they are fixed in a compiled procedure.
FIXED = {"lowest", "trim", "put"}


@st.composite
def declared(draw: st.DrawFn) -> tuple[list[Call], list[list[Any]]]:
    """The steps of a procedure, and the arguments of some calls of it."""
    steps = draw(st.lists(calls(), min_size=1, max_size=6))
    every = [one for family, _, verb, *_ in steps if verb not in FIXED for one in VERBS[family].get(verb, ())]
    return steps, draw(st.lists(st.tuples(*every).map(list), min_size=1, max_size=3))


def declare(steps: list[Call]) -> type[Things]:
    """A keyspace with a procedure of these steps, whose arguments are those of the verbs."""
    lines, parameters = [], ["self", "run: str"]
    for number, (family, id, verb, arguments, reason) in enumerate(steps):
        given = ", ".join(map(repr, arguments))
        if verb not in FIXED:
            names = [f"given{len(parameters) + at}" for at in range(len(arguments))]
            parameters += [f"{name}: {type(one).__name__}" for name, one in zip(names, arguments, strict=True)]
            given = ", ".join(names)
        guard = "" if reason is None else f".otherwise({reason!r})"
        lines.append(f"    step{number} = self.{family}(run, {id!r}).{verb}({given}){guard}")
    results = ", ".join(f"step{number}" for number in range(len(steps)))
    lines.append(f"    return Steps({results}).giving({results})")
    made: dict[str, Any] = {"Steps": Steps}
    exec(f"def do({', '.join(parameters)}):\n" + "\n".join(lines), made)
    return type("Declared", (Things,), {"do": procedure(made["do"])})


async def outcomes(keys: Any, run: str, every: Sequence[Sequence[Any]]) -> list[Any]:
    """What each call of the procedure said, and all that is stored in the end."""
    said: list[Any] = []
    for arguments in every:
        try:
            done = await keys.do(run, *arguments)
        except KeysteadError as error:
            said.append((error.code, str(error).replace(run, "run")))
        else:
            said.append(_without_ids(done.value if done else (done.stopped, done.stopped_at, done.before)))
    return said + await told(keys, run, [])


@pytest.mark.matrix
@settings(max_examples=80)
@given(declared())
def test_a_compiled_procedure_says_and_does_what_its_body_does(
    opened: Opened, wanted: tuple[list[Call], list[list[Any]]]
) -> None:
    runner, stores = opened
    steps, every = wanted
    keyspace = declare(steps)
    number = next(_number)

    async def compare() -> None:
        for url, one in stores.items():
            compiled, plain = keyspace(one.text.store), keyspace(one.text.store)
            own = keyspace.procedures["do"]
            compiled._compiled[own] = compile_procedure(compiled, own)
            assert compiled._compiled[own] is not None, why_not_compiled(keyspace, own)
            plain._compiled[own] = None
            found = await outcomes(compiled, f"c{number}", every), await outcomes(plain, f"p{number}", every)
            assert found[0] == found[1], url

    runner.run(compare())


# --- killed in the midst ------------------------------------------------------------------------------------


class Bank(Keyspace):
    """Money is moved between accounts that may be in different slots; a note says what is under way."""

    account = Counter("account:{who}", lifetime=never("a test"), doc="what somebody has")
    transfer = Hash("transfer:{id}", dict[str, str], lifetime=never("deleted when it is done"), doc="what is under way")

    @procedure(ordered="finish() goes on with every transfer that is noted")
    def move(self, id: str, giver: str, taker: str, amount: int) -> Steps[None]:
        """Move an amount from one account to another."""
        return Steps(
            self.transfer(id).add_field("giver", giver).otherwise("there is such a transfer"),
            self.transfer(id).put({"taker": taker, "amount": str(amount)}),
            self.account(giver).at_least(amount).otherwise("not enough"),
            self.account(giver).decrement(amount),
            self.account(taker).increment(amount),
            self.transfer(id).delete(),
        ).undone_by(self.transfer(id).delete())

    async def finish(self, total: int, holders: Sequence[str]) -> None:
        """The repair: what was taken and has not been given is given, and the note goes."""
        async for note in self.transfer.scan():
            held = await note.get() or {}
            missing = total - sum([await self.account(one).get() for one in holders])
            if missing and "taker" in held:
                await self.account(held["taker"]).increment(missing)
            await note.delete()


@pytest.mark.parametrize("store_url", ["cluster", "redis"], indirect=True)
async def test_killed_at_every_step_an_ordered_procedure_is_repaired(store: Store, monkeypatch: Any) -> None:
    bank, plain = Bank(store), store.atomically
    await bank.account("ann").set(10)
    finished = 0
    for survive in range(8):

        async def dying(steps: Any, left: list[int] = [survive]) -> Any:  # noqa: B006 - one list a round is what it is for
            if not left[0]:
                raise StoreUnavailable("the process was killed")
            left[0] -= 1
            return await plain(steps)

        monkeypatch.setattr(store, "atomically", dying)
        with suppress(StoreUnavailable):
            finished += bool(await bank.move(f"t{survive}", "ann", "bob", 1))
        monkeypatch.setattr(store, "atomically", plain)
        await bank.finish(10, ("ann", "bob"))
        ann, bob = await bank.account("ann").get(), await bank.account("bob").get()
        assert ann + bob == 10, survive
        assert [note.key async for note in bank.transfer.scan()] == []
    assert finished >= 4  # a cluster takes four steps, so it was killed in the midst of each


@pytest.mark.parametrize("store_url", ["cluster", "redis"], indirect=True)
async def test_a_guard_in_the_midst_leaves_nothing_behind(store: Store) -> None:
    bank = Bank(store)
    await bank.account("ann").set(1)
    done = await bank.move("t", "ann", "bob", 2)
    assert done.stopped == "not enough"
    assert await bank.account("ann").get() == 1
    assert not await bank.transfer("t").exists()
    assert await bank.move("t", "ann", "bob", 1)
