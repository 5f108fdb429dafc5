"""Concurrent uses of a link never exceed its download limit."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from keystead import Store
from keystead.kits.sharing import Sharing, Wanted
from keystead.parts.digest import digest
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import CONTENT, Clock, Kept, Reason, body_of, fetched, ok, refused, running, service_on
from tests.parts.sessions.relays import Killed, Mortal
from tests.serving import keystead_serving

AT_ONCE = 200


async def outcome(sharing: Sharing, token: str) -> str:
    with Reason() as reason:
        await fetched(sharing, token)
    return reason.word or "led there"


@everywhere
@pytest.mark.parametrize("most", [1, 3])
async def test_concurrent_resolves_never_exceed_the_download_limit(
    store: Store, folder: Path, clock: Clock, most: int
) -> None:
    services = [service_on(store, folder, clock) for _ in range(2)]
    issued = await services[0].upload(body_of(b"x"), None, Wanted(max_downloads=most), who="", where="")
    tokens = (issued.short_token, issued.token)
    outcomes = await asyncio.gather(
        *(outcome(services[number % 2], tokens[number // 2 % 2]) for number in range(AT_ONCE))
    )
    assert Counter(outcomes) == {"led there": most, "USED_UP": AT_ONCE - most}
    status = await services[0].status(issued.id, issued.owner_key)
    assert (status.downloads, status.max_downloads) == (most, most)


@pytest.mark.parametrize(("store_url", "workers"), [("redis", "1"), ("sqlite", "2")], indirect=["store_url"])
async def test_one_of_many_concurrent_http_downloads_gets_the_file(
    store_url: str, workers: str, tmp_path: Path
) -> None:
    arguments = ("--kits", "sharing", "--workers", workers)
    limitless = {f"KEYSTEAD_SHARING__LIMITS__{name}": "0" for name in ("RESOLVE", "UPLOAD", "DOWNLOAD")}
    with keystead_serving(tmp_path, store_url, *arguments, **limitless) as server:
        limits = httpx2.Limits(max_connections=40)
        async with httpx2.AsyncClient(base_url=server.url, trust_env=False, timeout=300, limits=limits) as http:
            uploaded = ok(await http.post("/api/receive/upload?maxDownloads=1&name=one.bin", content=CONTENT))
            path = f"/api/receive/resolve?t={uploaded['shortToken']}"
            tickets = [ok(answer)["url"] for answer in await asyncio.gather(*(http.get(path) for _ in range(AT_ONCE)))]
            answers = await asyncio.gather(*(http.get(url) for url in tickets))
            [won] = [answer for answer in answers if answer.status_code == 200]
            assert won.content == CONTENT
            assert {refused(answer) for answer in answers if answer is not won} == {(410, "USED_UP")}
            assert refused(await http.get(path)) == (410, "USED_UP")


async def test_a_used_up_link_stays_used_up_on_the_page_and_in_both_forms(folder: Path) -> None:
    async with running("memory://", folder) as site:
        visitor = site.visitor()
        issued = await visitor.issue(maxDownloads=1)
        ok(await visitor.resolve(issued["token"]))
        for token in (issued["shortToken"], issued["token"]):
            assert refused(await visitor.resolve(token)) == (410, "USED_UP")
        page = await visitor.get("/receive", {"accept": "text/html"}, t=issued["shortToken"])
        assert page.status_code == 410


@pytest.mark.parametrize("most", [0, -1, 1_000_001])
async def test_an_invalid_download_limit_is_refused(folder: Path, most: int) -> None:
    async with running("memory://", folder) as site:
        visitor = site.visitor()
        answer = await visitor.post(
            "/api/receive/token", {"url": "https://blob.vercel-storage.com/", "maxDownloads": most}
        )
        assert refused(answer) == (400, "BAD_LIMIT")
        assert refused(await visitor.try_upload(maxDownloads=most)) == (400, "BAD_LIMIT")
        assert await site.keys() == []


async def test_an_interrupted_download_resumes_without_counting_again(folder: Path) -> None:
    async with running("memory://", folder) as site:
        visitor = site.visitor()
        uploaded = await visitor.upload(maxDownloads=1)
        url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
        first = await visitor.http.get(url, headers={"range": "bytes=0-99"})
        rest = await visitor.http.get(url, headers={"range": "bytes=100-", "if-range": first.headers["etag"]})
        assert first.content + rest.content == CONTENT


@everywhere
async def test_a_taken_id_or_short_token_is_not_overwritten(
    store: Store, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = service_on(store, folder, clock)
    module = "keystead.kits.sharing.service.issuing"
    ids, shorts = iter(["Aaaaaaaaaa", "Aaaaaaaaaa", "Bbbbbbbbbb", "Cccccccccc"]), iter("1112")
    monkeypatch.setattr(f"{module}._new_id", lambda: next(ids))
    monkeypatch.setattr(f"{module}._new_short", lambda: f"{next(shorts)}aaaaaaaaa")
    first = await service.upload(body_of(b"the first"), "first.txt", Wanted(), who="", where="")
    # Its id is taken, then its short token, and then neither.
    second = await service.upload(body_of(b"the second"), "second.txt", Wanted(), who="", where="")
    assert (second.id, second.short_token) == ("Cccccccccc", "2aaaaaaaaa")
    assert await service.quota.used("all") == len(b"the first") + len(b"the second")
    for issued, content in ((first, b"the first"), (second, b"the second")):
        for token in (issued.short_token, issued.token):
            ticket = (await service.resolve(token)).ticket
            assert ticket is not None
            assert b"".join([piece async for piece in (await service.download(ticket)).body]) == content
    clock.move("8d")
    assert (await service.clean_up.run()).deleted == 2


@everywhere
async def test_a_second_link_to_a_file_is_refused_and_the_first_stays(store: Store, folder: Path, clock: Clock) -> None:
    service = service_on(store, folder, clock)
    url, path = "https://blob.vercel-storage.com/demo.zip", "user_prize/1/demo.zip"
    first = await service.register(path, url, None, Wanted(), who="", where="")
    before = await Kept(store).keys()
    for _ in range(2):
        with Reason() as reason:
            await service.register(path, url, None, Wanted(valid_until=clock() + 1000), who="", where="")
        assert reason.word == "PATH_TAKEN"
        assert await Kept(store).keys() == before
    assert (await service.resolve(first.short_token)).url == f"{url}?download=1"
    await service.end(first.short_token, owner_key=None, where="")
    with Reason() as reason:
        await service.register(path, url, None, Wanted(), who="", where="")
    assert reason.word == "PATH_TAKEN"  # for an hour, so that nobody who is late deletes what comes now
    gone = await Kept(store).key("receive:edge:gone:")
    assert 0 < await Kept(store).left_ms(gone) <= 3_600_000
    await Kept(store).ask("DEL", gone)
    await service.register(path, url, None, Wanted(), who="", where="")


@everywhere
async def test_a_download_whose_store_fails_at_any_command_is_counted_only_with_its_ticket(
    store: Store, folder: Path, clock: Clock
) -> None:
    alive, lives = service_on(store, folder, clock), 0
    while True:
        made = await alive.upload(body_of(b"x"), None, Wanted(max_downloads=1), who="", where="")
        ticket = (await alive.resolve(made.short_token)).ticket or ""
        try:
            await service_on(Mortal(store, lives), folder, clock).download(ticket)
        except Killed:
            lives += 1
        else:
            break
        counted = (await alive.status(made.id, made.owner_key)).downloads
        kept = await alive.keys.ticket(made.id, digest(ticket.partition(".")[2])).get()
        assert kept is not None
        assert counted == (1 if kept.is_counted else 0)
    assert lives >= 2


async def test_issuing_fails_after_five_taken_short_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("memory://", folder) as site:
        tries = 0

        def taken() -> str:
            nonlocal tries
            tries += 1
            return "aaaaaaaaaa"

        monkeypatch.setattr("keystead.kits.sharing.service.issuing._new_short", taken)
        visitor = site.visitor()
        await visitor.issue()
        before = await site.keys()
        answer = await visitor.post("/api/receive/token", {"url": "https://blob.vercel-storage.com/x"})
        assert refused(answer) == (503, "TRY_AGAIN")
        assert answer.headers["retry-after"] == "1"
        assert tries == 1 + 5
        assert await site.keys() == before
