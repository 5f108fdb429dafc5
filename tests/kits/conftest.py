"""What the tests of the kits share: an empty store, a key ring, and a look at the store past the schema."""

import re
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from keystead import KeyRing, Keyspace, Store, connect
from keystead.schema.lifetime import duration_ms
from keystead.stores import Command, Reply

# A write and the look at its deadline are never further apart than this.
SLACK_MS = 20_000


class Raw:
    """What is really in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ask(self, *command: str | bytes | int | float) -> Reply:
        return (await self._store.run([command]))[0]

    async def keys(self) -> set[str]:
        return {key.decode() async for page in self._store.scan() for key in page}

    async def left_ms(self, key: str) -> int:
        """How long a key has to live; -1: for ever."""
        left: int = await self.ask("PTTL", key)
        assert left != -2, f"there is no {key}"
        return left

    async def lives(self, key: str, duration: str | None) -> bool:
        """Whether a key has just been given this time to live; None: no deadline at all."""
        left = await self.left_ms(key)
        if duration is None:
            return left == -1
        return duration_ms(duration) - SLACK_MS < left <= duration_ms(duration)

    async def everything(self) -> bytes:
        """All keys and all that they hold, one after the other."""
        reads: dict[str, Callable[[str], Command]] = {
            "string": lambda key: ("GET", key),
            "hash": lambda key: ("HGETALL", key),
            "set": lambda key: ("SMEMBERS", key),
            "zset": lambda key: ("ZRANGE", key, 0, -1),
            "list": lambda key: ("LRANGE", key, 0, -1),
            "stream": lambda key: ("XRANGE", key, "-", "+"),
        }
        found = []
        for key in await self.keys():
            kind: str | bytes = await self.ask("TYPE", key)
            held = await self.ask(*reads[kind.decode() if isinstance(kind, bytes) else kind](key))
            found.append(key.encode() + b" " + repr(held).encode())
        return b"\n".join(found)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with connect("memory://") as opened:
        yield opened


@pytest.fixture
def raw(store: Store) -> Raw:
    return Raw(store)


@pytest.fixture(scope="session")
def ring() -> KeyRing:
    return KeyRing.from_text(f"test:{KeyRing.new_key()}")


def rows_of(keyspace: type[Keyspace]) -> dict[str, str]:
    """The rows of a keyspace: its patterns, with the names in braces left out, and the kinds of its families."""
    return {shape(family.pattern.display): family.kind_name for family in keyspace.families.values()}


def shape(pattern: str) -> str:
    return re.sub(r"\{[^{}]*\}", "{}", pattern)


def rows(document: Mapping[str, str]) -> dict[str, str]:
    """The rows of a document, which names its placeholders otherwise now and then."""
    return {shape(pattern): kind for pattern, kind in document.items()}


def lifetimes(keyspace: type[Keyspace]) -> dict[str, str]:
    return {name: family.lifetime.describe() for name, family in keyspace.families.items()}


def without_seals(data: bytes) -> str:
    """Stored JSON with `*` in the place of each text that is sealed with the key of `ring`."""
    return re.sub(rb'"sealed\.test\.[\w.-]+"', b'"*"', data).decode()
