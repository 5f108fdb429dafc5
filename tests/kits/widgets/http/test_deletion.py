"""The document's checklist for deleting: on a real Redis, after the delete a scan for the id and for the address finds
nothing, in no key and in no value.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests import servers
from tests.kits.widgets.http.visiting import BBS, LIKE, RANKING, TOKEN, VISIT, Running, Visitor, data, running

URL = "https://gone.example/a page?x=1&y=é".replace(" ", "%20")
KEPT_URL = "https://kept.example/"


async def filled(site: Running, visitor: Visitor, path: str, url: str) -> str:
    """A widget that has everything that one can have."""
    id = await visitor.create(path, url)
    other = site.visitor()
    match path:
        case _ if path == VISIT:
            for who in (visitor, other):
                data(await who.post(path, "increment", id=id))
            site.clock.move("1d")
            data(await visitor.post(path, "increment", id=id))
        case _ if path == LIKE:
            for who in (visitor, other, other):
                data(await who.post(path, "toggle", id=id))
        case _ if path == RANKING:
            data(await visitor.post(path, "submit", id=id, name="Ann", score=1, displayScore="one"))
            data(await visitor.post(path, "updateSettings", id=id, token=TOKEN, title="T", description="D"))
        case _:
            data(await visitor.post(path, "post", id=id, message="hello"))
    return id


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        (VISIT, ("", ":total", ":daily:", ":owner", ":visit:")),
        (LIKE, ("", ":total", ":users:", ":owner")),
        (RANKING, ("", ":scores", ":owner", ":meta", ":submit:")),
        (BBS, ("", ":messages", ":owner", ":post:")),
    ],
)
async def test_a_delete_leaves_nothing(redis_server: servers.Server, path: str, rows: tuple[str, ...]) -> None:
    redis_server.ask("FLUSHALL")
    async with running(redis_server.url) as site:
        visitor = site.visitor()
        kept = await filled(site, visitor, path, KEPT_URL)
        untouched = await site.everything()
        id = await filled(site, visitor, path, URL)
        service = "counter" if path == VISIT else path.removeprefix("/api/")
        keys = await site.keys()
        for row in rows:
            assert any(key.startswith(f"{service}:{id}{row}") or f"{{{id}}}{row}" in key for key in keys), row
        assert any(key.startswith(f"url:{service}:") and "gone" in key for key in keys)

        data(await visitor.post(path, "delete", url=URL, token=TOKEN))

        left = await site.everything()
        for trace in (id, "gone.example", URL, quote(URL, safe="!'()*-._~")):
            assert trace not in left
        assert kept in left
        assert left == untouched
        # The page can have another, which begins anew.
        again = data(await visitor.post(path, "create", url=URL, token=TOKEN))["id"]
        told = data(await visitor.get(path, "get", id=again))
        assert told.get("total", 0) == told.get("totalEntries", 0) == told.get("totalMessages", 0) == 0
