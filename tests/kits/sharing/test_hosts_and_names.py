"""Allowed hosts and file names: misleading ones are refused."""

import unicodedata
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystead.kits.sharing import SharingRefused
from keystead.kits.sharing.service.names import check_url, display_name, file_name
from tests.kits.sharing.visiting import CONTENT, URL, Running, Visitor, ok, refused, running

ALLOWED = "allowed.example"

HOSTILE_URLS = [
    "",
    " ",
    "https://",
    "https:///x",
    "https://evil.example/",
    "https://allowed.example@evil.example/",
    "https://allowed.example:443@evil.example/",
    "https://allowed.example%40evil.example/",
    "https://evil.example#@allowed.example/",
    "https://evil.example?@allowed.example/",
    "https://evil.example/allowed.example",
    "https://evil.example\\@allowed.example/",
    "https://evil.example\\.allowed.example/",
    "https://allowed.example\\@evil.example/",
    "https://user@allowed.example/",
    "https://user:password@allowed.example/",
    "https://@allowed.example/",
    "https://allowed.example:443/",
    "https://allowed.example:8443/",
    "https://allowed.example:/",
    "https://allowed.example:x/",
    "https://allowed.example:99999/",
    "https://127.0.0.1/",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[allowed.example]/",
    "https://[",
    "https://localhost/",
    "https://allowed/",
    "https://evilallowed.example/",
    "https://allowed.example.evil.example/",
    "https://allowed-example/",
    "https://allowed.example./",
    "https://.allowed.example/",
    "https://-x.allowed.example/",
    "https://x-.allowed.example/",
    "https://x..allowed.example/",
    "https://x_y.allowed.example/",
    "https://*.allowed.example/",
    f"https://{'x' * 64}.allowed.example/",
    "https://allow\u0435d.example/",  # a Cyrillic letter
    "https://xn--allowd-0of.example/",  # the same in ASCII
    "https://xn--allowed.example/",
    "https://allowed\u3002example/",  # dots of other scripts, which browsers take for one
    "https://allowed\uff0eexample/",
    "https://\uff41llowed.example/",  # letters that browsers take for ASCII
    "https://allowed.example\u2044.evil.example/",
    "https://allo\u00adwed.example/",
    "https://allowed.example\t/",
    "https://allowed.example\n/",
    "https://allow\ted.example/",
    "https://allowed.example/\r\nLocation: https://evil.example",
    "https://allowed.example/a b",
    "https://allowed.example/\0",
    "https://allowed.example/\x7f",
    "https://allowed.example/caf\u00e9",
    " https://allowed.example/",
    "https://allowed.example/ ",
    "//allowed.example/",
    "/allowed.example/",
    "allowed.example/",
    "https:allowed.example/",
    "https:/allowed.example/",
    "https:\\\\allowed.example/",
    "http://allowed.example/",
    "ftp://allowed.example/",
    "javascript:alert(1)//https://allowed.example/",
    "data:text/html,<script>alert(1)</script>",
    "file:///etc/passwd",
    "blob:https://allowed.example/x",
    f"https://allowed.example/{'x' * 2048}",
]


@pytest.mark.parametrize("url", HOSTILE_URLS, ids=ascii)
def test_a_url_on_another_host_is_refused(url: str) -> None:
    with pytest.raises(SharingRefused) as refusal:
        check_url(url, [ALLOWED])
    assert refusal.value.reason == "HOST_NOT_ALLOWED"


async def test_a_bad_url_is_refused_over_http_and_nothing_is_written(folder: Path) -> None:
    async with running("memory://", folder, allowed_hosts=ALLOWED) as site:
        visitor = site.visitor()
        for url in filter(None, HOSTILE_URLS):
            answer = await visitor.post("/api/receive/token", {"url": url})
            assert refused(answer) == (403, "HOST_NOT_ALLOWED"), url
            answer = await visitor.post("/api/receive/edge-resolve", {"pathname": "a/b.zip", "downloadUrl": url})
            assert refused(answer) == (403, "HOST_NOT_ALLOWED"), url
        assert refused(await visitor.post("/api/receive/token", {"url": ""})) == (400, "URL_REQUIRED")
        assert refused(await visitor.post("/api/receive/token", {})) == (400, "URL_REQUIRED")
        answer = await visitor.post("/api/receive/edge-resolve", {"pathname": "a/b.zip"})
        assert refused(answer) == (400, "PATH_REQUIRED")
        assert await site.keys() == []


async def test_subdomains_of_allowed_hosts_are_allowed_and_lookalikes_are_not(visitor: Visitor) -> None:
    for host in ("public.blob.vercel-storage.com", "x1.public.blob.vercel-storage.com", "blob.vercel-storage.com"):
        await visitor.issue(f"https://{host}/x.zip")
    for host in (
        "evilpublic.blob.vercel-storage.com.evil.example",
        "evilblob.vercel-storage.com",
        "vercel-storage.com",
        "public.blob.vercel-storage.com.evil.example",
        "blob.vercel-storage.co",
    ):
        answer = await visitor.post("/api/receive/token", {"url": f"https://{host}/x.zip"})
        assert refused(answer) == (403, "HOST_NOT_ALLOWED"), host


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://allowed.example", "https://allowed.example/?download=1"),
        ("HTTPS://Allowed.EXAMPLE/A.zip", "https://allowed.example/A.zip?download=1"),
        ("https://a.b.allowed.example/x", "https://a.b.allowed.example/x?download=1"),
        ("https://allowed.example/x?download=0", "https://allowed.example/x?download=1"),
        ("https://allowed.example/x?a=%ff+b&download=0&c", "https://allowed.example/x?a=%ff+b&c&download=1"),
        ("https://allowed.example/x#y", "https://allowed.example/x?download=1"),
        ("https://allowed.example//evil.example/x", "https://allowed.example//evil.example/x?download=1"),
        ("https://allowed.example/@evil.example", "https://allowed.example/@evil.example?download=1"),
        ("https://allowed.example/..%2f", "https://allowed.example/..%2f?download=1"),
    ],
)
def test_an_allowed_url_is_unchanged_except_for_the_download_parameter(url: str, kept: str) -> None:
    assert check_url(url, [ALLOWED]) == kept


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\\"), max_size=60)
    | st.integers(1990, 2100).map(lambda length: "x" * length)
)
def test_an_accepted_url_is_accepted_again_when_the_link_is_used(rest: str) -> None:
    try:
        kept = check_url(f"https://allowed.example/{rest}", [ALLOWED])
    except SharingRefused:
        return
    assert check_url(kept, [ALLOWED]) == kept


# --- names -----------------------------------------------------------------------------------------------------

HOSTILE_NAMES = [
    "../x.zip",
    "..",
    ".",
    "/etc/passwd",
    "a/b.zip",
    "a\\b.zip",
    "C:x.zip",
    ".htaccess",
    "...x",
    "x.exe.",
    "con",
    "CON",
    "nul.txt",
    "com1.zip",
    "LPT9.tar.gz",
    "aux .zip",
    "a\0b.zip",
    "a\nb.zip",
    "a\r\nSet-Cookie: x=y.zip",
    "a\x7fb.zip",
    "a\x85b.zip",
    "a\u2028b.zip",
    "annexe\u202egpj.exe",
    "a\u2066b.zip",
    "a\u200eb.zip",
    "a\u200bb.zip",
    "a\ufeffb.zip",
    "a\ue000b.zip",
    'a".zip',
    "a<b>.zip",
    "a|b.zip",
    "a*.zip",
    "a?.zip",
    "x" * 129,
    "é" * 200,
]


async def test_a_misleading_name_is_refused_in_json_and_uploads(site: Running, visitor: Visitor) -> None:
    url = "https://blob.vercel-storage.com/x"
    for name in HOSTILE_NAMES:
        answer = await visitor.post("/api/receive/token", {"url": url, "name": name})
        assert refused(answer) == (400, "BAD_NAME"), ascii(name)
        body = {"pathname": "a/b.zip", "downloadUrl": url, "displayName": name}
        assert refused(await visitor.post("/api/receive/edge-resolve", body)) == (400, "BAD_NAME"), ascii(name)
        assert refused(await visitor.try_upload(name=name)) == (400, "BAD_NAME"), ascii(name)
    assert await site.keys() == []
    assert site.files() == []


@pytest.mark.parametrize(
    ("name", "shown", "kept"),
    [
        ("report.pdf", "report.pdf", "report.pdf"),
        ("", "download", "download"),
        ("  ", "download", "download"),
        ("Makefile", "Makefile", "Makefile"),
        ("景品", "景品", "download"),
        ("Übersicht 2026.pdf", "Übersicht 2026.pdf", "bersicht2026.pdf"),
        ("景品.zip", "景品.zip", "download.zip"),
        ("e\u0301.txt", "\u00e9.txt", "download.txt"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.pdf",) * 2 + ("download.pdf",),  # Persian
        ("👩\u200d🚀.png", "👩\u200d🚀.png", "download.png"),
        ("50% off; now, it's 'free' & (good).zip",) * 2 + ("50offnowitsfreegood.zip",),
        ("x" * 124 + ".zip",) * 3,
        ("contract.pdf",) * 3,
    ],
)
async def test_any_other_name_is_unchanged(visitor: Visitor, name: str, shown: str, kept: str) -> None:
    uploaded = await visitor.upload(name=name)
    assert uploaded["fileName"] == kept
    disposition = (await visitor.download(uploaded["shortToken"])).headers["content-disposition"]
    plain, _, encoded = disposition.partition("; filename*=UTF-8''")
    assert unquote(encoded) == shown
    assert plain.isascii()
    assert plain.startswith('attachment; filename="')
    assert plain.count('"') == 2
    assert plain.endswith('"')


@pytest.mark.parametrize(("name", "shown"), [("", "download.zip"), ("report", "report.zip"), ("a.pdf", "a.pdf")])
async def test_a_link_to_a_url_defaults_to_a_zip_extension(visitor: Visitor, name: str, shown: str) -> None:
    body = {"url": "https://blob.vercel-storage.com/x", "name": name}
    issued = (await visitor.post("/api/receive/token", body)).json()
    assert (await visitor.get("/api/receive/resolve", t=issued["shortToken"])).json()["name"] == shown


@given(st.text(max_size=140))
def test_every_accepted_name_is_safe_on_any_file_system(name: str) -> None:
    try:
        shown = display_name(name)
    except SharingRefused:
        return
    assert 0 < len(shown) <= 132
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in shown)
    assert display_name(shown) == shown
    kept = file_name(shown)
    assert kept.isascii()
    assert set(kept) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
    assert not kept.startswith(".")
    assert "." in kept


async def test_uploads_are_stored_under_random_paths(site: Running, visitor: Visitor) -> None:
    one, other = [await visitor.upload(name="same.zip") for _ in range(2)]
    first, second = site.files()
    assert first.parent != second.parent
    assert {first.name, second.name} == {"same.zip"}
    for uploaded in (one, other):
        assert (await visitor.download(uploaded["shortToken"])).content == CONTENT


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a//b", "a/../b", "a/%2e%2e/b", "a\\b", "a\0b", "x" * 901, "a/" + "y" * 241]
)
async def test_an_unsafe_path_cannot_be_registered(site: Running, visitor: Visitor, path: str) -> None:
    body = {"pathname": path, "downloadUrl": "https://blob.vercel-storage.com/x", "displayName": "x.zip"}
    assert refused(await visitor.post("/api/receive/edge-resolve", body)) == (400, "BAD_PATH")
    assert await site.keys() == []


@pytest.mark.parametrize(
    ("field", "wrong", "code"),
    [
        ("message", "x" * 501, "BAD_MESSAGE"),
        ("theme", "Gold", "BAD_THEME"),
        ("theme", "a b", "BAD_THEME"),
        ("theme", "x" * 33, "BAD_THEME"),
        ("password", "", "BAD_PASSWORD"),
        ("password", "x" * 257, "BAD_PASSWORD"),
    ],
)
async def test_other_invalid_values_have_error_codes(visitor: Visitor, field: str, wrong: str, code: str) -> None:
    body = {"pathname": "a/b.zip", "downloadUrl": "https://blob.vercel-storage.com/x", field: wrong}
    assert refused(await visitor.post("/api/receive/edge-resolve", body)) == (400, code)


async def test_a_purpose_keeps_its_plain_characters(visitor: Visitor) -> None:
    for given_purpose, kept in (
        ("gacha prizes/2026", "gachaprizes2026"),
        ("", "zips"),
        ("é", "zips"),
        ("x" * 70, "x" * 64),
    ):
        issued = await visitor.issue(purpose=given_purpose)
        assert ok(await visitor.resolve(issued["token"]))["purpose"] == kept


# Emoji of Unicode 15, 16 and 17, a family of three, the flag of Scotland, and what is written from right to left.
NEW_NAMES = (
    "\U0001fae8.txt",
    "\U0001fae9.txt",
    "\U0001fac8.txt",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467.txt",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f.txt",
    "\u05e9\u05dc\u05d5\u05dd.txt",
)
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


async def test_newer_emoji_are_allowed_in_names(visitor: Visitor) -> None:
    for name in NEW_NAMES:
        uploaded = await visitor.upload(name=name)
        page = (await visitor.get("/receive", {"accept": "text/html"}, t=uploaded["shortToken"])).text
        assert f"<bdi>{name}</bdi>" in page, ascii(name)
        told = (await visitor.download(uploaded["shortToken"])).headers["content-disposition"]
        assert told.endswith(f"filename*=UTF-8''{quote(name, safe='')}"), ascii(name)


async def test_bidi_and_hidden_characters_are_refused_in_names(visitor: Visitor) -> None:
    hidden = "\U000e0041\U000e0001\U000e007f\ufff0\u2065\ufdd0\U0001fffe\ue000\u00ad\u2028"
    for char in TURNING + hidden:
        answer = await visitor.try_upload(name=f"annexe{char}gpj.exe")
        assert refused(answer) == (400, "BAD_NAME"), ascii(char)
        body = {"url": URL, "receiverName": f"Eve{char}"}
        assert refused(await visitor.post("/api/receive/token", body)) == (400, "BAD_RECEIVER"), ascii(char)
