"""Webhooks of the provider: signature check and parsing."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pydantic import SecretStr

from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.outcomes import CLIENT_ADDRESS, MembershipRefused
from keystead.kits.membership.service.patreon import plan_of

EVENTS: Final = frozenset({"members:pledge:create", "members:pledge:update", "members:pledge:delete"})

_ENDS_SESSIONS: Final = frozenset({"declined_patron", "former_patron"})

_security = logging.getLogger("keystead.security")


@dataclass(frozen=True)
class WebhookEvent:
    """A parsed webhook event.

    id             a digest of the event and its body: the provider sends no id, but repeats the same bytes
    user           the user's id, not validated
    ends_session   a payment was declined, or the user is a former patron. Deleting a pledge does not end the session:
                   the paid period continues
    """

    id: str
    user: object
    plan: Plan
    ends_session: bool


def parse_webhook(body: bytes, signature: str | None, event: str, secrets: Sequence[SecretStr]) -> WebhookEvent | None:
    """Verify the signature of the raw body with any of the secrets, and parse it. None for other event types.

    Raises MembershipRefused if no secret is set, the signature is missing or wrong, or the body is malformed.
    """
    _refuse_unsigned(body, signature, secrets)
    try:
        data = json.loads(body)["data"]
        attributes = data.get("attributes") or {}
        user = (((data.get("relationships") or {}).get("user") or {}).get("data") or {}).get("id")
        cents, status = attributes.get("currently_entitled_amount_cents"), attributes.get("patron_status")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MembershipRefused("WEBHOOK_ERROR", "the body of this webhook is malformed") from None
    if event not in EVENTS:
        return None
    paid = cents if isinstance(cents, int) and event != "members:pledge:delete" else 0
    return WebhookEvent(
        id=sha256(event.encode() + b"\0" + body).hexdigest(),
        user=user,
        plan=plan_of(paid),
        ends_session=event == "members:pledge:update" and isinstance(status, str) and status in _ENDS_SESSIONS,
    )


def _refuse_unsigned(body: bytes, signature: str | None, secrets: Sequence[SecretStr]) -> None:
    usable = [secret for secret in secrets if secret]  # anyone could sign with an empty one
    if not usable:
        raise MembershipRefused("WEBHOOK_NOT_CONFIGURED", "webhooks are not configured: set webhook_secret")
    if not signature:
        raise MembershipRefused("MISSING_SIGNATURE", "the header X-Patreon-Signature is missing")
    # The provider signs with MD5. As an HMAC it is still secure.
    given = signature.encode("utf-8", "replace")
    valid = [hmac.new(secret.get_secret_value().encode(), body, "md5").hexdigest().encode() for secret in usable]
    if not any(hmac.compare_digest(one, given) for one in valid):
        event = {"event": "bad-signature", "client": CLIENT_ADDRESS.get()}
        _security.warning("membership: webhook with a wrong signature", extra=event)
        raise MembershipRefused("INVALID_SIGNATURE", "the signature of this webhook is wrong")
