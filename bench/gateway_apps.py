"""The gateway as an application for Granian, which also reports its CPU time at `/cpu`."""

from __future__ import annotations

import os
import time
from typing import Any

from keystead.server import Settings
from keystead.server.app import create_app


def make() -> Any:
    settings = Settings(
        store=os.environ["BENCH_STORE"],
        kits="keystead.gateway:ROOT_KIT",
        log_level="warning",
        metrics=False,
        gateway={"keyspaces": ["tests.gateway.shop_keys:ShopKeys"], "schema": os.environ["BENCH_SCHEMA"]},
    )
    app = create_app(settings)

    async def with_cpu_time(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/cpu":
            await app(scope, receive, send)
            return
        body = str(time.process_time()).encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return with_cpu_time
