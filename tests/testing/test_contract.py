"""The contract itself: it lets a weaker store pass only where it refuses, and it notices a broken one."""

import inspect
from collections.abc import AsyncIterator, Awaitable

import pytest

from keystead import Store
from keystead.errors import CommandError, StoreError
from keystead.stores import Guarantees, Outcome
from keystead.stores.commands import Call, Reply
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from keystead.stores.store_contract import Planned
from keystead.testing import StoreContract
from keystead.testing.contract import Honesty
from keystead.testing.contract.atomic_contract import AtomicOnOneKey
from keystead.testing.contract.collection_contract import Sets
from keystead.testing.contract.message_contract import Messages
from keystead.testing.contract.string_contract import Strings


async def waited(answer: list[Reply] | Awaitable[list[Reply]]) -> list[Reply]:
    return answer if isinstance(answer, list) else await answer


class StringsOnly(SqliteStore):
    """A store as a plain cache is: strings, and nothing atomic. It refuses everything else."""

    def __init__(self) -> None:
        super().__init__(MEMORY)
        self.guarantees = Guarantees(kinds=frozenset({"string"}), atomic="nothing", durability="memory")

    def _replies(self, calls: list[Call]) -> Awaitable[list[Reply]]:
        return self._refusing(calls)

    async def _refusing(self, calls: list[Call]) -> list[Reply]:
        replies: list[Reply] = []
        for call in calls:
            if call.spec.kind in (None, "string") and call.spec.name != "PUBLISH":
                replies += await waited(super()._replies([call]))
            else:
                replies.append(call.blame(CommandError("this store holds only strings")))
        return replies

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        raise StoreError("this store has no atomic step")


class OnStringsOnly:
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with StringsOnly() as store:
            yield store

    @pytest.fixture
    async def other(self) -> None:
        return None


class TestStringsOnly(OnStringsOnly, Honesty, Strings, Sets, AtomicOnOneKey, Messages):
    """What it has, and a group for each sort of thing that it refuses."""


@pytest.mark.matrix
class TestWholeContractOnStringsOnly(OnStringsOnly, StoreContract):
    """All of it."""


class Liar(SqliteStore):
    """Says that it refuses sorted sets, and takes them."""

    def __init__(self) -> None:
        super().__init__(MEMORY)
        self.guarantees = Guarantees(kinds=frozenset({"string", "hash"}), atomic="nothing")


class Forgetful(SqliteStore):
    """Does not undo what came before a stop."""

    async def _atomically(self, steps: list[Planned]) -> Outcome:
        replies: list[Reply] = []
        for place, step in enumerate(steps):
            [reply] = await self._await_replies([step.call_at(self._clock())])
            replies.append(step.verdict(reply, self._clock()) if step.guard else reply)
            if step.stops(replies[-1]):
                return Outcome(replies, stopped_at=place)
        return Outcome(replies)


class Rounding(SqliteStore):
    """Gives every lifetime in whole seconds."""

    def _replies(self, calls: list[Call]) -> Awaitable[list[Reply]]:
        return self._rounded(calls)

    async def _rounded(self, calls: list[Call]) -> list[Reply]:
        replies = await waited(super()._replies(calls))
        return [
            reply // 1000 * 1000 if call.spec.name == "PTTL" and reply > 0 else reply
            for call, reply in zip(calls, replies, strict=True)
        ]


async def test_a_store_that_takes_what_it_says_it_lacks_fails() -> None:
    async with Liar() as store:
        with pytest.raises(pytest.fail.Exception):
            await StoreContract().test_zadd_obeys_its_conditions(store)


async def test_a_store_that_does_not_undo_fails() -> None:
    async with Forgetful(MEMORY) as store:
        with pytest.raises(AssertionError):
            await StoreContract().test_a_stop_after_writes_undoes_every_one_of_them(store)


async def test_a_store_that_rounds_lifetimes_fails() -> None:
    async with Rounding(MEMORY) as store:
        with pytest.raises(AssertionError):
            await StoreContract().test_an_absolute_deadline_is_kept_to_the_millisecond(store, "SET", "PXAT", 1)


def test_every_promise_has_a_test_of_its_own_name() -> None:
    """Two groups that named a test alike would silently lose one of them."""
    seen: dict[str, type] = {}
    for group in StoreContract.__mro__:
        for name, member in vars(group).items():
            if name.startswith("test_") and inspect.iscoroutinefunction(inspect.unwrap(member)):
                assert name not in seen, f"{name} is in {group.__name__} and in {seen[name].__name__}"
                seen[name] = group
    assert len(seen) > 100
