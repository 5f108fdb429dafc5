"""`/guide`: the documentation as a site, as `make docs` builds it. A wheel contains it; a checkout may not."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from keystead.http.pages import content_policy

PATH: Final = "/guide"
FOLDER: Final = Path(__file__).parents[1] / "guide"
_INLINE_SCRIPT: Final = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_WITH_ALL_SCRIPTS: Final = ("index.html", "search.html")


def is_built(folder: Path = FOLDER) -> bool:
    return (folder / "index.html").is_file()


def add_guide(app: FastAPI, folder: Path = FOLDER) -> bool:
    """Serve the guide, and return whether it is there."""
    if not is_built(folder):
        return False

    async def to_index() -> RedirectResponse:
        return RedirectResponse(f"{PATH}/")

    app.add_api_route(PATH, to_index, methods=["GET"], include_in_schema=False)
    app.mount(PATH, _GuideFiles(folder), name="guide")
    return True


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
