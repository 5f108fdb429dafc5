"""The provider: codes for tokens, and what a user pays for."""

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

# The amount from which on a plan is what somebody pays for, the highest first.
PLANS: Final[tuple[tuple[int, Plan], ...]] = ((900, "Ultimate"), (500, "Premium"), (300, "Pro"))

_TIMEOUT: Final = "10s"
_UNAUTHORIZED, _TOO_MANY = 401, 429
_USUAL_PAUSE_S: Final = 60
_LONGEST_PAUSE_S: Final = 86_400
_TOKEN_FIELDS: Final = ("access_token", "refresh_token", "token_type", "expires_in", "scope")
_DIGITS_MOST: Final = 10
_LONGEST_TEXT: Final = 320  # an address of mail has no more


class TokenRejected(ProviderRefused):
    """The provider does not take this access token, although it has not expired: the user took it back."""

    code = "provider-token-rejected"


def plan_of(amount_cents: int) -> Plan:
    """What somebody has who pays so much a month."""
    return next((plan for least, plan in PLANS if amount_cents >= least), "Free")


class Patreon(Client):
    """A client of Patreon, or of another provider with the same answers."""

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
        self._members = _Members(provider.name, http, duration_ms(timeout, "a timeout") / 1000, now_ms)

    async def tokens_for(self, code: str, redirect_uri: str, verifier: str | None) -> Tokens:
        """The tokens for a code. Only an application that began with PKCE has a verifier. One round trip."""
        form = code_form(code, redirect_uri, verifier)
        return tokens_from(await self._granted(form), self.provider, self._now_ms())

    async def raw_tokens(self, form: Mapping[str, str]) -> dict[str, Any]:
        """What the token endpoint itself answers to a grant, of which only the fields of OAuth are repeated."""
        told = await self._granted(form)
        tokens_from(told, self.provider, self._now_ms())  # what is no answer with tokens is refused
        return {name: told[name] for name in _TOKEN_FIELDS if name in told}

    async def _granted(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Raises TryLater where the provider asks for a pause, and other errors of OAuth."""
        places = await self._discovery.urls()
        headers, sent = self._authenticate(dict(form))
        return await self._members.post("token endpoint", places.token_url, headers, sent)

    async def membership(self, access_token: str, campaign: str | None) -> ParsedMembership:
        """Whose token this is, and what they pay for. One round trip.

        Raises TokenRejected, TryLater where the provider asks for a pause, and other errors of OAuth.
        """
        places = await self._discovery.urls()
        if places.userinfo_url is None:
            raise BadAnswer(self.provider.name, "there is no address that tells what a user pays for")
        headers = {"authorization": f"Bearer {access_token}"}
        told = await self._members.get("identity endpoint", places.userinfo_url, headers)
        return parsed(told, campaign, self.provider.name)


class _Members(Endpoints):
    """Tells a token that counts no more, and a pause that the provider asks for, from other refusals."""

    def __init__(self, provider: str, http: httpx2.AsyncClient, timeout_s: float, now_ms: Callable[[], int]) -> None:
        super().__init__(provider, http, timeout_s)
        self._now_ms = now_ms

    async def _body(self, what: str, answer: httpx2.Response) -> bytes:
        if answer.status_code == _TOO_MANY:
            raise TryLater(timedelta(seconds=pause_s(answer.headers.get("retry-after"), self._now_ms())))
        return await super()._body(what, answer)

    def _failure(self, what: str, status: int, answer: dict[str, Any] | None) -> Exception:
        if status == _UNAUTHORIZED:
            return TokenRejected(self._provider, f"its {what} does not take this token any more")
        return super()._failure(what, status, answer)


def pause_s(retry_after: str | None, now_ms: int) -> int:
    """How long a server asks to be left alone, in whole seconds. It says so, or until when; if neither, a minute."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdecimal() and len(text) < _DIGITS_MOST:
        asked = int(text)
    else:
        asked = _seconds_until(text, now_ms)
    return min(max(1, asked), _LONGEST_PAUSE_S)


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


def parsed(told: Mapping[str, Any], campaign: str | None, provider: str) -> ParsedMembership:
    """What the identity of a user says. Raises BadAnswer where it does not say who it is.

    The plan is that of the highest tier that they are entitled to, in this campaign or, without one, in any.
    """
    data = _object(told.get("data"))
    attributes = _object(data.get("attributes"))
    user = data.get("id")
    if not is_user(user):
        raise BadAnswer(provider, "its identity endpoint does not say who this is")
    included = told.get("included", [])
    if not isinstance(included, list):
        raise BadAnswer(provider, "its identity endpoint answered with something else than a membership")
    things = [one for one in map(_object, included) if one]
    members = [one for one in things if one.get("type") == "member" and _is_of(one, campaign)]
    tiers_told = [one for one in things if one.get("type") == "tier" and isinstance(one.get("id"), str)]
    amounts: dict[str, int] = {one["id"]: _cents(one, "amount_cents") for one in tiers_told}
    tiers = [tier for one in members for tier in _named(one, "currently_entitled_tiers") if tier in amounts]
    tier = max(tiers, key=lambda one: amounts[one], default=None)
    first = max(members, key=lambda one: _cents(one, "currently_entitled_amount_cents"), default={})
    status, charge = _text(first, "patron_status"), _text(first, "next_charge_date")
    amount = 0 if tier is None else amounts[tier]
    return ParsedMembership(
        user_id=user,
        email=_text({"attributes": attributes}, "email") or "",
        full_name=_text({"attributes": attributes}, "full_name") or "",
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


def _named(thing: Mapping[str, Any], relation: str) -> Iterator[str]:
    """The ids that a relationship names, one or several."""
    data = _object(_object(thing.get("relationships")).get(relation)).get("data")
    for one in data if isinstance(data, list) else [data]:
        found = _object(one).get("id")
        if isinstance(found, str):
            yield found


def _is_of(member: Mapping[str, Any], campaign: str | None) -> bool:
    return campaign is None or campaign in _named(member, "campaign")


def _cents(thing: Mapping[str, Any], name: str) -> int:
    value = _object(thing.get("attributes")).get(name)
    return value if type(value) is int and 0 <= value < 2**53 else 0


def _text(thing: Mapping[str, Any], name: str) -> str | None:
    return _readable(_object(thing.get("attributes")).get(name))


def _readable(value: object) -> str | None:
    """A text as it can be kept and shown: JSON can hold halves of characters, and whatever a terminal obeys."""
    return visible(value, _LONGEST_TEXT) if isinstance(value, str) and value else None
