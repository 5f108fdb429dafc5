"""URLs and variables of the environment; no error and no shown URL has the token."""

import subprocess
import sys

import pytest

from keystead import connect
from keystead.errors import BadUrl
from keystead.stores.upstash import UpstashSettings

UPSTASH = {"UPSTASH_REDIS_REST_URL": "https://cat.upstash.io", "UPSTASH_REDIS_REST_TOKEN": "AX+s/3="}
VERCEL = {
    "KV_REST_API_URL": "https://dog.upstash.io/",
    "KV_REST_API_TOKEN": "full",
    "KV_REST_API_READ_ONLY_TOKEN": "reads",
}


def test_a_url_names_host_and_token() -> None:
    settings = UpstashSettings.of("upstash+https://:AX%2Bs%2F3=@cat.upstash.io?timeout=2s&max_request=10mb")
    assert (settings.host, settings.port, settings.token, settings.path) == ("cat.upstash.io", 443, "AX+s/3=", "")
    assert (settings.timeout, settings.max_request_bytes, settings.read_only) == (2.0, 10 << 20, False)
    assert settings.tls is not None
    assert settings.url == "upstash+https://cat.upstash.io"


def test_a_server_of_ones_own_may_have_a_port_a_path_and_no_tls() -> None:
    settings = UpstashSettings.of("upstash+http://:secret@[::1]:8080/redis/?durability=memory&evicts=yes")
    assert (settings.host, settings.port, settings.path, settings.tls) == ("::1", 8080, "/redis", None)
    assert (settings.durability, settings.evicts) == ("memory", True)
    assert UpstashSettings.of("upstash+http://:secret@gateway:8700?unencrypted=yes").tls is None


@pytest.mark.parametrize(
    ("environment", "url", "expected"),
    [
        (UPSTASH, "upstash+env://", ("cat.upstash.io", "AX+s/3=")),
        (VERCEL, "upstash+env://", ("dog.upstash.io", "full")),
        (VERCEL, "upstash+env://?read_only=yes", ("dog.upstash.io", "reads")),
        ({**UPSTASH, **VERCEL}, "upstash+env://", ("cat.upstash.io", "AX+s/3=")),
        (UPSTASH, "upstash+env://?read_only=yes", ("cat.upstash.io", "AX+s/3=")),
        ({**UPSTASH, **VERCEL}, "upstash+env://?read_only=yes", ("cat.upstash.io", "AX+s/3=")),  # not of the other one
    ],
)
def test_the_environment_names_them(environment: dict[str, str], url: str, expected: tuple[str, str]) -> None:
    settings = UpstashSettings.of(url, environment)
    assert (settings.host, settings.token) == expected
    assert settings.token not in f"{settings.url} {settings!r}"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("upstash+https://cat.upstash.io", "token of the database is missing"),
        ("upstash+https://:hunter2/x@cat.upstash.io", "token|cannot be read"),
        ("upstash+https://:hunter2@", "needs https:// and a host"),
        ("upstash+https://:hunter2@host:port", "cannot be read"),
        ("upstash+https://:hunter2@host?x=1", "unknown option 'x'"),
        ("upstash+https://:hunter2@host?read_only=true", "read_only must be yes or no"),
        ("upstash+https://:hunter2@host?max_request=10", "max_request must be a size"),
        ("upstash+https://:hunter2@host?durability=some", "durability must be disk, seconds or memory"),
        ("upstash+https://:hunter2@host?ca=missing.pem", "certificates of the URL cannot be read"),
        ("upstash+https://:hunter2%20@host", "spaces"),
        ("upstash+http://:hunter2@gateway:8700", "http:// would send the token to gateway in plain text"),
        ("upstash+https://:hunter2@host?unencrypted=1", "unencrypted must be yes or no"),
        ("upstash+env://host", "takes no host"),
        ("upstash+env://", "needs UPSTASH_REDIS_REST_URL"),
        ("upstash+ftp://:hunter2@host", "is not the scheme of a store"),
    ],
)
def test_a_wrong_url_is_one_sentence_without_the_token(url: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*UPSTASH, *VERCEL):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadUrl, match=text) as caught:
        connect(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"KV_REST_API_URL": "https://dog.upstash.io"}, "KV_REST_API_TOKEN is not"),
        ({**UPSTASH, "UPSTASH_REDIS_REST_URL": "redis://default:hunter2@cat:6379"}, "must start with https://"),
    ],
)
def test_an_incomplete_environment_is_one_sentence(environment: dict[str, str], text: str) -> None:
    with pytest.raises(BadUrl, match=text) as caught:
        UpstashSettings.of("upstash+env://", environment)
    assert "hunter2" not in str(caught.value)


def test_the_store_needs_no_driver_of_redis() -> None:
    program = "import sys; sys.modules['hiredis'] = None; import keystead; keystead.connect('upstash+https://:t@host')"
    subprocess.run([sys.executable, "-c", program], check=True)
