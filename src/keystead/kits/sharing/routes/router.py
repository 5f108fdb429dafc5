"""The route table of the sharing kit, and the kit itself."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import Response

from keystead.catalogue import message
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
        "description": "Refused: JSON for programs, the page again for forms.",
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
    add("GET /api/blob/csrf", issuing.csrf, "Get a CSRF token", CsrfAnswer)
    add("POST /api/receive/token", issuing.issue_link, "Issue a link to a URL", IssuedAnswer)
    add(
        f"POST {UPLOAD_PATH}",
        issuing.upload,
        "Upload a file and get a link to it",
        UploadedAnswer,
        openapi_extra=_FILE,
    )
    add(f"PUT {UPLOAD_PATH}", issuing.upload)  # for `curl -T`
    add(
        "GET /api/receive/resolve",
        receiving.resolve,
        "Resolve a link",
        ResolvedAnswer,
        responses={302: {"description": "Redirect to the file, with redirect=1."}},
        operation_id="resolve",
    )
    add(
        "POST /api/receive/resolve",
        receiving.resolve_post,
        "Resolve a link with a password",
        ResolvedAnswer,
        responses={
            200: {"content": {"text/html": {"schema": {"type": "string"}}}},
            303: {"description": "Redirect to the file: for forms if it was uploaded here, otherwise with redirect=1."},
            **_REFUSED_FORM,
        },
        operation_id="resolve_with_password",
        openapi_extra=_RESOLVE_BODY,
    )
    add(f"GET {DOWNLOAD_PATH}", receiving.download, "Download the file of a ticket", response_class=Response)
    add(
        "GET /api/receive/edge-resolve",
        receiving.edge_resolve,
        "Resolve a registered upload",
        EdgeAnswer,
        operation_id="edge_resolve",
    )
    add(
        "POST /api/receive/edge-resolve",
        issuing.register,
        "Register an upload, to be deleted when it expires",
        RegisteredAnswer,
        operation_id="edge_register",
    )
    add("POST /api/receive/delete", own_links.end_link, "End a link and delete its file", Ok)
    add("POST /api/receive/status", own_links.link_status, "Get the status of a link, for its owner", StatusAnswer)
    add(f"GET {LINKS_PAGE}", owner_pages.links_page)
    add(f"POST {LINKS_PAGE}", owner_pages.change_link)
    add("GET /api/receive/links", own_links.list_links, "List your links", OwnLinksAnswer)
    add("POST /api/receive/extend", own_links.extend_link, "Extend a link, for its owner", ExtendedAnswer)
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
    doc=message("File sharing with links that expire, and the clean-up of expired files."),
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
        Example(message("Share a file"), "/share", message("Upload a file and send the link to others.")),
        Example(
            message("Clean-up health"),
            "/api/cron/receive-cleanup?health=1",
            message("Health check of the clean-up route, as JSON."),
        ),
    ),
    jobs=lambda sharing: sharing.jobs,
    stop=lambda sharing: sharing.uploads.stop(),
    bodies=lambda settings: {UPLOAD_PATH: size_bytes(settings.max_upload)},
)
