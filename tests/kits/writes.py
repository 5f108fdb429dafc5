"""Every way in which a key can be written, one after the other, for tests that look at the key after each."""

from collections.abc import AsyncIterator
from typing import Any

from keystead.schema.kinds import CounterKey, HashKey, ListKey, SetKey, SortedSetKey, ValueKey


async def each_write(key: Any, value: Any, **until: Any) -> AsyncIterator[str]:
    """Write a key in each way that its kind has; before each, it is gone. Yields the name of the verb."""
    match key:
        case ValueKey():
            ways = _value(key, value, until)
        case CounterKey():
            ways = _counter(key)
        case HashKey():
            ways = _hash(key, value)
        case SetKey():
            ways = {"add": lambda: [key.add(value, **until)]}
        case SortedSetKey():
            ways = _sorted_set(key, value)
        case ListKey():
            ways = {
                "prepend": lambda: [key.prepend(value)],
                "prepend and keep": lambda: [key.prepend(value, keep=2)],
                "append": lambda: [key.append(value)],
                "replace": lambda: [key.append(value), key.replace(0, value)],
            }
        case _:
            raise AssertionError(f"{key!r} has no kind that is known here")
    for name, way in ways.items():
        await key.bound.store.run([("DEL", key.key)])
        for operation in way():
            assert await operation is not False, f"{name} wrote nothing"
        yield name


def _value(key: ValueKey[Any], value: Any, until: Any) -> dict[str, Any]:
    ways = {
        "set": lambda: [key.set(value, **until)],
        "set again": lambda: [key.set(value, **until), key.set(value, **until)],
        "add": lambda: [key.add(value, **until)],
        "replace": lambda: [key.set(value, **until), key.replace(value, **until)],
        "change": lambda: [key.set(value, **until), key.change(lambda old: old)],
    }
    if not key.bound.family.codec.sealed:
        ways["compare_and_set"] = lambda: [key.set(value, **until), key.compare_and_set(value, value, **until)]
    return ways


def _counter(key: CounterKey) -> dict[str, Any]:
    return {
        "increment": lambda: [key.increment()],
        "increment by more": lambda: [key.increment(5), key.increment(5)],
        "decrement": lambda: [key.decrement()],
        "set": lambda: [key.set(7)],
    }


def _hash(key: HashKey[Any, Any, Any], value: Any) -> dict[str, Any]:
    fields = value if isinstance(value, dict) else {name: getattr(value, name) for name in type(value).model_fields}
    name, one = next(iter(fields.items()))
    return {
        "set": lambda: [key.set(value)],
        "add": lambda: [key.add(value)],
        "update": lambda: [key.set(value), key.update({name: one})],
        "put": lambda: [key.put({name: one})],
        "add_field": lambda: [key.add_field(name, one)],
    }


def _sorted_set(key: SortedSetKey[Any], value: Any) -> dict[str, Any]:
    return {
        "put": lambda: [key.put({value: 1})],
        "add": lambda: [key.add(value, 1)],
        "raise_to": lambda: [key.raise_to(value, 1)],
        "lower_to": lambda: [key.lower_to(value, 1)],
        "increment": lambda: [key.increment(value, 1)],
    }
