"""The document's manual verification of the clean-up, against `keystead serve` on a real Redis and real files."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import servers
from tests.kits.sharing.visiting import CLEANUP_SECRET, CONTENT
from tests.serving import Keystead, keystead_serving

ID = "TESTKEY123"
PATH = "user_prize/demo/demo.zip"
META = f"receive:edge:meta:{ID}"
COUNTS = {"scanned": 1, "deleted": 1, "notFound": 0, "missingMeta": 0, "skipped": 0, "errors": 0}


@dataclass
class Verified:
    """The server, its Redis and its files."""

    server: Keystead
    redis: servers.Server
    folder: Path

    def seed(self, **meta: str | None) -> Path:
        """An expired entry as in the document; returns its file."""
        expires_ms = time.time_ns() // 1_000_000 - 60_000
        at = datetime.fromtimestamp(expires_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"id": ID, "blob_name": PATH, "expires_at": at, "short_token": "short-demo", **meta}
        self.redis.ask("ZADD", "receive:edge:index", expires_ms, ID)
        self.redis.ask("SET", META, json.dumps({name: text for name, text in told.items() if text is not None}))
        self.redis.ask("SET", "receive:token:short-demo", ID)
        file = self.folder / PATH
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(CONTENT)
        return file

    def call(self, method: str = "POST", authorization: str = f"Bearer {CLEANUP_SECRET}", **query: int) -> Any:
        """The response of the clean-up, without the time."""
        url = f"{self.server.url}/api/cron/receive-cleanup"
        answer = httpx2.request(method, url, headers={"authorization": authorization}, params=query)
        told = answer.json()
        if answer.status_code == 200:
            called = datetime.fromisoformat(told.pop("now"))
            assert abs(called.timestamp() - time.time()) < 20
            assert (told.pop("ok"), told.pop("indexKey"), told.pop("more")) == (True, "receive:edge:index", False)
        return told

    @property
    def index(self) -> Any:
        return self.redis.ask("ZRANGE", "receive:edge:index", 0, -1)

    @property
    def keys(self) -> set[bytes]:
        """Without keys that expire: request counters, and recently deleted paths."""
        passing = (b"receive:rl:", b"receive:edge:gone:")
        return {key for key in self.redis.ask("KEYS", "receive:*") if not key.startswith(passing)}


@pytest.fixture(scope="module")
def server(redis_server: servers.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keystead]:
    folder = tmp_path_factory.mktemp("serving")
    redis_server.ask("FLUSHALL")
    with keystead_serving(
        folder,
        redis_server.url,
        *("--kits", "sharing"),
        RECEIVE_CLEANUP_SECRET=CLEANUP_SECRET,
        KEYSTEAD_SHARING__FILES="./files",
        KEYSTEAD_SHARING__CLEANUP_CRON="0 0 29 2 *",  # not while somebody looks
    ) as running:
        yield running


@pytest.fixture
def verified(server: Keystead, redis_server: servers.Server) -> Verified:
    redis_server.ask("FLUSHALL")
    return Verified(server, redis_server, server.output.parent / "files")


def test_the_steps_of_the_document(verified: Verified) -> None:
    file = verified.seed()
    health = httpx2.get(f"{verified.server.url}/api/cron/receive-cleanup?health=1")
    assert (health.status_code, health.json()) == (200, {"ok": True, "route": "/api/cron/receive-cleanup"})
    assert file.exists()

    assert verified.call(limit=10) == COUNTS
    assert verified.index == []
    assert verified.keys == set()
    assert not file.exists()
    assert list(verified.folder.rglob("*")) == []  # also the folders that it was in

    assert verified.call(limit=10) == dict.fromkeys(COUNTS, 0)


def test_deletions_are_audited(verified: Verified) -> None:
    verified.seed()
    verified.call()
    [[_, (_, entry)]] = verified.redis.ask("XRANGE", "audit:sharing", "-", "+")
    told = json.loads(entry)
    assert (told["event"], told["who"], told["what"]) == ("link-deleted", "clean-up", ID)


def test_get_does_the_same(verified: Verified) -> None:
    verified.seed()
    assert verified.call("GET") == COUNTS


def test_a_missing_file_counts_as_deleted(verified: Verified) -> None:
    verified.seed().unlink()
    assert verified.call() == COUNTS | {"notFound": 1}
    assert verified.keys == set()


def test_a_file_can_be_named_by_pathname(verified: Verified) -> None:
    file = verified.seed(blob_name=None, pathname=PATH)
    assert verified.call() == COUNTS
    assert not file.exists()


def test_an_index_entry_without_meta_is_removed(verified: Verified) -> None:
    file = verified.seed()
    verified.redis.ask("DEL", META)
    assert verified.call() == COUNTS | {"deleted": 0, "missingMeta": 1}
    assert verified.index == []
    assert file.exists()  # nobody said which file it was


@pytest.mark.parametrize("meta", ["rubbish", '{"id":"TESTKEY123","expires_at":"2024-12-31T15:00:00.000Z"}', "[]", ""])
def test_an_unreadable_meta_stays_in_the_index(verified: Verified, meta: str) -> None:
    file = verified.seed()
    good = verified.redis.ask("GET", META)
    verified.redis.ask("SET", META, meta)
    for _ in range(2):
        assert verified.call(limit=1) == COUNTS | {"deleted": 0, "skipped": 1, "errors": 1}
    assert file.exists()
    verified.redis.ask("SET", META, good)  # such as by a newer release, which wrote it
    assert verified.call() == COUNTS
    assert not file.exists()


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "user_prize/%2e%2e/x", "a//b", "a\\..\\b"])
def test_an_unsafe_path_is_never_deleted(verified: Verified, path: str) -> None:
    other = verified.folder.parent / "x"
    other.write_bytes(b"not ours")
    verified.seed(blob_name=path)
    assert verified.call() == COUNTS | {"deleted": 0, "missingMeta": 1}
    assert verified.keys == set()
    assert other.exists()


def test_an_unreadable_retry_does_not_block_deletion(verified: Verified) -> None:
    file = verified.seed()
    verified.redis.ask("SET", f"receive:edge:retry:{ID}", "rubbish")
    assert verified.call() == COUNTS
    assert not file.exists()


def test_active_uploads_are_not_touched(verified: Verified) -> None:
    file = verified.seed(expires_at="2999-12-31T15:00:00.000Z")  # whatever the index says
    assert verified.call() == dict.fromkeys(COUNTS, 0)
    assert file.exists()
    [[member, score]] = verified.redis.ask("ZRANGE", "receive:edge:index", 0, -1, "WITHSCORES")
    assert (member, float(score)) == (ID.encode(), 32_503_647_600_000)


def test_the_secret_may_come_without_bearer(verified: Verified) -> None:
    verified.seed()
    assert verified.call(authorization=CLEANUP_SECRET) == COUNTS


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer wrong", f"Bearer {CLEANUP_SECRET}x", f"Bearer {CLEANUP_SECRET[:-1]}", "Basic eDp5"],
)
def test_another_secret_is_refused(verified: Verified, authorization: str) -> None:
    verified.seed()
    told = verified.call(authorization=authorization)
    assert told["code"] == "UNAUTHORIZED"
    assert CLEANUP_SECRET not in told["error"]
    assert verified.index == [ID.encode()]


def test_the_vercel_header_alone_is_refused_by_default(verified: Verified) -> None:
    verified.seed()
    url = f"{verified.server.url}/api/cron/receive-cleanup"
    answer = httpx2.post(url, headers={"x-vercel-cron": "1"})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert verified.index == [ID.encode()]
