"""One sign-in for all kits: what any kit, also one of somebody else's, learns of who a request is from."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Request
from pydantic import BaseModel

from keystead import Keyspace, Value, after
from keystead.kits.identity import SignedInUser, identify_again
from keystead.kits.kit import Kit, Site
from keystead.kits.login import KIT as LOGIN
from keystead.kits.signed_in import CurrentUser, CurrentUserIfAny
from tests.every_store import on_urls, redis_server, urls
from tests.kits.signing_in import OWN, Server, serving

__all__ = ["redis_server", "urls"]

FOREIGN = {"origin": "https://elsewhere.example"}


class NoteKeys(Keyspace):
    """Notes of somebody else's kit."""

    note = Value("note:{owner}", str, lifetime=after("1d"), doc="A note.")


class NoteSettings(BaseModel):
    pass


@asynccontextmanager
async def open_notes(keys: NoteKeys, settings: NoteSettings, site: Site) -> AsyncIterator[NoteKeys]:
    yield keys


async def who(user: CurrentUserIfAny) -> dict[str, Any]:
    return {"subject": None if user is None else user.subject, "name": None if user is None else user.name}


async def mine(request: Request, user: CurrentUser) -> dict[str, Any]:
    again = await identify_again(request)
    return {"subject": user.subject, "again": again == user}


def notes_router() -> APIRouter:
    routes = APIRouter()
    routes.add_api_route("/notes/who", who, methods=["GET", "POST"])
    routes.add_api_route("/notes/mine", mine, methods=["GET", "PUT"])
    return routes


NOTES = Kit("notes", "Notes.", NoteKeys, NoteSettings, notes_router, open_notes)


@asynccontextmanager
async def with_notes(**settings: Any) -> AsyncIterator[Server]:
    async with serving([LOGIN, NOTES], **settings) as server:
        yield server


@on_urls("sqlite", "redis")
async def test_whoever_has_signed_in_is_known_to_a_kit_of_somebody_else(urls: dict[str, str]) -> None:
    async with with_notes(store=urls["default"]) as server:
        ada = await server.sign_in("42", "Ada Lovelace")
        assert (await ada.get("/notes/who")).json() == {"subject": "login:42", "name": "Ada Lovelace"}
        assert (await ada.get("/notes/mine")).json() == {"subject": "login:42", "again": True}
        assert (await server.browser().get("/notes/who")).json() == {"subject": None, "name": None}


@on_urls("sqlite", "redis")
async def test_after_the_sign_out_nobody_is_known(urls: dict[str, str]) -> None:
    async with with_notes(store=urls["default"]) as server:
        ada = await server.sign_in("42")
        assert (await ada.post("/api/auth/logout", headers=OWN)).status_code == 200
        assert (await ada.get("/notes/mine")).status_code == 401


async def test_who_is_not_signed_in_is_told_where_to() -> None:
    async with with_notes() as server:
        refused = await server.browser().get("/notes/mine")
        assert refused.status_code == 401
        assert refused.json()["code"] == "NOT_SIGNED_IN"
        assert "/login" in refused.json()["error"]
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert refused.headers["cache-control"] == "no-store"


async def test_without_a_kit_that_signs_people_in_nobody_is_signed_in() -> None:
    async with serving([NOTES]) as server:
        assert (await server.browser("x").get("/notes/who")).json()["subject"] is None
        refused = await server.browser("x").get("/notes/mine")
        assert (refused.status_code, refused.json()["code"]) == (401, "NOT_SIGNED_IN")
        assert "/login" not in refused.json()["error"]


async def test_a_page_of_another_site_cannot_write_with_the_cookie() -> None:
    async with with_notes() as server:
        ada = await server.sign_in()
        for headers in (FOREIGN, {"origin": "null"}, {"referer": "https://elsewhere.example/x"}, {}):
            refused = await ada.put("/notes/mine", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "CSRF"), headers
        assert (await ada.put("/notes/mine", headers=OWN)).status_code == 200


async def test_a_write_that_does_not_say_where_it_comes_from_takes_the_double_submit() -> None:
    async with with_notes() as server:
        ada = await server.sign_in()
        token = (await ada.get("/api/auth/csrf")).json()["token"]
        assert (await ada.put("/notes/mine", headers={"x-csrf-token": token})).status_code == 200
        guessed = {"x-csrf-token": secrets.token_urlsafe(32)}
        assert (await ada.put("/notes/mine", headers=guessed)).status_code == 403
        assert (await ada.put("/notes/mine", headers={"x-csrf-token": token} | FOREIGN)).status_code == 403


async def test_a_visitor_writes_without_a_token_where_a_kit_lets_visitors() -> None:
    async with with_notes() as server:
        assert (await server.browser().post("/notes/who")).json()["subject"] is None
        # A cookie that names no session protects nothing, and is no reason to refuse.
        assert (await server.browser("nonsense").post("/notes/who")).json()["subject"] is None


async def test_two_session_cookies_that_differ_are_nobody_over_https() -> None:
    async with with_notes(public_url="https://example.com") as server:
        client = server.browser()
        cookies = "__Host-sid=a; __Host-sid=b"
        assert (await client.get("/notes/who", headers={"cookie": cookies})).json()["subject"] is None


async def test_two_users_with_one_id_in_different_spaces_are_two() -> None:
    one, other = (SignedInUser(space, "42", "Ada", "cookie") for space in ("login", "company"))
    assert one.subject != other.subject


@pytest.mark.parametrize("given", ["Bearer", "bearer x.y.z", "Bearer " + "a" * 9000])
async def test_a_bearer_token_that_nobody_knows_is_not_helped_by_a_cookie(given: str) -> None:
    async with with_notes() as server:
        ada: httpx2.AsyncClient = await server.sign_in()
        refused = await ada.get("/notes/mine", headers={"authorization": given})
        assert (refused.status_code, refused.json()["code"]) == (401, "INVALID_TOKEN")
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]


async def test_of_two_bearer_tokens_neither_counts() -> None:
    async with with_notes() as server:
        ada = await server.sign_in("42")
        pair = (await ada.post("/api/auth/token", headers=OWN)).json()
        twice = [("authorization", f"Bearer {pair['accessToken']}")] * 2
        assert (await server.browser().get("/notes/mine", headers=twice)).status_code == 401


async def test_what_a_proxy_writes_into_the_header_does_not_hide_the_cookie() -> None:
    async with with_notes() as server:
        ada = await server.sign_in("42")
        assert (await ada.get("/notes/mine", headers={"authorization": "Basic eDp5"})).json()["subject"] == "login:42"
