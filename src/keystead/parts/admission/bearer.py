"""Bearer tokens in HTTP requests (RFC 6750): read the token, or return the challenge."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeVar

from keystead.errors import BadDeclaration, CommandError, StoreError
from keystead.parts.admission.admission import Admission, Admitted
from keystead.parts.cache import LoadFailed
from keystead.parts.jwt import Denied

T = TypeVar("T")

RETRY_AFTER_S: Final = 1

_log = logging.getLogger("keystead.admission")
_security = logging.getLogger("keystead.security")

_BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)
_SCHEME = re.compile(r"bearer(?: |$)", re.IGNORECASE)
_REALM = re.compile(r"[ !#-\[\]-~]+")  # allowed in a quoted string without escaping
_ROUTINE: Final = frozenset({"expired", "revoked"})  # normal for honest clients


@dataclass(frozen=True)
class Challenge:
    """The response to a refused request. It is falsy; `Admitted` is truthy.

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


async def admit(
    admission: Admission[T], authorization: Sequence[str], *, realm: str = "api", client: str | None = None
) -> Admitted[T] | Challenge:
    """Admit a request with these `Authorization` headers, or return the challenge.

    realm    the realm in the challenge
    client   the address of the client, for the log

    The token is read from the header only: not from the URL, which ends up in logs, and not from a body. Forged and
    malformed tokens are logged to `keystead.security`, without the token.
    """
    if len(authorization) > 1:
        return _challenge(400, "BAD_REQUEST", "Send one Authorization header.", realm, "invalid_request")
    given = authorization[0].strip() if authorization else ""
    if not _SCHEME.match(given):
        return _challenge(401, "NO_TOKEN", "Send the header Authorization: Bearer, and the token.", realm)
    token = _BEARER.fullmatch(given)
    try:
        found = Denied("malformed") if token is None else await admission.admitted(token[1])
    except LoadFailed as failed:
        # Its message names the family; the cause is in the log of the cache.
        wait_s = max(RETRY_AFTER_S, ceil(failed.retry_after.total_seconds()))
        return _later("USER_UNAVAILABLE", "Who you are cannot be looked up now; try again later.", wait_s)
    except StoreError as error:
        if isinstance(error, CommandError):
            raise
        _log.error("admission: %s", error)
        return _store_is_away()
    if isinstance(found, Admitted):
        return found
    if found.reason == "unavailable":
        return _store_is_away()
    level = logging.INFO if found.reason in _ROUTINE else logging.WARNING
    event = {"event": "refused-token", "reason": found.reason, "client": client}
    _security.log(level, "a bearer token was refused: %s", found.reason, extra=event)
    return _challenge(401, "INVALID_TOKEN", "The token is not valid, or no longer.", realm, "invalid_token")


def check_realm(realm: str) -> str:
    """The realm, if it is valid in a header. Raises BadDeclaration."""
    if not _REALM.fullmatch(realm):
        raise BadDeclaration(f"a realm is a text of plain characters without quotes, such as 'api', not {realm!r}")
    return realm


def _challenge(status: int, code: str, sentence: str, realm: str, error: str = "") -> Challenge:
    said = f'Bearer realm="{realm}"'
    if error:
        said += f', error="{error}", error_description="{sentence}"'
    return Challenge(status, code, sentence, {"www-authenticate": said, "cache-control": "no-store"}, came=bool(error))


def _store_is_away() -> Challenge:
    return _later("STORE_UNAVAILABLE", "The store does not answer; try again in a moment.", RETRY_AFTER_S)


def _later(code: str, sentence: str, wait_s: int) -> Challenge:
    return Challenge(503, code, sentence, {"retry-after": str(wait_s), "cache-control": "no-store"})
