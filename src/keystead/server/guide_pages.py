"""`/guide`: the documentation as a site, as `make docs` builds it. Wheels contain it; in a clone, a page says how."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from keystead.http.pages import PAGE_HEADERS, content_policy
from keystead.server.page_templates import render

PATH: Final = "/guide"
FOLDER: Final = Path(__file__).parents[1] / "guide"
_CHECKOUT: Final = Path(__file__).parents[3]
_INLINE_SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_WITH_ALL_SCRIPTS: Final = ("index.html", "search.html")


def add_guide(app: FastAPI, folder: Path = FOLDER) -> None:
    """Serve the guide, from the moment when it is built. Until then, a page says how to build it."""

    async def to_index() -> RedirectResponse:
        return RedirectResponse(f"{PATH}/")

    app.add_api_route(PATH, to_index, methods=["GET"], include_in_schema=False)
    app.mount(PATH, _Guide(folder), name="guide")


class _Guide:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: _GuideFiles | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._files is None and (self._folder / "index.html").is_file():
            self._files = _GuideFiles(self._folder)
        await (self._files or _not_built(scope))(scope, receive, send)


def _not_built(scope: Scope) -> Response:
    if Request(scope).url.path != f"{PATH}/":
        return RedirectResponse(f"{PATH}/")
    is_checkout = (_CHECKOUT / "docs" / "conf.py").is_file()
    page = render("guide.html", scope, is_checkout=is_checkout, folder=quote(str(_CHECKOUT)))
    return HTMLResponse(page, headers=PAGE_HEADERS)


class _GuideFiles(StaticFiles):
    """The files of the guide. Its pages run their own scripts only: files, and inline ones by their hash."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)
        texts = [(folder / name).read_text("utf-8") for name in _WITH_ALL_SCRIPTS if (folder / name).is_file()]
        scripts = {script for text in texts for script in _INLINE_SCRIPT.findall(text)}
        hashes = sorted(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
        self._policy = content_policy(
            script=" ".join(["'self'", *hashes]),
            style="'self' 'unsafe-inline'",
            img="'self' data:",
            connect="'self'",
            forms="'self'",
        )

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers["content-security-policy"] = self._policy
        return response
