"""Webhooks of the provider: who signed them, and what they tell."""

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
from keystead.kits.membership.service.outcomes import ASKING, MembershipRefused
from keystead.kits.membership.service.patreon import plan_of

EVENTS: Final = frozenset({"members:pledge:create", "members:pledge:update", "members:pledge:delete"})

_ENDS_SESSIONS: Final = frozenset({"declined_patron", "former_patron"})

_security = logging.getLogger("keystead.security")


@dataclass(frozen=True)
class Told:
    """What an event tells.

    id             tells it from others: the provider gives it none, and sends the same bytes again
    user           whatever stands in the place of the user's id
    ends_session   the user does not pay any more. Not at the end of a pledge: what was paid for goes on
    """

    id: str
    user: object
    plan: Plan
    ends_session: bool


def told_in(body: bytes, signature: str | None, event: str, secrets: Sequence[SecretStr]) -> Told | None:
    """What a webhook tells; None: nothing that matters here. The raw body is what was signed.

    Raises MembershipRefused where the signature is missing or wrong, or the body is no event. It is always checked:
    without a secret nothing is believed, and with several each is.
    """
    _refuse_unsigned(body, signature, secrets)
    try:
        data = json.loads(body)["data"]
        attributes = data.get("attributes") or {}
        user = (((data.get("relationships") or {}).get("user") or {}).get("data") or {}).get("id")
        cents, status = attributes.get("currently_entitled_amount_cents"), attributes.get("patron_status")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MembershipRefused("WEBHOOK_ERROR", "the body of this webhook cannot be read") from None
    if event not in EVENTS:
        return None
    paid = cents if isinstance(cents, int) and event != "members:pledge:delete" else 0
    return Told(
        id=sha256(event.encode() + b"\0" + body).hexdigest(),
        user=user,
        plan=plan_of(paid),
        ends_session=event == "members:pledge:update" and isinstance(status, str) and status in _ENDS_SESSIONS,
    )


def _refuse_unsigned(body: bytes, signature: str | None, secrets: Sequence[SecretStr]) -> None:
    known = [secret for secret in secrets if secret]  # with an empty one anybody could sign
    if not known:
        raise MembershipRefused("WEBHOOK_NOT_CONFIGURED", "webhooks are not taken: no webhook_secret is set")
    if not signature:
        raise MembershipRefused("MISSING_SIGNATURE", "a webhook is signed in X-Patreon-Signature")
    # MD5 is what the provider signs with; as an HMAC it still stands.
    given = signature.encode("utf-8", "replace")
    made = [hmac.new(secret.get_secret_value().encode(), body, "md5").hexdigest().encode() for secret in known]
    if not any(hmac.compare_digest(one, given) for one in made):
        event = {"event": "bad-signature", "client": ASKING.get()}
        _security.warning("membership: a webhook with a wrong signature", extra=event)
        raise MembershipRefused("INVALID_SIGNATURE", "the signature of this webhook is wrong")
