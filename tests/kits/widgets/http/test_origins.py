"""Pages of other sites: which may use the widgets, and that they can read why they were refused."""

from __future__ import annotations

import httpx2
import pytest

from tests.kits.widgets.http.visiting import BBS, PATHS, TOKEN, VISIT, Running, Visitor, data, running

PAGE = "https://blog.example"
OTHER = "https://other.example"
SHARED = (*PATHS, "/components/visit.js", "/components/themes.js")


async def preflight(visitor: Visitor, path: str, origin: str, header: str = "content-type") -> httpx2.Response:
    headers = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": header}
    return await visitor.http.options(path, headers=headers)


def allowed(answer: httpx2.Response) -> str | None:
    return answer.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("path", PATHS)
async def test_any_page_may_use_the_widgets_unless_the_settings_say_otherwise(visitor: Visitor, path: str) -> None:
    for header in ("content-type", "x-owner-token", "x-edit-token", "authorization, content-type"):
        answer = await preflight(visitor, path, PAGE, header)
        assert (answer.status_code, allowed(answer)) == (200, "*")
        assert "POST" in answer.headers["access-control-allow-methods"]
    assert (await preflight(visitor, path, PAGE, "x-something-else")).status_code == 400
    answer = await visitor.post(path, "create", {"origin": PAGE}, url="https://example.com", token=TOKEN)
    assert data(answer)["id"]
    assert allowed(answer) == "*"
    assert "access-control-allow-credentials" not in answer.headers


async def test_a_page_can_read_why_it_was_refused(visitor: Visitor) -> None:
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
async def test_pictures_and_scripts_can_be_shown_on_other_sites(visitor: Visitor, path: str) -> None:
    query = "" if path.startswith("/components") else "?action=display&id=x&format=image"
    answer = await visitor.http.get(f"{path}{query}")
    assert answer.status_code == 200
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"


async def test_only_named_pages_may_use_the_widgets() -> None:
    async with running("memory://", origins=[PAGE]) as site:
        visitor = site.visitor()
        for path in PATHS:
            assert allowed(await preflight(visitor, path, PAGE)) == PAGE
            assert allowed(await preflight(visitor, path, OTHER)) is None
            for origin, answered in ((PAGE, PAGE), (OTHER, None)):
                answer = await visitor.get(path, "frobnicate", {"origin": origin})
                assert allowed(answer) == answered
                assert "origin" in answer.headers["vary"].lower()


async def test_no_page_of_another_site_may_use_them_where_none_is_named() -> None:
    async with running("memory://", origins=[]) as site:
        visitor = site.visitor()
        for path in SHARED:
            answer = await visitor.http.get(path, headers={"origin": PAGE})
            assert allowed(answer) is None
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert allowed(await preflight(visitor, path, PAGE)) is None


async def test_nothing_else_of_the_server_is_shared(visitor: Visitor) -> None:
    for path in (
        "/",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/widgets",
        "/api/visits",
        "/components",
        "/static/kits.css",
    ):
        answer = await visitor.http.get(path, headers={"origin": PAGE})
        assert allowed(answer) is None, path
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


async def test_a_preflight_is_logged_under_its_path(site: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "keystead.access")
    await preflight(site.visitor(), VISIT, PAGE)
    [record] = [record for record in caplog.records if record.name == "keystead.access"]
    assert vars(record)["keystead_fields"]["route"] == VISIT
