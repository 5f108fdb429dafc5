"""`GET /api/visit` of Keystead, and written by hand.

Served by Granian as `bench.widget_apps:make`, with the name of an application in `BENCH_APP` and a Redis URL in
`BENCH_REDIS`.
"""

import base64
import os
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from fastapi import FastAPI, Request

from bench.bare_asgi import visits

SEAL_KEYS = f"bench:{base64.b64encode(bytes(32)).decode()}"
NO_LIMIT = 10**9  # counted, but never reached
LIMITS = dict.fromkeys(("read", "write", "post", "owner", "create"), NO_LIMIT)
AT_ONCE = 4  # concurrent requests, for the latency under overload
_DAY_S = 86_400


def keystead(redis_url: str, **more: Any) -> FastAPI:
    """The server with only this kit."""
    from keystead.kits.widgets import KIT
    from keystead.server.app import create_app
    from keystead.server.settings import Settings

    settings = Settings(store=redis_url, seal_keys=SEAL_KEYS, widgets={"limits": LIMITS}, **more)
    return create_app(settings, [KIT])


def fastapi(redis_url: str) -> FastAPI:
    """A route without a store."""
    app = FastAPI()

    @app.get("/api/visit")
    async def visit(action: str, id: str) -> dict[str, Any]:
        return {"success": True, "data": {"id": id, "total": 1}}

    return app


def fastapi_redis(redis_url: str) -> FastAPI:
    """The two commands of an increment, one after the other: mark the visitor for today, then count."""
    from redis.asyncio import Redis

    app, redis = FastAPI(), Redis.from_url(redis_url)

    @app.get("/api/visit")
    async def visit(request: Request, action: str, id: str) -> dict[str, Any]:
        visitor = f"{request.client.host if request.client else ''}\n{request.headers.get('user-agent', '')}"
        mark = f"counter:{id}:visit:{sha256(visitor.encode()).hexdigest()[:16]}"
        now = int(time.time())
        if await redis.set(mark, now, nx=True, ex=_DAY_S - now % _DAY_S):
            total = await redis.incr(f"counter:{id}:total")
        else:
            total = int(await redis.get(f"counter:{id}:total") or 0)
        return {"success": True, "data": {"id": id, "total": total}}

    return app


APPS: dict[str, Callable[[str], Any]] = {
    "keystead": keystead,
    "keystead-bounded": lambda url: keystead(url, requests_at_once=AT_ONCE),
    "fastapi": fastapi,
    "fastapi-redis": fastapi_redis,
    "asgi-redis": visits,
}


def make() -> Any:
    return APPS[os.environ["BENCH_APP"]](os.environ["BENCH_REDIS"])
