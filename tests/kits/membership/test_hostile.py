"""Hostile input causes no server error, no access to others' data, and no secret in a response or log."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from keystead.parts.jwt import AccessTokens, SigningKeys
from tests.kits.membership.conftest import BASE, REDIRECT, SECRET, FakePatreon, identity, rows
from tests.kits.membership.visiting import Visit, bearer, signature, visiting
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock

POSTS = (
    "/api/auth/callback",
    "/api/patreon/exchange",
    "/api/session/validate",
    "/api/auth/refresh",
    "/webhook",
    "/api/crash-report",
)
BODIES = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a number": b"7",
    "half": b'{"code": ',
    "no UTF-8": b'{"code": "\xff"}',
    "deep": b"[" * 100_000,
    "deep in a field": b'{"code": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a huge number": b'{"code": 1' + b"0" * 10_000 + b"}",
    "wrong types": b'{"code": {}, "redirect_uri": [], "session_token": 7, "refreshToken": [], "report_id": {}}',
    "twice": b'{"session_token": "a", "session_token": "b"}',
    "NaN": b'{"code": NaN, "refreshToken": NaN}',
    "half of a character": b'{"code": "\\ud800", "redirect_uri": "\\ud800", "session_token": "\\ud800", '
    b'"refreshToken": "\\ud800", "report_id": "\\ud800"}',
    "a NUL": b'{"code": "\\u0000", "redirect_uri": "\\u0000", "session_token": "\\u0000.a", "refreshToken": "\\u0000"}',
    "10 KB": json.dumps(
        dict.fromkeys(("code", "redirect_uri", "session_token", "refreshToken"), "x" * 10_240)
    ).encode(),
    "3 MB": b'{"logs": "' + b"x" * 3_000_000 + b'"}',
}


@pytest.fixture
def clock() -> Clock:
    return Clock(1_790_000_025_000)  # 2026-09-21


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock) -> AsyncIterator[Visit]:
    async with visiting(patreon, now_ms=clock, own={"limits": {"crash_report": 1000}}) as opened:
        yield opened


async def test_malformed_bodies_are_refused_without_a_server_error(visit: Visit) -> None:
    for path in POSTS:
        for name, body in BODIES.items():
            headers = {"content-type": "application/json", "x-patreon-event": "members:pledge:update"}
            told = await visit.http.post(path, content=body, headers=headers | signature(body))
            assert 400 <= told.status_code < 500, (path, name, told.status_code, told.text)
            found = told.json()
            assert found["ok"] is False, (path, name)
            assert len(told.text) < 2_000, (path, name)
    assert await left(visit) == set()


async def left(visit: Visit) -> set[str]:
    """The keys in the store, except those of rate limits and jobs."""
    held = await rows(visit.app.state.stores["default"])
    return {key for key in held if "ratelimit" not in key and not key.startswith("schedule:")}


AUTHORIZATIONS = (
    "",
    "Bearer",
    "Bearer ",
    "bearer \t",
    "Basic YTpi",
    "Bearer a b",
    "Bearer " + "x" * 8_000,
    "Bearer ..",
    "Bearer a.b.c",
    "Bearer " + "A" * 43 + "." + base64.urlsafe_b64encode("a:{b}\n*\0é".encode()).decode().rstrip("="),
    "Bearer " + "A" * 43 + "." + base64.urlsafe_b64encode(b"\xff\xfe").decode().rstrip("="),
    "Bearer " + "A" * 43 + "." + "YWFh" * 1_000,
)


async def test_malformed_headers_are_refused_without_a_server_error(visit: Visit) -> None:
    for method, path in (
        ("GET", "/api/patreon/license-status"),
        ("GET", "/api/quota/status"),
        ("POST", "/api/auth/token"),
        ("POST", "/api/patreon/revoke-all"),
    ):
        for sent in AUTHORIZATIONS:
            told = await visit.http.request(method, path, headers={"authorization": sent})
            assert (told.status_code, told.json()["error_code"]) in ((401, "MISSING_AUTH"), (401, "SESSION_INVALID")), (
                path,
                sent,
                told.text,
            )
    for sent in AUTHORIZATIONS:
        told = await visit.http.post("/api/patreon/revoke", headers={"authorization": sent})
        assert told.status_code in (200, 401), (sent, told.text)


def token_of(header: dict[str, Any], payload: dict[str, Any], key: bytes | None) -> str:
    """A forged token, signed with an attacker's key."""
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (header, payload)]
    signed = b"" if key is None else hmac.digest(key, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(signed).rstrip(b"=")]).decode()


async def test_access_tokens_of_other_keys_issuers_or_audiences_are_refused(patreon: FakePatreon, clock: Clock) -> None:
    own, other = SigningKeys.new_key("EdDSA"), SigningKeys.new_key("EdDSA")
    async with visiting(patreon, now_ms=clock, own={"jwt_keys": f"2026a:{own}"}) as visit:
        token = await visit.sign_in()
        good = (await visit.pair(token))["accessToken"]
        assert (await visit.quota(good)).status_code == 200
        head, body, _ = good.split(".")
        header, payload = (json.loads(base64.urlsafe_b64decode(one + "==")) for one in (head, body))
        [published] = (await visit.http.get("/.well-known/jwks.json")).json()["keys"]
        public = base64.urlsafe_b64decode(published["x"] + "==")

        def ours(keys: str, **named: str) -> str:
            issuer, audience = named.get("issuer", BASE), named.get("audience", "desktop")
            made = AccessTokens(SigningKeys.from_text(keys), issuer=issuer, audience=audience, now_ms=clock)
            claims = {name: payload[name] for name in ("plan", "hasBonusTokens", "ver", "pid", "ses", "chn")}
            return made.issue(payload["sub"], **claims).token

        assert (await visit.quota(ours(f"2026a:{own}"))).status_code == 200
        forged = {
            "alg none": token_of({**header, "alg": "none"}, payload, None),
            "alg NONE with the signature": f"{token_of({**header, 'alg': 'NONE'}, payload, None)}{good.split('.')[2]}",
            "HS256 with the public key": token_of({**header, "alg": "HS256"}, payload, public),
            "HS256 with the published text": token_of({**header, "alg": "HS256"}, payload, published["x"].encode()),
            "HS256 with an empty key": token_of({**header, "alg": "HS256"}, payload, b""),
            "a kid that is a path": token_of({**header, "alg": "HS256", "kid": "../../dev/null"}, payload, b""),
            "a key of its own": token_of({**header, "alg": "HS256", "jwk": {"kty": "oct", "k": ""}}, payload, b""),
            "another key": ours(f"2026a:{other}"),
            "another kid": ours(f"2026b:{own}"),
            "another issuer": ours(f"2026a:{own}", issuer="https://evil.example"),
            "another audience": ours(f"2026a:{own}", audience="mobile"),
            "another user": ".".join((head, _changed(payload, pid="124"), good.split(".")[2])),
            "another plan": ".".join((head, _changed(payload, plan="Ultimate"), good.split(".")[2])),
        }
        for name, made in forged.items():
            told = await visit.quota(made)
            assert (told.status_code, told.json()["error_code"]) == (401, "SESSION_INVALID"), name
        clock.pass_ms(3_600_000 + 61_000)
        assert (await visit.quota(good)).status_code == 401
        assert await visit.works(token)


def _changed(payload: dict[str, Any], **claims: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(payload | claims).encode()).rstrip(b"=").decode()


async def test_access_and_refresh_tokens_are_not_accepted_as_session_tokens(visit: Visit) -> None:
    token = await visit.sign_in()
    pair = await visit.pair(token)
    for other in (pair["accessToken"], pair["refreshToken"]):
        assert not await visit.works(other)
        assert (await visit.http.post("/api/auth/token", headers=bearer(other))).status_code == 401
    assert (await visit.refresh(token)).json()["error_code"] == "INVALID_REFRESH_TOKEN"
    assert (await visit.refresh(pair["accessToken"])).json()["error_code"] == "INVALID_REFRESH_TOKEN"
    assert (await visit.quota(pair["refreshToken"])).status_code == 401


async def test_a_users_token_cannot_read_or_end_another_users_session(visit: Visit) -> None:
    ann, bob = await visit.sign_in("123"), await visit.sign_in("124")
    mixed = f"{ann.partition('.')[0]}.{bob.partition('.')[2]}"
    assert not await visit.works(mixed)
    for path in ("/api/auth/logout", "/api/patreon/revoke", "/api/patreon/revoke-all"):
        await visit.http.post(path, headers=bearer(mixed))
    assert await visit.works(ann)
    assert await visit.works(bob)
    await visit.http.post("/api/patreon/revoke-all", headers=bearer(ann))
    assert await visit.works(bob)


async def test_the_store_holds_no_usable_credential(visit: Visit) -> None:
    token = await visit.sign_in()
    pair = await visit.pair(token)
    for key in await rows(visit.app.state.stores["default"]):
        for piece in (key, key.rpartition(":")[2]):
            assert not await visit.works(piece)
            assert (await visit.refresh(piece)).status_code in (400, 401)
            assert (await visit.quota(piece)).status_code == 401
    assert (await visit.refresh(pair["refreshToken"])).status_code == 200


@pytest.mark.parametrize("sent", [{}, {"authorization": "Basic YTpi"}])
async def test_another_site_cannot_log_a_user_out(visit: Visit, sent: dict[str, str]) -> None:
    """Browsers attach the cookie and proxy credentials to cross-site requests; only our own pages may log out."""
    foreign = {"origin": "https://evil.example", "cookie": "sid=x", **sent}
    assert (await visit.http.post("/api/auth/logout", headers=foreign)).status_code == 403
    own = {"origin": BASE, "accept": "application/json", **sent}
    told = await visit.http.post("/api/auth/logout", headers=own)
    assert told.status_code == 200
    assert "sid=" in told.headers["set-cookie"]


async def test_a_logout_with_cookie_and_bearer_token_ends_the_bearers_session(visit: Visit) -> None:
    token = await visit.sign_in()
    told = await visit.http.post("/api/auth/logout", headers={**bearer(token), "cookie": "sid=x", "origin": BASE})
    assert (told.status_code, told.json()["success"]) == (200, True)
    assert "set-cookie" not in told.headers
    assert not await visit.works(token)


async def test_a_webhook_with_an_invalid_user_id_does_nothing(visit: Visit) -> None:
    strange: list[object] = ["é" * 33, "x" * 200, "1" * 10_240, "a\0b", "\ud800", "", 7, None, [], {}, True]
    for user in strange:
        body = json.dumps({"data": {"relationships": {"user": {"data": {"id": user}}}, "attributes": {}}}).encode()
        headers = {"x-patreon-event": "members:pledge:update", **signature(body)}
        told = await visit.http.post("/webhook", content=body, headers=headers)
        assert (told.status_code, told.json()["processed"]) == (200, False), (user, told.text)


async def test_users_with_unusual_ids_are_isolated(visit: Visit, patreon: FakePatreon) -> None:
    ann = await visit.sign_in("123")
    for user in ("a:b", "{123}", "*", "../..", "usertoken:123", "123:mark", "é", "%00", "a b"):
        patreon.says(answer(identity(user, 900)))
        odd = await visit.sign_in("odd")
        pair = await visit.pair(odd)
        assert (await visit.quota(pair["accessToken"])).json()["plan"] == "Ultimate"
        assert (await visit.http.post("/api/auth/logout", headers=bearer(odd))).status_code == 200
    patreon.says(None)
    assert await visit.works(ann)
    assert len(await left(visit)) == 4  # Ann's session, her row and her caches


async def test_no_secret_is_in_an_answer_a_log_or_a_representation(
    visit: Visit, patreon: FakePatreon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = await visit.sign_in()
    pair = await visit.pair(token)
    next_ = (await visit.refresh(pair["refreshToken"])).json()
    await visit.quota(next_["accessToken"])
    said: list[str] = []
    for trouble in (answer({}, 500), answer(b"<html>"), answer({}, 401)):
        patreon.says(trouble)
        said.append((await visit.http.get("/api/patreon/license-status", headers=bearer(token))).text)
    said.append((await visit.http.post("/api/session/validate", json={"session_token": token * 20})).text)
    said.append((await visit.http.post("/api/session/validate", json={"session_token": [token]})).text)
    said.append((await visit.http.post("/api/auth/refresh", json={"refreshToken": [next_["refreshToken"]]})).text)
    said.append((await visit.http.post("/api/auth/callback", json={"code": "code-123", "redirect_uri": "x"})).text)
    said.append((await visit.http.post("/webhook", content=b"{}", headers={"x-patreon-signature": "0" * 32})).text)
    said.append(repr(visit.members) + repr(visit.members.settings) + repr(visit.members.__dict__))
    said.append(caplog.text)
    secrets = {
        *(token, pair["accessToken"], pair["refreshToken"], next_["accessToken"], next_["refreshToken"]),
        *("access-123-1", "refresh-123", "client secret", SECRET, "code-123"),
        *("ann@example.com", "Ann"),
    }
    for text in said:
        for secret in secrets:
            assert secret not in text, (secret, text)


async def test_metrics_contain_no_user_ids(patreon: FakePatreon, clock: Clock) -> None:
    async with visiting(patreon, now_ms=clock, metrics=True) as visit:
        token = await visit.sign_in()
        await visit.quota(token)
        told = (await visit.http.get("/metrics")).text
        assert "membership" in told
        for secret in (token, "ann@example.com", '"123"', "user:123"):
            assert secret not in told


async def test_an_unlisted_redirect_uri_is_refused_before_the_provider_is_asked(
    visit: Visit, patreon: FakePatreon
) -> None:
    for other in (
        f"{REDIRECT}?next=//evil.example",
        f"{REDIRECT}#x",
        "http://localhost:8080/done/../x",
        "http://localhost:8080@evil.example/done",
        "//localhost:8080/done",
        "javascript:alert(1)",
    ):
        told = await visit.http.post("/api/auth/callback", json={"code": "code-123", "redirect_uri": other})
        assert (told.status_code, told.json()["error_code"]) == (400, "INVALID_REDIRECT_URI")
    assert patreon.server.asked == []


async def test_an_unreadable_row_is_a_refusal_and_not_a_server_error(
    visit: Visit, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a key is missing from the ring, or another program wrote to the store."""
    store = visit.app.state.stores["default"]
    junk = (b"{", b"[]", b'{"accessToken": "sealed.gone.x", "sessionTokens": 7}', b"\xff\xfe")
    for at in range(6):  # the rows of a session, of its user, of its tokens, and three caches
        token = await visit.sign_in()
        pair = await visit.pair(token)
        await visit.quota(token)
        key = sorted(one for one in await left(visit) if one.count(":") <= 1 or one.endswith(":stale"))[at]
        for text in junk:
            await store.run([("SET", key, text, "KEEPTTL", "XX")])
            body = b'{"data": {"relationships": {"user": {"data": {"id": "123"}}}}}'
            event = {"x-patreon-event": "members:pledge:update", **signature(body)}
            answers = [
                await visit.http.post("/api/session/validate", json={"session_token": token}),
                await visit.http.get("/api/patreon/license-status", headers=bearer(token)),
                await visit.quota(pair["accessToken"]),
                await visit.refresh(pair["refreshToken"]),
                await visit.http.post("/api/auth/token", headers=bearer(token)),
                await visit.http.post("/webhook", content=body, headers=event),
                await visit.http.post("/api/patreon/revoke-all", headers=bearer(token)),
                await visit.http.post("/api/auth/logout", headers=bearer(token)),
            ]
            assert {one.status_code for one in answers} <= {200, 401, 503}, (key, text, [one.text for one in answers])
        assert await visit.works(await visit.sign_in()), key  # signing in again repairs it
    assert "Traceback" not in caplog.text


async def test_session_responses_are_not_cacheable(visit: Visit) -> None:
    token = await visit.sign_in()
    pair = await visit.http.post("/api/auth/token", headers=bearer(token))
    for told in (
        pair,
        await visit.refresh(pair.json()["refreshToken"]),
        await visit.refresh("x"),
        await visit.http.post("/api/session/validate", json={"session_token": token}),
        await visit.http.post("/api/session/validate", json={"session_token": "x"}),
        await visit.http.get("/api/patreon/license-status", headers=bearer(token)),
        await visit.quota(token),
        await visit.http.post("/api/auth/callback", json={"code": "code-123", "redirect_uri": REDIRECT}),
        await visit.http.post("/api/auth/logout", headers=bearer(token)),
    ):
        assert told.headers["cache-control"] == "no-store", told.url


# --- crash reports ---------------------------------------------------------------------------------------------


def report(**more: Any) -> dict[str, Any]:
    return {
        "report_id": str(uuid4()),
        "crash_timestamp": "2026-01-18T09:30:00Z",
        "error_message": "it broke",
        "app_version": "1.0",
        "os_version": "11",
        **more,
    }


async def test_a_crash_report_is_validated_truncated_and_stored_once(visit: Visit) -> None:
    long = report(include_logs=True, logs="x" * 200_000, app_version="y" * 100_000, error_message="z\0" * 50_000)
    first = await visit.http.post("/api/crash-report", json=long)
    assert (first.status_code, first.json()["message"]) == (200, "report stored")
    again = await visit.http.post("/api/crash-report", json=long | {"logs": "other"})
    assert (again.status_code, again.json()["message"]) == (200, "this report was already submitted")
    kept = await visit.members.ledger.find_crash_report(UUID(long["report_id"]))
    assert kept is not None
    assert kept.logs is not None
    assert 102_400 < len(kept.logs) < 102_450
    assert len(kept.app_version) <= 256
    assert len(kept.error_message) <= 16_500
    strange: list[object] = [None, 7, [], {}]
    for name in ("report_id", "crash_timestamp", "error_message", "app_version", "os_version"):
        for wrong in strange:
            told = await visit.http.post("/api/crash-report", json=report(**{name: wrong}))
            assert (told.status_code, told.json()["error_code"]) == (400, "VALIDATION_ERROR"), (name, wrong)
            assert name in told.json()["error"]


async def test_logs_are_stored_only_with_consent(visit: Visit) -> None:
    for agreed in (False, None, "no", "false", 0, 1, "true", [], [1], True):
        sent = report(include_logs=agreed, logs="secret", include_system_info=agreed, system_info={"user": "ann"})
        assert (await visit.http.post("/api/crash-report", json=sent)).status_code == 200
        kept = await visit.members.ledger.find_crash_report(UUID(sent["report_id"]))
        assert kept is not None
        assert (kept.logs, kept.system_info) == (("secret", '{"user": "ann"}') if agreed is True else (None, None))


async def test_crash_reports_are_limited_per_address_and_addresses_cannot_be_spoofed(
    patreon: FakePatreon, clock: Clock
) -> None:
    async with visiting(patreon, now_ms=clock, own={"limits": {"crash_report": 2}}) as visit:

        async def sent_from(address: str, **headers: str) -> int:
            async with visit.at(address) as client:
                return (await client.post("/api/crash-report", json=report(), headers=headers)).status_code

        assert [await sent_from("198.51.100.1", **{"x-forwarded-for": f"203.0.113.{n}"}) for n in range(3)] == [
            200,
            200,
            429,
        ]
        assert await sent_from("198.51.100.2") == 200
        # An IPv6 household has 2 ** 64 addresses, which count as one.
        assert [await sent_from(f"2001:db8:1:2::{n}") for n in (1, 2, 3)] == [200, 200, 429]
        assert await sent_from("2001:db8:1:3::1") == 200
        # An IPv4 address that is written as IPv6 is the same.
        assert [await sent_from("::ffff:198.51.100.1"), await sent_from("::ffff:198.51.100.2")] == [429, 200]


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(patreon: FakePatreon, clock: Clock) -> None:
    own = {"limits": {"crash_report": 1}}
    async with visiting(patreon, now_ms=clock, own=own, forwarded_allow=("10.0.0.0/8",)) as visit:

        async def sent(forwarded: str, hop: str = "10.0.0.1") -> int:
            async with visit.at(hop) as client:
                headers = {"x-forwarded-for": forwarded}
                return (await client.post("/api/crash-report", json=report(), headers=headers)).status_code

        assert [await sent("203.0.113.1"), await sent("203.0.113.1"), await sent("203.0.113.2")] == [200, 429, 200]
        # Addresses that the client itself added before the proxy are ignored.
        assert [await sent(f"1.2.3.{n}, 203.0.113.3") for n in (1, 2)] == [200, 429]
        assert [await sent("203.0.113.9", hop="198.51.100.1"), await sent("203.0.113.8", hop="198.51.100.1")] == [
            200,
            429,
        ]


async def test_webhooks_and_sign_ins_have_separate_limits(patreon: FakePatreon, clock: Clock) -> None:
    async with visiting(patreon, now_ms=clock, own={"limits": {"webhook": 1, "sign_in": 1}}) as visit:
        body = b'{"data": {}}'
        headers = {"x-patreon-event": "members:pledge:update", **signature(body)}
        heard = [await visit.http.post("/webhook", content=body, headers=headers) for _ in range(4)]
        sent = {"code": "code-123", "redirect_uri": REDIRECT}
        paths = ("/api/auth/callback", "/api/patreon/exchange") * 2
        signed_in = [await visit.http.post(path, json=sent) for path in paths]
        for answers in (heard, signed_in):
            assert answers[0].status_code == 200
            refused = [one for one in answers if one.status_code == 429]
            assert len(refused) >= 2  # a new window may have begun meanwhile
            assert refused[0].json()["code"] == "RATE_LIMITED"
            assert 0 < int(refused[0].headers["retry-after"]) <= 60
