"""The route that runs the clean-up, for external cron services."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Query
from fastapi.responses import Response

from keystead.http.responses import json_response
from keystead.kits.sharing.routes.bodies import CleanedAnswer
from keystead.kits.sharing.routes.request import Visiting, iso, unauthorized
from keystead.parts.digest import same
from keystead.schema.times import moment

_CLEANUP_S: Final = 20  # a request may take 30 s


async def clean_up(visit: Visiting, limit: Annotated[int | None, Query(ge=1, le=10_000)] = None) -> Response:
    """Runs the clean-up now. It also runs on a schedule. Concurrent calls are safe."""
    settings = visit.sharing.settings
    secret, bearer = settings.cleanup_secret, visit.bearer
    is_known = secret is not None and bearer is not None and same(bearer, secret.get_secret_value())
    if not is_known and not (settings.trust_vercel_cron and "x-vercel-cron" in visit.request.headers):
        await visit.count("cleanup")
        await visit.sharing.note_stranger("clean-up", visit.address)
        raise unauthorized("send the clean-up secret (RECEIVE_CLEANUP_SECRET) as Authorization: Bearer …")
    began = asyncio.get_running_loop().time()
    counts = await visit.sharing.clean_up.run(
        limit, stop=lambda: asyncio.get_running_loop().time() - began > _CLEANUP_S
    )
    answer = CleanedAnswer(
        now=iso(moment(visit.site.now_ms())),
        index_key=visit.sharing.keys.index().key,
        more=counts.more,
        **counts.as_dict(),
    )
    return json_response(answer)
