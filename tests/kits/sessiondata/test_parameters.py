"""Session.json and Kvs.json: how they are read, and errors that never contain a secret."""

import json
import os
from pathlib import Path

import pytest

from keystead.kits.sessiondata import KIT
from keystead.kits.sessiondata.parameters import SessionParameters, key_value_store, session_parameters
from keystead.server import Settings, WrongSettings
from keystead.stores.redis.redis_settings import RedisSettings

SECRET = "correct-horse-battery"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an empty folder of parameters, and an environment without settings."""
    for name in list(os.environ):
        if name.startswith("KEYSTEAD_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Parameters").mkdir()
    return tmp_path / "Parameters"


def session_json(folder: Path, **values: object) -> None:
    (folder / "Session.json").write_text(json.dumps(values))


def kvs_json(folder: Path, connection: object = None, **values: object) -> None:
    (folder / "Kvs.json").write_text(json.dumps({"ConnectionStringForSession": connection, **values}))


def config(text: str) -> None:
    Path("keystead.toml").write_text(text)


def wrong() -> str:
    with pytest.raises(WrongSettings) as raised:
        Settings().of(KIT)
    assert SECRET not in str(raised.value)
    return str(raised.value)


# --- the files -----------------------------------------------------------------------------------------------


def test_the_example_of_the_document_is_read_with_its_comments(folder: Path) -> None:
    (folder / "Session.json").write_text(
        """{
    "RetentionPeriod": 1440, // how long sessions are kept, in minutes
    "UseKeyValueStore": false // whether the key-value store is used
}
"""
    )
    assert session_parameters(folder) == SessionParameters(1440, False)


@pytest.mark.parametrize(
    "written",
    [
        b'\xef\xbb\xbf{"RetentionPeriod": 30, "UseKeyValueStore": true}',
        '{"RetentionPeriod": 30, "UseKeyValueStore": true}'.encode("utf-16"),
        b'/* "RetentionPeriod": 7, */ {"RetentionPeriod": 30, "UseKeyValueStore": true,}',
        b'{"retentionPeriod": 30,\n// "RetentionPeriod": 7\n"useKeyValueStore": true, "Other": [1, 2,], "Url": "http://x,}"}',
    ],
    ids=["byte order mark", "utf-16", "comments and a last comma", "names in any case"],
)
def test_comments_trailing_commas_and_any_case_are_accepted(folder: Path, written: bytes) -> None:
    (folder / "Session.json").write_bytes(written)
    assert session_parameters(folder) == SessionParameters(30, True)


def test_missing_members_have_the_documents_defaults(folder: Path) -> None:
    (folder / "Session.json").write_text('{"UseKeyValueStore": null}')
    assert session_parameters(folder) == SessionParameters(1440, False)


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        ("localhost", "redis://localhost:6379/0"),
        ("localhost:6380", "redis://localhost:6380/0"),
        ("[::1]:6379", "redis://[::1]:6379/0"),
        ("redis.example,ssl=true", "rediss://redis.example:6380/0"),
        ("host:6379,password=a/b@c:d=e,defaultDatabase=2", "redis://:a%2Fb%40c%3Ad%3De@host:6379/2"),
        ("host:6379, user=app, PASSWORD=x, Ssl=True", "rediss://app:x@host:6379/0"),
        ("password=x,host:6379", "redis://:x@host:6379/0"),
        ("host,abortConnect=false,allowAdmin=true,name=web,keepAlive=60,connectRetry=3", "redis://host:6379/0"),
        (
            "host,connectTimeout=7000,syncTimeout=1500,asyncTimeout=9",
            "redis://host:6379/0?timeout=1500ms&connect_timeout=7000ms",
        ),
        ("a,b:26380,serviceName=mymaster,password=x", "redis+sentinel://:x@a:26379,b:26380/mymaster/0"),
        (
            "cache.redis.cache.windows.net:6380,password=abc=,ssl=True,abortConnect=False",
            "rediss://:abc%3D@cache.redis.cache.windows.net:6380/0",
        ),
    ],
)
def test_a_connection_string_becomes_a_store_url(folder: Path, connection: str, url: str) -> None:
    kvs_json(folder, connection)
    found = key_value_store(folder)
    assert found == url
    RedisSettings.of(found)  # the store takes it


def test_a_password_of_any_characters_round_trips_through_the_url(folder: Path) -> None:
    kvs_json(folder, "host,password=p%40 ss/w#rd?:@é=")
    assert RedisSettings.of(key_value_store(folder) or "").password == "p%40 ss/w#rd?:@é="


# --- as settings ---------------------------------------------------------------------------------------------


def test_without_the_setting_no_file_is_read(folder: Path) -> None:
    session_json(folder, RetentionPeriod=7)
    (folder.parent / "Session.json").write_text("no JSON")
    assert Settings().of(KIT).retention == "1440m"


def test_retention_and_store_come_from_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session_json(folder, RetentionPeriod=60, UseKeyValueStore=True)
    kvs_json(folder, f"host:6379,password={SECRET}")
    monkeypatch.setenv("KEYSTEAD_PARAMETERS", str(folder))
    settings = Settings()
    assert settings.of(KIT).retention == "60m"
    assert settings.store_urls == {"default": f"redis://:{SECRET}@host:6379/0"}
    assert SECRET not in repr(settings)


def test_any_other_setting_wins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session_json(folder, RetentionPeriod=60, UseKeyValueStore=True)
    (folder / "Kvs.json").write_text("this is not even read")
    config('parameters = "Parameters"\nstore = "memory://"\n[sessiondata]\nretention = "5m"\n')
    assert Settings().of(KIT).retention == "5m"
    assert Settings().store == "memory://"
    config('parameters = "Parameters"\n[stores]\ndefault = "memory://"\n')
    assert Settings().store == "memory://"
    assert Settings(store="sqlite:///flag.db").store == "sqlite:///flag.db"
    config('parameters = "Parameters"\n')
    monkeypatch.setenv("KEYSTEAD_STORE", "sqlite:///environment.db")
    monkeypatch.setenv("KEYSTEAD_SESSIONDATA__RETENTION", "9m")
    assert (Settings().store, Settings().of(KIT).retention) == ("sqlite:///environment.db", "9m")


@pytest.mark.parametrize("provider", [None, "Rdb"])
def test_without_a_key_value_store_sessions_are_in_the_relational_one(folder: Path, provider: str | None) -> None:
    session_json(folder, UseKeyValueStore=provider is not None)
    kvs_json(folder, "host:6379", Provider=provider)
    config('parameters = "Parameters"\n')
    assert Settings().store_urls == {"default": "sqlite:///keystead.db"}
    config('parameters = "Parameters"\n[stores]\ndurable = "postgresql://app@db/app"\n')
    assert Settings().store_urls == {"default": "postgresql://app@db/app", "durable": "postgresql://app@db/app"}


@pytest.mark.parametrize("provider", [None, "", "Redis", "redis"])
def test_redis_is_the_default_provider(folder: Path, provider: str | None) -> None:
    kvs_json(folder, "host", Provider=provider, MemcachedServers=[])
    assert key_value_store(folder) == "redis://host:6379/0"


# --- errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (None, "Session.json enables the key-value store; write its address"),
        ("", "Session.json enables the key-value store; write its address"),
        (7, "write text such as localhost:6379"),
        (f"password={SECRET}", "it names no server"),
        (f"a,b,password={SECRET}", "it names several servers"),
        (f"host,password={SECRET},sslHost=other", "the option sslHost is not supported"),
        (f"host,password={SECRET},proxy=Twemproxy", "the option proxy is not supported"),
        (f"host,password=x,y={SECRET}", "part 3 is not a server or a known option"),
        (f"host,password=x,{SECRET}=y", "part 3 is not a server or a known option"),
        (f"host,password=x,{SECRET}", "part 3 follows the password, and may be part of it"),
        (f"host,serviceName=main,password=x,{SECRET}", "part 4 follows the password"),
        (f"host:65536,password={SECRET}", "part 1 has a port that is not a number from 1 to 65535"),
        (f"host:0,password={SECRET}", "part 1 has a port that is not a number from 1 to 65535"),
        (f"host:{SECRET}", "part 1 is not a server"),
        ("host,$CLIENT=", "part 2 is not a server"),
        (f"host,password={SECRET},ssl=perhaps", "the option ssl must be true or false"),
        (
            f"host,password={SECRET},defaultDatabase=two",
            "the option defaultDatabase must be a whole number of at least 0",
        ),
        ("host,connectTimeout=-1", "the option connectTimeout must be a whole number of at least 1"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_in_a_connection_string_do_not_contain_its_secrets(folder: Path, connection: object, said: str) -> None:
    session_json(folder, UseKeyValueStore=True)
    kvs_json(folder, connection)
    config('parameters = "Parameters"\n')
    told = wrong()
    assert told.startswith(f"parameters: ConnectionStringForSession in Kvs.json: {said}")
    assert "keystead.toml" in told


@pytest.mark.parametrize(
    ("provider", "said"),
    [("Memcached", "Memcached evicts sessions"), ("DynamoDB", "unknown provider"), (7, "unknown provider")],
)
def test_unsupported_providers_are_refused(folder: Path, provider: object, said: str) -> None:
    session_json(folder, UseKeyValueStore=True)
    kvs_json(folder, f"host,password={SECRET}", Provider=provider)
    config('parameters = "Parameters"\n')
    told = wrong()
    assert told.startswith(f"parameters: Provider in Kvs.json: {said}")
    assert told.endswith("write Redis, or Rdb for the relational store")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"RetentionPeriod": "1440"}', "RetentionPeriod in Session.json: write a whole number of minutes"),
        ('{"RetentionPeriod": 0}', "RetentionPeriod in Session.json: write a whole number of minutes"),
        ('{"RetentionPeriod": true}', "RetentionPeriod in Session.json: write a whole number of minutes"),
        ('{"UseKeyValueStore": "yes"}', "UseKeyValueStore in Session.json: write true or false"),
        ("{\n/* a\n*/\n  x\n}", "Parameters/Session.json is not JSON: line 4 cannot be read"),
        ("[]", "Parameters/Session.json: write an object"),
        ("[" * 100_000, "Parameters/Session.json is not JSON"),
        ('{"a": "' + '\\"' * 50_000, "Parameters/Session.json is not JSON"),  # in less than minutes
        ("/*" * 50_000, "Parameters/Session.json is not JSON"),
        ('{"RetentionPeriod": 5} /* {"a": 1', "Parameters/Session.json is not JSON"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_file_is_an_error_with_its_name_and_what_to_write(folder: Path, written: str, said: str) -> None:
    (folder / "Session.json").write_text(written)
    config('parameters = "Parameters"\n')
    assert wrong().startswith(f"parameters: {said}")


def test_an_invalid_retention_is_reported_under_its_name_in_the_file(folder: Path) -> None:
    config('parameters = "Parameters"\n')
    for minutes in (1, 400 * 1440 + 1):
        session_json(folder, RetentionPeriod=minutes)
        assert wrong() == "RetentionPeriod in Session.json: retention must be from 2m to 400d"


def test_missing_files_are_reported(folder: Path) -> None:
    config('parameters = "Elsewhere"\n')
    assert wrong() == "parameters: Elsewhere/Session.json: cannot be read (No such file or directory)"
    session_json(folder, UseKeyValueStore=True)
    config('parameters = "Parameters"\n')
    assert wrong() == "parameters: Parameters/Kvs.json: cannot be read (No such file or directory)"
    config("parameters = 7\n")
    assert wrong().startswith("parameters in keystead.toml: 7 is not the path of a folder")
