"""`/keys`: the key documents of the running kits and of the server, as `keystead docs` generates them.

Development only, because they reveal the data model of an application.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

import keystead.schema
from keystead.catalogue import Catalogue
from keystead.http.pages import PAGE_HEADERS
from keystead.kits.language import Speaker
from keystead.schema import Keyspace
from keystead.server.own_keyspaces import OWN
from keystead.server.page_frame import page_frame
from keystead.server.page_templates import render

PATH: Final = "/keys"
FOLDER: Final = Path(keystead.schema.__file__).parent / "docs"
_CATALOGUE: Final = Catalogue(FOLDER)


def add_key_documents(app: FastAPI) -> None:
    """Add the index, and a page for each running kit and for each keyspace of the server."""
    kits = {kit.name: kit.keyspace for kit in app.state.running}
    keyspaces = kits | {name: one for name, one in _own().items() if name not in kits}

    # Not async: a large document is slow to generate, and FastAPI runs these in a thread.
    # What renders it is imported with the first one.
    def index(request: Request) -> HTMLResponse:
        from keystead.schema.docs import html_index_content

        documents = {f"{PATH}/{name}": one for name, one in keyspaces.items()}
        return _page(request, None, html_index_content(documents, _speaker(request)))

    def document(name: str, request: Request) -> HTMLResponse:
        if name not in keyspaces:
            raise HTTPException(404)
        from keystead.schema.docs import html_content

        return _page(request, name, html_content(keyspaces[name], _speaker(request)))

    for path in (PATH, f"{PATH}/"):
        app.add_api_route(path, index, methods=["GET"], include_in_schema=False)
    app.add_api_route(f"{PATH}/{{name}}", document, methods=["GET"], include_in_schema=False)


def _speaker(request: Request) -> Speaker:
    return Speaker(page_frame(request.scope).say.language, _CATALOGUE)


def _page(request: Request, name: str | None, content: str) -> HTMLResponse:
    page = render("keys.html", request.scope, name=name, content=Markup(content))  # noqa: S704 - escaped when generated
    return HTMLResponse(page, headers=PAGE_HEADERS)


def _own() -> dict[str, type[Keyspace]]:
    """The keyspaces of the server: each module of `OWN` declares one."""
    return {
        name: next(
            one
            for one in vars(import_module(module)).values()
            if isinstance(one, type) and issubclass(one, Keyspace) and one.__module__ == module
        )
        for name, module in OWN.items()
    }
