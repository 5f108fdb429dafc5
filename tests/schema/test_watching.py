"""Watching changes by family, on real stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from keystead import Keyspace, Set, Store, Value, after, connect, never
from keystead.errors import StoreRefused, StoreUnavailable
from keystead.schema import compared_keys
from keystead.schema.watching import Change, Changes, watch
from keystead.stores import changed_keys
from tests import servers
from tests.schema.conftest import STORES

SOON_S = 0.02


class WatchedKeys(Keyspace):
    """Sessions and the sets that list them."""

    sessions = Set("user:{uid}:sessions", str, lifetime=never("emptied with its user"), doc="the sessions of a user")
    session = Value("sess:{sid}", str, lifetime=after("30d"), tag="sid", doc="a session")


async def next_changes(changes: Changes, count: int) -> list[tuple[str, str, str]]:
    found: list[Change] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found.append(await anext(changes))
    assert all(change.at_ms > 1_700_000_000_000 or change.kind == "missed" for change in found)
    return [(change.family_name, change.kind, change.key) for change in found]


@pytest.mark.parametrize("store_url", STORES, indirect=True)
async def test_changes_of_all_clients_are_reported_by_family(store_url: str) -> None:
    async with connect(store_url) as store, watch([WatchedKeys(store)], every_s=SOON_S) as changes:
        keys = WatchedKeys(store)
        # Another process, where there can be one.
        async with connect(store_url) as other:
            writer = keys if store_url == "memory://" else WatchedKeys(other)
            await writer.session("a").set("one")
            session = writer.session("a").key
            assert await next_changes(changes, 1) == [("WatchedKeys.session", "written", session)]
            await writer.sessions("7").add("a")
            assert await next_changes(changes, 1) == [("WatchedKeys.sessions", "written", "user:7:sessions")]
            await (store if store_url == "memory://" else other).run([("SET", "foreign", 1)])
            await writer.session("a").delete()
            assert await next_changes(changes, 1) == [("WatchedKeys.session", "gone", session)]


@pytest.mark.parametrize("store_url", ["memory", "redis"], indirect=True)
async def test_a_key_that_expires_is_gone_and_unknown_keys_are_shown_on_demand(store: Store) -> None:
    async with watch([WatchedKeys(store)], unknown=True, every_s=SOON_S) as changes:
        await store.run([("SET", "foreign\x1b[31m", 1, "PX", 150)])
        assert await next_changes(changes, 2) == [
            ("", "written", "foreign\x1b[31m"),
            ("", "gone", "foreign\x1b[31m"),
        ]


@pytest.mark.parametrize("store_url", ["memory", "redis"], indirect=True)
async def test_only_the_chosen_families_are_watched(store: Store) -> None:
    keys = WatchedKeys(store)
    async with watch([keys], {WatchedKeys.families["sessions"]}, every_s=SOON_S) as changes:
        await keys.session("a").set("one")
        await keys.sessions("7").add("a")
        assert await next_changes(changes, 1) == [("WatchedKeys.sessions", "written", "user:7:sessions")]


@pytest.mark.parametrize("store_url", ["redis"], indirect=True)
async def test_a_reader_that_is_far_behind_is_told_how_much_it_missed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_keys, "MOST_WAITING", 5)
    async with watch([WatchedKeys(store)]) as changes:
        await store.run([("SET", f"sess:{number}", "x") for number in range(40)])
        shown, missed = 0, 0
        while shown + missed < 40:
            change = await asyncio.wait_for(anext(changes), 60)
            shown, missed = shown + (change.kind == "written"), missed + change.count * (change.kind == "missed")
        assert missed > 0
        await store.run_foreign([("FLUSHALL",)])
        assert [kind for _, kind, _ in await next_changes(changes, 1)] == ["flushed"]


async def test_a_lost_connection_ends_the_watch_with_an_error() -> None:
    with servers.redis() as server:
        async with connect(server.url) as store, watch([WatchedKeys(store)]) as changes:
            server.stop()
            with pytest.raises(StoreUnavailable, match="changes may have been missed"):
                await asyncio.wait_for(anext(changes), 60)


async def test_a_store_that_cannot_be_watched_says_why(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_keys, "MOST_COMPARED", 9)
    await memory.run([("SET", f"sess:{number}", "x") for number in range(10)])
    with pytest.raises(StoreRefused, match="more than 9 keys"):
        await begin([WatchedKeys(memory)])


async def begin(keyspaces: Sequence[Keyspace]) -> None:
    async with watch(keyspaces):
        pass
