"""Translations are forwarded to the configured service and counted, or neither."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead.errors import StoreUnavailable
from tests.kits.membership.conftest import FakePatreon, on_servers
from tests.kits.membership.visiting import Visit, bearer, visiting
from tests.parts.oauth.stand_in import StandIn, answer, stand_in
from tests.parts.sessions.conftest import Clock

SEPTEMBER = datetime(2026, 9, 21, tzinfo=UTC)
OCTOBER_S = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp())
PRO = 10_000_000
ASKED = {"text": "こんにちは", "to": "ko"}


def translated(tokens: object, **more: Any) -> bytes:
    return answer({"translated_text": "안녕하세요", "usage": {"total_tokens": tokens}, **more})


@pytest.fixture
def clock() -> Clock:
    return Clock(int(SEPTEMBER.timestamp()) * 1000)


@pytest.fixture
async def service() -> AsyncIterator[StandIn]:
    async with stand_in() as server:
        server.answers["/translate"] = translated(120)
        yield server


@pytest.fixture
async def visit(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path, service: StandIn
) -> AsyncIterator[Visit]:
    async with opened(patreon, clock, urls, tmp_path, service) as found:
        yield found


@asynccontextmanager
async def opened(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str], folder: Path, service: StandIn, **more: Any
) -> AsyncIterator[Visit]:
    own = {"translate_url": f"{service.url}/translate", "translate_key": "upstream key", "limits": {"translate": 0}}
    settings = {"store": urls["default"], "database": f"sqlite:///{folder}/rows.db"}
    async with visiting(patreon, now_ms=clock, own=own | more, **settings) as found:
        yield found


async def translate(visit: Visit, token: str, body: object = ASKED) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json", "cookie": "sid=secret", **bearer(token)}
    return await visit.http.post("/api/translate", content=content, headers=headers)


async def used(visit: Visit, token: str) -> int:
    found: int = (await visit.quota(token)).json()["monthly_usage"]["tokens_used"]
    return found


def refusal(told: httpx2.Response) -> tuple[int, str, bool]:
    found = told.json()
    assert (found["ok"], found["success"], found["error_code"]) == (False, False, found["code"])
    assert found["request_id"] == told.headers["x-request-id"]
    return told.status_code, found["code"], found["is_retryable"]


@on_servers
async def test_a_translation_is_forwarded_unchanged_and_counted(visit: Visit, service: StandIn) -> None:
    token = await visit.sign_in()
    access = (await visit.pair(token))["accessToken"]
    told = await translate(visit, access)
    assert (told.status_code, told.json()["translated_text"]) == (200, "안녕하세요")
    assert told.headers["content-type"] == "application/json"
    assert (told.headers["x-tokens-used"], told.headers["x-ratelimit-remaining"]) == ("120", str(PRO - 120))
    assert await used(visit, token) == 120
    [(path, sent)] = service.asked
    assert path == "/translate"
    assert sent.endswith(json.dumps(ASKED))
    assert "Bearer upstream key" in sent
    for own in (access, token, "sid=secret", "192.0.2.7"):
        assert own not in sent
    # The same request again is charged again.
    await translate(visit, access)
    assert await used(visit, token) == 240


@on_servers
async def test_the_header_of_the_key_and_the_path_of_the_token_count_are_configurable(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path, service: StandIn
) -> None:
    service.answers["/translate"] = answer({"usageMetadata": {"totalTokenCount": 7}})
    more = {"translate_header": "x-goog-api-key", "translate_tokens": "usageMetadata.totalTokenCount"}
    async with opened(patreon, clock, urls, tmp_path, service, **more) as visit:
        token = await visit.sign_in()
        assert (await translate(visit, token)).headers["x-tokens-used"] == "7"
        assert "x-goog-api-key: upstream key" in service.asked[0][1]


@on_servers
async def test_without_tokens_nothing_is_forwarded(visit: Visit, patreon: FakePatreon, service: StandIn) -> None:
    patreon.cents = 0
    token = await visit.sign_in()
    told = await translate(visit, token)
    assert refusal(told) == (403, "PLAN_NOT_SUPPORTED", False)
    assert service.asked == []
    await visit.members.usage.grant_bonus("123", "gift", 100, "gift")
    assert (await translate(visit, token)).status_code == 200  # 120: more than were left, and the last one
    assert refusal(await translate(visit, token))[1] == "PLAN_NOT_SUPPORTED"
    assert len(service.asked) == 1


@on_servers
async def test_an_exhausted_quota_reports_when_the_next_month_begins(
    visit: Visit, service: StandIn, clock: Clock
) -> None:
    token = await visit.sign_in()
    who = await visit.members.entitled(token)
    await visit.members.record_usage(who, "e1", PRO)
    told = await translate(visit, token)
    assert refusal(told) == (429, "QUOTA_EXCEEDED", False)
    assert int(told.headers["retry-after"]) == OCTOBER_S - clock() // 1000
    assert told.headers["x-ratelimit-reset"] == str(OCTOBER_S)
    assert told.json()["monthly_usage"] == {
        "year_month": "2026-09",
        "tokens_used": PRO,
        "tokens_limit": PRO,
        "is_exceeded": True,
    }
    assert service.asked == []
    clock.pass_ms((OCTOBER_S - clock() // 1000) * 1000)
    assert (await translate(visit, token)).status_code == 200
    assert await used(visit, token) == 120


@on_servers
async def test_50_concurrent_translations_are_all_counted(visit: Visit) -> None:
    token = await visit.sign_in()
    found = await asyncio.gather(*(translate(visit, token) for _ in range(50)))
    assert {one.status_code for one in found} == {200}
    assert await used(visit, token) == 50 * 120


@on_servers
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (answer({"error": "secret detail"}, 400), (400, "VALIDATION_ERROR", False)),
        (answer({}, 401), (502, "API_ERROR", False)),
        (answer({}, 402), (402, "PAYMENT_REQUIRED", False)),
        (answer({}, 429, "retry-after: 77\r\n"), (429, "RATE_LIMITED", True)),
        (answer({}, 500), (502, "API_ERROR", True)),
        (answer({}, 302, "location: http://127.0.0.1:1/\r\n"), (502, "API_ERROR", False)),
        (b"nonsense\r\n\r\n", (502, "NETWORK_ERROR", True)),
        (answer(b"<html>"), (502, "API_ERROR", False)),
        (answer({"usage": {}}), (502, "API_ERROR", False)),
        (translated(-5), (502, "API_ERROR", False)),
        (translated("120"), (502, "API_ERROR", False)),
        (translated(True), (502, "API_ERROR", False)),
        (answer(b"[" * 100_000), (502, "API_ERROR", False)),
    ],
)
async def test_a_refused_translation_costs_nothing_and_hides_the_services_message(
    visit: Visit, service: StandIn, said: bytes, told: tuple[int, str, bool]
) -> None:
    token = await visit.sign_in()
    service.answers["/translate"] = said
    found = await translate(visit, token)
    assert refusal(found) == told
    assert "secret detail" not in found.text
    assert found.headers.get("retry-after") == ("77" if told[0] == 429 else None)
    assert await used(visit, token) == 0


@on_servers
async def test_a_slow_translation_service_is_a_timeout(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path, service: StandIn
) -> None:
    del service.answers["/translate"]
    async with opened(patreon, clock, urls, tmp_path, service, translate_timeout="50ms") as visit:
        token = await visit.sign_in()
        assert refusal(await translate(visit, token)) == (504, "TIMEOUT", True)


@on_servers
async def test_a_body_that_is_not_a_json_object_is_not_forwarded(visit: Visit, service: StandIn) -> None:
    token = await visit.sign_in()
    for body in (b"", b"[]", b"7", b"{", b"\xff", b"[" * 100_000, b'{"a":' * 100_000):
        assert refusal(await translate(visit, token, body)) == (400, "VALIDATION_ERROR", False)
    assert refusal(await translate(visit, "a.b.c"))[:2] == (401, "SESSION_INVALID")
    assert service.asked == []


@on_servers
async def test_a_translation_without_a_token_count_is_refused(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await visit.sign_in()

    async def away(*_: object) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(visit.members.ledger, "record_usage", away)
    told = await translate(visit, token)
    assert (told.status_code, told.json()["error_code"]) == (503, "STORE_UNAVAILABLE")
    assert "안녕하세요" not in told.text


@on_servers
async def test_a_translation_is_counted_even_if_the_client_disconnects(visit: Visit, service: StandIn) -> None:
    token = await visit.sign_in()
    answers = service.holds("/translate")
    task = asyncio.create_task(visit.members.translation.translate(token, json.dumps(ASKED).encode()))
    while not service.asked:  # noqa: ASYNC110 - what it waits for is a request over a socket
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answers()
    await visit.members.translation.finish()
    assert await used(visit, token) == 120


@on_servers
async def test_without_translate_url_translations_get_503_without_retry_after(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path, service: StandIn
) -> None:
    async with opened(patreon, clock, urls, tmp_path, service, translate_url=None) as visit:
        told = await translate(visit, await visit.sign_in())
        assert refusal(told) == (503, "NOT_IMPLEMENTED", False)
        assert "retry-after" not in told.headers
