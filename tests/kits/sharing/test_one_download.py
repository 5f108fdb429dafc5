"""A ticket is one download: each byte is sent once, and it can be resumed. It is counted when it starts."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import Store
from keystead.kits.sharing import Sharing, Wanted
from keystead.kits.sharing.service import Download, Range
from keystead.kits.sharing.service import tickets as tickets_module
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CONTENT,
    Clock,
    Reason,
    Running,
    Visitor,
    body_of,
    ok,
    refused,
    service_on,
)
from tests.serving import keystead_serving

SIZE = len(CONTENT)
PIECE = 256 * 1024


async def ticket_for(sharing: Sharing, content: bytes = CONTENT, **wanted: Any) -> tuple[str, str, str]:
    """A ticket for a new upload, and the id and owner key of its link."""
    made = await sharing.upload(body_of(content), None, Wanted(**wanted), who="", where="")
    ticket = (await sharing.resolve(made.short_token)).ticket
    assert ticket is not None
    return ticket, made.id, made.owner_key


async def all_of(download: Download) -> bytes:
    return b"".join([piece async for piece in download.body])


async def break_off(download: Download, pieces: int) -> None:
    """Read some chunks, and disconnect during the next one."""
    body: Any = download.body
    for _ in range(pieces + 1):
        await anext(body)
    await body.aclose()


async def word(sharing: Sharing, ticket: str, asked: Range | None = None) -> str:
    with Reason() as reason:
        await all_of(await sharing.download(ticket, asked))
    return reason.word


@everywhere
async def test_a_ticket_delivers_the_file_once(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    for most in (1, None):
        ticket, _, _ = await ticket_for(sharing, max_downloads=most)
        assert await all_of(await sharing.download(ticket)) == CONTENT
        for asked in (None, Range(0, None), Range(1, None), Range(None, 1)):
            assert await word(sharing, ticket, asked) == "GONE"


@everywhere
async def test_one_of_many_concurrent_requests_with_a_ticket_gets_the_file(
    store: Store, folder: Path, clock: Clock
) -> None:
    services = [service_on(store, folder, clock) for _ in range(2)]
    ticket, id, owner_key = await ticket_for(services[0])
    words = Counter(await asyncio.gather(*(word(services[number % 2], ticket) for number in range(50))))
    assert words.pop("") == 1
    assert words.keys() <= {"GONE", "TRY_AGAIN"}
    assert (await services[0].status(id, owner_key)).downloads == 1


@everywhere
async def test_a_download_is_counted_and_audited_once_with_its_first_bytes(
    store: Store, folder: Path, clock: Clock
) -> None:
    sharing = service_on(store, folder, clock)
    ticket, id, owner_key = await ticket_for(sharing, max_downloads=1)
    await sharing.download(ticket, head_only=True)
    assert (await sharing.status(id, owner_key)).downloads == 0
    assert await sharing.uses.latest(10) == []
    for first, last in ((0, 99), (100, 100), (101, SIZE - 1)):
        assert (
            await all_of(await sharing.download(ticket, Range(first, last), where="10.0.0.9"))
            == CONTENT[first : last + 1]
        )
        assert (await sharing.status(id, owner_key)).downloads == 1
    [used] = await sharing.uses.latest(10)
    assert (used.event, used.what, used.where) == ("link-downloaded", id, "10.0.0.9")


@everywhere
async def test_a_single_download_link_refuses_a_second_ticket_once_the_first_has_started(
    store: Store, folder: Path, clock: Clock
) -> None:
    sharing = service_on(store, folder, clock)
    made = await sharing.upload(body_of(CONTENT), None, Wanted(max_downloads=1), who="", where="")
    first, second = [(await sharing.resolve(made.short_token)).ticket or "" for _ in range(2)]
    assert await all_of(await sharing.download(first)) == CONTENT
    assert await word(sharing, second) == "USED_UP"
    [entry] = await sharing.refusals.latest(10)
    assert (entry.event, entry.what, entry.why) == ("download-refused", made.id, "USED_UP")


@everywhere
async def test_an_interrupted_download_resumes_and_resends_only_what_may_be_lost(
    store: Store, folder: Path, clock: Clock
) -> None:
    sharing = service_on(store, folder, clock)
    content = bytes(range(256)) * (PIECE // 256) * 160  # 40 MiB
    ticket, id, owner_key = await ticket_for(sharing, content, max_downloads=1)
    await break_off(await sharing.download(ticket), 100)
    lost_from = 100 * PIECE - tickets_module._LOST_MAX_BYTES
    assert await word(sharing, ticket) == "GONE"  # from the beginning it would be another download
    assert await word(sharing, ticket, Range(lost_from - 1, None)) == "GONE"
    assert await all_of(await sharing.download(ticket, Range(lost_from, None))) == content[lost_from:]
    assert await word(sharing, ticket, Range(lost_from, None)) == "GONE"
    assert (await sharing.status(id, owner_key)).downloads == 1


async def test_at_most_half_of_a_small_file_is_sent_again(site: Running) -> None:
    content = b"x" * (4 * PIECE)
    ticket, _, _ = await ticket_for(site.sharing, content)
    await break_off(await site.sharing.download(ticket), 3)
    assert await word(site.sharing, ticket) == "GONE"
    assert await all_of(await site.sharing.download(ticket, Range(PIECE, None))) == content[PIECE:]


async def test_parts_may_be_requested_in_any_order_and_concurrently(site: Running) -> None:
    content = bytes(range(256)) * (PIECE // 256) * 4
    ticket, id, owner_key = await ticket_for(site.sharing, content, max_downloads=1)
    parts = [(at, at + PIECE - 1) for at in range(0, 4 * PIECE, PIECE)]
    begun = [await site.sharing.download(ticket, Range(*part)) for part in reversed(parts)]
    got = await asyncio.gather(*map(all_of, begun))
    assert b"".join(reversed(got)) == content
    assert await word(site.sharing, ticket, Range(0, 0)) == "GONE"
    assert (await site.sharing.status(id, owner_key)).downloads == 1


async def test_a_download_can_be_resumed_half_a_minute_after_a_crash(site: Running) -> None:
    ticket, _, _ = await ticket_for(site.sharing, b"x" * (4 * PIECE))
    left_behind: Any = (await site.sharing.download(ticket)).body
    await anext(left_behind)
    with pytest.raises(Exception, match="already being sent") as refusal:
        await site.sharing.download(ticket)
    assert getattr(refusal.value, "more", {}) == {"retryAfter": 30}
    site.clock.move("31s")
    assert len(await all_of(await site.sharing.download(ticket))) == 4 * PIECE
    # The first one was only asleep: it has lost its place, and sends nothing more.
    with pytest.raises(ConnectionAbortedError):
        await anext(left_behind)


async def test_a_slow_download_is_not_taken_over(site: Running) -> None:
    ticket, _, _ = await ticket_for(site.sharing, b"x" * (4 * PIECE))
    got = 0
    async for piece in (await site.sharing.download(ticket)).body:
        got += len(piece)
        site.clock.move("25s")
        assert await word(site.sharing, ticket) == "TRY_AGAIN"
    assert got == 4 * PIECE


async def test_a_ticket_allows_a_limited_number_of_parts(site: Running) -> None:
    ticket, _, _ = await ticket_for(site.sharing)
    for number in range(64):
        assert await word(site.sharing, ticket, Range(2 * number, 2 * number)) == ""
    assert await word(site.sharing, ticket, Range(2 * 64, 2 * 64)) == "GONE"


async def test_over_http_a_second_download_of_one_ticket_is_refused(visitor: Visitor) -> None:
    uploaded = await visitor.upload(maxDownloads=1)
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    assert (await visitor.http.head(url)).status_code == 200
    assert (await visitor.http.get(url)).content == CONTENT
    for headers in ({}, {"range": "bytes=0-"}, {"range": "bytes=5-9"}):
        assert refused(await visitor.http.get(url, headers=headers)) == (410, "GONE")
    assert refused(await visitor.resolve(uploaded["shortToken"])) == (410, "USED_UP")


@pytest.mark.matrix
@pytest.mark.parametrize("store_url", ["sqlite", "redis"], indirect=True)
async def test_a_broken_connection_resumes_with_a_range(store_url: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096 * 80  # 80 MiB, more than lies between a server and its receiver
    with keystead_serving(tmp_path, store_url, "--kits", "sharing") as server:
        async with httpx2.AsyncClient(base_url=server.url, trust_env=False, timeout=300) as http:
            made = ok(await http.post("/api/receive/upload?maxDownloads=1&name=big.bin", content=content))
            url = ok(await http.get(f"/api/receive/resolve?t={made['shortToken']}"))["url"]
            got = b""
            async with http.stream("GET", url) as answer:
                tag = answer.headers["etag"]
                async for piece in answer.aiter_bytes():
                    got += piece
                    if len(got) > 20 * 1024 * 1024:
                        break
            headers = {"range": f"bytes={len(got)}-", "if-range": tag}
            async with asyncio.timeout(60):
                while (rest := await http.get(url, headers=headers)).status_code == 503:
                    pass  # the server has not heard yet that the connection is gone
            assert rest.status_code == 206, rest.text
            assert got + rest.content == content
            assert refused(await http.get(url, headers=headers)) == (410, "GONE")
            status = await http.post("/api/receive/status", json={"id": made["id"], "ownerKey": made["ownerKey"]})
            assert ok(status)["downloads"] == 1
