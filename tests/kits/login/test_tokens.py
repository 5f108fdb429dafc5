"""Tokens for programs: a session is exchanged for a JWT and a refresh token, valid as long as the session."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import urlsafe_b64decode
from typing import Any

import httpx2
import pytest

from keystead.kits.login import KIT as LOGIN
from keystead.kits.membership import KIT as MEMBERSHIP
from tests.every_store import on_urls, redis_server, urls
from tests.kits.conftest import Raw
from tests.kits.signing_in import OWN, Server, serving
from tests.kits.test_signed_in import NOTES

__all__ = ["redis_server", "urls"]

pytestmark = on_urls("sqlite", "redis")
HOUR = 3600


async def exchanged(browser: httpx2.AsyncClient) -> dict[str, Any]:
    answer = await browser.post("/api/auth/token", headers=OWN)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    told: dict[str, Any] = answer.json()
    assert told.keys() == {"accessToken", "refreshToken", "expiresIn", "tokenType"}
    assert told["tokenType"] == "Bearer"
    return told


def bearer(pair: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {pair['accessToken']}"}


async def refreshed(program: httpx2.AsyncClient, pair: dict[str, Any]) -> httpx2.Response:
    return await program.post("/api/auth/refresh", json={"refreshToken": pair["refreshToken"]})


async def knows(server: Server, pair: dict[str, Any]) -> bool:
    answer = await server.browser().get("/notes/mine", headers=bearer(pair))
    assert answer.status_code in (200, 401), answer.text
    return answer.status_code == 200


async def audited(server: Server) -> list[tuple[str, str]]:
    entries = await server.app.state.kits["login"].keys.audit().entries()
    return [(one.item.event, one.item.who) for one in entries]


async def test_the_longest_user_id_gets_tokens(urls: dict[str, str]) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        ada, eve = await server.sign_in("demo." + "a" * 255, "Ada"), await server.sign_in("demo." + "a" * 254, "Eve")
        pair, program = await exchanged(ada), server.browser()
        mine = (await ada.get("/notes/mine")).json()
        assert (await program.get("/notes/mine", headers=bearer(pair))).json() == mine
        assert (await eve.get("/notes/mine")).json() != mine
        again = await refreshed(program, pair)
        assert (await program.get("/notes/mine", headers=bearer(again.json()))).json() == mine
        await ada.post("/api/auth/logout", headers=OWN)
        assert not await knows(server, again.json())


async def test_cookie_and_token_identify_the_same_user(urls: dict[str, str]) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        ada, program = await server.sign_in("42", "Ada Lovelace"), server.browser()
        pair = await exchanged(ada)
        assert pair["expiresIn"] == HOUR
        for path in ("/notes/who", "/api/auth/me"):
            assert (await program.get(path, headers=bearer(pair))).json() == (await ada.get(path)).json()
        # No page makes this request, so it needs no token against forgery.
        assert (await program.put("/notes/mine", headers=bearer(pair))).json()["subject"] == "login:42"


async def test_only_a_page_of_this_site_can_exchange_a_session(urls: dict[str, str]) -> None:
    async with serving([LOGIN], store=urls["default"]) as server:
        ada = await server.sign_in()
        for headers in ({}, {"origin": "https://elsewhere.example"}):
            assert (await ada.post("/api/auth/token", headers=headers)).json()["code"] == "CSRF"
        nobody = await server.browser().post("/api/auth/token", headers=OWN)
        assert (nobody.status_code, nobody.json()["code"]) == (401, "NOT_LOGGED_IN")


async def test_a_refresh_yields_the_next_pair_and_a_retry_the_same(urls: dict[str, str]) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        program = server.browser()
        first = await exchanged(await server.sign_in())
        server.clock.pass_ms((HOUR + 10) * 1000)
        assert not await knows(server, first)
        second = (await refreshed(program, first)).json()
        assert await knows(server, second)
        again = (await refreshed(program, first)).json()
        assert again["refreshToken"] == second["refreshToken"]


async def test_fifty_concurrent_refreshes_get_one_successor(urls: dict[str, str]) -> None:
    async with serving([LOGIN], store=urls["default"], login={"limits": {"token": 0}}) as server:
        program = server.browser()
        first = await exchanged(await server.sign_in())
        answers = await asyncio.gather(*(refreshed(program, first) for _ in range(50)))
        assert {one.status_code for one in answers} == {200}
        assert len({one.json()["refreshToken"] for one in answers}) == 1


async def test_refresh_token_reuse_ends_the_access_tokens(
    urls: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        ada, program = await server.sign_in("42"), server.browser()
        first, other = await exchanged(ada), await exchanged(ada)
        second = (await refreshed(program, first)).json()
        server.clock.pass_ms(60_000)
        with caplog.at_level(logging.WARNING, "keystead.security"):
            stolen = await refreshed(program, first)
        assert (stolen.status_code, stolen.json()["code"]) == (401, "INVALID_REFRESH_TOKEN")
        told = [one.__dict__ for one in caplog.records if one.name == "keystead.security"]
        assert [(one["event"], one["user"]) for one in told] == [("refresh-reused", "42")]
        assert (await audited(server))[-1] == ("refresh-reused", "login:42")
        assert (await refreshed(program, second)).status_code == 401
        assert not await knows(server, second)
        assert await knows(server, other)  # that of another program


@pytest.mark.parametrize("path", ["/api/auth/logout", "/api/auth/logout-all"])
async def test_a_sign_out_ends_the_tokens_of_the_session(urls: dict[str, str], path: str) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        ada, program = await server.sign_in(), server.browser()
        pair = await exchanged(ada)
        assert (await ada.post(path, headers=OWN)).status_code == 200
        assert not await knows(server, pair)
        assert (await refreshed(program, pair)).status_code == 401


async def test_fifty_exchanges_during_a_sign_out_leave_no_token(urls: dict[str, str]) -> None:
    limits = {"limits": {"token": 0, "logout": 0}}
    async with serving([LOGIN, NOTES], store=urls["default"], login=limits) as server:
        ada, program = await server.sign_in(), server.browser()
        pairs = [await exchanged(ada) for _ in range(10)]
        asked = [ada.post("/api/auth/token", headers=OWN) for _ in range(50)]
        renewed = [refreshed(program, pair) for pair in pairs]
        answers = await asyncio.gather(*asked[:25], ada.post("/api/auth/logout", headers=OWN), *asked[25:], *renewed)
        issued = [one.json() for one in answers if one.status_code == 200 and "accessToken" in one.json()]
        for pair in [*pairs, *issued]:
            assert not await knows(server, pair)
            assert (await refreshed(program, pair)).status_code == 401


async def test_a_program_sign_out_keeps_the_session(urls: dict[str, str]) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        ada, program = await server.sign_in(), server.browser()
        pair, other = await exchanged(ada), await exchanged(ada)
        assert (await program.post("/api/auth/logout", headers=bearer(pair))).status_code == 200
        assert not await knows(server, pair)
        assert (await refreshed(program, pair)).status_code == 401
        assert await knows(server, other)
        assert (await ada.get("/notes/mine")).status_code == 200
        events = [event for event, _ in await audited(server)]
        assert events == ["signed-in", "program-signed-in", "program-signed-in", "program-signed-out"]


async def test_a_foreign_token_does_not_prevent_a_sign_out(urls: dict[str, str]) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        ada = await server.sign_in()
        other = {"authorization": "Bearer of.another.issuer"}
        assert (await ada.post("/api/auth/logout", headers=other)).json()["code"] == "CSRF"
        assert (await ada.post("/api/auth/logout", headers=other | OWN)).status_code == 200
        assert (await ada.get("/notes/mine")).status_code == 401


@pytest.mark.parametrize("sent", ["\ud800", "\0", "x" * 1024, "a.0.b", "." * 50, "é"])
async def test_an_invalid_refresh_token_is_refused(urls: dict[str, str], sent: str) -> None:
    for kits in ([LOGIN], [LOGIN, MEMBERSHIP]):
        async with serving(kits, store=urls["default"]) as server:
            body = json.dumps({"refreshToken": sent}).encode()
            headers = {"content-type": "application/json"}
            refused = await server.browser().post("/api/auth/refresh", content=body, headers=headers)
            assert refused.status_code in (400, 401), refused.text


async def test_tokens_end_when_their_session_expires(urls: dict[str, str]) -> None:
    table = {"idle": "30m", "absolute": "40m", "token_lifetime": "2h"}
    async with serving([LOGIN, NOTES], store=urls["default"], login=table) as server:
        pair = await exchanged(await server.sign_in())
        server.clock.pass_ms(29 * 60_000)
        assert await knows(server, pair)  # and that was a use of the session
        server.clock.pass_ms(10 * 60_000)
        assert await knows(server, pair)
        server.clock.pass_ms(61_000)
        assert not await knows(server, pair)
        assert (await refreshed(server.browser(), pair)).status_code == 401


async def test_no_token_is_in_the_store(urls: dict[str, str]) -> None:
    async with serving([LOGIN], store=urls["default"]) as server:
        ada = await server.sign_in()
        first = await exchanged(ada)
        second = (await refreshed(server.browser(), first)).json()
        held = await Raw(server.app.state.stores["default"]).everything()
        for secret in (*first["refreshToken"].split("."), *second["refreshToken"].split("."), first["accessToken"]):
            assert len(secret) < 10 or secret.encode() not in held
        payload = first["accessToken"].split(".")[1]
        claims = json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        assert ada.cookies["sid"] not in json.dumps(claims)


async def test_two_kits_exchange_their_own_sessions_at_one_route(urls: dict[str, str]) -> None:
    async with serving([LOGIN, MEMBERSHIP, NOTES], store=urls["default"]) as server:
        ada, program = await server.sign_in("42"), server.browser()
        pair = await exchanged(ada)
        assert await knows(server, pair)
        second = await refreshed(program, pair)
        assert second.status_code == 200
        # What a member has is none of this kit's, and the other way round.
        refused = await program.get("/api/quota/status", headers=bearer(pair))
        assert refused.status_code == 401
        missing = await program.post("/api/auth/token")
        assert (missing.status_code, missing.json()["code"]) == (401, "MISSING_AUTH")
        unknown = await program.post("/api/auth/refresh", json={"refreshToken": "x" * 40})
        assert (unknown.status_code, unknown.json()["code"]) == (401, "INVALID_REFRESH_TOKEN")
        assert (await program.post("/api/auth/logout", headers=bearer(second.json()))).status_code == 200
        assert not await knows(server, second.json())


@pytest.mark.parametrize("wrong", ["sid", "chain", "sub"])
async def test_a_token_for_another_users_session_is_invalid(urls: dict[str, str], wrong: str) -> None:
    async with serving([LOGIN, NOTES], store=urls["default"]) as server:
        login = server.app.state.kits["login"]
        owner = login.tokens.verify((await exchanged(await server.sign_in("42")))["accessToken"])
        other = login.tokens.verify((await exchanged(await server.sign_in("43")))["accessToken"])
        fields = {"sub": owner.user, "sid": owner.session, "chain": owner.chain}
        fields[wrong] = {"sub": other.user, "sid": other.session, "chain": other.chain}[wrong]
        forged = login.tokens._access.issue(fields.pop("sub"), **fields).token
        assert not await knows(server, {"accessToken": forged})
        for odd in ({}, {"sid": 1, "chain": owner.chain}, {"sid": "*", "chain": "?"}, {"sid": owner.session}):
            assert not await knows(server, {"accessToken": login.tokens._access.issue("42", **odd).token})
