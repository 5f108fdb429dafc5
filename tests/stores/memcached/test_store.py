"""The guarantees, refusals and authentication of a Memcached store."""

import asyncio

import pytest

from keystead import connect
from keystead.errors import BadUrl, CrossSlot, DoesNotFit, StoreRefused, UnknownCommand
from keystead.schema import Hash, Keyspace, Value, after
from keystead.stores import required
from tests import servers
from tests.listening import listening, port_of
from tests.servers import MemcachedServer

pytestmark = pytest.mark.anyio


class PageKeys(Keyspace):
    page = Value("page:{name}", str, lifetime=after("10m"), role="cache", doc="a page as it was rendered")


class SessionKeys(Keyspace):
    session = Value("session:{id}", str, lifetime=after("1d"), doc="who is logged in")


class ProfileKeys(Keyspace):
    profile = Hash("profile:{id}", dict[str, str], lifetime=after("1d"), role="cache", doc="fields of a profile")


async def test_the_role_cache_fits(server: MemcachedServer) -> None:
    async with connect(server.url) as store:
        keys = PageKeys(store, cache=store)
        await keys.page("home").set("<html>")
        assert await keys.page("home").get() == "<html>"


@pytest.mark.parametrize(
    ("keyspace", "why"),
    [(SessionKeys, "may evict keys"), (ProfileKeys, "does not support")],
    ids=["sessions", "hashes"],
)
async def test_families_beyond_the_guarantees_are_refused_on_bind(
    server: MemcachedServer, keyspace: type[Keyspace], why: str
) -> None:
    async with connect(server.url) as store:
        with pytest.raises(DoesNotFit, match=why):
            keyspace(store, cache=store)


async def test_unsupported_commands_are_refused_by_name(server: MemcachedServer) -> None:
    async with connect(server.url) as store:
        with pytest.raises(UnknownCommand, match="cannot list its keys"):
            store.scan()
        with pytest.raises(UnknownCommand, match="no pub/sub"):
            store.subscribe("news")
        with pytest.raises(UnknownCommand, match="HSET h: Memcached has only strings"):
            await store.run([("HSET", "h", "f", "v")])
        with pytest.raises(UnknownCommand, match="only strings"):
            await store.atomically([("SADD", "s", "m")])
        with pytest.raises(CrossSlot, match="takes one key"):
            await store.atomically([required(("SET", "a", 1, "NX")), ("INCRBY", "b", 1)])
        assert await store.run([("EXISTS", "a", "b", "h", "s")]) == [0]


async def test_a_thousand_increments_from_two_stores_are_all_counted(server: MemcachedServer) -> None:
    async with connect(server.url) as one, connect(server.url) as two:
        await asyncio.gather(*((one, two)[n % 2].run([("INCRBY", "n", 1), ("GET", f"k{n}")]) for n in range(1000)))
        assert await one.run([("GET", "n")]) == [b"1000"]


async def test_the_user_and_the_password_of_the_url_are_needed_and_enough() -> None:
    with servers.memcached(password="hunter2") as server:
        async with connect(server.url) as store:
            assert "hunter2" not in store.url
            assert await store.run([("SET", "a", 1), ("GET", "a")]) == [b"OK", b"1"]
        with pytest.raises(StoreRefused, match="denies access"):
            await connect(server.url.replace("hunter2", "hunter3")).open()
        with pytest.raises(StoreRefused, match="needs a user and a password"):
            await connect(f"memcached://127.0.0.1:{server.port}").open()


async def test_a_server_without_compare_and_set_is_refused() -> None:
    with servers.memcached("-C") as server, pytest.raises(StoreRefused, match="without -C"):
        await connect(server.url).open()


@pytest.mark.parametrize(
    "answers",
    [b"-ERR unknown command\r\n", b"VERSION 1.5.22\r\n", b"VERSION\r\n", b"VERSION 1.6.18\r\nSTAT odd\r\nEND\r\n"],
    ids=["redis", "too old", "no version", "odd settings"],
)
async def test_a_server_that_is_not_memcached_or_too_old_is_refused(answers: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in answers.splitlines(keepends=True):
            if line != b"END\r\n":  # which ends an answer that has begun
                await reader.readline()
            writer.write(line)
        await reader.read()

    async with listening(serve) as server:
        with pytest.raises(StoreRefused, match=r"is not Memcached|not respond like Memcached"):
            await connect(f"memcached://127.0.0.1:{port_of(server)}").open()


async def test_the_largest_value_follows_the_server_configuration() -> None:
    with servers.memcached("-I", "2m") as server:
        async with connect(server.url) as store:
            limit = store.guarantees.value_max_bytes
            assert limit is not None
            assert 2_000_000 < limit < 2 << 20
            await store.run([("SET", "a", b"v" * limit)])
            assert await store.run([("GET", "a")]) == [b"v" * limit]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("memcached://host:port", "the port is not a number from 1 to 65535"),
        ("memcached://a:1,b:99999", "the port is not a number"),
        ("memcached://a,a:11211", "duplicate server"),
        ("memcached://host/two%20words", "a prefix must be printable, without spaces"),
        ("memcached://host/" + "p" * 101, "at most 100 bytes"),
        ("memcached://host?timeout=5", "is not a duration"),
        ("memcached://host?pool=4", "unknown option .*; the options are: timeout, connect_timeout"),
        ("memcached://user:a@b@host", "write / \\? # and @ within a user or password"),
    ],
)
def test_an_invalid_url_is_refused_with_advice(url: str, sentence: str) -> None:
    with pytest.raises(BadUrl, match=sentence):
        connect(url)
