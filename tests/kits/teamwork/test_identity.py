"""Users who sign in at the server are users of teamwork, separate from the ids of programs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead.kits.login import KIT as LOGIN
from keystead.kits.teamwork import KIT as TEAMWORK
from keystead.kits.teamwork import UserSession, teamwork_kit
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server
from tests.every_store import on_urls, redis_server, urls
from tests.kits.signing_in import OWN, Server, serving

__all__ = ["database_url", "mariadb_server", "postgres_server", "redis_server", "urls"]

KITS = [LOGIN, TEAMWORK]
PERSON = UserSession(name="Ben", email="", role="DEVELOPER", team_id=7, team_role="MEMBER")


def token_of(server: Server, user: int) -> dict[str, str]:
    return {"authorization": f"Bearer {server.app.state.kits['teamwork'].tokens.issue(str(user)).token}"}


async def me(client: httpx2.AsyncClient, **headers: str) -> dict[str, Any]:
    answer = await client.get("/api/me", headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@on_urls("sqlite", "redis")
async def test_a_signed_in_user_is_a_user_of_teamwork(urls: dict[str, str]) -> None:
    async with serving(KITS, store=urls["default"]) as server:
        linus = await server.sign_in("42", "Linus")
        told = await me(linus)
        assert (told["name"], told["teamId"]) == ("Linus", 0)
        assert told["id"] == (await me(linus))["id"]
        assert (await linus.get("/api/notifications")).json()["items"] == []


@on_urls("sqlite", "redis")
async def test_the_token_of_a_program_and_the_cookie_are_the_same_user(urls: dict[str, str]) -> None:
    async with serving(KITS, store=urls["default"]) as server:
        linus = await server.sign_in("42", "Linus")
        pair = (await linus.post("/api/auth/token", headers=OWN)).json()
        program = server.browser()
        assert await me(program, authorization=f"Bearer {pair['accessToken']}") == await me(linus)
        # Signing out applies here, too.
        await linus.post("/api/auth/logout", headers=OWN)
        refused = await program.get("/api/me", headers={"authorization": f"Bearer {pair['accessToken']}"})
        assert (refused.status_code, refused.json()["code"]) == (401, "INVALID_TOKEN")


async def test_a_token_subject_is_not_a_sign_in_id() -> None:
    async with serving(KITS) as server:
        await server.app.state.kits["teamwork"].people.save(42, PERSON)
        linus = await server.sign_in("42", "Linus")
        assert (await me(linus))["name"] == "Linus"
        ben = await me(server.browser(), **token_of(server, 42))
        assert (ben["id"], ben["name"]) == (42, "Ben")
        # With both a cookie and a header, the header counts.
        assert (await me(linus, **token_of(server, 42)))["id"] == 42


async def test_sequential_user_ids_never_collide_with_signed_in_users() -> None:
    async with serving(KITS) as server:
        people = server.app.state.kits["teamwork"].people
        linus = await me(await server.sign_in("42", "Linus"))
        for number in range(1, 20):
            await people.save(number, PERSON)
        assert 10**12 <= linus["id"] < 2**53
        assert (await me(await server.sign_in("42", "Linus")))["name"] == "Linus"


@on_databases("sqlite", "postgres", "mariadb")
async def test_fifty_concurrent_first_requests_create_one_user(database_url: str) -> None:
    async with serving(KITS, database=database_url) as server:
        browsers = [await server.sign_in("42", "Linus") for _ in range(5)]
        told = await asyncio.gather(*(me(browsers[number % 5]) for number in range(50)))
        teamwork = server.app.state.kits["teamwork"]
        assert len({one["id"] for one in told}) == 1
        assert await teamwork.people.of_identity("login:42") == told[0]["id"]
        others = await asyncio.gather(*(teamwork.admit_identity(f"login:{number}", "x") for number in range(50)))
        assert len({one.sub for one in others}) == 50


async def test_two_servers_create_one_user_for_one_identity(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tables.db"
    async with serving(KITS, database=url) as one, serving(KITS, database=url) as other:
        browsers = [await server.sign_in("42", "Linus") for server in (one, other)]
        first, second = await asyncio.gather(*map(me, browsers))
        assert first["id"] == second["id"]


async def test_a_user_without_a_team_is_refused_and_sees_nothing_of_others() -> None:
    async with serving(KITS) as server:
        linus = await server.sign_in("42", "Linus")
        due = {"due": "2096-10-05", "title": "x"}
        event = {"event": "assigned", "id": "1", "item": {"refType": "DEFECT", "refId": 1, "title": "t"}}
        for method, path, body in (
            ("GET", "/api/deadlines", None),
            ("PUT", "/api/deadlines/DEFECT/1", due),
            ("DELETE", "/api/deadlines/DEFECT/1", None),
            ("GET", "/api/dashboard/summary", None),
            ("PUT", "/api/team/zone", {"zone": "UTC"}),
            ("POST", "/api/events", event),
        ):
            refused = await linus.request(method, path, json=body, headers=OWN)
            assert (refused.status_code, refused.json()["code"]) in {(403, "NO_TEAM"), (400, "BAD_REQUEST")}, path
            assert refused.status_code == 403 or path == "/api/events"
        assert "/teamwork" in (await linus.get("/api/deadlines")).json()["error"]


async def test_signing_in_with_the_name_of_a_demo_person_is_that_person() -> None:
    async with serving(KITS) as server:
        ada = await server.sign_in("demo.demo-ada", "Ada Lovelace")
        assert (await me(ada))["id"] == 900_000_001
        assert (await ada.get("/api/deadlines")).status_code == 200
        written = await ada.post("/api/teamwork/demo/events", json={"what": "assigned"}, headers=OWN)
        assert written.json()["notices"] == 1


async def test_a_new_user_joins_the_demo_team() -> None:
    async with serving(KITS) as server:
        linus = await server.sign_in("demo.linus", "Linus")
        assert (await linus.get("/api/deadlines")).status_code == 403
        assert (await linus.post("/api/teamwork/demo/join", headers=OWN)).status_code == 200
        assert (await linus.get("/api/deadlines")).status_code == 200
        again = await linus.post("/api/teamwork/demo/join", headers=OWN)
        assert (again.status_code, again.json()["code"]) == (409, "IN_A_TEAM")


async def test_a_cross_site_request_with_the_cookie_changes_nothing() -> None:
    async with serving(KITS) as server:
        ada = await server.sign_in()
        for headers in ({}, {"origin": "https://elsewhere.example"}):
            refused = await ada.patch("/api/notifications/read-all", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "CSRF")
        assert (await ada.patch("/api/notifications/read-all", headers=OWN)).status_code == 200


async def test_a_refused_visitor_is_sent_to_a_sign_in_page_that_exists() -> None:
    async with serving(KITS) as server:
        refused = await server.browser().get("/api/deadlines")
        assert (refused.status_code, refused.json()["code"]) == (401, "NO_TOKEN")
        assert "/login" in refused.json()["error"]
        assert (await (await server.sign_in()).get("/api/deadlines")).status_code == 200


async def test_a_stream_by_cookie_ends_with_the_session() -> None:
    async with serving(KITS) as server:
        ada = await server.sign_in()
        request = _Connection(server, ada.cookies["sid"])
        from keystead.kits.teamwork.who import sign_in_check

        teamwork = server.app.state.kits["teamwork"]
        who = await teamwork.admit_identity("login:demo.demo-ada", "Ada Lovelace")
        still = sign_in_check(request.connection, who, teamwork)
        assert await still() is True
        await ada.post("/api/auth/logout", headers=OWN)
        assert await still() is False


class _Connection:
    def __init__(self, server: Server, token: str) -> None:
        from starlette.requests import HTTPConnection

        headers = [(b"cookie", f"sid={token}".encode())]
        self.connection = HTTPConnection({"type": "http", "method": "GET", "headers": headers, "app": server.app})


async def test_a_session_cannot_be_revoked_as_a_token() -> None:
    async with serving(KITS) as server:
        ada = await server.sign_in()
        for path in ("/api/tokens/revoke", "/api/tokens/revoke-all"):
            refused = await ada.post(path, headers=OWN)
            assert (refused.status_code, refused.json()["code"]) == (409, "NO_TEAMWORK_TOKEN")


async def test_signed_in_users_do_not_join_the_users_of_an_application() -> None:
    async def load(user: int) -> UserSession | None:
        return PERSON if user == 1 else None

    async with serving([LOGIN, teamwork_kit(load=load)]) as server:
        refused = await (await server.sign_in("1", "Linus")).get("/api/me")
        assert refused.status_code == 401
        assert (await me(server.browser(), **token_of(server, 1)))["name"] == "Ben"


@pytest.mark.parametrize(
    ("id", "name"), [("42", ""), ("é" * 200, "a\nb"), ("a" * 512, "x" * 900), ("43", "\u202eevil"), ("44", "漢字")]
)
async def test_any_identity_and_name_of_a_provider_is_accepted(id: str, name: str) -> None:
    async with serving(KITS) as server:
        browser = await server.sign_in(id, name)
        first = await me(browser)
        assert first["name"].isprintable()
        assert await me(browser) == first
        assert json.dumps(first)


async def test_an_erased_user_who_signs_in_again_is_a_new_user() -> None:
    async with serving(KITS) as server:
        linus = await server.sign_in("42", "Linus")
        before = (await me(linus))["id"]
        teamwork = server.app.state.kits["teamwork"]
        await server.app.state.tables.erase(f"teamwork:{before}")
        await teamwork.keys.user_session(before).delete()
        after = await me(linus)
        assert after["id"] != before
        assert after["name"] == "Linus"
