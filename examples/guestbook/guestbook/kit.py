"""The kit: settings, routes and `KIT`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from guestbook.keys import Entry, GuestbookKeys
from guestbook.service import Guestbook
from guestbook.tables import GUESTBOOK_TABLES
from keystead.kits.kit import Example, Kit, Site, service_of
from keystead.parts.schedule import Job


class GuestbookSettings(BaseModel):
    """`[guestbook]` in keystead.toml, or `KEYSTEAD_GUESTBOOK__PAGE_SIZE` in the environment."""

    page_size: int = Field(20, ge=1, le=100, description="The number of entries on a page.")


class Sign(BaseModel):
    name: str = Field(min_length=1, max_length=50)
    text: str = Field(min_length=1, max_length=500)


Service = Annotated[Guestbook, Depends(service_of("guestbook"))]


async def entries(guestbook: Service) -> list[Entry]:
    return await guestbook.entries()


async def sign(guestbook: Service, body: Sign) -> Entry:
    await guestbook.sign(body.name, body.text)
    return Entry(name=body.name, text=body.text)


async def days(guestbook: Service) -> dict[str, int]:
    return await guestbook.days()


async def page(request: Request, guestbook: Service) -> HTMLResponse:
    site: Site = request.app.state.site
    return HTMLResponse(site.render("guestbook/guestbook.html", request.scope, entries=await guestbook.entries()))


def router() -> APIRouter:
    routes = APIRouter(tags=["guestbook"])
    routes.add_api_route("/api/guestbook", entries, methods=["GET"], summary="The latest entries")
    routes.add_api_route("/api/guestbook", sign, methods=["POST"], summary="Sign the guestbook")
    routes.add_api_route("/api/guestbook/days", days, methods=["GET"], summary="Entries by day")
    routes.add_api_route("/guestbook", page, methods=["GET"], include_in_schema=False)
    return routes


@asynccontextmanager
async def open_guestbook(keys: GuestbookKeys, settings: GuestbookSettings, site: Site) -> AsyncIterator[Guestbook]:
    yield Guestbook(keys, settings.page_size, site)


KIT = Kit(
    name="guestbook",
    doc="A guestbook with the entries of the last 30 days.",
    keyspace=GuestbookKeys,
    settings=GuestbookSettings,
    router=router,
    service=open_guestbook,
    tables=GUESTBOOK_TABLES,
    examples=(Example("The guestbook", "/guestbook"),),
    jobs=lambda guestbook: (Job("guestbook.prune", "0 4 * * *", guestbook.prune, doc="Prunes the index."),),
)
