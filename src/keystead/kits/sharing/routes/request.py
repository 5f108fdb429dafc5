"""Requests to the sharing kit: client, permission to issue links, and HTTP responses for refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Depends, Query, Request
from pydantic import SecretStr

from keystead.catalogue import Catalogue
from keystead.errors import BadArgument
from keystead.http.bearer import www_authenticate
from keystead.http.rate_limits import too_many_requests
from keystead.http.refusals import Refusal, statuses
from keystead.kits.kit import service_of
from keystead.kits.sharing.service import FilesElsewhere, Issued, Resolved, Sharing, SharingRefused, User
from keystead.kits.signed_in import signed_in
from keystead.kits.visit import Visit
from keystead.parts.blobs import BlobUnavailable
from keystead.parts.digest import same
from keystead.parts.limit import LimitReached

UPLOAD_PATH: Final = "/api/receive/upload"
DOWNLOAD_PATH: Final = "/api/receive/download"
LINKS_PAGE: Final = "/share/links"
_PREFETCH: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
STATUS: Final = statuses(
    {
        400: (
            "TOKEN_REQUIRED INVALID_FORMAT INVALID_BYTES INVALID_PAYLOAD BORN_EXPIRED BAD_EXPIRY BAD_NAME "
            "BAD_LIMIT BAD_PASSWORD BAD_MESSAGE BAD_THEME BAD_RECEIVER EMPTY KEY_REQUIRED"
        ),
        401: "PASSWORD_REQUIRED",
        403: "HOST_NOT_ALLOWED PASSWORD_WRONG NOT_OWNER",
        404: "TOKEN_NOT_FOUND NOT_FOUND",
        408: "STALLED",
        409: "NOT_READY PATH_TAKEN NOT_ENDABLE",
        410: "EXPIRED REVOKED USED_UP FILE_GONE GONE",
        413: "TOO_LARGE QUOTA_EXCEEDED",
        416: "RANGE",
        429: "TOO_MANY_GUESSES",
        503: "TRY_AGAIN",
        507: "STORAGE_FULL",
    }
)


def refusal_of(error: Exception, renamed: Mapping[str, str] | None = None) -> Refusal | None:
    """The HTTP refusal for an error of the service; None for any other error."""
    match error:
        case SharingRefused(reason=reason):
            more = dict(error.more)
            wait_s = more.get("retryAfter") or (1 if reason == "TRY_AGAIN" else None)
            headers = {"retry-after": str(wait_s)} if wait_s else {}
            if reason == "RANGE":
                headers["content-range"] = f"bytes */{more.pop('size')}"
            code = (renamed or {}).get(reason, reason)
            return Refusal(STATUS[code], code, str(error), headers=headers, more=more)
        case LimitReached():
            return too_many_requests(error)
        case BlobUnavailable() | FilesElsewhere():
            sentence = "the file storage cannot be reached; try again in a moment"
            return Refusal(503, "FILES_UNAVAILABLE", sentence, retry_after_s=5)
        case BadArgument():
            return Refusal(400, "BAD_PATH", str(error))
    return None


@dataclass(frozen=True)
class Issuer:
    """Who issues a link: `who` for the audit log, the signed-in `user`, and whether they sent the issue key."""

    who: str
    user: User | None = None
    has_key: bool = False

    @property
    def user_id(self) -> str | None:
        return None if self.user is None else self.user.id


class SharingVisit(Visit):
    catalogue = Catalogue(Path(__file__).parents[1])

    def __init__(self, request: Request, sharing: Sharing) -> None:
        super().__init__(request, sharing.site)
        self.sharing = sharing

    async def count(self, name: str) -> None:
        await self.sharing.limit.count(name, self.address)

    @property
    def bearer(self) -> str | None:
        """The secret of an Authorization header, with or without `Bearer`."""
        given = self.request.headers.get("authorization", "")
        return re.sub(r"(?i)^bearer\s+", "", given).strip() or None

    async def user(self) -> User | None:
        """The signed-in user, if any. Raises Refusal for a cross-site write with a session cookie (CSRF)."""
        found = await signed_in(self.request)
        if found is None:
            return None
        # Ids of the login kit are used as they are, for `login:{user_id}` in the keys. Ids of other spaces are prefixed
        # with a colon and their space: no id of the login kit starts with a colon.
        return User(found.id if found.space == "login" else f":{found.subject}", found.subject)

    async def owner(self, key: SecretStr | None) -> tuple[str | None, User | None]:
        """The owner key of a request; without one, the signed-in user."""
        return (None, await self.user()) if key is None else (key.get_secret_value(), None)

    async def issuer(self, csrf: str | None = None) -> Issuer:
        """Who issues a link. Raises Refusal if they may not, and audits that."""
        settings, user = self.sharing.settings, await self.user()
        key = settings.issue_key
        given = self.request.headers.get("x-issue-key") or self.bearer
        if key is not None and given is not None and same(given, key.get_secret_value()):
            return Issuer("issuer" if user is None else user.subject, user, has_key=True)
        is_allowed_user = user is not None and settings.allow_users
        is_open = key is None and (settings.open or self.site.development)
        if not is_allowed_user and not is_open:
            await self.sharing.note_stranger("issue", self.address)
            if key is None or settings.allow_users:
                raise unauthorized("sign in to share files here")
            raise unauthorized("issuing links requires the issue key, as Authorization: Bearer …")
        # Without a user no cookie grants access, so refusing cross-site requests is enough.
        self.refuse_cross_site()
        if csrf is not None:
            self.refuse_forged(csrf)
        return Issuer("visitor" if user is None else user.subject, user)

    @property
    def is_head(self) -> bool:
        """Whether this is a HEAD request, which must not use up a download."""
        return bool(self.request.scope.get("keystead.head"))

    def refuse_prefetch(self) -> None:
        """Refuses prefetches: link previews must not use up a download."""
        if any("prefetch" in self.request.headers.get(name, "").lower() for name in _PREFETCH):
            raise Refusal(403, "NO_PREFETCH", "links cannot be prefetched")

    def share_url(self, short: str, name: str = "t") -> str:
        return f"{self.site.public_url}/receive?{urlencode({name: short})}"

    def download_url(self, resolved: Resolved) -> str:
        if resolved.ticket is None:
            return resolved.url or ""
        return f"{self.site.public_url}{DOWNLOAD_PATH}?{urlencode({'ticket': resolved.ticket})}"

    def link_fields(self, issued: Issued) -> dict[str, Any]:
        return {
            "token": issued.token,
            "short_token": issued.short_token,
            "share_url": self.share_url(issued.short_token),
            "exp": issued.expires_ms,
            "id": issued.id,
            "owner_key": issued.owner_key,
        }


async def _visit(request: Request, sharing: Annotated[Sharing, Depends(service_of("sharing"))]) -> SharingVisit:
    return SharingVisit(request, sharing)  # from a coroutine: FastAPI calls anything else in another thread


Visiting = Annotated[SharingVisit, Depends(_visit)]
TokenQuery = Annotated[str | None, Query(description="The token of the link, short or long.")]


def unauthorized(sentence: str) -> Refusal:
    return Refusal(401, "UNAUTHORIZED", sentence, headers=www_authenticate())


def iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
