"""The Patreon client: token requests and memberships."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, timedelta
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Any, Final

import httpx2

from keystead.kits.membership.models import ParsedMembership, Plan
from keystead.kits.membership.service.tables import is_user
from keystead.parts.cache import TryLater
from keystead.parts.oauth import BadAnswer, Client, Provider, ProviderRefused, Tokens
from keystead.parts.oauth.fetch import Endpoints
from keystead.parts.oauth.token_response import tokens_from
from keystead.parts.sanitize import visible
from keystead.schema.lifetime import duration_ms

# The minimum amount in cents for each plan, highest first.
PLANS: Final[tuple[tuple[int, Plan], ...]] = ((900, "Ultimate"), (500, "Premium"), (300, "Pro"))

_TIMEOUT: Final = "10s"
_UNAUTHORIZED, _TOO_MANY = 401, 429
_USUAL_PAUSE_S: Final = 60
_LONGEST_PAUSE_S: Final = 86_400
_TOKEN_FIELDS: Final = ("access_token", "refresh_token", "token_type", "expires_in", "scope")
_DIGITS_MOST: Final = 10
_LONGEST_TEXT: Final = 320  # the longest email address


class TokenRejected(ProviderRefused):
    """The provider rejects an access token that has not expired: the user has revoked it."""

    code = "provider-token-rejected"


def plan_of(amount_cents: int) -> Plan:
    """The plan for a monthly amount."""
    return next((plan for least, plan in PLANS if amount_cents >= least), "Free")


class Patreon(Client):
    """A client of Patreon, or of another provider with the same API."""

    def __init__(
        self,
        provider: Provider,
        http: httpx2.AsyncClient,
        now_ms: Callable[[], int],
        *,
        development: bool = False,
        timeout: str | timedelta = _TIMEOUT,
    ) -> None:
        super().__init__(provider, http, now_ms, development=development, timeout=timeout)
        self.http = http
        self._api = _PatreonEndpoints(provider.name, http, duration_ms(timeout, "a timeout") / 1000, now_ms)

    async def tokens_for(self, code: str, redirect_uri: str, verifier: str | None) -> Tokens:
        """Exchange a code for tokens. The verifier is None for a sign-in without PKCE. One round trip."""
        form = code_form(code, redirect_uri, verifier)
        return tokens_from(await self._request_tokens(form), self.provider, self._now_ms())

    async def raw_tokens(self, form: Mapping[str, str]) -> dict[str, Any]:
        """The response of the token endpoint to a grant, reduced to the fields of OAuth."""
        response = await self._request_tokens(form)
        tokens_from(response, self.provider, self._now_ms())  # raises if it is not a token response
        return {name: response[name] for name in _TOKEN_FIELDS if name in response}

    async def _request_tokens(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Raises TryLater if the provider answers 429, and other OAuth errors."""
        places = await self._discovery.urls()
        headers, sent = self._authenticate(dict(form))
        return await self._api.post("token endpoint", places.token_url, headers, sent)

    async def membership(self, access_token: str, campaign: str | None) -> ParsedMembership:
        """The identity and membership of the owner of an access token. One round trip.

        Raises TokenRejected, TryLater if the provider answers 429, and other OAuth errors.
        """
        places = await self._discovery.urls()
        if places.userinfo_url is None:
            raise BadAnswer(self.provider.name, "it has no identity endpoint; set identity_url")
        headers = {"authorization": f"Bearer {access_token}"}
        response = await self._api.get("identity endpoint", places.userinfo_url, headers)
        return parse_membership(response, campaign, self.provider.name)


class _PatreonEndpoints(Endpoints):
    """Distinguishes a revoked token (401) and a rate limit (429) from other errors."""

    def __init__(self, provider: str, http: httpx2.AsyncClient, timeout_s: float, now_ms: Callable[[], int]) -> None:
        super().__init__(provider, http, timeout_s)
        self._now_ms = now_ms

    async def _body(self, what: str, answer: httpx2.Response) -> bytes:
        if answer.status_code == _TOO_MANY:
            raise TryLater(timedelta(seconds=pause_s(answer.headers.get("retry-after"), self._now_ms())))
        return await super()._body(what, answer)

    def _failure(self, what: str, status: int, answer: dict[str, Any] | None) -> Exception:
        if status == _UNAUTHORIZED:
            return TokenRejected(self._provider, f"its {what} no longer accepts this token")
        return super()._failure(what, status, answer)


def pause_s(retry_after: str | None, now_ms: int) -> int:
    """The pause of a `Retry-After` header (seconds or a date), in seconds from 1 to a day; a minute if unreadable."""
    text = (retry_after or "").strip()
    is_number = text.isascii() and text.isdecimal() and len(text) < _DIGITS_MOST
    seconds = int(text) if is_number else _seconds_until(text, now_ms)
    return min(max(1, seconds), _LONGEST_PAUSE_S)


def _seconds_until(date: str, now_ms: int) -> int:
    try:
        until = parsedate_to_datetime(date)
    except ValueError:
        return _USUAL_PAUSE_S
    until = until.replace(tzinfo=UTC) if until.tzinfo is None else until
    return ceil(until.timestamp() - now_ms / 1000)


def code_form(code: str, redirect_uri: str, verifier: str | None) -> dict[str, str]:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
    return form if verifier is None else {**form, "code_verifier": verifier}


def parse_membership(identity: Mapping[str, Any], campaign: str | None, provider: str) -> ParsedMembership:
    """Parse the response of the identity endpoint. Raises BadAnswer if it does not identify the user.

    The plan is that of the highest entitled tier in the campaign, or in any campaign if it is None.
    """
    user_object = _object(identity.get("data"))
    user = user_object.get("id")
    if not is_user(user):
        raise BadAnswer(provider, "its identity endpoint does not identify the user")
    included = identity.get("included", [])
    if not isinstance(included, list):
        raise BadAnswer(provider, "its identity endpoint did not answer with a membership")
    objects = [one for one in map(_object, included) if one]
    members = [one for one in objects if one.get("type") == "member" and _is_of_campaign(one, campaign)]
    tier_objects = [one for one in objects if one.get("type") == "tier" and isinstance(one.get("id"), str)]
    amounts: dict[str, int] = {one["id"]: _cents(one, "amount_cents") for one in tier_objects}
    tiers = [tier for one in members for tier in _related_ids(one, "currently_entitled_tiers") if tier in amounts]
    tier = max(tiers, key=lambda one: amounts[one], default=None)
    first = max(members, key=lambda one: _cents(one, "currently_entitled_amount_cents"), default={})
    status, charge = _text(first, "patron_status"), _text(first, "next_charge_date")
    amount = 0 if tier is None else amounts[tier]
    return ParsedMembership(
        user_id=user,
        email=_text(user_object, "email") or "",
        full_name=_text(user_object, "full_name") or "",
        plan=plan_of(amount),
        has_bonus_tokens=False,
        pledge_amount_cents=amount,
        campaign_lifetime_support_cents=_cents(first, "campaign_lifetime_support_cents"),
        next_charge_date=charge,
        is_active=status == "active_patron",
        tier_id=_readable(tier),
        patron_status=status or "not_patron",
        entitled_amount_cents=_cents(first, "currently_entitled_amount_cents"),
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _related_ids(resource: Mapping[str, Any], relation: str) -> Iterator[str]:
    """The ids of a relationship, to one or to many."""
    data = _object(_object(resource.get("relationships")).get(relation)).get("data")
    for one in data if isinstance(data, list) else [data]:
        found = _object(one).get("id")
        if isinstance(found, str):
            yield found


def _is_of_campaign(member: Mapping[str, Any], campaign: str | None) -> bool:
    return campaign is None or campaign in _related_ids(member, "campaign")


def _cents(resource: Mapping[str, Any], name: str) -> int:
    value = _object(resource.get("attributes")).get(name)
    return value if type(value) is int and 0 <= value < 2**53 else 0


def _text(resource: Mapping[str, Any], name: str) -> str | None:
    return _readable(_object(resource.get("attributes")).get(name))


def _readable(value: object) -> str | None:
    """Text that is safe to store and show: JSON may contain lone surrogates and terminal control characters."""
    return visible(value, _LONGEST_TEXT) if isinstance(value, str) and value else None
