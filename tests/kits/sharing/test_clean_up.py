"""The clean-up route: authorization, batches, and retries of files that cannot be deleted."""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import Store, connect
from keystead.kits.sharing import EdgeMeta, Wanted
from keystead.kits.sharing.models import Retry
from keystead.parts.blobs import BlobUnavailable
from keystead.parts.schedule import Run
from keystead.stores import Command, Reply
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CLEANUP_SECRET,
    RING_TEXT,
    URL,
    Clock,
    Kept,
    Reason,
    Running,
    Visitor,
    body_of,
    files_in,
    no_pause,
    ok,
    refused,
    running,
    service_on,
)
from tests.parts.schedule.conftest import Time, schedule_of
from tests.parts.sessions.relays import Relay
from tests.serving import keystead_serving

NOTHING = {"scanned": 0, "deleted": 0, "notFound": 0, "missingMeta": 0, "skipped": 0, "errors": 0}


async def expired(site: Running, count: int) -> Visitor:
    visitor = site.visitor()
    for _ in range(count):
        await visitor.upload()
    site.clock.move("8d")
    return visitor


async def test_the_clean_up_route_needs_a_secret(folder: Path) -> None:
    async with running("memory://", folder, cleanup_secret=None) as site:
        visitor = site.visitor()
        for authorization in (None, "Bearer ", "Bearer None", "Bearer null"):
            assert refused(await visitor.clean_up(authorization)) == (401, "UNAUTHORIZED")
        answer = await visitor.get("/api/cron/receive-cleanup", {"x-vercel-cron": "1"})
        assert refused(answer) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("secret", [None, "the secret of the clean-up"])
async def test_the_vercel_header_is_accepted_if_configured(folder: Path, secret: str | None) -> None:
    async with running("memory://", folder, cleanup_secret=secret, trust_vercel_cron=True) as site:
        answer = await site.visitor().get("/api/cron/receive-cleanup", {"x-vercel-cron": "preview-manual"})
        assert ok(answer)["scanned"] == 0
        assert refused(await site.visitor().clean_up("Bearer wrong")) == (401, "UNAUTHORIZED")


async def test_the_secret_is_compared_in_constant_time(site: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def same(one: str, other: str) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr("keystead.kits.sharing.routes.clean_up.same", same)
    assert refused(await site.visitor().clean_up()) == (401, "UNAUTHORIZED")
    assert compared == [("the secret of the clean-up", "the secret of the clean-up")]


async def test_the_limit_is_respected_and_more_is_reported(site: Running) -> None:
    visitor = await expired(site, 5)
    for deleted, more, files in ((2, True, 3), (2, True, 1), (1, False, 0)):
        answer = ok(await visitor.clean_up(limit=2))
        assert (answer["scanned"], answer["deleted"], answer["more"]) == (deleted, deleted, more)
        assert len(site.files()) == files


@pytest.mark.parametrize("limit", ["0", "-1", "10001", "x", "1e3", ""])
async def test_an_invalid_limit_is_refused(visitor: Visitor, limit: str) -> None:
    answer = await visitor.get("/api/cron/receive-cleanup", limit=limit)
    assert refused(answer) == (400, "BAD_REQUEST")


async def test_it_works_in_batches_until_nothing_is_left(folder: Path) -> None:
    async with running("memory://", folder, cleanup_batch=2) as site:
        visitor = await expired(site, 7)
        assert ok(await visitor.clean_up())["deleted"] == 7
        assert await site.keys() == []
        assert site.files() == []


@everywhere
async def test_two_concurrent_runs_count_each_upload_once(store: Store, folder: Path, clock: Clock) -> None:
    one, other = (service_on(store, folder, clock, pause=asyncio.sleep) for _ in range(2))
    for _ in range(20):
        await one.upload(body_of(b"x"), None, Wanted(), who="", where="")
    clock.move("8d")
    runs = [counts.as_dict() for counts in await asyncio.gather(*(service.clean_up.run() for service in (one, other)))]
    assert sum(int(run["deleted"]) for run in runs) == 20
    for run in runs:
        assert run["scanned"] == run["deleted"]
    assert await Kept(store).keys() == []


async def test_a_file_that_cannot_be_deleted_keeps_its_record_and_is_retried_with_backoff(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = await expired(site, 1)
    tries = 0

    async def fails(path: str) -> bool:
        nonlocal tries
        tries += 1
        raise BlobUnavailable("the place of the files is away")

    real = site.sharing.blobs.delete
    monkeypatch.setattr(site.sharing.blobs, "delete", fails)
    monkeypatch.setattr(site.sharing.clean_up, "_pause", no_pause)
    failed = NOTHING | {"scanned": 1, "skipped": 1, "errors": 1}
    waiting = NOTHING | {"scanned": 1, "skipped": 1}

    async def counts() -> dict[str, int]:
        answer = ok(await visitor.clean_up())
        return {name: answer[name] for name in NOTHING}

    assert await counts() == failed
    assert tries == 3
    for wait in ("5m", "10m", "20m"):
        assert await counts() == waiting
        site.clock.move(wait)
        assert await counts() == failed
    assert tries == 12
    assert len(site.files()) == 1
    assert await site.key("receive:edge:meta:")

    monkeypatch.setattr(site.sharing.blobs, "delete", real)
    assert await counts() == waiting
    site.clock.move("40m")
    assert await counts() == NOTHING | {"scanned": 1, "deleted": 1}
    assert await site.keys() == []
    assert site.files() == []


async def test_a_missing_folder_does_not_count_as_deleted_files(site: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor = await expired(site, 1)
    monkeypatch.setattr(site.sharing.clean_up, "_pause", no_pause)
    os.rename(site.folder, site.folder.with_name("unmounted"))
    answer = ok(await visitor.clean_up())
    assert (answer["deleted"], answer["errors"]) == (0, 1)
    os.rename(site.folder.with_name("unmounted"), site.folder)
    site.clock.move("10m")
    answer = ok(await visitor.clean_up())
    assert (answer["deleted"], answer["notFound"]) == (1, 0)
    assert site.files() == []


async def test_the_job_runs_the_clean_up_and_reschedules_for_failed_files(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.sharing.clean_up, "_pause", no_pause)
    await expired(site, 3)
    [job] = site.sharing.jobs
    assert (job.name, job.cron) == ("sharing.clean-up", "*/5 * * * *")
    away = site.folder.with_name("unmounted")
    os.rename(site.folder, away)
    run = Run(job.name, site.clock(), 1, now_ms=site.clock)
    assert await job.run(run) == NOTHING | {"scanned": 3, "skipped": 3, "errors": 3}
    assert run.again_ms is not None
    assert 0 < run.again_ms - site.clock() <= 300_000

    os.rename(away, site.folder)
    site.clock.move("5m")
    run = Run(job.name, site.clock(), 2, now_ms=site.clock)
    assert await job.run(run) == NOTHING | {"scanned": 3, "deleted": 3}
    assert run.again_ms is None


@pytest.mark.matrix
@everywhere
async def test_concurrent_runs_count_each_file_once(store: Store, folder: Path, clock: Clock) -> None:
    services = [service_on(store, folder, clock) for _ in range(50)]
    for _ in range(60):
        await services[0].upload(body_of(b"x"), None, Wanted(), who="", where="")
    clock.move("8d")
    runs = await asyncio.gather(*(one.clean_up.run() for one in services))
    runs.append(await services[0].clean_up.run())  # what all of them passed over
    assert sum(run.scanned for run in runs) == sum(run.deleted for run in runs) == 60
    assert sum(run.not_found + run.missing_meta + run.skipped for run in runs) == 0
    assert files_in(folder) == []
    assert await Kept(store).keys() == []


def as_expired(meta: EdgeMeta) -> EdgeMeta:
    return meta.model_copy(update={"expires_at": datetime(2026, 1, 1, tzinfo=UTC)})


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_concurrent_calls_to_several_processes_count_each_file_once(store_url: str, tmp_path: Path) -> None:
    files, secret = tmp_path / "files", {"authorization": f"Bearer {CLEANUP_SECRET}"}
    async with connect(store_url) as store:
        sharing = service_on(store, files, Clock())
        for _ in range(60):
            made = await sharing.upload(body_of(b"x"), None, Wanted(), who="", where="")
            await sharing.keys.meta(made.id).change(as_expired)
    settings = {
        "RECEIVE_CLEANUP_SECRET": CLEANUP_SECRET,
        "KEYSTEAD_SHARING__FILES": str(files),
        "KEYSTEAD_SHARING__CLEANUP_CRON": "0 0 29 2 *",
        "KEYSTEAD_SEAL_KEYS": RING_TEXT,
    }
    with keystead_serving(tmp_path, store_url, "--kits", "sharing", "--workers", "2", **settings) as server:
        async with httpx2.AsyncClient(base_url=server.url, headers=secret, trust_env=False, timeout=300) as http:
            calls = (http.post("/api/cron/receive-cleanup") for _ in range(50))
            told = [ok(answer) for answer in await asyncio.gather(*calls)]
            told.append(ok(await http.post("/api/cron/receive-cleanup")))
    assert sum(one["deleted"] for one in told) == sum(one["scanned"] for one in told) == 60
    assert sum(one["notFound"] + one["missingMeta"] + one["skipped"] for one in told) == 0
    assert files_in(files) == []


@everywhere
async def test_the_schedule_deletes_a_file_within_minutes_of_its_expiry(store: Store, folder: Path) -> None:
    time = Time()
    time.now_ms = Clock()()
    sharing = service_on(store, folder, time)
    made = await sharing.upload(body_of(b"x"), None, Wanted(valid_until=time() + 60_000), who="", where="")
    async with schedule_of(store, time, *sharing.jobs):
        await time.rested(1)
        while files_in(folder):
            assert time() - made.expires_ms < 6 * 60_000
            time.pass_ms(30_000)
            await time.rested(1)
    assert time() >= made.expires_ms
    assert await Kept(store).keys() == []


async def test_by_default_files_are_deleted_within_five_minutes_and_the_page_says_so(folder: Path) -> None:
    for cron, said in (
        ("", "The file is deleted within 5 minutes after the link expires."),
        ("0 15 * * *", "The file is deleted within 1 day after the link expires."),
    ):
        more: dict[str, Any] = {"cleanup_cron": cron} if cron else {}
        async with running("memory://", folder, **more) as site:
            assert said in (await site.visitor().get("/share", {"accept": "text/html"})).text


# --- what must not hold it up, or mislead it ------------------------------------------------------------------------

EXPIRED = "2020-01-01T00:00:00.000Z"


@everywhere
async def test_a_delayed_run_does_not_delete_a_newer_file(
    store: Store, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, late = service_on(store, folder, clock), service_on(store, folder, clock)
    path = "prizes/demo.zip"
    await one.blobs.put(path, body_of(b"old"), max_bytes=10)
    await one.register(path, URL, None, Wanted(valid_until=clock() + 60_000), who="", where="")
    clock.move("2m")
    deleting, go_on, real = asyncio.Event(), asyncio.Event(), late.blobs.delete

    async def slow(path: str) -> bool:
        deleting.set()
        await go_on.wait()
        return await real(path)

    monkeypatch.setattr(late.blobs, "delete", slow)
    held_up = asyncio.create_task(late.clean_up.run())
    await deleting.wait()
    assert (await one.clean_up.run()).scanned == 0  # another run is at it
    clock.move("3m")
    assert (await one.clean_up.run()).deleted == 1  # that seems to have died
    with Reason() as reason:
        await one.register(path, URL, None, Wanted(), who="", where="")
    assert reason.word == "PATH_TAKEN"
    go_on.set()
    assert (await held_up).scanned == 0
    [gone] = await Kept(store).keys()
    assert gone.startswith("receive:edge:gone:")
    assert 3_500_000 < await Kept(store).left_ms(gone) <= 3_600_000  # longer than anything is held up


def as_meta(**more: str) -> tuple[str | bytes, ...]:
    return ("SET", "receive:edge:meta:seeded", json.dumps({"id": "seeded", "expires_at": EXPIRED, **more}))


@pytest.mark.parametrize(
    ("member", "commands", "stays"),
    [
        ("bad id:{}", [], True),
        ("", [], True),
        (b"\xff\xfe", [], True),
        ("x" * 5000, [], False),
        ("seeded", [("SADD", "receive:edge:meta:seeded", "x")], True),
        ("seeded", [as_meta(pathname="a/b", short_token="a bad token:/*")], False),
        ("seeded", [as_meta(pathname="a/b"), ("SADD", "receive:edge:retry:seeded", "x")], False),
        ("seeded", [as_meta(pathname="p" * 5000)], False),
    ],
    ids=lambda given: str(given)[:40],
)
async def test_unreadable_entries_do_not_block_others(
    folder: Path, member: str | bytes, commands: list[tuple[str, ...]], stays: bool
) -> None:
    async with running("memory://", folder, cleanup_batch=2) as site:
        for score in (-5, 1):
            await site.ask("ZADD", "receive:edge:index", score, member)
        for command in commands:
            await site.ask(*command)
        visitor = await expired(site, 5)
        told = ok(await visitor.clean_up(limit=6))
        assert told["deleted"] + told["missingMeta"] + told["errors"] == 6
        assert (told["errors"], told["more"]) == (stays, False)
        assert site.files() == []
        assert ok(await visitor.clean_up())["errors"] == stays


@everywhere
async def test_uploads_that_expired_before_1970_are_found(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    past = datetime(1969, 12, 31, tzinfo=UTC)
    await sharing.keys.meta("seeded").set(EdgeMeta(id="seeded", pathname="a/b", expires_at=past))
    assert (await sharing.clean_up.run()).deleted == 1


async def test_failing_files_do_not_use_up_the_limit_of_others(site: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = site.sharing
    for number in range(5):
        soon = Wanted(valid_until=site.clock() + 1000 + number)
        await sharing.register(f"bad/{number}", URL, None, soon, who="", where="")
    for number in range(10):
        soon = Wanted(valid_until=site.clock() + 5000 + number)
        await sharing.register(f"good/{number}", URL, None, soon, who="", where="")
    real = sharing.blobs.delete

    async def deleted(path: str) -> bool:
        if path.startswith("bad/"):
            raise BlobUnavailable("this one will not go")
        return await real(path)

    monkeypatch.setattr(sharing.blobs, "delete", deleted)
    monkeypatch.setattr(sharing.clean_up, "_pause", no_pause)
    site.clock.move("1m")
    runs = [await sharing.clean_up.run(5) for _ in range(4)]
    assert [(run.deleted, run.errors, run.skipped, run.more) for run in runs] == [
        (0, 5, 5, True),
        (5, 0, 5, True),
        (5, 0, 5, False),
        (0, 0, 5, False),
    ]


@everywhere
async def test_repairing_the_index_does_not_undo_an_end(
    store: Store, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = service_on(store, folder, clock), service_on(store, folder, clock)
    made = await one.upload(body_of(b"x"), None, Wanted(), who="", where="")
    await Kept(store).ask("ZADD", "receive:edge:index", 1, made.id)
    has_read, go_on, real = asyncio.Event(), asyncio.Event(), other.clean_up._load_retry

    async def slow(id: str) -> Retry | None:
        found = await real(id)
        has_read.set()
        await go_on.wait()
        return found

    async def fails(path: str) -> bool:
        raise BlobUnavailable("the place of the files is away")

    monkeypatch.setattr(other.clean_up, "_load_retry", slow)
    running = asyncio.create_task(other.clean_up.run())
    await has_read.wait()
    with monkeypatch.context() as away:
        away.setattr(one.blobs, "delete", fails)
        await one.end(made.token, owner_key=None, where="")
    go_on.set()
    await running
    clock.move("10m")
    await one.clean_up.run()
    assert files_in(folder) == []


class Reading(Relay):
    """A store that counts the index members that it returns."""

    told = 0

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        replies = await super().run(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(command, tuple) and command[0] == "ZRANGE":
                self.told += len(reply)
        return replies


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_many_uploads_with_one_expiry_are_read_once_each(store: Store, folder: Path, clock: Clock) -> None:
    reading = Reading(store)
    sharing = service_on(reading, folder, clock, cleanup_batch=10)
    midnight = Wanted(valid_until=clock() + 60_000)
    for number in range(200):
        await sharing.register(f"a/{number}", URL, None, midnight, who="", where="")
    clock.move("2m")
    reading.told = 0
    assert (await sharing.clean_up.run()).deleted == 200
    assert reading.told == 200
