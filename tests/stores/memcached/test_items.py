"""Items in Memcached: valid names, and values with their exact deadline."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead import Store, connect
from keystead.errors import BadArgument, WrongKind
from keystead.stores.memcached import MemcachedStore
from keystead.stores.memcached.item_format import (
    CLEARED_AFTER_S,
    KEY_BYTES,
    cleared_at_s,
    name_of,
    pack_item,
    unpack_item,
)
from keystead.stores.memcached.memcached_settings import MemcachedSettings
from keystead.stores.memcached.memcached_store import wall_ms
from keystead.stores.sql.string_slot import Item
from tests.servers import MemcachedServer

pytestmark = pytest.mark.anyio

THIRTY_DAYS_S = 30 * 24 * 3600
YEAR_MS = 365 * 24 * 3600 * 1000


def stored(server: MemcachedServer, name: str) -> bytes:
    """What the server says of an item: how long it lasts in seconds (t), and its flags (f)."""
    return server.exchange(f"mg {name} t f")


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_two_keys_share_a_name_and_memcached_takes_every_name(one: bytes, two: bytes) -> None:
    names = name_of(b"app:", one), name_of(b"app:", two)
    assert (names[0] == names[1]) == (one == two)
    for name in names:
        assert name.startswith(b"app:")
        assert len(name) <= KEY_BYTES
        assert not any(byte <= 0x20 or byte == 0x7F for byte in name)


def test_a_key_that_looks_like_a_digest_is_never_taken_for_the_key_of_that_digest() -> None:
    odd = b"a key with spaces"
    digest = name_of(b"", odd)
    assert name_of(b"", digest) != digest


@given(st.binary(max_size=50), st.one_of(st.none(), st.integers(1, 253_402_300_799_999)))
def test_an_item_round_trips(value: bytes, expires_at: int | None) -> None:
    item = Item(value, expires_at)
    assert unpack_item(pack_item(item), 0x4B533031) == item


@given(st.integers(THIRTY_DAYS_S * 1000, 253_402_300_799_999))
def test_the_server_clears_up_after_the_deadline_and_never_before(expires_at: int) -> None:
    second = cleared_at_s(expires_at)
    # A second of 31 bits is all it can be told: what lives longer is left to the deadline in the value.
    assert second == 0 or expires_at < second * 1000 < expires_at + 5000
    assert second == 0 or second > THIRTY_DAYS_S


async def test_a_plain_key_is_stored_unchanged_after_the_prefix(server: MemcachedServer) -> None:
    async with connect(f"{server.url}/app") as store:
        await store.run([("SET", "user:ü:7", "x")])
    assert stored(server, "app:user:ü:7").startswith(b"HD")


async def test_stores_with_different_prefixes_do_not_meet(server: MemcachedServer) -> None:
    async with connect(f"{server.url}/one") as one, connect(f"{server.url}/two") as two:
        await one.run([("SET", "a", "1")])
        assert await two.run([("GET", "a"), ("SET", "a", "2", "NX")]) == [None, b"OK"]
        assert await one.run([("GET", "a")]) == [b"1"]


@pytest.mark.parametrize("ms", [1500, 29 * 24 * 3_600_000, 31 * 24 * 3_600_000, YEAR_MS])
async def test_a_lifetime_of_any_length_is_a_lifetime_on_the_server_too(server: MemcachedServer, ms: int) -> None:
    async with connect(server.url) as store:
        await store.run([("SET", "a", "x", "PX", ms)])
        [left] = await store.run([("PTTL", "a")])
    assert ms - 1000 < left <= ms
    told = stored(server, "keystead:a").split()
    seconds = int(told[1].removeprefix(b"t"))
    # Its clock ticks once a second, and later on a busy machine.
    assert ms / 1000 - 1 <= seconds <= ms / 1000 + CLEARED_AFTER_S + 10


async def test_a_key_without_a_lifetime_has_none_on_the_server(server: MemcachedServer) -> None:
    async with connect(server.url) as store:
        await store.run([("SET", "a", "x", "EX", 50), ("PERSIST", "a")])
    assert stored(server, "keystead:a").startswith(b"HD t-1 ")


async def test_values_of_other_programs_are_wrong_kind_and_unchanged(server: MemcachedServer) -> None:
    server.exchange("set keystead:theirs 0 0 3\r\nabc")
    async with connect(server.url) as store:
        for command in (("GET", "theirs"), ("INCRBY", "theirs", 1), ("DEL", "theirs"), ("SET", "theirs", "x", "NX")):
            with pytest.raises(WrongKind, match="was not written by Keystead"):
                await store.run([command])
        with pytest.raises(WrongKind, match="was not written by Keystead"):
            await store.atomically([("INCRBY", "theirs", 1)])
    assert server.exchange("get keystead:theirs", b"END\r\n") == b"VALUE keystead:theirs 0 3\r\nabc\r\nEND\r\n"


async def test_the_deadline_in_the_value_counts_and_not_the_seconds_of_the_server(server: MemcachedServer) -> None:
    now_ms = wall_ms()
    async with MemcachedStore(MemcachedSettings.of(server.url), clock=lambda: now_ms) as store:
        await store.run([("SET", "a", "x", "PX", 700)])
        now_ms += 699
        assert await store.run([("GET", "a"), ("PTTL", "a")]) == [b"x", 1]
        now_ms += 1
        assert await store.run([("GET", "a"), ("SET", "a", "new", "XX"), ("DEL", "a")]) == [None, None, 0]
        assert await store.run([("SET", "a", "new", "NX"), ("PTTL", "a")]) == [b"OK", -1]


async def largest(store: Store) -> int:
    limit = store.guarantees.value_max_bytes
    assert limit is not None
    return limit


@pytest.mark.parametrize("long", ["k", "k" * 240, "k" * 5000], ids=["short key", "long key", "hashed key"])
async def test_the_largest_value_fits_and_one_byte_more_is_refused_and_changes_nothing(
    server: MemcachedServer, long: str
) -> None:
    async with connect(server.url) as store:
        limit = await largest(store)
        assert limit > 1_000_000
        value = b"v" * limit
        await store.run([("SET", long, value)])
        with pytest.raises(BadArgument, match="at most"):
            await store.run([("SET", long, value + b"v")])
        assert await store.run([("GET", long)]) == [value]
