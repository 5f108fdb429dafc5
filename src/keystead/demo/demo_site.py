"""Adds the demo to a server: providers for its kits, routes, pages and their stylesheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from pydantic import SecretStr
from starlette.staticfiles import StaticFiles

from keystead.demo.demo_patreon import demo_patreon, demo_patreon_router
from keystead.demo.demo_routes import demo_provider, demo_router
from keystead.kits.kit import Site
from keystead.schema import KeyRing
from keystead.stores import Store

_FOLDER: Final = Path(__file__).parent


class Demo:
    """The demo of one server. Raises DemoInProduction unless the site is in development."""

    pages: Final = _FOLDER / "pages"

    def __init__(self, site: Site, ring: KeyRing | None) -> None:
        """`self.site` is the site with the demo's providers. Without a key ring no webhooks can be signed, so there is
        no stand-in for Patreon."""
        demo = demo_provider(site)
        self.site = replace(site, providers={demo.name: demo}, stand_ins={})
        if ring is not None:
            patreon = demo_patreon(site, SecretStr(ring.derived("webhooks of the demo provider")[-1].hex()))
            self.site = replace(self.site, stand_ins={patreon.provider.name: patreon})

    def add_routes(self, app: FastAPI, store_of: Callable[[Request], Store]) -> None:
        """Add the routes and the stylesheet. `store_of` returns the open store for a request."""
        app.include_router(demo_router(self.site, store_of))
        for stand_in in self.site.stand_ins.values():
            app.include_router(demo_patreon_router(self.site, store_of, stand_in.webhook_secret))
        app.mount("/static/demo", StaticFiles(directory=_FOLDER / "assets"), name="demo")
