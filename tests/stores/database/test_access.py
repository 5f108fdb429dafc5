"""Authentication, TLS, and errors without secrets."""

from collections.abc import Iterator

import pytest

import keystead
from keystead import Store, connect
from keystead.errors import BadUrl, StoreReadOnly, StoreRefused, StoreUnavailable
from keystead.stores.postgres.postgres_store import PostgresStore
from tests import servers
from tests.servers import DatabaseServer, MariadbServer, PostgresServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A PostgreSQL that asks for a password."""
    with servers.postgres(password="k3y:st/ead@") as server:
        yield server


@pytest.fixture(scope="module")
def encrypted() -> Iterator[MariadbServer]:
    """A MariaDB that speaks TLS."""
    with servers.mariadb(tls=True) as server:
        yield server


async def test_postgresql_checks_the_password_and_never_shows_it(guarded: PostgresServer) -> None:
    url = guarded.url.replace("k3y:st/ead@", "k3y%3Ast%2Fead%40")
    async with connect(url) as store:
        assert await store.run([("SET", "a", 1)]) == [b"OK"]
        assert "k3y" not in f"{store!r} {store.url} {vars(store)}"
    for wrong in (url.replace("k3y", "hunter2"), url.replace("k3y%3Ast%2Fead%40", "")):
        with pytest.raises(StoreRefused, match="check user and password of the URL") as caught:
            await connect(wrong).open()
        assert "hunter2" not in str(caught.value)


async def test_tls_yes_refuses_a_postgresql_without_tls(postgres_server: PostgresServer) -> None:
    for asked in ("?tls=yes", "?tls=yes&verify=no", "?sslmode=require"):
        with pytest.raises(StoreRefused, match="check tls, ca and verify"):
            await connect(postgres_server.url + asked).open()


async def test_mariadb_is_trusted_only_with_a_certificate_that_is_trusted(encrypted: MariadbServer) -> None:
    for good in (f"?ca={encrypted.certificate}", "?tls=yes&verify=no"):
        async with connect(encrypted.url + good) as store:
            assert await store.run([("SET", "a", 1)]) == [b"OK"]
    with pytest.raises(StoreRefused, match="check tls, ca and verify"):
        await connect(f"{encrypted.url}?tls=yes").open()


async def test_mariadb_checks_the_password_and_never_shows_it(mariadb_server: MariadbServer) -> None:
    mariadb_server.query("CREATE OR REPLACE USER app@'127.0.0.1' IDENTIFIED BY 'k3y:st/ead@'")
    mariadb_server.query("GRANT ALL ON keystead.* TO app@'127.0.0.1'")
    url = mariadb_server.url.replace("root@", "app:k3y%3Ast%2Fead%40@")
    async with connect(url) as store:
        assert await store.run([("SET", "a", 1)]) == [b"OK"]
        assert "k3y" not in f"{store!r} {store.url} {vars(store)}"
    with pytest.raises(StoreRefused, match="check user and password of the URL") as caught:
        await connect(url.replace("k3y", "hunter2")).open()
    assert "hunter2" not in str(caught.value)
    mariadb_server.query("SET GLOBAL read_only = 1")
    try:
        with pytest.raises(StoreReadOnly, match="is read-only"):
            await connect(url).open()
    finally:
        mariadb_server.query("SET GLOBAL read_only = 0")


async def test_a_postgresql_that_only_reads_is_found_when_it_is_opened(postgres_server: PostgresServer) -> None:
    async with connect(postgres_server.url) as store:  # which makes the tables
        postgres_server.query("ALTER DATABASE keystead SET default_transaction_read_only = on")
        try:
            with pytest.raises(StoreReadOnly, match="is read-only"):
                await connect(postgres_server.url).open()
        finally:
            postgres_server.query("SET default_transaction_read_only = off")
            postgres_server.query("ALTER DATABASE keystead RESET default_transaction_read_only")
        assert await store.run([("SET", "a", 1)]) == [b"OK"]


async def test_a_missing_database_is_reported(server: DatabaseServer) -> None:
    with pytest.raises(StoreRefused, match="there is no such database; create it first"):
        await connect(server.url.replace("/keystead", "/nowhere")).open()


async def test_an_unreachable_server_is_reported(server: DatabaseServer) -> None:
    url = server.url.replace(f":{server.port}/", ":1/")
    with pytest.raises(StoreUnavailable, match="is the server running there"):
        await connect(url).open()


async def test_durability_is_read_from_the_server(server: DatabaseServer, store: Store) -> None:
    assert store.guarantees.durability == ("memory" if isinstance(server, PostgresServer) else "disk")
    assert store.guarantees.atomic == "any keys"
    if isinstance(server, MariadbServer):
        server.query("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        try:
            async with connect(server.url) as weaker:
                assert weaker.guarantees.durability == "seconds"
        finally:
            server.query("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb"])
@pytest.mark.parametrize(
    ("rest", "sentence"),
    [
        ("host", "must name an existing database"),
        ("host/", "must name an existing database"),
        ("host/a/b", "must name an existing database"),
        ("host:port/db", "the port is not a number"),
        ("host:0/db", "the port is not a number"),
        ("a,b/db", "takes one host"),
        ("u:hunter2@x@host/db", "%2F"),
        ("u:hunter2/more@host/db", "write / ? # and @"),
        ("u:hunter2#more@host/db", "write / ? # and @"),
        ("u:hunter2@host/db?colour=red", "unknown option 'colour'"),
        ("u:hunter2@host/db?timeout=5", "is not a duration"),
        ("u:hunter2@host/db?pool=0", "is not a valid number of connections"),
        ("u:hunter2@host/db?pool=2&pool=3", "duplicate option"),
        ("u:hunter2@host/db?verify=maybe", "verify must be yes or no"),
        ("u:hunter2@[::1/db", "cannot be read"),
        ("u:hunter2@host/d\x00b", "must name an existing database"),
    ],
)
def test_an_invalid_url_is_refused_with_advice(scheme: str, rest: str, sentence: str) -> None:
    with pytest.raises(BadUrl) as caught:
        keystead.connect(f"{scheme}://{rest}")
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_words_that_providers_put_into_their_urls_are_understood() -> None:
    store = keystead.connect("postgres://u:p@host/db?sslmode=require&channel_binding=require")
    assert isinstance(store, PostgresStore)
    assert store.settings.tls == {"sslmode": "require"}
    with pytest.raises(BadUrl, match="sslmode must be one of"):
        keystead.connect("postgres://host/db?sslmode=maybe")


def test_tls_is_verified_by_default() -> None:
    def tls(query: str) -> object:
        store = keystead.connect(f"postgresql://host/db?{query}")
        assert isinstance(store, PostgresStore)
        return store.settings.tls

    assert tls("") == {}
    assert tls("tls=yes") == {"sslmode": "verify-full", "sslrootcert": "system"}
    assert tls("ca=ca.pem") == {"sslmode": "verify-full", "sslrootcert": "ca.pem"}
    assert tls("tls=yes&verify=no") == {"sslmode": "require"}
