"""Applications of this process, with one kit each: settings, stores and clock are their own, the routes are shared."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from keystead.kits.kit import Kit
from keystead.server import Settings, create_app

_included: dict[Callable[[], APIRouter], BaseRoute] = {}


@cache
def _built(router: Callable[[], APIRouter]) -> APIRouter:
    return router()


def application(settings: Settings, kit: Kit, now_ms: Callable[[], int]) -> FastAPI:
    """What `create_app` makes of these.

    FastAPI takes longer for the routes of a kit, once when they are made and again when the first request comes, than
    most tests take. They know nothing of settings, so each application of a worker has those of the first.
    """
    router = _built(kit.router)
    app = create_app(settings, [replace(kit, router=lambda: router)], now_ms=now_ms)
    for place, route in enumerate(app.router.routes):
        if getattr(route, "original_router", None) is router:
            app.router.routes[place] = _included.setdefault(kit.router, route)
    return app
