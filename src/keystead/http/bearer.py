"""Bearer tokens in HTTP requests (RFC 6750): reading the token, and the challenge."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeVar

from starlette.requests import HTTPConnection

from keystead.errors import BadDeclaration, CommandError, StoreError
from keystead.http.refusals import CODES, NO_STORE, RETRY_AFTER_S, Refusal
from keystead.parts.admission import Admission, Admitted
from keystead.parts.cache import LoadFailed
from keystead.parts.jwt import Denied

T = TypeVar("T")

_log = logging.getLogger("keystead.admission")
_security = logging.getLogger("keystead.security")

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
_SCHEME = re.compile(r"bearer(?: |$)", re.IGNORECASE)
_REALM = re.compile(r"[ !#-\[\]-~]+")  # characters that need no escape between quotes
_ROUTINE: Final = frozenset({"expired", "revoked"})  # honest clients send these
_NOT_VALID: Final = "The token is invalid, expired or revoked."


# --- the header --------------------------------------------------------------------------------------------------


def parse_bearer(authorization: str | None) -> str | None:
    """The token of one `Authorization` header, "" if it is empty; None for other schemes, such as `Basic`."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def bearer_token(connection: HTTPConnection) -> str | None:
    """The bearer token of a request; None if it has none; "" if it has several, which are ambiguous."""
    found = [parse_bearer(given) for given in connection.headers.getlist("authorization")]
    tokens = [token for token in found if token is not None]
    return "" if len(tokens) > 1 else next(iter(tokens), None)


def www_authenticate(realm: str = "", error: str = "", description: str = "") -> dict[str, str]:
    """The header `WWW-Authenticate` that asks for a bearer token, with the error of the one that was sent."""
    attributes = {"realm": realm, "error": error, "error_description": description}
    text = ", ".join(f'{name}="{value}"' for name, value in attributes.items() if value)
    return {"www-authenticate": f"Bearer {text}".rstrip()}


def invalid_token() -> Refusal:
    """An invalid bearer token: 401. The response reveals neither the reason nor the owner."""
    return Refusal(401, "INVALID_TOKEN", _NOT_VALID, headers=www_authenticate("api", "invalid_token"))


def check_realm(realm: str) -> str:
    """The realm. Raises BadDeclaration if it cannot be a header value."""
    if not _REALM.fullmatch(realm):
        raise BadDeclaration(f"a realm is plain ASCII text without quotes, such as 'api', not {realm!r}")
    return realm


# --- admission ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Challenge:
    """The response to a request that is not admitted. It is falsy; `Admitted` is truthy.

    status     401; 400 for a malformed request; 503 if the token cannot be checked
    code       for programs; it never changes
    sentence   for people. It reveals neither which check failed nor whether the user exists
    headers    `WWW-Authenticate`, or `Retry-After`, and `Cache-Control: no-store`
    came       whether the request had a token
    """

    status: int
    code: str
    sentence: str
    headers: Mapping[str, str] = field(default_factory=dict)
    came: bool = True

    def __bool__(self) -> bool:
        return False

    def refusal(self) -> Refusal:
        return Refusal(self.status, self.code, self.sentence, headers=self.headers)


async def admit(
    admission: Admission[T], authorization: Sequence[str], *, realm: str = "api", client: str | None = None
) -> Admitted[T] | Challenge:
    """Admit a request with these `Authorization` headers, or return the challenge.

    realm    the protection space named in the challenge
    client   the address of the client, for the log

    The token is read from the header only, not from the URL, which ends up in logs, or from a body. Forged and
    malformed tokens are logged to `keystead.security`, without the token.
    """
    if len(authorization) > 1:
        return _challenge(400, "BAD_REQUEST", "Send one Authorization header.", realm, "invalid_request")
    given = authorization[0].strip() if authorization else ""
    if not _SCHEME.match(given):
        return _challenge(401, "NO_TOKEN", "Send a token in the header Authorization: Bearer.", realm)
    token = _BEARER.fullmatch(given)
    try:
        found = Denied("malformed") if token is None else await admission.admitted(token[1])
    except LoadFailed as failed:
        # The cache logs the cause; its message, which names the family, is not for clients.
        return _later("USER_UNAVAILABLE", "Your account cannot be looked up now; try later.", retry_after_s(failed))
    except StoreError as error:
        if isinstance(error, CommandError):
            raise
        _log.error("admission: %s", error)
        return _store_unavailable()
    if isinstance(found, Admitted):
        return found
    if found.reason == "unavailable":
        return _store_unavailable()
    level = logging.INFO if found.reason in _ROUTINE else logging.WARNING
    event = {"event": "refused-token", "reason": found.reason, "client": client}
    _security.log(level, "a bearer token was refused: %s", found.reason, extra=event)
    return _challenge(401, "INVALID_TOKEN", _NOT_VALID, realm, "invalid_token")


def retry_after_s(failed: LoadFailed) -> int:
    """When to retry a failed load, in whole seconds."""
    return max(RETRY_AFTER_S, ceil(failed.retry_after.total_seconds()))


def _challenge(status: int, code: str, sentence: str, realm: str, error: str = "") -> Challenge:
    headers = www_authenticate(realm, error, sentence if error else "")
    return Challenge(status, code, sentence, headers | NO_STORE, came=bool(error))


def _store_unavailable() -> Challenge:
    return _later("STORE_UNAVAILABLE", CODES["STORE_UNAVAILABLE"][1], RETRY_AFTER_S)


def _later(code: str, sentence: str, wait_s: int) -> Challenge:
    return Challenge(503, code, sentence, {"retry-after": str(wait_s)} | NO_STORE)
