"""An operation that is never awaited warns like a coroutine. A used one never warns."""

import asyncio
import gc
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Channel, Counter, Hash, Keyspace, List, Log, Set, SortedSet, Value, after, connect, sliding
from keystead.errors import BadKey, BadValue
from keystead.schema import Operation
from keystead.schema.kinds.value import Seen

DAY = sliding("1d", touch_every="1h")


class Cart(BaseModel):
    owner: str
    total: int = 0


class AppKeys(Keyspace):
    """One family of each kind."""

    name = Value("name:{id:int}", str, lifetime=DAY)
    cart = Hash("cart:{id:int}", Cart, lifetime=DAY, listed_in="carts")
    items = Hash("items:{id:int}", dict[str, int], lifetime=after("1h"))
    carts = SortedSet("carts", int, lifetime=DAY, score="when it was made")
    hits = Counter("hits:{id:int}", lifetime=DAY)
    tags = Set("tags:{id:int}", str, lifetime=DAY)
    queue = List("queue:{id:int}", str, lifetime=DAY)
    events = Log("events:{id:int}", str, lifetime=DAY)
    news = Channel("news:{id:int}", str)


ANN = Cart(owner="ann")
OF_ANY_KEY: dict[str, tuple[Any, ...]] = {
    "exists": (),
    "absent": (),
    "left_ms": (),
    "remaining": (),
    "touch": (),
    "delete": (),
    "shorten": (9,),
    "extend": (9,),
    "clock": (),
}
VERBS: dict[str, dict[str, tuple[Any, ...]]] = {
    "name": OF_ANY_KEY | {"get": (), "see": (), "holds": (None,), "set": ("a",), "add": ("a",), "replace": ("a",)}
    | {"compare_and_set": ("a", "b"), "replace_seen": (Seen("a", b"a"), "b"), "consume": (), "use": ()},
    "cart": OF_ANY_KEY | {"get": (), "set": (ANN,), "add": (ANN,), "update": ({"total": 1},), "field": ("total",)}
    | {"update_seen": ({b"total": b"1"}, {"total": 1})}
    | {"fields": ("total",), "has": ("total",), "count": (), "at_most": (1,), "increment": ("total",), "use": ()}
    | {"consume_field": ("total",), "remove": ("total",), "field_at_most": ("total", 1)},
    "items": {"put": ({"a": 1},), "add_field": ("a", 1), "increment": ("a", 2), "copy": ({b"a": b"1"},)}
    | {"see": (), "holds": ({b"a": b"1"},)},
    "carts": OF_ANY_KEY | {"put": ({1: 1},), "add": (1, 1), "raise_to": (1, 1), "lower_to": (1, 1), "score": (1,)}
    | {"increment": (1,), "rank": (1,), "rank_from_top": (1,), "lowest": (1,), "highest": (1,), "between": (1, 2)}
    | {"count": (), "count_between": (1, 2), "at_most": (1,), "remove": (1,), "remove_between": (1, 2)}
    | {"move": (1, 2), "score_at_most": (1, 2), "keep_highest": (1,), "keep_lowest": (1,), "pop_lowest": ()}
    | {"score_is": (1, 2), "see_lowest": (1,), "between_at_most": (1, 2, 3)},
    "hits": OF_ANY_KEY | {"get": (), "at_most": (1,), "holds": (1,), "increment": (), "decrement": (), "set": (1,)}
    | {"at_least": (1,), "start_at": (1,), "consume": ()},
    "tags": OF_ANY_KEY | {"members": (), "has": ("a",), "count": (), "at_most": (1,), "add": ("a",), "remove": ("a",)}
    | {"see": ()},
    "queue": OF_ANY_KEY | {"trim": (1,), "prepend": ("a",), "append": ("a",), "items": (), "get": (0,), "count": ()}
    | {"replace": (0, "a"), "remove": ("a",), "pop_first": (), "pop_last": (), "see": ()},
    "events": OF_ANY_KEY | {"append": ("a",), "append_all": ({"1-0": "a"},), "entries": (), "latest": (1,)}
    | {"count": (), "remove": ("1-0",), "newest": (1,), "see": (), "see_latest": (1,)},
    "news": {"publish": ("a",)},
}  # fmt: skip


@pytest.fixture
async def keys() -> AsyncIterator[AppKeys]:
    async with connect("memory://") as store:
        yield AppKeys(store)


@contextmanager
def warned() -> Iterator[list[str]]:
    """The warnings of the block: file, line and message."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield said
        gc.collect()
        said += [f"{os.path.basename(w.filename)}:{w.lineno} {w.category.__name__}: {w.message}" for w in caught]


def call(keys: AppKeys, family: str, verb: str, *arguments: Any) -> Operation[Any]:
    key = getattr(keys, family)(*(() if family == "carts" else (1,)))
    operation: Operation[Any] = getattr(key, verb)(*arguments)
    return operation


async def close(operation: Operation[Any]) -> None:
    operation.close()


def drop(keys: AppKeys, family: str, verb: str, *arguments: Any) -> None:
    call(keys, family, verb, *arguments)


def line_of_drop() -> int:
    return drop.__code__.co_firstlineno + 1


async def test_every_verb_that_is_dropped_names_itself_and_the_line(keys: AppKeys) -> None:
    expected = []
    with warned() as said:
        for family, verbs in VERBS.items():
            for verb, arguments in verbs.items():
                drop(keys, family, verb, *arguments)
                expected.append(
                    f"{os.path.basename(__file__)}:{line_of_drop()} RuntimeWarning: "
                    f"operation AppKeys.{family}.{verb} was never awaited"
                )
    assert said == expected
    untried = [
        f"{name}.{verb}"
        for name, family in AppKeys.families.items()
        for verb, function in inspect.getmembers(family.verbs, inspect.isfunction)
        if not verb.startswith("_") and function.__annotations__.get("return", "").startswith("Operation")
        and not any(verb in VERBS[other] for other in VERBS if AppKeys.families[other].verbs is family.verbs)
    ]  # fmt: skip
    assert untried == []


async def test_awaited_verbs_do_not_warn(keys: AppKeys) -> None:
    ways: dict[str, Callable[[Operation[Any]], Any]] = {
        "await": lambda one: one,
        "gather": lambda one: asyncio.gather(one),
        "run": keys.run,
        "run of several": lambda one: keys.run(one, keys.name(2).get(), keys.cart(2).delete()),
        "atomically": keys.atomically,
        "close": close,
        "in_batch": lambda one: keys.hits(1).bound.store.atomically(one.in_batch()),
    }
    with warned() as said:
        for family, verbs in VERBS.items():
            for verb, arguments in verbs.items():
                for use in ways.values():
                    await asyncio.gather(
                        asyncio.ensure_future(use(call(keys, family, verb, *arguments))), return_exceptions=True
                    )
        await keys.atomically(keys.name(1).exists().required(), keys.hits(1).increment())
    assert said == []


async def test_a_batch_that_is_not_awaited_warns_once(keys: AppKeys) -> None:
    with warned() as said:
        keys.run(keys.name(1).get(), keys.hits(1).get())  # type: ignore[unused-coroutine]
        keys.run(keys.name(1).get(), keys.cart(1).delete())  # type: ignore[unused-coroutine]
        keys.atomically(keys.name(1).get(), keys.hits(1).get())  # type: ignore[unused-coroutine]
    assert [line.partition(" ")[2] for line in said] == [
        "RuntimeWarning: coroutine 'Keyspace.run' was never awaited",
        "RuntimeWarning: coroutine 'Keyspace.run' was never awaited",
        "RuntimeWarning: coroutine 'Keyspace.atomically' was never awaited",
    ]


async def test_a_refused_key_or_value_of_a_batch_causes_no_further_warning(keys: AppKeys) -> None:
    wrong: Any = "no number"
    with warned() as said:
        with pytest.raises(BadKey):
            await keys.run(keys.name(1).get(), keys.name(wrong).get())
        with pytest.raises(BadValue):
            await keys.atomically(keys.name(1).get(), keys.hits(1).increment(wrong))
    assert said == []
    with warned() as said, pytest.raises(ZeroDivisionError):  # of the program: coroutines would warn as well
        await keys.run(keys.name(1).get(), keys.hits(1 // 0).get())
    assert [line.partition(" ")[2] for line in said] == ["RuntimeWarning: operation AppKeys.name.get was never awaited"]


async def test_a_task_cancelled_before_it_begins_causes_no_warning(keys: AppKeys) -> None:
    async def read() -> None:
        await asyncio.gather(keys.name(1).get(), keys.hits(1).get())

    with warned() as said:
        for begin in (0, 1):
            for make in (read, lambda: keys.run(keys.name(1).get(), keys.cart(1).get())):
                task = asyncio.ensure_future(make())
                for _ in range(begin):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del task
    assert said == []


async def test_an_operation_dropped_by_a_task_or_a_callback_warns(keys: AppKeys) -> None:
    async def job() -> None:
        forgotten = keys.name(1).get()
        assert forgotten.steps

    with warned() as said:
        await asyncio.ensure_future(job())
        asyncio.get_running_loop().call_soon(keys.hits(1).get)
        await asyncio.sleep(0)
    assert [line.partition("operation ")[2] for line in said] == [
        "AppKeys.name.get was never awaited",
        "AppKeys.hits.get was never awaited",
    ]


async def test_a_dropped_if_readable_read_warns_immediately(keys: AppKeys) -> None:
    gc.disable()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            keys.name(1).get().if_readable()
            assert ["AppKeys.name.get" in str(one.message) for one in caught] == [True]
    finally:
        gc.enable()


async def test_where_warnings_are_errors_a_dropped_operation_fails_the_test(
    keys: AppKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest makes an error of what cannot be raised from a finalizer, as it does of coroutines."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: seen.append(str(error.exc_value)))
    drop(keys, "name", "get")
    assert seen == ["operation AppKeys.name.get was never awaited"]


def test_at_exit_there_is_no_warning() -> None:
    program = (
        "import asyncio, keystead\n"
        "class K(keystead.Keyspace):\n"
        "    a = keystead.Value('a:{id}', str, lifetime=keystead.after('1h'))\n"
        "operation = K(keystead.connect('memory://')).a('1').get()\n"
    )
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
