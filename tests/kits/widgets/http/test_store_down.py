"""Store outage: every path reports it quickly, readable for pages of other sites."""

from __future__ import annotations

import asyncio

from tests import servers
from tests.kits.widgets.http.visiting import BBS, LIKE, RANKING, TOKEN, VISIT, running

ORIGIN = {"origin": "https://blog.example"}


async def test_a_store_outage_is_503_on_every_path() -> None:
    with servers.redis() as redis:
        async with running(f"{redis.url}?timeout=1s&connect_timeout=1s") as site:
            visitor = site.visitor()
            id = await visitor.create(VISIT)
            redis.pause()
            try:
                async with asyncio.timeout(60):
                    answers = await asyncio.gather(
                        visitor.get(VISIT, "increment", ORIGIN, id=id),
                        visitor.get(VISIT, "display", ORIGIN, id=id),
                        visitor.post(LIKE, "create", ORIGIN, url="https://example.com/2", token=TOKEN),
                        visitor.post(RANKING, "submit", ORIGIN, id=id, name="Ann", score=1),
                        visitor.get(BBS, "get", ORIGIN, id=id),
                        visitor.post(VISIT, "delete", ORIGIN, id=id, token=TOKEN),
                    )
            finally:
                redis.resume()
            for answer in answers:
                assert (answer.status_code, answer.json()["code"]) == (503, "STORE_UNAVAILABLE")
                assert answer.headers["retry-after"]
                assert answer.headers["access-control-allow-origin"] == "*"
                assert answer.headers["cache-control"] == "no-store"
