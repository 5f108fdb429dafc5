"""Stolen and forged tokens over HTTP: revocation, security log and responses."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from keystead.parts.jwt import AccessTokens, SigningKeys
from tests.kits.membership.conftest import BASE, FakePatreon, on_servers
from tests.kits.membership.visiting import Visit, bearer, visiting
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock

SECRET = "a secret that other programs have, too"


@pytest.fixture
def clock() -> Clock:
    return Clock(1_790_000_025_000)


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path) -> AsyncIterator[Visit]:
    settings = {"store": urls["default"], "database": f"sqlite:///{tmp_path}/rows.db"}
    async with visiting(patreon, now_ms=clock, own={"jwt_secret": SECRET}, **settings) as opened:
        yield opened


def security(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The fields of the logged security events of a kind."""
    found = (one for one in caplog.records if one.name == "keystead.security")
    return [vars(one) for one in found if vars(one).get("event") == event]


async def stolen(visit: Visit) -> tuple[str, list[str], str]:
    """A session, all access tokens of its chain, and a refresh token that is two generations old."""
    token = await visit.sign_in()
    first = await visit.pair(token)
    second = (await visit.refresh(first["refreshToken"])).json()
    third = (await visit.refresh(second["refreshToken"])).json()
    return token, [one["accessToken"] for one in (first, second, third)], first["refreshToken"]


@on_servers
async def test_a_reused_refresh_token_revokes_its_chain_and_access_tokens(visit: Visit) -> None:
    token, access, old = await stolen(visit)
    assert [(await visit.quota(one)).status_code for one in access] == [200] * 3
    reused = await visit.refresh(old)
    assert (reused.status_code, reused.json()["error_code"]) == (401, "INVALID_REFRESH_TOKEN")
    for path in ("/api/quota/status", "/api/sync/init", "/api/bonus-tokens/status", "/api/promotion/status"):
        assert [(await visit.http.get(path, headers=bearer(one))).status_code for one in access] == [401] * 3, path
    # Nor can a thief use one to sign its owner out.
    for path in ("/api/auth/logout", "/api/patreon/revoke", "/api/patreon/revoke-all"):
        await visit.http.post(path, headers=bearer(access[-1]))
    assert await visit.works(token)
    assert (await visit.quota((await visit.pair(token))["accessToken"])).status_code == 200


@on_servers
async def test_reuse_is_logged_with_user_and_chain(visit: Visit, caplog: pytest.LogCaptureFixture) -> None:
    _, access, old = await stolen(visit)
    chain = json.loads(base64.urlsafe_b64decode(access[0].split(".")[1] + "=="))["chn"]
    await visit.refresh(old)
    [noted] = security(caplog, "refresh-reused")
    assert {name: noted[name] for name in ("user", "chain", "reason", "client")} == {
        "user": "123",
        "chain": chain,
        "reason": "stale",
        "client": "192.0.2.7",
    }
    assert noted["levelno"] == logging.WARNING
    assert old not in caplog.text
    await visit.refresh(old)
    assert [one["reason"] for one in security(caplog, "refresh-reused")] == ["stale", "ended"]


@on_servers
async def test_reuse_is_detected_while_the_provider_is_down(visit: Visit, patreon: FakePatreon) -> None:
    _, access, old = await stolen(visit)
    await visit.members.invalidate_membership("123")
    patreon.says(answer({}, 500))
    assert (await visit.refresh(old)).json()["error_code"] == "INVALID_REFRESH_TOKEN"
    patreon.says(None)
    assert [(await visit.quota(one)).status_code for one in access] == [401] * 3


@on_servers
async def test_no_access_token_survives_50_refreshes_concurrent_with_a_reuse(visit: Visit) -> None:
    token, _, old = await stolen(visit)
    newest = await visit.pair(token)
    chains = [newest, *[(await visit.refresh(newest["refreshToken"])).json()]]
    chains.append((await visit.refresh(chains[-1]["refreshToken"])).json())
    asked = [visit.refresh(chains[-1]["refreshToken"]) for _ in range(50)]
    asked.insert(25, visit.refresh(newest["refreshToken"]))  # two generations old: it was stolen
    found = await asyncio.gather(*asked)
    minted = [one.json()["accessToken"] for one in found if one.status_code == 200]
    for access in {*minted, *(one["accessToken"] for one in chains)}:
        assert (await visit.quota(access)).status_code == 401
    assert (await visit.refresh(old)).status_code == 401


@on_servers
async def test_a_new_pair_revokes_the_previous_access_token(visit: Visit) -> None:
    token = await visit.sign_in()
    before, after = (await visit.pair(token))["accessToken"], (await visit.pair(token))["accessToken"]
    assert [(await visit.quota(one)).status_code for one in (before, after)] == [401, 200]


@on_servers
async def test_a_forged_token_is_a_security_event_and_gets_a_challenge(
    visit: Visit, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "keystead.security")
    good = (await visit.pair(await visit.sign_in()))["accessToken"]
    head, body, signature = good.split(".")
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "x", "typ": "at+jwt"}).encode()).decode()
    other = AccessTokens(SigningKeys.from_secret("another" * 8), issuer=BASE, audience="desktop", now_ms=clock)
    forged = {
        "signature": f"{head}.{body}.{'A' * len(signature)}",
        "key": other.issue("42", pid="123").token,
        "malformed": "a.b.c.d",
    }
    for reason, token in {**forged, "key ": f"{none.rstrip('=')}.{body}."}.items():
        caplog.clear()
        told = await visit.quota(token or "x")
        assert (told.status_code, told.json()["error_code"]) == (401, "SESSION_INVALID"), reason
        assert told.headers["www-authenticate"] == 'Bearer realm="membership", error="invalid_token"'
        [noted] = security(caplog, "refused-token")
        assert (noted["levelno"], noted["client"]) == (logging.WARNING, "192.0.2.7")
        assert reason == "key " or noted["reason"] == reason
        assert token not in caplog.text
    caplog.clear()
    await visit.http.post("/api/auth/logout", headers=bearer(forged["signature"]))
    assert len(security(caplog, "refused-token")) == 1
    clock.pass_ms(3_700_000)
    caplog.clear()
    assert (await visit.quota(good)).status_code == 401
    assert [one["levelno"] for one in security(caplog, "refused-token")] == [logging.INFO]  # an honest client


@on_servers
async def test_a_request_without_a_token_gets_a_challenge(visit: Visit) -> None:
    told = await visit.http.get("/api/quota/status")
    assert (told.status_code, told.headers["www-authenticate"]) == (401, 'Bearer realm="membership"')


@on_servers
async def test_malformed_claims_are_refused_without_a_server_error(visit: Visit, clock: Clock) -> None:
    """Other programs share the secret, and may sign any claims."""
    good = (await visit.pair(await visit.sign_in()))["accessToken"]
    claims = json.loads(base64.urlsafe_b64decode(good.split(".")[1] + "=="))
    key = SigningKeys.from_secret(SECRET).current
    odd: list[Any] = [
        *("", "x" * 300, "x" * 5_000, "a\0b", "\ud800", "é" * 33, "a\nb", "123 ", "\u202e1"),
        *(None, 7, -1, 1.5, True, [], {}, ["123"], {"a": [[[]]]}),
    ]
    for name in ("sub", "pid", "ses", "chn", "jti", "iss", "aud", "iat", "exp", "nbf"):
        for value in odd:
            if (name, value) in (("jti", "é" * 33), ("jti", "123 "), ("iat", 7), ("nbf", 7)):
                continue  # these are allowed
            payload = json.dumps({**claims, name: value}).encode()
            token = key.sign({"alg": "HS256", "kid": key.id, "typ": "at+jwt"}, payload)
            told = await visit.quota(token)
            assert told.status_code == 401, (name, value, told.text)
    deep = b'{"pid": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"
    told = await visit.quota(key.sign({"alg": "HS256", "kid": key.id, "typ": "at+jwt"}, deep))
    assert told.status_code == 401
