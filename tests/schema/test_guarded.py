"""Guarded changes of the doctor: limits work like any other guard, with and without an atomic step."""

import pytest

from keystead import Store
from keystead.schema.doctor import guarded_changes
from keystead.schema.doctor.guarded_changes import StoreGuard
from keystead.stores import at_most
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)


@everywhere
@pytest.mark.parametrize("place", ["{a}:other", "elsewhere"], ids=["one slot", "another slot"])
async def test_a_change_is_made_only_within_the_limit(store: Store, place: str) -> None:
    await store.run([("SADD", "{a}:members", "ann", "bob")])
    for limit, made in ((1, False), (2, True)):
        guards = [StoreGuard(store, at_most(("SCARD", "{a}:members"), limit))]
        assert await guarded_changes.change(store, guards, [("SET", place, "1")]) is made
        assert await store.run([("EXISTS", place)]) == [made]
        assert (await guarded_changes.holds_now(store, guards, ("GET", place)) is not None) is made


@everywhere
@pytest.mark.parametrize("place", ["{a}:other", "elsewhere"], ids=["one slot", "another slot"])
async def test_a_limit_on_a_value_that_is_not_a_number_does_not_hold(store: Store, place: str) -> None:
    await store.run([("SET", "{a}:text", "12x")])
    guards = [StoreGuard(store, at_most(("GET", "{a}:text"), 99))]
    assert await guarded_changes.change(store, guards, [("SET", place, "1")]) is False
    assert await guarded_changes.holds_now(store, guards, ("GET", place)) is None
    assert await store.run([("EXISTS", place)]) == [0]
