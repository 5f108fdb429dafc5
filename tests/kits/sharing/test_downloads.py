"""Viewing counts no download; a download is the whole file or a range, and never runs in a browser."""

from collections.abc import AsyncIterator

import pytest

from tests.kits.sharing.visiting import BASE, CONTENT, Running, Visitor, ok, refused

SIZE = len(CONTENT)


async def left(visitor: Visitor, made: dict[str, str]) -> int:
    told = ok(await visitor.post("/api/receive/status", {"id": made["id"], "ownerKey": made["ownerKey"]}))
    return int(told["maxDownloads"]) - int(told["downloads"])


async def test_viewing_counts_no_download(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload(maxDownloads=1)
    before = await site.keys()
    for token in (uploaded["shortToken"], uploaded["token"]):
        for path, name in (("/api/receive/resolve", "t"), ("/api/receive/edge-resolve", "key"), ("/receive", "t")):
            looked = await visitor.http.head(path, params={name: token, "redirect": "1"})
            assert looked.status_code == 200
            assert looked.content == b""
            assert "location" not in looked.headers
        assert (await visitor.get("/receive", {"accept": "text/html"}, t=token)).status_code == 200
        for header, value in (
            ("sec-purpose", "prefetch"),
            ("sec-purpose", "prefetch;prerender"),
            ("purpose", "prefetch"),
            ("x-moz", "prefetch"),
            ("x-purpose", "Prefetch"),
        ):
            assert refused(await visitor.get("/api/receive/resolve", {header: value}, t=token)) == (403, "NO_PREFETCH")
            answer = await visitor.get("/api/receive/edge-resolve", {header: value}, key=token)
            assert refused(answer) == (403, "NO_PREFETCH")
    assert await site.keys() == before
    assert await left(visitor, uploaded) == 1
    assert (await visitor.download(uploaded["shortToken"])).content == CONTENT


async def test_a_route_without_head_refuses_it(visitor: Visitor) -> None:
    assert (await visitor.http.head("/api/receive/token")).status_code == 405
    assert (await visitor.http.put("/api/receive/resolve?t=x")).status_code == 405


async def test_a_file_is_never_displayed_run_or_cached(visitor: Visitor) -> None:
    page = b"<script>alert(document.domain)</script>"
    uploaded = await visitor.upload(page, name="page.html")
    answer = await visitor.download(uploaded["shortToken"])
    assert answer.content == page
    expected = {
        "content-type": "application/octet-stream",
        "content-length": str(len(page)),
        "content-disposition": "attachment; filename=\"page.html\"; filename*=UTF-8''page.html",
        "content-security-policy": "default-src 'none'; sandbox",
        "x-content-type-options": "nosniff",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "private, no-store",
        "accept-ranges": "bytes",
        "referrer-policy": "no-referrer",
    }
    assert {name: answer.headers[name] for name in expected} == expected
    assert "set-cookie" not in answer.headers


async def test_a_range_request_returns_the_range(visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    for asked, first, last in (
        ("bytes=0-0", 0, 0),
        ("bytes=0-99", 0, 99),
        ("bytes=100-", 100, SIZE - 1),
        ("bytes=0-", 0, SIZE - 1),
        (f"bytes=10-{SIZE * 2}", 10, SIZE - 1),
        ("bytes=10-999999999999999999", 10, SIZE - 1),
        ("bytes=-1", SIZE - 1, SIZE - 1),
        ("bytes=-100", SIZE - 100, SIZE - 1),
        (f"bytes=-{SIZE * 2}", 0, SIZE - 1),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE - 1),
        ("bytes= 5 - 9", 5, 9),
    ):
        answer = await visitor.download(uploaded["shortToken"], range=asked)
        assert answer.status_code == 206, asked
        assert answer.content == CONTENT[first : last + 1]
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{SIZE}"
        assert answer.headers["content-length"] == str(last + 1 - first)


async def test_an_unsatisfiable_range_is_refused(visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    for asked in (f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 5}", "bytes=-0", "bytes=9-5"):
        answer = await visitor.download(uploaded["shortToken"], range=asked)
        assert refused(answer) == (416, "RANGE"), asked
        assert answer.headers["content-range"] == f"bytes */{SIZE}"


async def test_multiple_or_malformed_ranges_return_the_whole_file(visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    for asked in (
        *("", "bytes", "bytes=", "bytes=-", "bytes=0-1,5-6", "items=0-5", "bytes=a-b", "bytes=1"),
        f"bytes={'9' * 30}-",
    ):
        answer = await visitor.download(uploaded["shortToken"], range=asked)
        assert (answer.status_code, answer.content) == (200, CONTENT), asked
        assert "content-range" not in answer.headers


async def test_if_range_of_another_file_returns_the_whole_file(visitor: Visitor) -> None:
    one, other = await visitor.upload(), await visitor.upload(b"y" * SIZE)
    tags = [(await visitor.download(uploaded["shortToken"])).headers["etag"] for uploaded in (one, other)]
    assert tags[0] != tags[1]
    for tag, status in (
        (tags[0], 206),
        (tags[1], 200),
        ('"x"', 200),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 200),
        (f"W/{tags[0]}", 200),
    ):
        url = ok(await visitor.resolve(one["shortToken"]))["url"]
        answer = await visitor.http.get(url, headers={"range": "bytes=10-", "if-range": tag})
        assert answer.status_code == status, tag
        assert answer.content == (CONTENT[10:] if status == 206 else CONTENT)


async def test_head_of_a_download_returns_its_size(visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    assert url.startswith(f"{BASE}/api/receive/download?ticket=")
    looked = await visitor.http.head(url)
    assert (looked.status_code, looked.headers["content-length"], looked.content) == (200, str(SIZE), b"")


async def test_head_of_a_download_reads_nothing(
    site: Running, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = await visitor.upload()
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    read, real = [], site.sharing.blobs.read

    def reading(path: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        read.append(path)
        return real(path, start, end)

    monkeypatch.setattr(site.sharing.blobs, "read", reading)
    for headers, status, length in (({}, 200, SIZE), ({"range": "bytes=0-9"}, 206, 10)):
        looked = await visitor.http.head(url, headers=headers)
        assert (looked.status_code, looked.headers["content-length"]) == (status, str(length))
        assert read == []
    assert (await visitor.http.get(url)).content == CONTENT
    assert len(read) == 1


async def test_an_invalid_ticket_opens_nothing(visitor: Visitor) -> None:
    for ticket in ("", "x", "x" * 43, "é" * 43, "../x", "*", "x" * 64):
        assert refused(await visitor.get("/api/receive/download", ticket=ticket)) == (410, "GONE"), ticket


async def test_a_download_without_a_ticket_or_with_one_that_is_too_long_is_a_bad_request(visitor: Visitor) -> None:
    assert refused(await visitor.get("/api/receive/download")) == (400, "BAD_REQUEST")
    assert refused(await visitor.get("/api/receive/download", ticket="x" * 65)) == (400, "BAD_REQUEST")


async def test_a_removed_file_is_gone(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    [file] = site.files()
    file.unlink()
    assert refused(await visitor.http.get(url)) == (410, "GONE")


async def test_a_form_is_redirected_with_303(visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    form = {"t": uploaded["shortToken"]}
    answer = await visitor.http.post("/api/receive/resolve", data=form, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert (await visitor.http.get(answer.headers["location"])).content == CONTENT
    assert answer.headers["cache-control"] == "no-store"


async def test_link_responses_are_not_cached(visitor: Visitor) -> None:
    issued = await visitor.issue()
    for answer in (
        await visitor.resolve(issued["token"]),
        await visitor.resolve(issued["token"], redirect=1),
        await visitor.resolve("x"),
        await visitor.get("/receive", t=issued["token"]),
        await visitor.get("/api/receive/edge-resolve", key=issued["shortToken"]),
        await visitor.end(token=issued["token"]),
    ):
        assert answer.headers["cache-control"] == "no-store"
