"""Unreadable data: one kind of error, one log line, and reads that skip it."""

import logging

import pytest
from pydantic import BaseModel

from keystead import Counter, Hash, Keyspace, List, Log, Set, SortedSet, Store, Value, never
from keystead.errors import BadCall, CommandError, NotANumber, Unreadable, WrongKind
from tests.schema.conftest import redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = ["redis_server", "store", "store_url", "valkey_cluster", "valkey_server"]

everywhere = pytest.mark.parametrize("store_url", ["memory", "redis", "cluster"], indirect=True)
FOR_GOOD = never("a test")


class Person(BaseModel):
    name: str
    age: int = 0


class AppKeys(Keyspace):
    """One family of each kind."""

    value = Value("value:{id:int}", Person, lifetime=FOR_GOOD)
    record = Hash("record:{id:int}", Person, lifetime=FOR_GOOD)
    free = Hash("free:{id:int}", dict[str, int], lifetime=FOR_GOOD)
    counter = Counter("counter:{id:int}", lifetime=FOR_GOOD)
    members = Set("members:{id:int}", int, lifetime=FOR_GOOD)
    ranks = SortedSet("ranks:{id:int}", int, lifetime=FOR_GOOD)
    items = List("items:{id:int}", int, lifetime=FOR_GOOD)
    log = Log("log:{id:int}", Person, lifetime=FOR_GOOD)


@pytest.fixture
def keys(store: Store) -> AppKeys:
    return AppKeys(store)


@everywhere
async def test_a_key_of_another_kind_and_a_counter_that_is_not_a_number_are_unreadable(
    keys: AppKeys, store: Store
) -> None:
    await store.run([("RPUSH", "value:1", "x"), ("SET", "members:1", "x"), ("SET", "counter:1", "12abc")])
    for operation in (
        keys.value(1).get(),
        keys.members(1).members(),
        keys.members(1).add(1),
        keys.counter(1).increment(),
    ):
        with pytest.raises(Unreadable):
            await operation
    with pytest.raises(Unreadable) as raised:
        await keys.run(keys.counter(2).increment(), keys.value(1).get())
    assert isinstance(raised.value, WrongKind | CommandError)
    assert raised.value.results is not None
    assert raised.value.results[0] == 1
    with pytest.raises(Unreadable):
        await keys.atomically(keys.counter(1).exists(), keys.counter(1).increment())


@everywhere
async def test_if_readable_returns_the_readable_part(keys: AppKeys, store: Store) -> None:
    await store.run(
        [
            ("SET", "value:1", '{"name":'),
            ("HSET", "record:1", "name", "Ann", "age", "old"),
            ("HSET", "free:1", "a", "1", "b", "x"),
            ("SET", "counter:1", "x"),
            ("SADD", "members:1", "1", "x"),
            ("ZADD", "ranks:1", 1, "x", 2, "2"),
            ("RPUSH", "items:1", "x", "3", b"\xff"),
            ("XADD", "log:1", "*", "data", '{"name":"Ann"}'),
            ("XADD", "log:1", "*", "other", "x"),
        ]
    )
    assert await keys.value(1).get().if_readable() is None
    assert await keys.record(1).get().if_readable() is None
    assert await keys.free(1).fields("a", "b").if_readable() == {"a": 1}
    assert await keys.members(1).members().if_readable() == {1}
    assert await keys.ranks(1).lowest(5).if_readable() == [(2, 2.0)]
    value, items = await keys.run(keys.value(1).get().if_readable(), keys.items(1).items().if_readable())
    assert (value, items) == (None, [3])
    assert [one.item.name for one in await keys.log(1).entries().if_readable()] == ["Ann"]


@everywhere
async def test_a_key_of_another_kind_is_not_there_for_a_read_if_readable(keys: AppKeys, store: Store) -> None:
    names = [f"{name}:1" for name in AppKeys.families]
    await store.run([("SET", name, "x") if name == "items:1" else ("RPUSH", name, "x") for name in names])
    found = await keys.run(
        *(one.if_readable() for one in (keys.value(1).get(), keys.record(1).get(), keys.free(1).field("a"))),
        *(one.if_readable() for one in (keys.members(1).members(), keys.ranks(1).highest(3), keys.items(1).items())),
        *(one.if_readable() for one in (keys.items(1).count(), keys.log(1).latest(3), keys.members(1).has(1))),
    )
    assert found == (None, None, None, set(), [], [], 0, [], False)
    with pytest.raises(BadCall, match="for reads"):
        keys.members(1).add(1).if_readable()
    with pytest.raises(BadCall, match="for reads"):
        keys.value(1).consume().if_readable()


async def test_an_overflowing_sum_is_not_an_unreadable_value(memory: Store) -> None:
    keys = AppKeys(memory)
    await keys.counter(1).increment(2**63 - 1)
    with pytest.raises(NotANumber) as overflow:
        await keys.counter(1).increment()
    assert not isinstance(overflow.value, Unreadable)


async def test_one_line_in_the_log_names_the_family_and_the_code(caplog: pytest.LogCaptureFixture) -> None:
    from keystead import connect

    async with connect("memory://") as store:
        keys = AppKeys(store)
        await store.run([("SET", "value:7", "x"), ("RPUSH", "counter:7", "x")])
        with caplog.at_level(logging.WARNING, logger="keystead.schema"):
            for operation in (keys.value(7).get(), keys.counter(7).increment()):
                with pytest.raises(Unreadable):
                    await operation
            await keys.value(7).get().if_readable()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" ")[0] for line in lines] == ["AppKeys.value", "AppKeys.counter", "AppKeys.value"]
    assert "(unreadable)" in lines[0]
    assert "(wrong-kind)" in lines[1]
    assert not any("7" in line for line in lines)
