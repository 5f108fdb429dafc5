"""Interrupted issues and uploads: remains are never visible, and the clean-up finds them."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import Store, connect
from keystead.kits.sharing import Sharing, Wanted
from keystead.kits.sharing.service import uploads as uploads_module
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CLEANUP_SECRET,
    TOKEN_KEY,
    Clock,
    Kept,
    Reason,
    Running,
    Visitor,
    body_of,
    files_in,
    key_text,
    refused,
    running,
    service_on,
)
from tests.parts.sessions.relays import Killed, Mortal
from tests.serving import Keystead, keystead_serving, wait_until

URL = "https://blob.vercel-storage.com/demo.zip"
PIECE = b"x" * 65_536
SHORT = "a-short-to"

WAYS: dict[str, Callable[[Sharing], Awaitable[Any]]] = {
    "issue": lambda sharing: sharing.issue(URL, None, Wanted(), who="", where=""),
    "register": lambda sharing: sharing.register("a/demo.zip", URL, None, Wanted(), who="", where=""),
    "upload": lambda sharing: sharing.upload(body_of(b"x"), None, Wanted(), who="", where=""),
}


@everywhere
@pytest.mark.parametrize("way", WAYS)
async def test_a_crash_at_any_command_of_issuing_leaves_no_orphans(
    store: Store, folder: Path, clock: Clock, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keystead.kits.sharing.service.issuing._new_short", lambda: SHORT)
    kept, lives = Kept(store), 0
    while True:
        dying = service_on(Mortal(store, lives), folder, clock)
        try:
            await WAYS[way](dying)
        except Killed:
            lives += 1
        else:
            break
        alive = service_on(store, folder, clock)
        with Reason() as reason:
            await alive.resolve(SHORT)
        if way == "upload" and files_in(folder) == []:
            assert reason.word in ("TOKEN_NOT_FOUND", "NOT_READY")
        later = Clock()
        later.move("4m")
        counts = await service_on(store, folder, later).clean_up.run()
        if way != "upload" or files_in(folder):
            # What is left of an upload goes within minutes, unless it was whole, and only its answer was lost.
            assert way != "upload" or (reason.word == "" and counts.scanned == 0)
            later.move("8d")
            counts = await service_on(store, folder, later).clean_up.run()
        # Where the steps are not one, a place in the index may be without its record.
        assert counts.scanned == counts.deleted + counts.missing_meta <= 1
        assert files_in(folder) == []
        for key in await kept.keys():
            # What is left goes by itself, and was of no upload.
            assert way != "upload" or not key.startswith("receive:edge:"), (lives, key)
            assert 0 < await kept.left_ms(key) <= 7 * 86_400_000, (lives, key)
        for key in await kept.all_keys():
            await kept.ask("DEL", key)
    assert lives >= 1


@everywhere
async def test_a_crash_at_any_command_of_ending_is_atomic_and_the_clean_up_finds_the_rest(
    store: Store, folder: Path, clock: Clock
) -> None:
    kept, alive, lives = Kept(store), service_on(store, folder, clock), 0
    outcomes = set()
    while True:
        made = await alive.upload(body_of(b"x"), None, Wanted(), who="", where="")
        try:
            await service_on(Mortal(store, lives), folder, clock).end(made.token, owner_key=None, where="")
        except Killed:
            lives += 1
        else:
            break
        with Reason() as by_token:
            await alive.resolve(made.token)
        with Reason() as by_short:
            await alive.resolve(made.short_token)
        outcomes.add((by_token.word, by_short.word))
        later = Clock()
        later.move("8d")
        await service_on(store, folder, later).clean_up.run()
        assert files_in(folder) == []
        assert [key for key in await kept.keys() if key.startswith("receive:edge:")] == []
    # In no order of events does one form open what the other does not.
    assert outcomes <= {("", ""), ("REVOKED", "REVOKED"), ("REVOKED", "TOKEN_NOT_FOUND")}
    assert ("REVOKED", "TOKEN_NOT_FOUND") in outcomes


@everywhere
async def test_a_crash_at_any_command_of_the_clean_up_is_finished_by_the_next_run(
    store: Store, folder: Path, clock: Clock
) -> None:
    alive, lives = service_on(store, folder, clock), 0
    later = Clock()
    later.move("8d")
    while True:
        await alive.upload(body_of(b"x"), None, Wanted(), who="", where="")
        try:
            await service_on(Mortal(store, lives), folder, later).clean_up.run()
        except Killed:
            lives += 1
        else:
            break
        later.move("3m")  # what the one that died was at is its own for two minutes
        counts = await service_on(store, folder, later).clean_up.run()
        assert counts.errors == counts.skipped == 0
        assert files_in(folder) == []
        assert await Kept(store).keys() == [], lives
    assert lives >= 3


@everywhere
async def test_a_crash_while_issuing_a_second_link_does_not_affect_the_first(
    store: Store, folder: Path, clock: Clock
) -> None:
    alive, path = service_on(store, folder, clock), "a/demo.zip"
    await alive.blobs.put(path, body_of(b"x"), max_bytes=10)
    first = await alive.register(path, URL, None, Wanted(), who="", where="")
    before, lives, reason = await Kept(store).keys(), 0, Reason()
    while not reason.word:
        soon = Wanted(valid_until=clock() + 60_000)
        try:
            with reason:
                await service_on(Mortal(store, lives), folder, clock).register(path, URL, None, soon, who="", where="")
        except Killed:
            lives += 1
        later = Clock()
        later.move("1h")  # what is left of the second link has expired, and the first has not
        await service_on(store, folder, later).clean_up.run()
        assert await Kept(store).keys() == before, lives
        assert await alive.blobs.size(path) == 1
        assert (await alive.resolve(first.short_token)).url == f"{URL}?download=1"
        await alive.keys.downloads(first.id).delete()
    assert reason.word == "PATH_TAKEN"


async def test_a_link_does_not_open_during_its_upload(
    site: Running, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keystead.kits.sharing.service.issuing._new_short", lambda: SHORT)
    seen = []

    async def body() -> AsyncIterator[bytes]:
        yield b"the first half"
        answer = await visitor.resolve(SHORT)
        seen.append((refused(answer), answer.headers["retry-after"]))
        yield b" and the second"

    uploaded = await visitor.http.post("/api/receive/upload", content=body())
    assert uploaded.status_code == 200
    assert seen == [((409, "NOT_READY"), "5")]
    assert (await visitor.download(SHORT)).content == b"the first half and the second"


async def test_an_upload_whose_body_fails_leaves_nothing(site: Running) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield PIECE
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await site.sharing.upload(body(), None, Wanted(), who="", where="")
    assert await site.keys() == []
    assert site.files() == []


async def test_a_cancelled_upload_leaves_nothing(site: Running) -> None:
    begun = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield PIECE
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(site.sharing.upload(body(), None, Wanted(), who="", where=""))
    await begun.wait()
    assert len(await site.keys()) == 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await site.keys() == []
    assert site.files() == []


class Held:
    """An upload that pauses until the test continues it."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        yield b"the first half"
        self.begun.set()
        await self.go_on.wait()
        yield b" and the second"


async def test_an_upload_that_outlives_its_lease_leaves_nothing_after_the_clean_up(
    site: Running, visitor: Visitor
) -> None:
    held, soon = Held(), site.clock() + 60_000
    posting = visitor.http.post("/api/receive/upload", content=held.body(), params={"validUntil": soon})
    uploading = asyncio.create_task(posting)
    await held.begun.wait()
    site.clock.move("2m")
    assert (await site.sharing.clean_up.run()).scanned == 0  # its file is still on its way
    site.clock.move("2m")
    assert (await site.sharing.clean_up.run()).scanned == 1  # nothing was heard of it for more than three minutes
    held.go_on.set()
    assert refused(await uploading) == (410, "REVOKED")
    assert site.files() == []
    assert await site.keys() == []


async def test_an_upload_without_its_record_deletes_its_file(site: Running, visitor: Visitor) -> None:
    held = Held()
    uploading = asyncio.create_task(visitor.http.post("/api/receive/upload", content=held.body()))
    await held.begun.wait()
    for key in await site.keys():
        await site.ask("DEL", key)
    held.go_on.set()
    assert refused(await uploading) == (410, "REVOKED")
    assert site.files() == []
    assert await site.keys() == []


async def test_a_completed_upload_expires_with_its_link(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload(validUntil=site.clock() + 60_000)
    [[_, score]] = await site.ask("ZRANGE", "receive:edge:index", 0, -1, "WITHSCORES")
    assert float(score) == uploaded["exp"]


async def test_a_stalled_upload_is_aborted_and_leaves_nothing(
    site: Running, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert uploads_module._STALLED_S == 30
    monkeypatch.setattr(uploads_module, "_STALLED_S", 0.05)
    answer = await visitor.http.post("/api/receive/upload", content=Held().body())
    assert refused(answer) == (408, "STALLED")
    assert await site.keys() == []
    assert site.files() == []


async def test_concurrent_uploads_are_limited_per_client_and_process(site: Running) -> None:
    held, soon = Held(), Wanted()
    tasks = []

    def begin(where: str) -> None:
        upload = site.sharing.upload(held.body(), None, soon, who="", where=where)
        tasks.append(asyncio.create_task(upload))

    async def word(where: str) -> str:
        with Reason() as reason:
            await site.sharing.upload(body_of(b"x"), None, soon, who="", where=where)
        return reason.word

    for client in range(8):
        for _ in range(8):
            begin(f"10.1.0.{client}")
        if client < 7:
            await asyncio.sleep(0)
            assert await word(f"10.1.0.{client}") == "TRY_AGAIN"
            assert await word("10.2.0.1") == ""
    await asyncio.sleep(0)
    assert await word("10.2.0.1") == "TRY_AGAIN"  # the process has all it can
    held.go_on.set()
    await asyncio.gather(*tasks)
    assert await word("10.1.0.1") == ""
    assert not site.sharing.uploads._by_client


@pytest.mark.parametrize(("content", "answer"), [(b"", (400, "EMPTY")), (b"x" * 1001, (413, "TOO_LARGE"))])
async def test_an_empty_or_too_large_file_leaves_nothing(folder: Path, content: bytes, answer: tuple[int, str]) -> None:
    async def in_pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 100):
            yield content[at : at + 100]

    async with running("memory://", folder, max_upload="1kB") as site:
        visitor = site.visitor()
        assert refused(await visitor.try_upload(content)) == answer
        chunked = await visitor.http.post("/api/receive/upload", content=in_pieces())
        assert refused(chunked) == answer
        assert await site.keys() == []
        assert site.files() == []


# --- real processes --------------------------------------------------------------------------------------------


class Serving:
    """A server on SQLite, and a socket with an upload in progress."""

    def __init__(self, server: Keystead, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.database = folder / "links.db"
        self.files = folder / "files"

    def begin_upload(self) -> socket.socket:
        """Send most of a file, and wait until some of it is on disk."""
        connection = socket.create_connection(("127.0.0.1", self.server.port))
        length = 200 * len(PIECE)
        head = f"POST /api/receive/upload?name=big.bin HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(190):
            connection.sendall(PIECE)
        wait_until(lambda: bool(files_in(self.files)), "something of the file is on the disk")
        return connection


def serving(folder: Path, store_url: str | None = None, **settings: str) -> Any:
    return keystead_serving(
        folder,
        store_url or f"sqlite:///{folder / 'links.db'}",
        *("--kits", "sharing"),
        RECEIVE_TOKEN_KEY=key_text(TOKEN_KEY),
        RECEIVE_CLEANUP_SECRET=CLEANUP_SECRET,
        KEYSTEAD_SHARING__FILES=str(folder / "files"),
        **settings,
    )


async def keys_in(database: Path) -> list[str]:
    async with connect(f"sqlite:///{database}") as store:
        return await Kept(store).keys()


async def test_a_disconnected_upload_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        begun = Serving(server, tmp_path)
        connection = begun.begin_upload()
        assert any(key.startswith("receive:edge:meta:") for key in await keys_in(begun.database))
        connection.close()
        wait_until(lambda: not files_in(begun.files), "nothing of the file is on the disk")
        async with asyncio.timeout(60):
            while await keys_in(begun.database):
                pass
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
        # Somebody who goes away is no fault of the server.
        assert "Traceback" not in server.said
        assert "INTERNAL" not in server.said
        assert server.stop() == 0
    assert not any("meta" in key for key in await keys_in(begun.database))


def family_of(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family_of(int(child)))]


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_a_stopping_server_aborts_uploads_and_leaves_nothing(store_url: str, tmp_path: Path) -> None:
    # Requests under way would have more time than `stop` waits: only what is aborted lets the server stop.
    with serving(tmp_path, store_url, KEYSTEAD_STOP_TIMEOUT="1h", KEYSTEAD_REQUEST_TIMEOUT="1h") as server:
        begun = Serving(server, tmp_path)
        with begun.begin_upload() as connection:
            assert server.stop() == 0
            connection.settimeout(300)
            assert b"TRY_AGAIN" in connection.recv(4096)
    assert files_in(begun.files) == []
    async with connect(store_url) as store:
        assert await Kept(store).keys() == []


@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_uploads_of_a_killed_server_are_deleted_minutes_later(
    store_url: str, tmp_path: Path, clock: Clock
) -> None:
    with serving(tmp_path, store_url) as server:
        begun = Serving(server, tmp_path)
        connection = begun.begin_upload()
        for pid in family_of(server.process.pid):
            os.kill(pid, signal.SIGKILL)
        server.process.wait()
        connection.close()
    assert files_in(begun.files) != []
    async with connect(store_url) as store:
        kept, sharing = Kept(store), service_on(store, begun.files, clock)
        [id] = await kept.ask("ZRANGE", "receive:edge:index", 0, -1)
        meta = await sharing.keys.meta(id.decode()).get()
        assert meta is not None
        assert await sharing.blobs.size(meta.path) is None  # no part of it is a file
        assert await sharing.quota.used("all") == meta.size
        assert (await sharing.clean_up.run()).scanned == 0  # for all that is known, it goes on
        clock.move("4m")
        counts = await sharing.clean_up.run()
        assert (counts.scanned, counts.deleted, counts.not_found) == (1, 1, 1)
        assert files_in(begun.files) == []
        assert await kept.keys() == []
        assert [key for key in await kept.all_keys() if key.startswith("receive:past:")] == []
        assert await sharing.quota.used("all") == 0


async def test_a_long_upload_renews_its_lease(site: Running) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x"
            site.clock.move("1m")
            assert (await site.sharing.clean_up.run()).scanned == 0

    made = await site.sharing.upload(body(), None, Wanted(), who="", where="")
    assert (await site.sharing.look(made.short_token)).size == 10


@everywhere
async def test_finishing_an_upload_and_abandoning_it_exclude_each_other(
    store: Store, folder: Path, clock: Clock
) -> None:
    sharing = service_on(store, folder, clock)
    for number in range(50):

        async def body() -> AsyncIterator[bytes]:
            yield b"x"
            clock.move("4m")  # it was asleep for longer than its lease

        async def upload() -> str:
            with Reason() as reason:
                made = await sharing.upload(body(), None, Wanted(), who="", where="")
                assert (await sharing.look(made.short_token)).size == 1
            return reason.word

        async def clean_up(turns: int) -> int:
            for _ in range(turns):
                await asyncio.sleep(0)
            return sum([(await service_on(store, folder, clock).clean_up.run()).deleted for _ in range(3)])

        word, deleted = await asyncio.gather(upload(), clean_up(number % 7))
        assert (word, deleted) in (("", 0), ("REVOKED", 1))
