"""Pages of other sites: which may use the widgets, and that they can read why they were refused."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.kits.sharing.visiting import BASE
from tests.kits.widgets.http.visiting import (
    BBS,
    LIKE,
    PATHS,
    RANKING,
    TOKEN,
    URL,
    VISIT,
    Running,
    Visitor,
    data,
    refused,
    running,
)

PAGE = "https://blog.example"
OTHER = "https://other.example"
SHARED = (*PATHS, "/components/visit.js", "/components/themes.js")
WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    VISIT: ("increment", {}),
    LIKE: ("toggle", {}),
    RANKING: ("submit", {"name": "Ann", "score": 1}),
    BBS: ("post", {"message": "hello"}),
}
FROM_OTHERS = [
    {"origin": OTHER},
    {"origin": "null"},
    {"origin": f"{PAGE}.other.example"},
    {"referer": f"{OTHER}/page"},
    {"referer": "http://["},
    {"origin": OTHER, "referer": f"{PAGE}/", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
]
FROM_THOSE_WHO_MAY = [
    {},
    {"origin": PAGE},
    {"origin": PAGE, "sec-fetch-site": "cross-site"},
    {"referer": f"{PAGE}/page", "sec-fetch-site": "cross-site"},
    {"origin": BASE, "sec-fetch-site": "same-origin"},
    {"referer": f"{BASE}/widgets"},
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
]


async def preflight(visitor: Visitor, path: str, origin: str, header: str = "content-type") -> httpx2.Response:
    headers = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": header}
    return await visitor.http.options(path, headers=headers)


def allowed(answer: httpx2.Response) -> str | None:
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("path", PATHS)
async def test_any_page_may_use_the_widgets_by_default(visitor: Visitor, path: str) -> None:
    for header in ("content-type", "x-owner-token", "x-edit-token", "authorization, content-type"):
        answer = await preflight(visitor, path, PAGE, header)
        assert (answer.status_code, allowed(answer)) == (200, "*")
        assert "POST" in answer.headers["access-control-allow-methods"]
    assert (await preflight(visitor, path, PAGE, "x-something-else")).status_code == 400
    answer = await visitor.post(path, "create", {"origin": PAGE}, url="https://example.com", token=TOKEN)
    assert data(answer)["id"]
    assert allowed(answer) == "*"
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_page_can_read_error_responses(visitor: Visitor) -> None:
    origin = {"origin": PAGE}
    for answer, status in (
        (await visitor.get(VISIT, "frobnicate", origin), 400),
        (await visitor.get(VISIT, "get", origin, id="nobody-00000000"), 404),
        (await visitor.http.put(VISIT, headers=origin), 405),
        (await visitor.http.post(VISIT, content=b"x" * 2_000_000, headers=origin), 413),
        (await visitor.get(BBS, "display", origin, id="x", format="text"), 404),
    ):
        assert (answer.status_code, allowed(answer)) == (status, "*")
        assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


@pytest.mark.parametrize("path", SHARED)
async def test_with_all_origins_a_cache_may_share_responses(visitor: Visitor, path: str) -> None:
    query = "" if path.startswith("/components") else "?action=display&id=x&format=image"
    told = []
    for headers in ({}, {"origin": PAGE}, {"origin": OTHER}, {"origin": BASE, "cookie": "a=b"}):
        answer = await visitor.http.get(f"{path}{query}", headers=headers)
        assert allowed(answer) == "*"
        assert "origin" not in answer.headers.get("vary", "").lower()
        told.append({name: value for name, value in answer.headers.items() if name.startswith("access-control")})
    assert all(one == told[0] for one in told)
    assert "retry-after" in told[0]["access-control-expose-headers"]


@pytest.mark.parametrize("path", SHARED)
async def test_pictures_and_scripts_are_cross_origin_resources(visitor: Visitor, path: str) -> None:
    query = "" if path.startswith("/components") else "?action=display&id=x&format=image"
    answer = await visitor.http.get(f"{path}{query}")
    assert answer.status_code == 200
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


async def test_only_listed_origins_may_use_the_widgets() -> None:
    async with running("memory://", origins=[PAGE]) as site:
        visitor = site.visitor()
        for path in PATHS:
            assert allowed(await preflight(visitor, path, PAGE)) == PAGE
            assert allowed(await preflight(visitor, path, OTHER)) is None
            for origin, answered in ((PAGE, PAGE), (OTHER, None)):
                answer = await visitor.get(path, "frobnicate", {"origin": origin})
                assert allowed(answer) == answered
                assert "origin" in answer.headers["vary"].lower()
            plain = await visitor.get(path, "frobnicate")
            assert allowed(plain) is None
            assert "origin" in plain.headers["vary"].lower()


@pytest.mark.parametrize("origins", [[PAGE], []], ids=["some", "none"])
@pytest.mark.parametrize("headers", FROM_OTHERS, ids=str)
async def test_an_unlisted_origin_cannot_write_without_a_preflight(origins: list[str], headers: dict[str, str]) -> None:
    """Browsers send pictures, forms and links without a preflight; hiding the response would be too late."""
    async with running("memory://", origins=origins) as site:
        visitor = site.visitor()
        for path, (action, fields) in WRITES.items():
            id = await visitor.create(path)
            before = await site.everything()
            for answer in (
                await visitor.get(path, action, headers, id=id, **fields),
                await visitor.post(path, action, headers, id=id, **fields),
                await visitor.post(path, "delete", headers, id=id, token=TOKEN),
                await visitor.get(path, "create", headers | {"x-owner-token": TOKEN}, url=f"{URL}/another"),
            ):
                assert refused(answer) == (403, "ORIGIN_NOT_ALLOWED")
            assert await site.everything() == before
            assert data(await visitor.get(path, "get", headers, id=id))["id"] == id
        id = await visitor.create(VISIT)
        picture = await visitor.get(VISIT, "increment", headers, id=id, format="image")
        assert (picture.status_code, picture.headers["content-type"]) == (403, "image/svg+xml")
        assert data(await visitor.get(VISIT, "get", id=id))["total"] == 0


@pytest.mark.parametrize("headers", FROM_THOSE_WHO_MAY, ids=str)
async def test_listed_origins_own_pages_and_programs_can_write(headers: dict[str, str]) -> None:
    async with running("memory://", origins=[PAGE]) as site:
        for path, (action, fields) in WRITES.items():
            id = await site.visitor().create(path)
            assert data(await site.visitor().get(path, action, headers, id=id, **fields))["id"] == id
            assert data(await site.visitor().post(path, action, headers, id=id, **fields))["id"] == id


async def test_any_page_can_write_by_default(site: Running) -> None:
    for headers in FROM_OTHERS:
        for path, (action, fields) in WRITES.items():
            id = await site.visitor().create(path)
            data(await site.visitor().get(path, action, headers, id=id, **fields))


async def test_empty_origins_allow_no_other_site() -> None:
    async with running("memory://", origins=[]) as site:
        visitor = site.visitor()
        for path in SHARED:
            answer = await visitor.http.get(path, headers={"origin": PAGE})
            assert allowed(answer) is None
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert allowed(await preflight(visitor, path, PAGE)) is None


async def test_no_other_route_is_shared_with_other_origins(visitor: Visitor) -> None:
    for path in (
        "/",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/widgets",
        "/api/visits",
        "/components",
        "/assets/widgets/widgets.css",
    ):
        answer = await visitor.http.get(path, headers={"origin": PAGE})
        assert allowed(answer) is None, path
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_preflight_is_logged_under_its_path(site: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "keystead.access")
    await preflight(site.visitor(), VISIT, PAGE)
    [record] = [record for record in caplog.records if record.name == "keystead.access"]
    assert vars(record)["keystead_fields"]["route"] == VISIT
