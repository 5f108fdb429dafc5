"""Permissions and limits: issuing, ending, viewing and guessing."""

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from keystead import Store
from keystead.kits.sharing import Wanted
from keystead.kits.sharing.routes import KIT
from keystead.kits.sharing.service import LIMITS, SharingSettings
from keystead.parts.blobs import open_blobs
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    BASE,
    CONTENT,
    RING_TEXT,
    URL,
    Clock,
    Reason,
    Running,
    Visitor,
    body_of,
    key_text,
    ok,
    refused,
    running,
    service_on,
)
from tests.server.test_serve import run_keystead

ISSUE_KEY = "the key of those who issue"
EDGE = {"pathname": "a/b.zip", "downloadUrl": URL}


async def issued_by(visitor: Visitor, headers: dict[str, str], body: dict[str, Any] | None = None) -> list[Any]:
    """The responses of all three ways to issue a link."""
    return [
        await visitor.post("/api/receive/token", {"url": URL, **(body or {})}, headers),
        await visitor.post("/api/receive/edge-resolve", {**EDGE, **(body or {})}, headers),
        await visitor.try_upload(headers=headers),
    ]


async def test_issuing_links_requires_the_issue_key(folder: Path) -> None:
    async with running("memory://", folder, issue_key=ISSUE_KEY) as site:
        visitor = site.visitor()
        for wrong in (
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": f"Bearer {ISSUE_KEY}x"},
            {"origin": BASE},
        ):
            for answer in await issued_by(visitor, wrong):
                assert refused(answer) == (401, "UNAUTHORIZED")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert await site.keys() == []
        assert site.files() == []
        noted = [entry.item for entry in await site.sharing.keys.refusals().entries()]
        assert {(one.event, one.who, one.why) for one in noted} == {("issue-refused", "stranger", "UNAUTHORIZED")}
        assert len(noted) == 12
        for right in (f"Bearer {ISSUE_KEY}", f"bearer  {ISSUE_KEY}", ISSUE_KEY):
            own_path = {"pathname": f"a/{len(right)}.zip"}
            made = [ok(answer) for answer in await issued_by(visitor, {"authorization": right}, own_path)]
            ok(await visitor.resolve(made[0]["token"]))  # which takes no key
            for one in made:
                ok(await visitor.end(id=one["id"], ownerKey=one["ownerKey"]))


async def test_secrets_are_compared_in_constant_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare_digest(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("keystead.parts.digest.hmac.compare_digest", compare_digest)
    async with running("memory://", folder, issue_key=ISSUE_KEY) as site:
        visitor = site.visitor()
        answer = await visitor.post("/api/receive/token", {"url": URL}, {"authorization": "Bearer wrong"})
        assert refused(answer) == (401, "UNAUTHORIZED")
        assert compared == [(b"wrong", ISSUE_KEY.encode())]
        compared.clear()
        issued = ok(await visitor.post("/api/receive/token", {"url": URL}, {"authorization": ISSUE_KEY}))
        assert refused(await visitor.end(id=issued["id"], ownerKey="x" * 43)) == (403, "NOT_OWNER")
        assert len(compared) == 2


async def test_cross_site_requests_cannot_issue_or_end_links(site: Running, visitor: Visitor) -> None:
    issued = await visitor.issue()
    before = await site.keys()
    for foreign in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"{BASE}.evil.example"},
        {"origin": BASE.replace("http:", "https:")},
        {"referer": "https://evil.example/page"},
        {"referer": "http://["},
        {"origin": "https://evil.example", "referer": f"{BASE}/share"},
    ):
        for answer in await issued_by(visitor, foreign):
            assert refused(answer) == (403, "CSRF"), foreign
        answer = await visitor.post("/api/receive/delete", {"token": issued["token"]}, foreign)
        assert refused(answer) == (403, "CSRF"), foreign
    assert await site.keys() == before


async def test_same_site_pages_and_programs_can_issue_and_end_links(visitor: Visitor) -> None:
    for own in ({}, {"origin": BASE}, {"referer": f"{BASE}/share"}):
        issued = ok(await visitor.post("/api/receive/token", {"url": URL}, own))
        ok(await visitor.post("/api/receive/delete", {"token": issued["token"]}, own))


async def test_a_csrf_token_must_match_its_cookie(site: Running) -> None:
    visitor = site.visitor()
    token = ok(await visitor.get("/api/blob/csrf"))["token"]
    assert visitor.http.cookies["csrf"] == token
    issued = await visitor.issue(csrf=token)
    for wrong in ("", "x", token[:-1] + ("A" if token[-1] != "A" else "B")):
        assert refused(await visitor.post("/api/receive/token", {"url": URL, "csrf": wrong})) == (403, "CSRF")
        assert refused(await visitor.end(token=issued["token"], csrf=wrong)) == (403, "CSRF")
    stranger = site.visitor()  # who has no cookie
    assert refused(await stranger.post("/api/receive/token", {"url": URL, "csrf": token})) == (403, "CSRF")
    ok(await visitor.end(token=issued["token"], csrf=token))


async def test_only_the_owner_gets_the_status(visitor: Visitor) -> None:
    issued = await visitor.issue(maxDownloads=3)
    for id, key in ((issued["id"], "x"), ("AAAAAAAAAA", issued["ownerKey"]), ("*", "x"), ("x" * 100, "x"), ("", "")):
        answer = await visitor.post("/api/receive/status", {"id": id, "ownerKey": key})
        assert refused(answer) == (403, "NOT_OWNER")


# --- production ------------------------------------------------------------------------------------------------


def test_production_does_not_start_without_a_rule_on_who_may_issue(tmp_path: Path) -> None:
    environment = {
        "KEYSTEAD_SEAL_KEYS": RING_TEXT,
        "KEYSTEAD_PUBLIC_URL": "https://share.example",
        "KEYSTEAD_STORE": f"sqlite:///{tmp_path}/x.db",
    }
    ended = run_keystead(tmp_path, "serve", "--production", "--kits", "sharing", **environment)
    assert ended.returncode != 0
    assert "sharing.issue_key" in ended.stdout + ended.stderr
    assert "RECEIVE_ISSUE_KEY" in ended.stdout + ended.stderr


def test_an_issue_key_or_open_is_enough_for_production() -> None:
    assert KIT.missing(SharingSettings())
    assert not KIT.missing(SharingSettings(issue_key=ISSUE_KEY))
    assert not KIT.missing(SharingSettings(open=True))


def test_files_in_memory_are_not_enough_for_production() -> None:
    [sentence] = KIT.missing(SharingSettings(open=True, files="memory://"))
    assert sentence.startswith("sharing.files:")


async def test_open_does_not_permit_registering_files(folder: Path) -> None:
    await open_blobs(folder).put("invoice.pdf", body_of(b"of somebody else"), max_bytes=100)
    production = {"mode": "production", "public_url": "https://share.example"}
    async with running("memory://", folder, settings=production, open=True) as site:
        visitor = site.visitor()
        answer = await visitor.post("/api/receive/edge-resolve", {"pathname": "invoice.pdf", "downloadUrl": URL})
        assert refused(answer) == (401, "UNAUTHORIZED")
        [noted] = await site.sharing.refusals.latest(5)
        assert (noted.event, noted.who, noted.why) == ("issue-refused", "stranger", "UNAUTHORIZED")
        assert await site.keys() == []
        await visitor.issue()  # which deletes nothing
    assert (folder / "invoice.pdf").exists()


async def test_uploads_cannot_be_registered(site: Running, visitor: Visitor) -> None:
    await visitor.upload()
    [file] = site.files()
    path = str(file.relative_to(site.folder))
    for taken in (path, "receive/x", "Receive/x", "receive"):
        answer = await visitor.post("/api/receive/edge-resolve", {"pathname": taken, "downloadUrl": URL})
        assert refused(answer) == (409, "PATH_TAKEN"), taken


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"issue_key": "short"}, "at least 16 characters"),
        ({"cleanup_secret": "short"}, "at least 16 characters"),
        ({"issue_key": " " * 16}, "at least 16 characters"),
        ({"token_keys": "AAAA"}, "key 1 must have 32 bytes"),
        ({"token_keys": ","}, "each only once"),
        ({"token_keys": f"{key_text(b'x' * 32)},{key_text(b'x' * 32)}"}, "each only once"),
        ({"files": "."}, "must be a folder that contains nothing else"),
        ({"files": ""}, "must be a folder that contains nothing else"),
        ({"files": "/"}, "must be a folder that contains nothing else"),
        ({"files": "file:///"}, "must be a folder that contains nothing else"),
        ({"files": "sub/../.."}, "must be a folder that contains nothing else"),
        ({"token_keys": f"{key_text(b'x' * 32)},AAAA"}, "key 2 must have 32 bytes"),
        ({"allowed_hosts": "https://x.example"}, "is not a host"),
        ({"allowed_hosts": "X.example"}, "is not a host"),
        ({"allowed_hosts": "127.0.0.1"}, "is not a host"),
        ({"allowed_hosts": "localhost"}, "is not a host"),
        ({"ttl": "15d"}, "at most 14d"),
        ({"max_ttl": "1y"}, "ttl"),
        ({"ttl": "7"}, "ttl"),
        ({"max_upload": "much"}, "not a size"),
        ({"cleanup_batch": 0}, "greater than or equal to 1"),
        ({"limits": {"resolv": 1}}, "there is no limit 'resolv'"),
        ({"limits": {"resolve": -1}}, "greater than or equal to 0"),
        ({"isue_key": "x"}, "isue_key"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        SharingSettings(**wrong)


@pytest.mark.parametrize("text", [key_text(b"\xfb" * 32), "+/v7" * 10 + "+/s=", "fb" * 32, "FB" * 32, "x" * 32])
def test_a_key_may_be_base64url_base64_hex_or_raw(text: str) -> None:
    [key] = SharingSettings(token_keys=text).own_token_keys
    assert len(key) == 32


# --- guesses and limits ----------------------------------------------------------------------------------------


@everywhere
async def test_ten_of_fifty_concurrent_guesses_are_compared(
    store: Store, folder: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharing = service_on(store, folder, clock)
    issued = await sharing.issue(URL, None, Wanted(password="open"), who="", where="")
    compared = 0

    async def matches(password: str, kept: str) -> bool:
        nonlocal compared
        compared += 1
        return False

    monkeypatch.setattr("keystead.kits.sharing.service.link_access.matches", matches)

    async def guess(number: int) -> str:
        with Reason() as reason:
            await sharing.resolve(issued.short_token, password=f"guess {number}")
        return reason.word

    words = Counter(await asyncio.gather(*(guess(number) for number in range(50))))
    assert words == {"PASSWORD_WRONG": 10, "TOO_MANY_GUESSES": 40}
    assert compared == 10


async def test_the_right_password_resets_the_count(visitor: Visitor, quick_hash: None) -> None:
    issued = await visitor.issue(password="open sésame")
    assert refused(await visitor.resolve(issued["token"])) == (401, "PASSWORD_REQUIRED")
    for _ in range(2):
        for _ in range(9):
            answer = await visitor.post("/api/receive/resolve", {"t": issued["token"], "password": "open"})
            assert refused(answer) == (403, "PASSWORD_WRONG")
        ok(await visitor.post("/api/receive/resolve", {"t": issued["token"], "password": "open sésame"}))
    for _ in range(10):
        await visitor.post("/api/receive/resolve", {"t": issued["token"], "password": "x"})
    answer = await visitor.post("/api/receive/resolve", {"t": issued["token"], "password": "open sésame"})
    assert refused(answer) == (429, "TOO_MANY_GUESSES")
    assert answer.headers["retry-after"] == "3600"


async def guessing(visitor: Visitor, issued: dict[str, Any], password: str) -> tuple[int, str]:
    answer = await visitor.post("/api/receive/resolve", {"t": issued["token"], "password": password})
    return (200, "") if answer.status_code == 200 else refused(answer)


async def test_guessing_does_not_lock_out_others(site: Running, quick_hash: None) -> None:
    issued, guesser = await site.visitor().issue(password="open"), site.visitor()
    assert {await guessing(guesser, issued, "x") for _ in range(20)} == {
        (403, "PASSWORD_WRONG"),
        (429, "TOO_MANY_GUESSES"),
    }
    assert await guessing(site.visitor(), issued, "open") == (200, "")


async def test_distributed_guessing_is_stopped(site: Running, quick_hash: None) -> None:
    issued = await site.visitor().issue(password="open")
    for _ in range(10):
        guesser = site.visitor()
        assert {await guessing(guesser, issued, "x") for _ in range(10)} == {(403, "PASSWORD_WRONG")}
    assert await guessing(site.visitor(), issued, "x") == (429, "TOO_MANY_GUESSES")


async def test_right_passwords_are_not_limited(site: Running, quick_hash: None) -> None:
    issued = await site.visitor().issue(password="open")
    visitor = site.visitor()
    assert {await guessing(visitor, issued, "open") for _ in range(110)} == {(200, "")}
    others = await asyncio.gather(*(guessing(site.visitor(), issued, "open") for _ in range(30)))
    assert set(others) == {(200, "")}


async def test_too_many_concurrent_passwords_are_refused_and_files_do_not_wait(
    site: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashing, go_on = threading.Semaphore(0), threading.Event()

    def slow(password: str, salt: bytes) -> bytes:
        hashing.release()
        go_on.wait(300)
        return b"x" * 32

    monkeypatch.setattr("keystead.parts.passwords._hash", slow)
    visitor = site.visitor()
    body = {"url": URL, "password": "open"}
    asked = [asyncio.create_task(visitor.post("/api/receive/token", body)) for _ in range(40)]
    try:
        await asyncio.to_thread(hashing.acquire)
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert refused(done.pop().result()) == (503, "TRY_AGAIN")
        uploaded = await visitor.upload()  # which has no password, and takes threads
        assert (await visitor.download(uploaded["token"])).content == CONTENT
    finally:
        go_on.set()
    answers = Counter([answer.status_code for answer in await asyncio.gather(*asked)])
    assert answers == {200: 32, 503: 8}


async def test_only_the_owner_can_end_a_link_with_a_password(site: Running, quick_hash: None) -> None:
    visitor = site.visitor()
    uploaded = await visitor.upload(headers={"x-link-password": "open"})
    for more in ({}, {"ownerKey": "x" * 43}):
        assert refused(await visitor.end(token=uploaded["token"], **more)) == (403, "NOT_OWNER")
    assert len(site.files()) == 1
    ok(await visitor.end(token=uploaded["token"], ownerKey=uploaded["ownerKey"]))
    assert site.files() == []


async def test_the_message_is_shown_before_the_password(site: Running, quick_hash: None) -> None:
    uploaded = await site.visitor().upload(headers={"x-link-password": "open"}, message="ask me for the password")
    page = await site.visitor().get("/receive", {"accept": "text/html"}, t=uploaded["shortToken"])
    assert "ask me for the password" in page.text


async def test_an_upload_with_an_unknown_option_creates_no_link(site: Running, visitor: Visitor) -> None:
    for query in ({"password": "secret"}, {"maxDownload": 1}):
        assert refused(await visitor.try_upload(**query)) == (400, "UNKNOWN_OPTION")
    spelt = [(b"x-link-password", "päss".encode())]
    answer = await visitor.http.post("/api/receive/upload", content=b"x", headers=spelt)
    assert refused(answer) == (400, "BAD_PASSWORD")
    assert site.files() == []
    assert await site.keys() == []


async def test_a_form_is_refused_and_put_is_accepted(site: Running, visitor: Visitor) -> None:
    form = await visitor.http.post("/api/receive/upload?name=a.txt", files={"file": b"hello"})
    assert refused(form) == (415, "NOT_A_FILE")
    assert site.files() == []
    put = ok(await visitor.http.put("/api/receive/upload?name=a.txt", content=b"hello"))
    assert (await visitor.download(put["shortToken"])).content == b"hello"


async def test_a_removed_file_is_reported_and_counts_no_download(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload(maxDownloads=1)
    [file] = site.files()
    content = file.read_bytes()
    file.unlink()
    assert refused(await visitor.resolve(uploaded["shortToken"])) == (410, "FILE_GONE")
    file.write_bytes(content)
    ok(await visitor.resolve(uploaded["shortToken"]))


@pytest.mark.parametrize("message", ["(sealed)", "\ud800", "x\udfff", "x" * 501])
async def test_an_invalid_message_is_refused(site: Running, message: str) -> None:
    with Reason() as reason:
        await site.sharing.issue(URL, None, Wanted(message=message), who="", where="")
    assert reason.word == "BAD_MESSAGE"


async def test_a_wrong_clean_up_secret_is_audited(site: Running) -> None:
    assert refused(await site.visitor("10.9.9.9").clean_up("Bearer wrong")) == (401, "UNAUTHORIZED")
    [noted] = await site.sharing.refusals.latest(5)
    assert (noted.event, noted.who, noted.where) == ("clean-up-refused", "stranger", "10.9.9.9")


@pytest.mark.parametrize("password", [5, None, True, ["x"], {"x": 1}, ""])
async def test_a_password_that_is_not_text_does_not_open_a_link(visitor: Visitor, password: object) -> None:
    issued = await visitor.issue(password="open")
    answer = await visitor.post("/api/receive/resolve", {"t": issued["token"], "password": password})
    assert refused(answer) in ((401, "PASSWORD_REQUIRED"), (403, "PASSWORD_WRONG"))


ASKED: dict[str, Any] = {
    "token": lambda visitor: visitor.post("/api/receive/token", {}),
    "resolve": lambda visitor: visitor.resolve("x"),
    "delete": lambda visitor: visitor.end(token="x"),
    "upload": lambda visitor: visitor.try_upload(b""),
    "csrf": lambda visitor: visitor.get("/api/blob/csrf"),
    "page": lambda visitor: visitor.get("/receive", t="x"),
    "download": lambda visitor: visitor.get("/api/receive/download", ticket="x"),
    "cleanup": lambda visitor: visitor.clean_up("Bearer wrong"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_rate_limit_affects_only_its_client(folder: Path, name: str) -> None:
    async with running("memory://", folder, limits={name: 3}) as site:
        site.clock.stand_at(60_000 * 30_000_000 + 18_001)
        visitor = site.visitor()
        answers = await asyncio.gather(*(ASKED[name](visitor) for _ in range(20)))
        too_many = [answer for answer in answers if answer.status_code == 429]
        assert len(too_many) == 17
        for answer in too_many:
            assert answer.headers["retry-after"] == "42"  # 41,999 ms, and not one less
            if name != "page":
                assert refused(answer) == (429, "RATE_LIMITED")
                assert answer.json()["retryAfter"] == 42
        assert (await ASKED[name](site.visitor())).status_code != 429
        site.clock.stand_at(60_000 * 30_000_001)
        assert (await ASKED[name](visitor)).status_code != 429


def test_every_limit_belongs_to_a_route() -> None:
    assert ASKED.keys() == LIMITS.keys()


async def test_an_ipv6_network_counts_as_one_client(folder: Path) -> None:
    async with running("memory://", folder, limits={"csrf": 2}) as site:
        site.clock.stand_at(1_800_000_000_000)

        async def status(address: str) -> int:
            return (await site.visitor(address).get("/api/blob/csrf")).status_code

        assert [await status(f"2001:db8::{number}") for number in range(3)] == [200, 200, 429]
        assert await status("2001:db8:0:1::1") == 200
        assert [await status(one) for one in ("::ffff:10.200.0.1", "10.200.0.1", "10.200.0.1")] == [200, 200, 429]
