"""`/docs`: Swagger UI, served locally, and the OpenAPI document with the shape of errors."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from keystead.http.pages import PAGE_HEADERS, content_policy
from keystead.server.page_templates import render

# Swagger UI runs its own script, calls only this server, and draws icons from data URLs.
_POLICY: Final = content_policy(
    forms="'self'", script="'self'", style="'self' 'unsafe-inline'", img="'self' data:", connect="'self'"
)
_OPENAPI: Final = Markup('<a href="/openapi.json">/openapi.json</a>')
_VALIDATION: Final = ("HTTPValidationError", "ValidationError")


def add_api_page(app: FastAPI) -> None:
    async def api_page(request: Request) -> HTMLResponse:
        page = render("api.html", request.scope, openapi=_OPENAPI)
        return HTMLResponse(page, headers={**PAGE_HEADERS, "content-security-policy": _POLICY})

    app.add_api_route("/docs", api_page, methods=["GET"], include_in_schema=False)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with the actual response to an invalid request: 400 in our shape, not 422."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes, tags=_tags(app)
        )
        for operations in document["paths"].values():
            for operation in operations.values():
                if operation["responses"].pop("422", None) is not None:
                    operation["responses"].setdefault("400", _bad_request())
        schemas = document.get("components", {}).get("schemas", {})
        for name in _VALIDATION:
            schemas.pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema


def _bad_request() -> dict[str, Any]:
    shape = {"$ref": "#/components/schemas/ErrorAnswer"}
    return {
        "description": "The request is invalid; `error` names the field.",
        "content": {"application/json": {"schema": shape}},
    }


def _tags(app: FastAPI) -> list[dict[str, str]]:
    own = {"name": "server", "description": "Health checks and metrics."}
    return [own, *({"name": kit.name, "description": kit.doc} for kit in app.state.running)]
