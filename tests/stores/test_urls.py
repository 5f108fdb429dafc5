"""Store URLs, and errors with the correct form."""

import builtins
import subprocess
import sys

import pytest

import keystead
from keystead.errors import BadUrl, MissingExtra
from keystead.stores.store_urls import SCHEMES


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("", "a store URL needs a scheme: write sqlite:///app.db, memory:// or redis://host:6379/0"),
        ("keystead.db", "a store URL needs a scheme: write sqlite:///keystead.db, memory:// or"),
        ("mongodb://host", "mongodb:// is not the scheme of a store; write sqlite:///app.db, memory:// or"),
        ("sqlite://file.db", "write sqlite:///file.db with three slashes"),
        ("sqlite:///", "needs the path of a file, such as sqlite:///keystead.db"),
        ("sqlite:///folder/", "needs the path of a file"),
        ("sqlite:///a.db?timeout=5", "timeout=5 is not a duration; write a number with a unit, such as timeout=500ms"),
        ("sqlite:///a.db?timeout=-1s", "is not a duration"),
        ("sqlite:///a.db?timeout=0s", "is not a duration"),
        ("sqlite:///a.db?timout=5s", "unknown option 'timout'; the options are: timeout"),
        ("memory://name", "memory:// takes no name"),
        ("redis://a,b", "redis:// takes one host; write redis+cluster:// or redis+sentinel:// for several"),
        ("redis://host/x", "the database must be a number"),
        ("redis://host:port", "the port is not a number from 1 to 65535"),
        ("redis://host:99999", "the port is not a number from 1 to 65535"),
        ("redis://host?db=1&color=red", "unknown option"),
        ("redis+sentinel://host:1", "needs the name of the master"),
        ("redis+cluster://host/1", "a cluster has only database 0"),
        ("redis+unix://socket", "with three slashes"),
    ],
)
def test_an_invalid_url_is_refused_with_advice(url: str, sentence: str) -> None:
    with pytest.raises(BadUrl) as caught:
        keystead.connect(url)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "url", ["redis://user:hunter2@host/x", "redis://:hunter2@host:99999", "redis://u:hunter2@h?x=1"]
)
def test_no_error_contains_a_password(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        keystead.connect(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"sqlite", "memory", "upstash+env"}))
def test_a_store_shows_its_url_without_secrets(scheme: str) -> None:
    rest = "/tmp/redis.sock" if scheme.endswith("unix") else "user:hunter2@host:7000"
    if scheme == "cloudflare-kv":
        rest = ":hunter2@account/namespace"
    named = scheme.endswith("sentinel") or scheme in ("postgresql", "postgres", "mysql", "mariadb")
    options = "?unencrypted=yes" if scheme == "upstash+http" else ""
    store = keystead.connect(f"{scheme}://{rest}" + ("/main" if named else "") + options)
    assert "hunter2" not in store.url
    assert store.url.startswith(f"{scheme}://")


def test_every_documented_scheme_is_there() -> None:
    documented = {"sqlite", "memory", "redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster"}
    assert documented | {"postgresql", "mysql", "mariadb", "memcached"} <= set(SCHEMES)


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"),
    [("redis", "hiredis", "redis"), ("postgresql", "psycopg", "postgres"), ("mysql", "pymysql", "mysql")],
)
def test_a_missing_driver_is_reported_with_its_install_command(
    scheme: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without_driver(name: str, *rest: object) -> object:
        if name.split(".")[0] == driver:
            raise ModuleNotFoundError(f"No module named '{driver}'", name=driver)
        return original(name, *rest)  # type: ignore[arg-type]

    ours = f"keystead.stores.{extra}"
    for name in [name for name in sys.modules if name.startswith((driver, ours))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without_driver)
    with pytest.raises(MissingExtra, match=rf'pip install "keystead\[{extra}\]"'):
        keystead.connect(f"{scheme}://host/0")


def test_the_embedded_store_needs_no_driver() -> None:
    program = (
        "import sys; sys.modules['hiredis'] = None; import keystead; keystead.connect('memory://');"
        " print([name for name in sys.modules if name.startswith(('redis', 'keystead.stores.redis'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "[]\n"
