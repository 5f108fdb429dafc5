"""The route table of the sharing kit, and the kit itself."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from keystead.http.routing import KitRouter
from keystead.kits.kit import Example, Kit
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.sharing.routes import clean_up, issuing, own_links, owner_pages, receiving
from keystead.kits.sharing.routes.bodies import (
    CleanedAnswer,
    EdgeAnswer,
    ExtendedAnswer,
    IssuedAnswer,
    OwnLinksAnswer,
    RegisteredAnswer,
    ResolvedAnswer,
    StatusAnswer,
    UploadedAnswer,
)
from keystead.kits.sharing.routes.request import DOWNLOAD_PATH, LINKS_PAGE, UPLOAD_PATH, refusal_of
from keystead.kits.sharing.service import SharingSettings, missing, open_sharing
from keystead.kits.visit import CsrfAnswer, Ok
from keystead.parts.sizes import size_bytes

_FILE: Final = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_RESOLVE_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {
                "schema": {"type": "object", "properties": {"t": {"type": "string"}, "password": {"type": "string"}}}
            }
            for kind in ("application/json", "application/x-www-form-urlencoded")
        },
    }
}
_REFUSED_FORM: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": "Something is wrong: JSON for programs, and for a form the page again.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}},
            "text/html": {"schema": {"type": "string"}},
        },
    }
    for status in ("4XX", "5XX")
}


def router() -> APIRouter:
    """All routes of the kit."""
    routes = KitRouter("sharing", refusal_of)
    add = routes.add
    add("GET /receive", receiving.receive_page)
    add("GET /share", owner_pages.share_page)
    add("GET /api/blob/csrf", issuing.csrf, "A token for pages", CsrfAnswer)
    add("POST /api/receive/token", issuing.issue_link, "Issue a link to a URL", IssuedAnswer)
    add(
        f"POST {UPLOAD_PATH}",
        issuing.upload,
        "Upload a file, and get a link to it",
        UploadedAnswer,
        openapi_extra=_FILE,
    )
    add(f"PUT {UPLOAD_PATH}", issuing.upload)  # for `curl -T`
    add(
        "GET /api/receive/resolve",
        receiving.resolve,
        "Where a link leads",
        ResolvedAnswer,
        responses={302: {"description": "To the file, with redirect=1."}},
        operation_id="resolve",
    )
    add(
        "POST /api/receive/resolve",
        receiving.resolve_post,
        "Where a link leads, with a password",
        ResolvedAnswer,
        responses={
            200: {"content": {"text/html": {"schema": {"type": "string"}}}},
            303: {"description": "To the file: for a form, where it is kept here; else with redirect=1."},
            **_REFUSED_FORM,
        },
        operation_id="resolve_with_password",
        openapi_extra=_RESOLVE_BODY,
    )
    add(f"GET {DOWNLOAD_PATH}", receiving.download, "The file of a ticket", response_class=Response)
    add(
        "GET /api/receive/edge-resolve",
        receiving.edge_resolve,
        "Where a registered upload is",
        EdgeAnswer,
        operation_id="edge_resolve",
    )
    add(
        "POST /api/receive/edge-resolve",
        issuing.register,
        "Register an upload, which is deleted when it expires",
        RegisteredAnswer,
        operation_id="edge_register",
    )
    add("POST /api/receive/delete", own_links.end_link, "End a link, and delete its file", Ok)
    add("POST /api/receive/status", own_links.link_status, "How often a link was used, for its owner", StatusAnswer)
    add(f"GET {LINKS_PAGE}", owner_pages.links_page)
    add(f"POST {LINKS_PAGE}", owner_pages.change_link)
    add("GET /api/receive/links", own_links.list_links, "Your links, while you are signed in", OwnLinksAnswer)
    add("POST /api/receive/extend", own_links.extend_link, "Let a link live longer, for its owner", ExtendedAnswer)
    for method in ("GET", "POST"):
        add(
            f"{method} /api/cron/receive-cleanup",
            clean_up.clean_up,
            "Delete files whose links have expired",
            CleanedAnswer,
            operation_id=f"clean_up_{method.lower()}",
        )
    return routes


KIT: Final = Kit(
    name="sharing",
    doc="Links that lead to a file until they expire, and the clean-up of the files.",
    keyspace=SharingKeys,
    settings=SharingSettings,
    turned_on_by="RECEIVE_ISSUE_KEY, or sharing.open",
    router=router,
    service=open_sharing,
    environment={
        "RECEIVE_TOKEN_KEY": "token_keys",
        "RECEIVE_CLEANUP_SECRET": "cleanup_secret",
        "RECEIVE_CLEANUP_BATCH_LIMIT": "cleanup_batch",
        "RECEIVE_ISSUE_KEY": "issue_key",
        "ALLOWED_DOWNLOAD_HOST_SUFFIXES": "allowed_hosts",
    },
    missing=missing,
    examples=(
        Example("Share a file", "/share", "Upload a file, get a link, send it to somebody."),
        Example("Is the clean-up there?", "/api/cron/receive-cleanup?health=1", "As JSON."),
    ),
    jobs=lambda sharing: sharing.jobs,
    stop=lambda sharing: sharing.uploads.stop(),
    bodies=lambda settings: {UPLOAD_PATH: size_bytes(settings.max_upload)},
)
