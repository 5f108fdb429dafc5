"""Redis URLs, tested against real servers."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import keystead
from keystead.errors import BadUrl, StoreRefused, StoreUnavailable
from tests import servers
from tests.servers import Server

FAST = "timeout=1s&connect_timeout=1s"
PASSWORD = "s3cr3t/with?odd#signs@%"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with a password, and with a user `ada` who has another."""
    with servers.valkey("--requirepass", "default-password", "--bind", "127.0.0.1", "::1") as server:
        server.password = "default-password"
        server.ask("ACL", "SETUSER", "ada", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        server.ask("ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all")
        yield server


@pytest.fixture(scope="module")
def secure() -> Iterator[Server]:
    with servers.redis(tls=True) as server:
        yield server


def at(server: Server, userinfo: str, scheme: str = "redis", host: str = "127.0.0.1", path: str = "/0") -> str:
    return f"{scheme}://{userinfo}{host}:{server.port}{path}?{FAST}"


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
async def test_a_user_signs_in_with_a_password_of_any_signs(guarded: Server, scheme: str) -> None:
    async with keystead.connect(at(guarded, f"ada:{quote(PASSWORD, safe='')}@", scheme)) as store:
        assert await store.run([("SET", "k", "v"), ("GET", "k")]) == [b"OK", b"v"]
        assert store.url == f"{scheme}://***@127.0.0.1:{guarded.port}/0"


async def test_a_password_alone_is_that_of_the_default_user(guarded: Server) -> None:
    async with keystead.connect(at(guarded, ":default-password@")) as store:
        assert await store.run([("DBSIZE",)]) != []


async def test_a_user_without_a_password_is_not_quietly_the_default_user(guarded: Server) -> None:
    async with keystead.connect(at(guarded, "open@")) as store:
        await store.run([("SET", "whose", "open's")])
    with pytest.raises(StoreRefused):
        await keystead.connect(at(guarded, "nobody@")).open()


@pytest.mark.parametrize("userinfo", ["ada:wrong-secret@", "nobody:wrong-secret@", ":wrong-secret@", ""])
async def test_a_wrong_or_missing_password_is_refused_in_a_sentence_without_it(guarded: Server, userinfo: str) -> None:
    store = keystead.connect(at(guarded, userinfo))
    with pytest.raises(StoreRefused, match="check user and password of the URL") as refused:
        await store.open()
    shown = "".join(traceback.format_exception(refused.value)) + repr(store) + store.url
    assert "wrong-secret" not in shown
    assert f"127.0.0.1:{guarded.port}" in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:topsecret/half@localhost:6379/0",
        "redis://ada:topsecret?half@localhost/0",
        "redis://ada:topsecret#half@localhost/0",
        "redis://ada:half@topsecret/half@localhost:6379",
        "redis://ada:topsecret@localhost:port",
        "redis://ada:topsecret@localhost/zero",
        "redis://ada:topsecret@localhost/0?what=1",
        "redis://ada:topsecret@localhost/0?timeout=5",
        "redis://ada:topsecret@[::1/0",
        "redis+cluster://ada:topsecret@localhost/1",
        "redis+sentinel://ada:topsecret@localhost",
        "redis+unix://ada:topsecret@/",
        "redos://ada:topsecret@localhost",
    ],
)
def test_url_errors_do_not_contain_the_password(url: str) -> None:
    with pytest.raises(BadUrl) as wrong:
        keystead.connect(url)
    shown = "".join(traceback.format_exception(wrong.value))
    shown = shown.replace("keystead.connect(url)", "")
    assert "topsecret" not in shown
    assert "half" not in shown


async def test_no_error_and_no_name_of_a_store_holds_its_password(guarded: Server) -> None:
    with servers.valkey() as doomed:
        url = f"redis://:topsecret@127.0.0.1:{doomed.port}/0?{FAST}"
        async with keystead.connect(url) as store:
            doomed.kill()
            with pytest.raises(StoreUnavailable) as error:
                await store.run([("GET", "k")])
            shown = "".join(traceback.format_exception(error.value)) + repr(store) + repr(vars(store)) + store.url
    assert "topsecret" not in shown


async def test_each_database_number_is_a_separate_store(guarded: Server) -> None:
    one, two = at(guarded, ":default-password@", path="/1"), at(guarded, ":default-password@", path="/2")
    async with keystead.connect(one) as first, keystead.connect(two) as second:
        await first.run([("SET", "only-in", "1")])
        assert await second.run([("GET", "only-in")]) == [None]
        assert (await first.atomically([("GET", "only-in")])).replies == [b"1"]


async def test_a_database_that_the_server_does_not_have_is_refused_at_the_start(guarded: Server) -> None:
    with pytest.raises(StoreRefused, match="index is out of range"):
        await keystead.connect(at(guarded, ":default-password@", path="/99")).open()


@pytest.mark.parametrize("scheme", ["redis+unix", "valkey+unix"])
async def test_a_unix_socket_with_user_and_database(guarded: Server, scheme: str) -> None:
    secret = quote(PASSWORD, safe="")
    url = f"{scheme}://ada:{secret}@{guarded.socket_path}?db=3&{FAST}"
    async with keystead.connect(url) as store, keystead.connect(at(guarded, f"ada:{secret}@", path="/3")) as same:
        await store.run([("SET", "by-socket", "1")])
        assert await same.run([("GET", "by-socket")]) == [b"1"]
        assert secret not in store.url
    with pytest.raises(StoreUnavailable, match=r"no-such\.sock"):
        await keystead.connect(f"{scheme}://{guarded.folder}/no-such.sock").open()


async def test_an_ipv6_address(guarded: Server) -> None:
    async with keystead.connect(at(guarded, ":default-password@", host="[::1]")) as store:
        assert await store.run([("EXISTS", "nothing")]) == [0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_tls_with_a_named_authority(secure: Server, host: str, scheme: str) -> None:
    async with keystead.connect(at(secure, "", scheme, host) + f"&ca={secure.certificate}") as store:
        big = b"x" * 3_000_000
        assert await store.run([("SET", "k", big), ("GET", "k")]) == [b"OK", big]


async def test_tls_with_an_untrusted_certificate_is_refused(secure: Server) -> None:
    with pytest.raises(StoreRefused, match=r"no TLS connection to 127\.0\.0\.1.*check rediss://, ca and verify"):
        await keystead.connect(at(secure, "", "rediss")).open()
    with servers.redis(tls=True) as stranger, pytest.raises(StoreRefused, match="CERTIFICATE_VERIFY_FAILED"):
        await keystead.connect(at(secure, "", "rediss") + f"&ca={stranger.certificate}").open()


async def test_tls_verification_can_be_disabled_in_the_url(secure: Server) -> None:
    async with keystead.connect(at(secure, "", "rediss") + "&verify=no") as store:
        assert await store.run([("EXISTS", "nothing")]) == [0]


async def test_tls_with_a_certificate_of_the_client() -> None:
    with servers.redis(tls=True) as server:
        assert server.certificate is not None
        pair = f"&cert={server.certificate}&key={server.folder / 'server.key'}&ca={server.certificate}"
        server.ask("CONFIG", "SET", "tls-auth-clients", "yes")
        async with keystead.connect(at(server, "", "rediss") + pair) as store:
            assert await store.run([("EXISTS", "nothing")]) == [0]
        with pytest.raises((StoreRefused, StoreUnavailable)):
            await keystead.connect(at(server, "", "rediss") + f"&ca={server.certificate}").open()


def test_a_missing_certificate_is_a_bad_url(tmp_path: Path) -> None:
    with pytest.raises(BadUrl, match="certificates"):
        keystead.connect(f"rediss://localhost/0?ca={tmp_path}/no-such.crt")


async def test_tls_to_a_port_without_it_and_the_reverse_end_in_a_sentence(secure: Server, server: Server) -> None:
    with pytest.raises((StoreRefused, StoreUnavailable), match=str(server.port)):
        await keystead.connect(at(server, "", "rediss")).open()
    with pytest.raises((StoreRefused, StoreUnavailable), match=str(secure.port)):
        await keystead.connect(at(secure, "")).open()


async def test_an_invalid_host_name_is_a_one_line_error() -> None:
    for host in ("no-such-host.invalid", "a..b", "x" * 70):
        with pytest.raises(StoreUnavailable, match="cannot reach"):
            await keystead.connect(f"redis://{host}:6379/0?connect_timeout=2s").open()
