"""The routes of the widgets kit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from keystead.catalogue import Catalogue, message
from keystead.errors import Unreadable
from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.kit import Example, Kit
from keystead.kits.visit import Visit
from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.routes.actions import ADMIN, ENDPOINTS, Action, Endpoint
from keystead.kits.widgets.routes.components import serve_script
from keystead.kits.widgets.routes.openapi import describe_answers, describe_body, describe_query
from keystead.kits.widgets.routes.request_parsing import (
    choose_format,
    find_action,
    parse_parameters,
    query_parser,
    read_request,
    refuse_unwanted_write,
)
from keystead.kits.widgets.routes.requests import Format
from keystead.kits.widgets.routes.responses import respond, respond_with_error, translate_error
from keystead.kits.widgets.service import Visitor, WidgetRefused, Widgets, WidgetSettings, open_widgets
from keystead.parts.limit import LimitReached

_COMPONENTS: Final = "/components/"


def router() -> APIRouter:
    routes = APIRouter()
    add = routes.add_api_route
    add("/widgets", _show_gallery, methods=["GET"], include_in_schema=False)
    add(f"{_COMPONENTS}{{name}}.js", serve_script, methods=["GET"], include_in_schema=False)
    for endpoint in (*ENDPOINTS, ADMIN):
        for method, described in {"GET": describe_query(endpoint), "POST": describe_body(endpoint)}.items():
            add(
                endpoint.path,
                _make_handler(endpoint),
                methods=[method],
                operation_id=f"{endpoint.name}_{method.lower()}",
                summary=f"{endpoint.noun.capitalize()}s: {'read' if method == 'GET' else 'write'}",
                openapi_extra=described,
                **describe_answers(endpoint),
            )
    return routes


def _make_handler(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """The handler of an endpoint. It parses the request itself, which is faster than FastAPI's dependencies."""
    parse_query = query_parser(endpoint)

    async def handle(request: Request) -> Response:
        widgets: Widgets = request.app.state.kits["widgets"]
        format: Format = "json"
        try:
            parsed = parse_query(request.scope["query_string"]) if request.scope["method"] == "GET" else None
            if parsed is not None:
                action, call, given, format = parsed.action, parsed.call, parsed.given, parsed.format
                refuse_unwanted_write(parsed.name, action, request, widgets)
            else:
                raw = await read_request(request)
                action = find_action(endpoint, raw.action)
                format = choose_format(action, raw)
                refuse_unwanted_write(raw.action, action, request, widgets)
                call, given = parse_parameters(endpoint, action, raw, request, widgets.settings.tokens_in_urls)
            if action.writes and request.scope.get("keystead.head"):
                return Response(status_code=200, headers=NO_STORE)  # HEAD writes nothing
            result = await call.run(getattr(widgets, endpoint.name), given, _visitor_of(request))
        except Refusal as refusal:
            return respond_with_error(refusal, format)
        except (WidgetRefused, Unreadable, LimitReached) as error:
            if not _shows_zero(error, action, format):
                return respond_with_error(translate_error(error), format)
            result = None
        return respond(action, format, result, given)

    return handle


def _shows_zero(error: Exception, action: Action, format: Format) -> bool:
    if not isinstance(error, WidgetRefused) or error.reason != "NOT_FOUND":
        return False
    return format != "json" and action.view is not None and action.view.missing_is_0 and not action.writes


def _visitor_of(request: Request) -> Visitor:
    scope = request.scope
    client = scope.get("client")
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    return Visitor(client[0] if client else "", agent.decode("latin-1"))


class _GalleryVisit(Visit):
    catalogue = Catalogue(Path(__file__).parents[1])


async def _show_gallery(request: Request) -> Response:
    """The page to create a widget, preview it and copy its HTML."""
    widgets: Widgets = request.app.state.kits["widgets"]
    visit = _GalleryVisit(request, widgets.site)
    if visit.home is not None:
        return visit.redirect_to(visit.home)
    return visit.page(
        "widgets/gallery.html",
        scripts=True,
        public_url=widgets.site.public_url,
        get_writes=widgets.settings.get_writes,
    )


KIT: Final = Kit(
    name="widgets",
    doc=message(
        "Counters, like buttons, rankings, boards and welcome cards for any page, as elements, pictures and text."
    ),
    keyspace=WidgetKeys,
    settings=WidgetSettings,
    router=router,
    service=open_widgets,
    environment={"ADMIN_CLEANUP_TOKEN": "admin_token"},
    examples=(
        Example(message("Create a widget"), "/widgets", message("Choose one, preview it, and copy it into your page.")),
        Example(
            message("A counter as a picture"),
            "/api/visit?action=display&id=example-a1b2c3d4&theme=kawaii&digits=6",
            message("For a README. This counter does not exist, so it shows 0."),
        ),
    ),
    shared=lambda settings: dict.fromkeys((_COMPONENTS, *(one.path for one in ENDPOINTS)), settings.origins),
    jobs=lambda widgets: widgets.jobs,
)
