"""The demo provider in the place of Patreon: what people pay, a page to change it, and the webhook that tells of it."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import SecretStr
from starlette.responses import Response

from keystead.http.csrf import refuse_cross_site
from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.kit import StandIn
from keystead.parts.oauth import IdentityFields, Provider
from keystead.server.demo_provider.keys import DemoKeys
from keystead.server.demo_provider.responses import (
    access_token_of,
    form_of,
    no_such_token,
    only_once,
    page,
    refuse_in_production,
)
from keystead.server.demo_provider.service import AMOUNTS, PATREON_CLIENT_ID, DemoProvider, Person, Pledges, in_words
from keystead.stores import Store

_PAGE: Final = "/demo/patreon"
_CAMPAIGN: Final = "demo-campaign"
_TIMEOUT_S: Final = 10.0
_PERSON: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BACK: Final = re.compile(r"/(?!/)[A-Za-z0-9/_-]{0,200}")
_WORDS: Final = {
    "create": "members:pledge:create",
    "update": "members:pledge:update",
    "delete": "members:pledge:delete",
}


def demo_patreon(
    internal_url: str, public_url: str, webhook_secret: SecretStr, *, development: bool = False
) -> StandIn:
    """The stand-in for Patreon, as a kit knows it. DemoInProduction unless in development."""
    refuse_in_production(development)
    provider = Provider(
        name="patreon",
        client_id=PATREON_CLIENT_ID,
        scope="identity identity[email]",
        authorize_url=f"{public_url}/demo/authorize",
        token_url=f"{internal_url}/demo/token",
        userinfo_url=f"{internal_url}{_PAGE}/identity",
        revoke_url=f"{internal_url}/demo/revoke",
        identity=IdentityFields(id="id"),
    )
    return StandIn(provider, webhook_secret, _PAGE)


def demo_patreon_router(
    store_of: Callable[[Request], Store],
    internal_url: str,
    public_url: str,
    webhook_secret: SecretStr,
    now_ms: Callable[[], int],
    *,
    development: bool = False,
) -> APIRouter:
    """The routes under `/demo/patreon`, beside those of `demo_router`. DemoInProduction unless in development.

    A change of what somebody pays is told to `POST /webhook` under the internal URL, signed with the secret.
    """
    refuse_in_production(development)
    router = APIRouter(prefix=_PAGE, include_in_schema=False)

    def keys_of(request: Request) -> DemoKeys:
        return DemoKeys(store_of(request), now_ms=now_ms)

    async def identity(request: Request) -> Response:
        keys, access_token = keys_of(request), access_token_of(request)
        person = await DemoProvider(keys).who(access_token) if access_token is not None else None
        if person is None:
            return no_such_token()
        answer = identity_of(person, await Pledges(keys).of(person), now_ms())
        return JSONResponse(answer, headers={**NO_STORE, "content-type": "application/vnd.api+json"})

    async def show(request: Request) -> Response:
        asked = only_once(request.query_params.multi_items())
        people = await Pledges(keys_of(request)).all(_matching(_PERSON, asked.get("person")))
        return page(
            "demo_patreon.html",
            people=[(person, in_words(cents), cents) for person, cents in people.items()],
            amounts=[(cents, _label(cents)) for cents in AMOUNTS],
            back=_matching(_BACK, asked.get("back")) or "",
            changed=next((person for person in people if person.id == asked.get("person")), None),
            event=_WORDS.get(asked.get("event", ""), ""),
            answered=int(asked["status"]) if re.fullmatch(r"[0-9]{1,3}", asked.get("status", "")) else 0,
        )

    async def change(request: Request) -> Response:
        own = str(request.base_url).rstrip("/")
        refuse_cross_site(request.headers, (public_url, own), development=development)
        form = await form_of(request)
        pledges = Pledges(keys_of(request))
        people = {person.id: person for person in await pledges.all(_matching(_PERSON, form.get("person")))}
        person, cents = people.get(form.get("person", "")), form.get("cents", "")
        if person is None or cents not in map(str, AMOUNTS):
            raise Refusal(400, "BAD_REQUEST", "Choose somebody, and what they pay.")
        before = await pledges.change(person, int(cents))
        told = {"person": person.id, "back": _matching(_BACK, form.get("back")) or ""}
        if before != int(cents):
            event = pledge_event(person, before, int(cents), now_ms())
            told |= {"event": event.word, "status": str(await _tell(internal_url, webhook_secret, event))}
        query = urlencode({name: value for name, value in told.items() if value})
        return RedirectResponse(f"{_PAGE}?{query}", 303, headers=NO_STORE)

    router.add_api_route("/identity", identity, methods=["GET"])
    router.add_api_route("", show, methods=["GET"])
    router.add_api_route("", change, methods=["POST"])
    return router


@dataclass(frozen=True)
class PledgeEvent:
    """A webhook: `create`, `update` or `delete`, and the body, as it is signed."""

    word: str
    body: bytes


def identity_of(person: Person, cents: int, now_ms: int) -> dict[str, Any]:
    """Who somebody is and what they pay, in the shape of Patreon's identity endpoint. Who pays nothing is no member."""
    data = {
        "type": "user",
        "id": person.id,
        "attributes": {
            "email": f"{person.id.removeprefix('demo-')}@example.com",
            "full_name": person.name,
        },
    }
    if not cents:
        return {"data": data, "included": []}
    member = _member(person, cents, now_ms)
    tier = {"type": "tier", "id": f"tier-{cents}", "attributes": {"amount_cents": cents}}
    member["relationships"]["currently_entitled_tiers"] = {"data": [{"type": "tier", "id": tier["id"]}]}
    named = {"memberships": {"data": [{"type": "member", "id": member["id"]}]}}
    return {"data": {**data, "relationships": named}, "included": [member, tier]}


def pledge_event(person: Person, before: int, cents: int, now_ms: int) -> PledgeEvent:
    """What Patreon tells when somebody pays another amount than before. It says when: so no two are the same."""
    word = "create" if not before else "update" if cents else "delete"
    member = _member(person, cents, now_ms)
    member["attributes"]["last_charge_date"] = _day(now_ms).isoformat(timespec="milliseconds")
    member["relationships"]["user"] = {"data": {"type": "user", "id": person.id}}
    return PledgeEvent(word, json.dumps({"data": member}).encode())


def _member(person: Person, cents: int, now_ms: int) -> dict[str, Any]:
    today = _day(now_ms)
    next_month = today.replace(year=today.year + today.month // 12, month=today.month % 12 + 1, day=1)
    return {
        "type": "member",
        "id": f"member-{person.id}",
        "attributes": {
            "patron_status": "active_patron" if cents else "former_patron",
            "currently_entitled_amount_cents": cents,
            "campaign_lifetime_support_cents": cents,
            "next_charge_date": next_month.date().isoformat() if cents else None,
        },
        "relationships": {"campaign": {"data": {"type": "campaign", "id": _CAMPAIGN}}},
    }


async def _tell(internal_url: str, secret: SecretStr, event: PledgeEvent) -> int:
    """Send a webhook as Patreon signs it. The status that answers it; 0: nothing did."""
    headers = {
        "content-type": "application/json",
        "x-patreon-event": _WORDS[event.word],
        "x-patreon-signature": hmac.new(secret.get_secret_value().encode(), event.body, "md5").hexdigest(),
    }
    async with httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as http:
        try:
            return (await http.post(f"{internal_url}/webhook", content=event.body, headers=headers)).status_code
        except httpx2.HTTPError:
            return 0


def _day(now_ms: int) -> datetime:
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def _label(cents: int) -> str:
    return f"${cents / 100:g}" if cents else "Nothing"


def _matching(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and pattern.fullmatch(text) else None
