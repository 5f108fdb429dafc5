"""The store contract, as one pytest class."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from keystead.errors import KeysteadError
from keystead.stores import Guarantees, Store
from keystead.stores.commands import KINDS
from keystead.testing.contract.atomic_contract import Atomic, AtomicOnOneKey
from keystead.testing.contract.caller_contract import Callers
from keystead.testing.contract.collection_contract import Hashes, Lists, Sets, SortedSets
from keystead.testing.contract.contract_base import Promises, needs
from keystead.testing.contract.derived_contract import DerivedCollections, DerivedKeys, DerivedStrings
from keystead.testing.contract.guard_contract import Guards
from keystead.testing.contract.lifetime_contract import Lifetimes
from keystead.testing.contract.message_contract import Messages
from keystead.testing.contract.race_contract import Cancellation, Races
from keystead.testing.contract.sample_texts import Texts
from keystead.testing.contract.scan_contract import Scans
from keystead.testing.contract.stream_contract import Streams
from keystead.testing.contract.string_contract import Errors, KeyContract, Strings

__all__ = ["StoreContract", "needs"]


class Honesty(Promises):
    async def test_a_store_states_its_guarantees(self, store: Store) -> None:
        guarantees = store.guarantees
        assert isinstance(guarantees, Guarantees)
        assert guarantees.kinds <= KINDS | {"channel"}
        assert "string" in guarantees.kinds
        assert guarantees.shortest_lifetime_ms >= 1

    async def test_the_url_of_a_store_holds_no_secret(self, store: Store) -> None:
        before, at, _ = store.url.partition("@")
        assert not at or ":" not in before.partition("://")[2]

    async def test_closing_twice_is_no_error(self, store: Store) -> None:
        await store.run([("SET", self.key("a"), "1")])
        await store.close()
        await store.close()

    async def test_every_verb_called_from_another_event_loop_says_so(self, store: Store) -> None:
        ask = store.prepared(lambda key: [("GET", key)], 1)
        key = self.key("a")

        async def codes() -> dict[str, str]:
            verbs: dict[str, Awaitable[Any]] = {
                "read": store.run([("GET", key)]),
                "write": store.run([("SET", key, "1")]),
                "atomically": store.atomically([("SET", key, "1")]),
                "prepared": ask(key),
                "scan": _first_page(store),
                "subscribe": _subscribe(store),
                "open": store.open(),
                "close": store.close(),
            }
            return {name: await _code_of(verb) for name, verb in verbs.items()}

        refused = await asyncio.to_thread(lambda: asyncio.run(codes()))
        assert refused == dict.fromkeys(refused, "wrong-event-loop")
        assert await store.run([("GET", key)]) == [None]


async def _first_page(store: Store) -> None:
    await anext(store.scan())


async def _subscribe(store: Store) -> None:
    async with store.subscribe("news"):
        pass


async def _code_of(verb: Awaitable[Any]) -> str:
    try:
        await verb
    except KeysteadError as error:
        return error.code
    return "ok"


class StoreContract(
    Honesty,
    Callers,
    Strings,
    KeyContract,
    Errors,
    Hashes,
    Sets,
    SortedSets,
    Lists,
    Streams,
    Lifetimes,
    Atomic,
    Guards,
    AtomicOnOneKey,
    Races,
    Cancellation,
    Texts,
    Scans,
    Messages,
    DerivedStrings,
    DerivedKeys,
    DerivedCollections,
):
    """Tests every promise of `keystead.stores.Store`. Subclass it with a fixture `url`, or `store` and `other`."""
