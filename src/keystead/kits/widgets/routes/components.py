"""The JavaScript that pages include to show widgets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import Request
from fastapi.responses import Response

from keystead.http.refusals import Refusal
from keystead.kits.widgets.themes import as_module

_FOLDER: Final = Path(__file__).parents[1] / "components"
_CACHED: Final = "public, max-age=3600"


class Script(NamedTuple):
    content: bytes
    etag: str


@cache
def load_scripts() -> Mapping[str, Script]:
    """The scripts by file name, such as `visit.js`."""
    contents = {file.name: file.read_bytes() for file in sorted(_FOLDER.glob("*.js"))}
    contents["themes.js"] = as_module().encode()
    return {name: Script(content, f'"{sha256(content).hexdigest()[:32]}"') for name, content in contents.items()}


async def serve_script(request: Request, name: str) -> Response:
    """Serve a script, cached for an hour and then revalidated."""
    found = load_scripts().get(f"{name}.js")
    if found is None:
        raise Refusal(404, "NOT_FOUND", "There is nothing at this address.")
    headers = {"cache-control": _CACHED, "etag": found.etag}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type="text/javascript", headers=headers)
