"""An admitting index: a record is valid only while it is listed, and is listed only on creation."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Hash, Keyspace, Set, SortedSet, Store, Value, link, sliding
from keystead.errors import BadDeclaration
from keystead.schema import docs
from keystead.schema.check import check
from keystead.schema.doctor import examine, repair
from tests.schema.conftest import STORES

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)

WEEK = sliding("7d", touch_every="1m")
WEEK_MS = 7 * 86_400_000


class Device(BaseModel):
    uid: str
    name: str = "phone"


class Keys(Keyspace):
    """Devices of users, as values and as hashes; what admits them, and beside it what only lists them."""

    devices = Set("user:{uid}:devices", str, lifetime=WEEK, doc="who may come in")
    device = Value("device:{id:token}", Device, lifetime=WEEK, listed_in=devices.by(admits=True), doc="a device")
    tablets = Set("user:{uid}:tablets", str, lifetime=WEEK, doc="the same")
    tablet = Hash("tablet:{id:token}", Device, lifetime=WEEK, listed_in=link("tablets", admits=True), doc="a tablet")
    phones = Set("user:{uid}:phones", str, lifetime=WEEK, doc="an index that only lists")
    phone = Value("phone:{id:token}", Device, lifetime=WEEK, listed_in=phones, doc="a phone")


@pytest.fixture
def keys(store: Store) -> Keys:
    return Keys(store)


async def members(keys: Keys, index: str) -> set[str]:
    found: set[str] = await getattr(keys, index)("ann").members()
    return found


ANN = Device(uid="ann")

Writing = Callable[[Any], Awaitable[Any]]


async def _replaced(key: Any) -> None:
    seen = await key.see()
    if seen is not None:
        assert await key.replace_seen(seen, Device(uid="ann", name="new"))


LATER_WRITES: dict[str, tuple[str, Writing]] = {
    "replace": ("device", lambda key: key.replace(ANN)),
    "compare_and_set": ("device", lambda key: key.compare_and_set(ANN, Device(uid="ann", name="new"))),
    "replace_seen": ("device", lambda key: _replaced(key)),
    "change": ("device", lambda key: key.change(lambda old: old)),
    "touch": ("device", lambda key: key.touch()),
    "use": ("device", lambda key: key.use()),
    "update of a hash": ("tablet", lambda key: key.update({"name": "new"})),
    "touch of a hash": ("tablet", lambda key: key.touch()),
}


@everywhere
@pytest.mark.parametrize("way", ["add", "set"])
async def test_making_a_record_lists_it(keys: Keys, way: str) -> None:
    await getattr(keys.device("a"), way)(ANN)
    await getattr(keys.tablet("a"), way)(ANN)
    assert await members(keys, "devices") == await members(keys, "tablets") == {"a"}


@everywhere
@pytest.mark.parametrize("name", LATER_WRITES)
async def test_no_later_write_lists_a_record_again(keys: Keys, store: Store, name: str) -> None:
    family, write = LATER_WRITES[name]
    key = getattr(keys, family)("a")
    await key.set(ANN)
    await store.run([("SREM", f"user:ann:{family}s", "a"), ("PEXPIRE", key.key, 1_000_000)])
    assert await write(key) is not False
    assert await members(keys, f"{family}s") == set()
    assert await key.exists()


@everywhere
@pytest.mark.parametrize("name", LATER_WRITES)
async def test_a_later_write_renews_the_index_with_its_record(keys: Keys, store: Store, name: str) -> None:
    family, write = LATER_WRITES[name]
    key = getattr(keys, family)("a")
    await key.set(ANN)
    await store.run([("PEXPIRE", f"user:ann:{family}s", 1_000_000), ("PEXPIRE", key.key, 1_000_000)])
    assert await write(key) is not False
    assert await members(keys, f"{family}s") == {"a"}
    left = await store.run([("PTTL", f"user:ann:{family}s"), ("PTTL", key.key)])
    assert all(WEEK_MS - 20_000 < one <= WEEK_MS for one in left)


@everywhere
async def test_an_index_that_only_lists_is_completed_by_a_later_write(keys: Keys, store: Store) -> None:
    await keys.phone("a").set(ANN)
    await store.run([("SREM", "user:ann:phones", "a")])
    assert await keys.phone("a").replace(ANN) is True
    assert await members(keys, "phones") == {"a"}


@everywhere
async def test_deleting_a_record_takes_its_entry_out(keys: Keys) -> None:
    for id in ("a", "b"):
        await keys.device(id).add(ANN)
    assert await keys.device("a").delete() is True
    assert await members(keys, "devices") == {"b"}
    assert await keys.device("b").consume() == ANN
    assert await members(keys, "devices") == set()


@everywhere
async def test_concurrent_writes_do_not_undo_revoke_all(keys: Keys, store: Store) -> None:
    ids = [f"d{n}" for n in range(20)]
    await asyncio.gather(*(keys.device(id).add(ANN) for id in ids))
    await asyncio.gather(
        *(keys.device(id).replace(ANN) for id in ids),
        *(keys.device(id).change(lambda old: old) for id in ids),
        store.run([("DEL", "user:ann:devices")]),
        *(keys.device(id).touch() for id in ids),
        *(keys.device(id).replace(ANN) for id in ids),
    )
    assert await members(keys, "devices") == set()


# --- the doctor ----------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize("family", ["device", "tablet"])
async def test_a_record_that_is_not_listed_has_ended_and_the_doctor_deletes_it(
    keys: Keys, store: Store, family: str
) -> None:
    for id in ("a", "b"):
        await getattr(keys, family)(id).set(ANN)
    await store.run([("SREM", f"user:ann:{family}s", "a")])
    [found] = (await examine([keys])).found
    assert (found.finding.code, found.finding.key, found.fixed) == ("not-listed", f"{family}:a", False)
    assert "so it has ended" in found.finding.sentence
    [found] = (await repair([keys], set_aside="all")).found
    assert found.fixed
    assert await store.run([("EXISTS", f"{family}:a"), ("EXISTS", f"{family}:b")]) == [0, 1]
    assert await members(keys, f"{family}s") == {"b"}
    assert (await examine([keys])).found == []


@everywhere
async def test_the_doctor_deletes_records_of_a_deleted_admitting_index(keys: Keys, store: Store) -> None:
    for id in ("a", "b", "c"):
        await keys.device(id).set(ANN)
    await store.run([("DEL", "user:ann:devices")])
    report = await repair([keys], set_aside="all")
    assert (report.counts, report.left) == ({"not-listed": {"Keys.device": 3}}, 0)
    assert [key async for page in store.scan() for key in page] == []


@everywhere
async def test_the_doctor_adds_missing_entries_to_a_listing_index(keys: Keys, store: Store) -> None:
    await keys.phone("a").set(ANN)
    await store.run([("DEL", "user:ann:phones")])
    report = await repair([keys], set_aside="all")
    assert (report.counts, report.left) == ({"not-listed": {"Keys.phone": 1}}, 0)
    assert await members(keys, "phones") == {"a"}


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["memory", "valkey"], indirect=True)
async def test_beside_records_that_come_and_go_the_doctor_harms_none_that_is_alive(keys: Keys) -> None:
    until = time.monotonic() + 1.0
    made = 0

    async def come() -> None:
        nonlocal made
        while time.monotonic() < until:
            made += 1
            assert await keys.device(f"d{made}").add(ANN) is True

    async def examined() -> None:
        while time.monotonic() < until:
            assert (await repair([keys], set_aside="all")).found == []

    await asyncio.gather(come(), examined())
    assert len(await members(keys, "devices")) == made > 0
    assert len([key async for key in keys.device.scan()]) == made


# --- declarations --------------------------------------------------------------------------------------------


def test_an_index_that_admits_is_a_set() -> None:
    sentence = "an index that admits must be a Set, but by_age is a SortedSet"
    with pytest.raises(BadDeclaration, match=sentence) as refused:

        class Sorted(Keyspace):
            by_age = SortedSet("user:{uid}:by-age", str, lifetime=WEEK)
            device = Value("device:{id}", Device, lifetime=WEEK, listed_in=by_age.by(admits=True))

    assert refused.value.finding == "dangling-relation"


def test_only_an_index_admits() -> None:
    with pytest.raises(BadDeclaration, match=r"admits is for listed_in, not for owns"):

        class Owning(Keyspace):
            device = Value("device:{id}", Device, lifetime=WEEK, owns=link("lock", admits=True))
            lock = Value("lock:{id}", str, lifetime=WEEK)


def test_a_keyspace_with_an_index_that_admits_has_no_findings() -> None:
    assert list(check([Keys])) == []


def test_the_key_document_states_that_a_record_is_valid_only_while_listed() -> None:
    document = docs.markdown(Keys)
    assert document.count("it is valid only while it is listed") == 2
