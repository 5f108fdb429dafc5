"""The stand-in for Patreon: pledges, a page to change them, and the webhook that announces a change."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import SecretStr
from starlette.responses import Response

from keystead.demo.demo_responses import (
    DemoContext,
    access_token_of,
    invalid_token,
    read_form,
    refuse_in_production,
    refuse_repeated,
)
from keystead.demo.demo_service import AMOUNTS, PATREON_CLIENT_ID, DemoProvider, Person, Pledges, describe_pledge
from keystead.http.csrf import refuse_cross_site
from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.kit import Site, StandIn
from keystead.kits.language import Speaker
from keystead.parts.oauth import IdentityFields, Provider
from keystead.schema.times import moment
from keystead.stores import Store

_PAGE: Final = "/demo/patreon"
_CAMPAIGN: Final = "demo-campaign"
_TIMEOUT_S: Final = 10.0
_PERSON: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_BACK: Final = re.compile(r"/(?!/)[A-Za-z0-9/_-]{0,200}")
_EVENTS: Final = {
    "create": "members:pledge:create",
    "update": "members:pledge:update",
    "delete": "members:pledge:delete",
}


def demo_patreon(site: Site, webhook_secret: SecretStr) -> StandIn:
    """The stand-in for Patreon that kits use. Raises DemoInProduction unless in development."""
    refuse_in_production(site)
    provider = Provider(
        name="patreon",
        client_id=PATREON_CLIENT_ID,
        scope="identity identity[email]",
        authorize_url=f"{site.public_url}/demo/authorize",
        token_url=f"{site.internal_url}/demo/token",
        userinfo_url=f"{site.internal_url}{_PAGE}/identity",
        revoke_url=f"{site.internal_url}/demo/revoke",
        identity=IdentityFields(id="id"),
    )
    return StandIn(provider, webhook_secret, _PAGE)


def demo_patreon_router(site: Site, store_of: Callable[[Request], Store], webhook_secret: SecretStr) -> APIRouter:
    """The routes under `/demo/patreon`. Raises DemoInProduction unless in development.

    When a pledge changes, a webhook signed with the secret goes to `POST /webhook` under the internal URL.
    """
    demo = DemoContext(site, store_of)
    router = APIRouter(prefix=_PAGE, include_in_schema=False)

    async def identity(request: Request) -> Response:
        keys, access_token = demo.keys(request), access_token_of(request)
        person = await DemoProvider(keys).who(access_token) if access_token is not None else None
        if person is None:
            return invalid_token()
        answer = identity_of(person, await Pledges(keys).of(person), site.now_ms())
        return JSONResponse(answer, headers={**NO_STORE, "content-type": "application/vnd.api+json"})

    async def show(request: Request) -> Response:
        query = refuse_repeated(request.query_params.multi_items())
        people = await Pledges(demo.keys(request)).all(_match(_PERSON, query.get("person")))
        say = demo.speaker(request)
        return demo.page(
            request,
            "patreon.html",
            people=[(person, describe_pledge(cents, say), cents) for person, cents in people.items()],
            amounts=[(cents, _label(cents, say)) for cents in AMOUNTS],
            back=_match(_BACK, query.get("back")) or "",
            changed=next((person for person in people if person.id == query.get("person")), None),
            event=_EVENTS.get(query.get("event", ""), ""),
            answered=int(query["status"]) if re.fullmatch(r"[0-9]{1,3}", query.get("status", "")) else 0,
        )

    async def change(request: Request) -> Response:
        own = str(request.base_url).rstrip("/")
        refuse_cross_site(request.headers, (site.public_url, own), development=site.development)
        form = await read_form(request)
        pledges = Pledges(demo.keys(request))
        people = {person.id: person for person in await pledges.all(_match(_PERSON, form.get("person")))}
        person, cents = people.get(form.get("person", "")), form.get("cents", "")
        if person is None or cents not in map(str, AMOUNTS):
            raise Refusal(400, "BAD_REQUEST", "Choose a person and an amount.")
        before = await pledges.change(person, int(cents))
        result = {"person": person.id, "back": _match(_BACK, form.get("back")) or ""}
        if before != int(cents):
            event = pledge_event(person, before, int(cents), site.now_ms())
            status = await _send_webhook(site.internal_url, webhook_secret, event)
            result |= {"event": event.word, "status": str(status)}
        query = urlencode({name: value for name, value in result.items() if value})
        return RedirectResponse(f"{_PAGE}?{query}", 303, headers=NO_STORE)

    router.add_api_route("/identity", identity, methods=["GET"])
    router.add_api_route("", show, methods=["GET"])
    router.add_api_route("", change, methods=["POST"])
    return router


@dataclass(frozen=True)
class PledgeEvent:
    """A webhook: `create`, `update` or `delete`, and the body that is signed."""

    word: str
    body: bytes


def identity_of(person: Person, cents: int, now_ms: int) -> dict[str, Any]:
    """The answer of Patreon's identity endpoint. Without a pledge there is no membership in it."""
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
    """The webhook of a changed pledge. It contains the time, so no two are the same."""
    word = "create" if not before else "update" if cents else "delete"
    member = _member(person, cents, now_ms)
    member["attributes"]["last_charge_date"] = moment(now_ms).isoformat(timespec="milliseconds")
    member["relationships"]["user"] = {"data": {"type": "user", "id": person.id}}
    return PledgeEvent(word, json.dumps({"data": member}).encode())


def _member(person: Person, cents: int, now_ms: int) -> dict[str, Any]:
    today = moment(now_ms)
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


async def _send_webhook(internal_url: str, secret: SecretStr, event: PledgeEvent) -> int:
    """Send a webhook, signed as Patreon signs it. Returns the status of the response; 0 if there was none."""
    headers = {
        "content-type": "application/json",
        "x-patreon-event": _EVENTS[event.word],
        "x-patreon-signature": hmac.new(secret.get_secret_value().encode(), event.body, "md5").hexdigest(),
    }
    async with httpx2.AsyncClient(trust_env=False, timeout=_TIMEOUT_S) as http:
        try:
            return (await http.post(f"{internal_url}/webhook", content=event.body, headers=headers)).status_code
        except httpx2.HTTPError:
            return 0


def _label(cents: int, say: Speaker) -> str:
    return f"${cents / 100:g}" if cents else say("Nothing")


def _match(pattern: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and pattern.fullmatch(text) else None
