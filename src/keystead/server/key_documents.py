"""`/keys`: the key documents of the running kits and of the server, as `keystead docs` generates them.

Development only, because they reveal the data model of an application.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from typing import Final

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

from keystead.http.pages import PAGE_HEADERS, content_policy
from keystead.kits.identity import page_header
from keystead.server.own_keyspaces import own_keyspaces
from keystead.server.page_templates import render

PATH: Final = "/keys"
_LINKS: Final = {"Keystead": "/", "Keys": PATH, "Reference": "/reference", "API": "/docs"}
_STYLE: Final = re.compile("<style>(.*?)</style>", re.DOTALL)


def add_key_documents(app: FastAPI) -> None:
    """Add the index, and a page for each running kit and for each keyspace of the server."""
    kits = {kit.name: kit.keyspace for kit in app.state.running}
    keyspaces = kits | {name: one for name, one in own_keyspaces().items() if name not in kits}

    # Not async: a large document is slow to generate, and FastAPI runs these in a thread.
    # What renders it is imported with the first one.
    def index(request: Request) -> HTMLResponse:
        from keystead.schema.docs import html_index

        documents = {f"{PATH}/{name}": one for name, one in keyspaces.items()}
        return _page_response(html_index(documents, _LINKS, _user_header(request)))

    def document(name: str, request: Request) -> HTMLResponse:
        if name not in keyspaces:
            raise HTTPException(404)
        from keystead.schema.docs import html

        return _page_response(html(keyspaces[name], _LINKS, _user_header(request)))

    for path in (PATH, f"{PATH}/"):
        app.add_api_route(path, index, methods=["GET"], include_in_schema=False)
    app.add_api_route(f"{PATH}/{{name}}", document, methods=["GET"], include_in_schema=False)


def _user_header(request: Request) -> str:
    return render("signed_in.html", header=page_header(request.scope))


def _page_response(page: str) -> HTMLResponse:
    """The page, with a policy that allows its inline style by hash, and loads nothing else."""
    style = _STYLE.search(page)
    digest = b64encode(sha256(style[1].encode() if style else b"").digest()).decode()
    policy = content_policy(forms="'self'", style=f"'sha256-{digest}'", img="data:")
    return HTMLResponse(page, headers={**PAGE_HEADERS, "content-security-policy": policy})
