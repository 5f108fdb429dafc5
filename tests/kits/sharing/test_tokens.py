"""Altered, truncated, swapped, foreign and made-up tokens: each has an error code, and none is a 500."""

import asyncio
import json
import string
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from keystead.kits.sharing.service import Payload, SealedLinks, SharingRefused
from keystead.parts.digest import base64url, digest
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    HOST,
    TOKEN_KEY,
    URL,
    WEEK_MS,
    Clock,
    Running,
    Visitor,
    key_text,
    ok,
    refused,
    running,
)

ALPHABET = string.ascii_letters + string.digits + "-_"
FORMAT, BYTES, PAYLOAD = (400, "INVALID_FORMAT"), (400, "INVALID_BYTES"), (400, "INVALID_PAYLOAD")


def sealed(payload: dict[str, Any] | bytes, key: bytes = TOKEN_KEY) -> str:
    """Seal as the original system does, without our code."""
    iv = b"an iv of 12b"
    plain = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return f"v1.{base64url(iv)}.{base64url(AESGCM(key).encrypt(iv, plain, None))}"


def original(now_ms: int, **more: Any) -> dict[str, Any]:
    """A payload of the original system, without id and short token."""
    url = f"{URL}?download=1"
    return {"v": 1, "u": url, "n": "old.zip", "p": "zips", "exp": now_ms + WEEK_MS, "iat": now_ms, **more}


def reason(links: SealedLinks, token: str) -> str:
    try:
        links.open(token)
    except SharingRefused as refusal:
        return refusal.reason
    return ""


# --- altered ---------------------------------------------------------------------------------------------------


def payload() -> Payload:
    return Payload(v=1, u=URL, n="demo.zip", p="zips", exp=4_000_000_000_000, iat=0, id="Aaaaaaaaaa", s="s" * 43)


def test_a_token_with_any_character_changed_opens_nothing() -> None:
    links = SealedLinks([TOKEN_KEY])
    # Each length of the text leaves another number of bits of its last character unused.
    for more in ("", "n", "nn"):
        token = links.seal(payload().model_copy(update={"n": f"demo{more}.zip"}))
        assert reason(links, token) == ""
        for place, kept in enumerate(token):
            others = ALPHABET if place >= len(token) - 2 else "AZaz09-_"
            for other in set(others) - {kept}:
                altered = token[:place] + other + token[place + 1 :]
                assert reason(links, altered) in ("INVALID_FORMAT", "INVALID_BYTES", "INVALID_PAYLOAD"), altered
        for place in range(len(token)):
            for other in {".", "=", "+", "/", " ", "\n", "\0", "é", "\uff21", "\ud800"} - {token[place]}:
                assert reason(links, token[:place] + other + token[place + 1 :]) != "", (place, other)


def test_a_token_of_any_other_length_opens_nothing() -> None:
    links = SealedLinks([TOKEN_KEY])
    token = links.seal(payload())
    for length in range(len(token)):
        assert reason(links, token[:length]) in ("INVALID_FORMAT", "INVALID_BYTES", "INVALID_PAYLOAD"), length
        assert reason(links, token[length + 1 :]) in ("INVALID_FORMAT", "INVALID_BYTES", "INVALID_PAYLOAD"), length
    for more in ("A", "AA", "AAA", "AAAA", "=", "==", ".", ".AAAA", "\n", " "):
        assert reason(links, token + more) in ("INVALID_FORMAT", "INVALID_BYTES", "INVALID_PAYLOAD"), more
        assert reason(links, more + token) != "", more


@pytest.mark.parametrize(
    ("token", "answer"),
    [
        ("", (400, "TOKEN_REQUIRED")),
        ("AAAAAAAAAA", (404, "TOKEN_NOT_FOUND")),
        ("0123456789", (404, "TOKEN_NOT_FOUND")),
        ("AAAAAAAAA", FORMAT),
        ("AAAAAAAAAAA", FORMAT),
        ("AAAAAAAAA\n", FORMAT),
        ("\uff21" * 10, FORMAT),
        ("........", FORMAT),
        ("v1", FORMAT),
        ("v1..", BYTES),
        ("v2.QUFBQUFBQUFBQUFB.QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB", FORMAT),
        ("V1.QUFBQUFBQUFBQUFB.QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB", FORMAT),
        ("v1.QUFBQUFBQUFBQUFB.QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB", PAYLOAD),
        ("v1.QUFBQUFBQUFBQUFB.QUFBQUFBQUFBQUFBQUFBQQ", BYTES),  # 16 bytes: a tag, and nothing that it is of
        ("v1.QUFBQUFBQUFBQUFB.QUFBQUFBQUFBQUFBQUFBQUE", PAYLOAD),
        ("v1.QUFBQUFBQUFBQUE.QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB", BYTES),
        ("v1.QUFBQUFBQUFBQUFB=.QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB", BYTES),
        ("v1.éééé.🦊", BYTES),
        ("v1." + "A" * 5000 + "." + "A" * 50, BYTES),
        ("v1." + "A" * 16 + "." + "A" * 8200, FORMAT),
        ("\0", FORMAT),
        ("*", FORMAT),
    ],
)
async def test_invalid_tokens_have_error_codes(visitor: Visitor, token: str, answer: tuple[int, str]) -> None:
    edge = {"TOKEN_NOT_FOUND": "NOT_FOUND", "TOKEN_REQUIRED": "KEY_REQUIRED"}
    assert refused(await visitor.resolve(token)) == answer
    assert refused(await visitor.post("/api/receive/resolve", {"t": token})) == answer
    assert refused(await visitor.end(token=token)) == answer
    looked = await visitor.http.head("/api/receive/resolve", params={"t": token})
    assert looked.status_code == answer[0]
    found = await visitor.get("/api/receive/edge-resolve", key=token)
    assert refused(found) == (answer[0], edge.get(answer[1], answer[1]))
    page = await visitor.get("/receive", {"accept": "text/html"}, t=token)
    assert page.status_code == answer[0]
    assert answer[1] in page.text


async def test_a_missing_token_is_reported(visitor: Visitor) -> None:
    assert refused(await visitor.get("/api/receive/resolve")) == (400, "TOKEN_REQUIRED")
    assert refused(await visitor.post("/api/receive/resolve", {})) == (400, "TOKEN_REQUIRED")
    assert refused(await visitor.post("/api/receive/delete")) == (400, "TOKEN_REQUIRED")


# --- swapped ---------------------------------------------------------------------------------------------------


@everywhere
async def test_a_sealed_link_is_refused_under_another_short_token(stored_site: Running) -> None:
    visitor = stored_site.visitor()
    one, other = await visitor.issue(), await visitor.issue()
    keys = [f"receive:token:{digest(issued['shortToken'])}" for issued in (one, other)]
    assert await stored_site.ask("GET", keys[0]) == one["token"].encode()
    await stored_site.ask("SET", keys[1], one["token"], "KEEPTTL")
    assert refused(await visitor.resolve(other["shortToken"])) == PAYLOAD
    ok(await visitor.resolve(one["shortToken"]))


async def test_a_record_is_refused_for_another_link(site: Running, visitor: Visitor) -> None:
    one, other = await visitor.issue(), await visitor.issue()
    keys = [f"receive:link:{issued['id']}" for issued in (one, other)]
    first, second = [json.loads(await site.ask("GET", key)) for key in keys]
    # What is sealed in a record is sealed for its key; without that, the short token tells that it is of another.
    for sealed_fields, answer in ((True, (410, "REVOKED")), (False, PAYLOAD)):
        for key, record in zip(keys, (second, first), strict=True):
            if not sealed_fields:
                del record["display_name"]
            await site.ask("SET", key, json.dumps(record), "KEEPTTL")
        for issued in (one, other):
            for token in (issued["shortToken"], issued["token"]):
                assert refused(await visitor.resolve(token)) == answer


async def test_a_sealed_link_without_a_short_token_is_refused_under_one(site: Running, visitor: Visitor) -> None:
    await site.ask("SET", f"receive:token:{digest('AAAAAAAAAA')}", sealed(original(site.clock())))
    assert refused(await visitor.resolve("AAAAAAAAAA")) == PAYLOAD


@pytest.mark.parametrize(
    ("held", "answer"),
    [
        (b"rubbish", FORMAT),
        (b"", FORMAT),
        (b"\xff\xfe", (404, "TOKEN_NOT_FOUND")),
        (b"TESTKEY123", FORMAT),
        (b"v1.AA.AA", BYTES),
    ],
)
async def test_a_short_token_with_a_corrupt_value_has_an_error_code(
    site: Running, visitor: Visitor, held: bytes, answer: tuple[int, str]
) -> None:
    await site.ask("SET", f"receive:token:{digest('AAAAAAAAAA')}", held)
    assert refused(await visitor.resolve("AAAAAAAAAA")) == answer


async def test_an_unreadable_record_opens_nothing(site: Running, visitor: Visitor) -> None:
    issued = await visitor.issue()
    await site.ask("SET", f"receive:link:{issued['id']}", b"rubbish", "KEEPTTL")
    assert refused(await visitor.resolve(issued["shortToken"])) == (410, "REVOKED")
    assert refused(await visitor.end(id=issued["id"], ownerKey=issued["ownerKey"])) == (403, "NOT_OWNER")


async def test_a_stored_digest_opens_nothing(site: Running, visitor: Visitor) -> None:
    issued = await visitor.issue()
    in_store = digest(issued["shortToken"])
    assert refused(await visitor.resolve(in_store)) == FORMAT
    assert refused(await visitor.resolve(in_store[:10])) == (404, "TOKEN_NOT_FOUND")
    assert refused(await visitor.end(id=issued["id"], ownerKey=digest(issued["ownerKey"]))) == (403, "NOT_OWNER")
    uploaded = await visitor.upload()
    ticket = ok(await visitor.resolve(uploaded["shortToken"]))["url"].partition("ticket=")[2]
    assert refused(await visitor.get("/api/receive/download", ticket=digest(ticket))) == (410, "GONE")
    assert (await visitor.get("/api/receive/download", ticket=ticket)).status_code == 200


# --- keys ------------------------------------------------------------------------------------------------------


async def test_after_key_rotation_the_new_key_seals_and_the_old_one_still_opens(tmp_path: Path) -> None:
    database, keys = f"sqlite:///{tmp_path}/links.db", [key_text(letter * 32) for letter in (b"a", b"b")]
    folder = tmp_path / "files"
    async with running(database, folder, token_keys=keys[0]) as site:
        before = await site.visitor().issue()
    async with running(database, folder, token_keys=",".join(keys)) as site:
        visitor = site.visitor()
        for token in (before["shortToken"], before["token"]):
            ok(await visitor.resolve(token))
        after = await visitor.issue()
        assert reason(SealedLinks([b"b" * 32]), after["token"]) == ""
    async with running(database, folder, token_keys=keys[1]) as site:
        visitor = site.visitor()
        for token in (before["shortToken"], before["token"]):
            assert refused(await visitor.resolve(token)) == PAYLOAD  # its key has retired
        for token in (after["shortToken"], after["token"]):
            ok(await visitor.resolve(token))


async def test_without_token_keys_links_are_sealed_with_derived_keys(folder: Path) -> None:
    async with running("memory://", folder, token_keys=None) as site:
        visitor = site.visitor()
        issued = await visitor.issue()
        ok(await visitor.resolve(issued["token"]))
        assert reason(SealedLinks([TOKEN_KEY, b"k" * 32]), issued["token"]) == "INVALID_PAYLOAD"


async def test_a_link_that_the_original_system_sealed_opens_until_it_expires(site: Running, visitor: Visitor) -> None:
    now_ms = site.clock()
    token = sealed(original(now_ms))
    expected = {"ok": True, "url": f"{URL}?download=1", "name": "old.zip", "exp": now_ms + WEEK_MS, "purpose": "zips"}
    assert ok(await visitor.resolve(token)) == expected
    assert (await visitor.resolve(token, redirect=1)).status_code == 302
    assert ok(await visitor.get("/api/receive/edge-resolve", key=token))["blobName"] == "old.zip"
    assert refused(await visitor.end(token=token)) == (409, "NOT_ENDABLE")
    site.clock.move("7d")
    answer = await visitor.resolve(token)
    assert refused(answer) == (410, "EXPIRED")
    assert answer.json()["exp"] == now_ms + WEEK_MS


@pytest.mark.parametrize(
    "wrong",
    [
        {"v": 2},
        {"v": "1"},
        {"v": True},
        {"v": None},
        {"u": None},
        {"u": 5},
        {"b": "receive/x/y"},
        {"exp": None},
        {"exp": "1"},
        {"exp": 1.5},
        {"exp": 10**40},
        {"exp": 10**17},
        {"n": None},
        {"n": ["x"]},
        {"p": 1},
        {"id": 5},
    ],
    ids=str,
)
async def test_a_sealed_payload_of_another_shape_is_refused(
    site: Running, visitor: Visitor, wrong: dict[str, Any]
) -> None:
    token = sealed(original(site.clock(), **wrong))
    assert refused(await visitor.resolve(token)) == PAYLOAD
    assert (await visitor.get("/receive", {"accept": "text/html"}, t=token)).status_code == 400


@pytest.mark.parametrize("plain", [b"x", b"[]", b"null", b"{}", b"\xff\xff", b'{"v":1', b"[" * 3000])
async def test_sealed_bytes_that_are_no_payload_are_refused(visitor: Visitor, plain: bytes) -> None:
    assert refused(await visitor.resolve(sealed(plain))) == PAYLOAD


async def test_a_sealed_link_to_a_file_here_without_a_record_opens_nothing(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    path = await site.key("receive:edge:file:")
    now_ms = site.clock()
    for b in (path.rpartition(":")[2], "../secret"):
        token = sealed({"v": 1, "b": b, "n": "x.zip", "p": "zips", "exp": now_ms + 1000, "iat": now_ms})
        assert refused(await visitor.resolve(token)) == PAYLOAD
    ok(await visitor.resolve(uploaded["token"]))


async def test_the_target_of_a_link_is_checked_again_when_it_is_used(tmp_path: Path, clock: Clock) -> None:
    database, folder = f"sqlite:///{tmp_path}/links.db", tmp_path / "files"
    async with running(database, folder) as site:
        issued = await site.visitor().issue()
    async with running(database, folder, allowed_hosts="other.example") as site:
        for token in (issued["shortToken"], issued["token"]):
            assert refused(await site.visitor().resolve(token)) == (403, "HOST_NOT_ALLOWED")
    for url in (f"http://{HOST}/x", f"https://{HOST}:444/x", f"https://{HOST}@evil.example/x", "javascript:alert(1)"):
        async with running("memory://", folder) as site:
            token = sealed(original(clock(), u=url))
            assert refused(await site.visitor().resolve(token)) == (403, "HOST_NOT_ALLOWED")


# --- anything --------------------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        *("url", "name", "purpose", "validUntil", "maxDownloads", "password", "ownerOnly", "csrf", "t", "token", "id"),
        *("ownerKey", "pathname", "downloadUrl", "displayName", "message", "theme"),
    ]
)
TEXT = st.text() | st.text(ALPHABET, min_size=10, max_size=10) | st.from_regex(r"v1\.[\w-]{16}\.[\w-]{20,40}")
POSTS = ("token", "edge-resolve", "resolve", "delete", "status")


@pytest.mark.parametrize("path", POSTS)
async def test_lone_surrogates_cause_no_server_error(visitor: Visitor, path: str) -> None:
    issued = await visitor.issue(password="open")
    whole = {"t": issued["token"], "token": issued["token"], "id": issued["id"], "url": URL}
    whole |= {"ownerKey": "x", "pathname": "a/b.zip", "downloadUrl": URL}
    for field in (*whole, "name", "purpose", "validUntil", "password", "csrf", "displayName", "message", "theme"):
        body = json.dumps(whole | {field: "half \ud800"})
        answer = await visitor.http.post(
            f"/api/receive/{path}", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code < 500, (field, answer.text)


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # the server uses it in the other thread
@pytest.mark.matrix
async def test_random_requests_never_cause_a_server_error(folder: Path) -> None:
    async with running("memory://", folder) as site:
        visitor = site.visitor()

        async def holds(text: str, body: dict[str, Any], raw: bytes) -> None:
            answers = [
                await visitor.resolve(text),
                await visitor.get("/api/receive/edge-resolve", key=text),
                await visitor.get("/api/receive/download", {"range": "bytes=0-1"}, ticket=text),
                await visitor.get("/receive", t=text),
                await visitor.try_upload(b"", name=text, validUntil=text, purpose=text, message=text),
            ]
            for path in POSTS:
                written = json.dumps({"url": URL, "pathname": text, "downloadUrl": URL, **body})
                for content, kind in ((written.encode(), "json"), (raw, "json"), (raw, "x-www-form-urlencoded")):
                    headers = {"content-type": f"application/{kind}"}
                    answers.append(await visitor.http.post(f"/api/receive/{path}", content=content, headers=headers))
            for answer in answers:
                assert answer.status_code < 500, (answer.request.url, answer.text)

        loop = asyncio.get_running_loop()

        @settings(max_examples=60)
        @given(TEXT, st.dictionaries(FIELDS, ANYTHING | TEXT, max_size=6), st.binary(max_size=40))
        def each(text: str, body: dict[str, Any], raw: bytes) -> None:
            asyncio.run_coroutine_threadsafe(holds(text, body, raw), loop).result(60)

        await asyncio.to_thread(each)
