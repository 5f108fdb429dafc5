"""The routes of the widgets kit. They translate HTTP, and decide nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.kit import Example, Kit, service_of
from keystead.kits.language import language_of
from keystead.kits.visit import Visit
from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.routes.actions import ADMIN, ENDPOINTS, Call, Endpoint, Format
from keystead.kits.widgets.routes.answers import answer, refusals, refused
from keystead.kits.widgets.routes.asked import Asked, action_of, asked, format_of, refuse_unwanted_write, sent
from keystead.kits.widgets.routes.components import component
from keystead.kits.widgets.routes.document import answers_of, body_of, query_of
from keystead.kits.widgets.service import Visitor, WidgetRefused, Widgets, WidgetSettings, open_widgets
from keystead.kits.widgets.words import phrases, translated

Opened = Annotated[Widgets, Depends(service_of("widgets"))]

_COMPONENTS: Final = "/components/"


def router() -> APIRouter:
    """All routes of the kit."""
    routes = APIRouter()
    add = routes.add_api_route
    add("/widgets", _gallery, methods=["GET"], include_in_schema=False)
    add(f"{_COMPONENTS}{{name}}.js", component, methods=["GET"], include_in_schema=False)
    for endpoint in (*ENDPOINTS, ADMIN):
        for method, extra in {"GET": query_of(endpoint), "POST": body_of(endpoint)}.items():
            add(
                endpoint.path,
                _answering(endpoint),
                methods=[method],
                operation_id=f"{endpoint.name}_{method.lower()}",
                summary=f"{endpoint.noun.capitalize()}s: {'look' if method == 'GET' else 'write'}",
                openapi_extra=extra,
                **answers_of(endpoint),
            )
    return routes


def _answering(endpoint: Endpoint) -> Callable[..., Awaitable[Response]]:
    async def answering(request: Request, widgets: Opened) -> Response:
        return await _answered(endpoint, request, widgets)

    return answering


async def _answered(endpoint: Endpoint, request: Request, widgets: Widgets) -> Response:
    wanted: Format = "json"
    try:
        said = await sent(request)
        action = action_of(endpoint, said.action)
        wanted = format_of(action, said)
        refuse_unwanted_write(action, request, widgets)
        what = asked(action, said, request, widgets.settings)
        if action.writes and request.scope.get("keystead.head"):
            return Response(status_code=200, headers=NO_STORE)  # it asks what would be answered, and writes nothing
        async with refusals():
            outcome = await _outcome(what, getattr(widgets, endpoint.name), _visitor(request))
    except Refusal as refusal:
        return refused(refusal, wanted)
    return answer(what, outcome)


async def _outcome(what: Asked, service: Any, visitor: Visitor) -> Any:
    action, is_plain = what.action, what.format != "json"
    call = action.plain if is_plain and action.plain and not what.call.owner else what.call
    try:
        return await _called(call, what, service, visitor)
    except WidgetRefused as refused:
        if not (is_plain and action.zero and refused.reason == "NOT_FOUND"):
            raise
        return 0


async def _called(call: Call, what: Asked, service: Any, visitor: Visitor) -> Any:
    owner = (what.owner,) if call.owner else ()
    return await getattr(service, call.method)(*owner, **call.keywords(what.given), visitor=visitor)


def _visitor(request: Request) -> Visitor:
    return Visitor(request.client.host if request.client else "", request.headers.get("user-agent", ""))


async def _gallery(request: Request, widgets: Opened) -> Response:
    """Where a widget is made, seen live, and copied."""
    visit = Visit(request, widgets.site)
    if visit.home is not None:
        return visit.goes_on(visit.home)
    language = language_of(request.headers.get("accept-language", ""))
    return visit.page(
        "widgets/gallery.html",
        scripts=True,
        language=language,
        t=partial(translated, language),
        words=phrases(language),
        public_url=widgets.site.public_url,
        get_writes=widgets.settings.get_writes,
    )


def _shared(settings: WidgetSettings) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys((_COMPONENTS, *(endpoint.path for endpoint in ENDPOINTS)), settings.origins)


KIT: Final = Kit(
    name="widgets",
    doc="Counters, like buttons, rankings, boards and welcome cards for any page, as elements, pictures and text.",
    keyspace=WidgetKeys,
    settings=WidgetSettings,
    router=router,
    service=open_widgets,
    environment={"ADMIN_CLEANUP_TOKEN": "admin_token"},
    examples=(
        Example("Make a widget", "/widgets", "Choose one, see it live, and copy it into your page."),
        Example(
            "A counter as a picture",
            "/api/visit?action=display&id=example-a1b2c3d4&theme=kawaii&digits=6",
            "What a README shows; this one was never created, so it is 0.",
        ),
    ),
    shared=_shared,
    jobs=lambda widgets: widgets.jobs,
)
