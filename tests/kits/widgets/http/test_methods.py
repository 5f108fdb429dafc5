"""GET, HEAD and POST: what each may write, and that a prefetch may not."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

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

OWNER = {"x-owner-token": TOKEN}
WRITES: list[tuple[str, str, dict[str, Any]]] = [
    (VISIT, "increment", {}),
    (LIKE, "toggle", {}),
    (RANKING, "submit", {"name": "Ann", "score": 1}),
    (BBS, "post", {"message": "hello"}),
]
AHEAD = [
    {"sec-purpose": "prefetch;prerender"},
    {"purpose": "prefetch"},
    {"x-moz": "prefetch"},
    {"x-purpose": "preview"},
]


@pytest.mark.parametrize(("path", "action", "query"), WRITES)
async def test_head_writes_nothing(
    site: Running, visitor: Visitor, path: str, action: str, query: dict[str, Any]
) -> None:
    id = await visitor.create(path)
    before = await site.everything()
    answer = await visitor.http.head(path, params={"action": action, "id": id, **query})
    assert (answer.status_code, answer.content) == (200, b"")
    assert await site.everything() == before
    gone = await visitor.http.head(path, params={"action": "delete", "url": URL}, headers=OWNER)
    assert gone.status_code == 200
    assert await site.everything() == before


@pytest.mark.parametrize("ahead", AHEAD)
async def test_a_prefetch_writes_nothing(site: Running, visitor: Visitor, ahead: dict[str, str]) -> None:
    for path, action, query in WRITES:
        id = await visitor.create(path)
        before = await site.everything()
        answer = await visitor.get(path, action, ahead, id=id, **query)
        assert refused(answer) == (403, "NO_PREFETCH")
        assert await site.everything() == before
        assert data(await visitor.get(path, "get", ahead, id=id))["id"] == id


async def test_writes_by_get_can_be_disabled() -> None:
    async with running("memory://", get_writes="none") as site:
        visitor = site.visitor()
        for path, action, query in WRITES:
            id = await visitor.create(path)
            before = await site.everything()
            _not_allowed(await visitor.get(path, action, id=id, **query))
            _not_allowed(await visitor.get(path, "delete", OWNER, url=URL))
            assert await site.everything() == before
            assert data(await visitor.get(path, "get", id=id))["id"] == id
            data(await visitor.post(path, action, id=id, **query))


async def test_get_can_be_limited_to_visits() -> None:
    async with running("memory://", get_writes="visits") as site:
        visitor = site.visitor()
        id = await visitor.create(VISIT)
        assert data(await visitor.get(VISIT, "increment", id=id))["total"] == 1
        _not_allowed(await visitor.get(VISIT, "set", OWNER, url=URL, total=1))
        _not_allowed(await visitor.get(LIKE, "toggle", id=await visitor.create(LIKE)))


def _not_allowed(answer: httpx2.Response) -> None:
    assert refused(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "POST"
    assert "POST" in answer.json()["error"]


@pytest.mark.parametrize("path", PATHS)
async def test_other_methods_are_refused(visitor: Visitor, path: str) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        answer = await visitor.http.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST, OPTIONS")
