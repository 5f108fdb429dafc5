"""The relational database: readiness, outages and retention."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest
from sqlalchemy import func, select

from keystead.errors import StoreUnavailable
from keystead.kits.login import KIT as LOGIN
from keystead.kits.membership.service.ledger import month_of
from keystead.kits.membership.service.ledger_records import CrashReport
from keystead.kits.membership.service.tables import CRASH_REPORTS, USAGE_EVENTS
from keystead.parts.schedule import Run
from keystead.server import Settings, create_app
from tests import forking
from tests.kits.membership.asking import BASE
from tests.kits.membership.conftest import FakePatreon
from tests.kits.membership.visiting import SEAL_KEYS, Visit, bearer, signature, visiting
from tests.parts.sessions.conftest import Clock
from tests.serving import environment, free_port

DAY_MS = 86_400_000


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock) -> AsyncIterator[Visit]:
    async with visiting(patreon, now_ms=clock) as opened:
        yield opened


@pytest.fixture
def away(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer."""

    async def nobody(*_: object) -> None:
        raise StoreUnavailable("postgresql://***@10.1.2.3/app does not answer")

    for name in ("read", "write"):
        monkeypatch.setattr(visit.app.state.tables, name, nobody)


async def test_the_server_is_ready_when_the_database_answers(visit: Visit) -> None:
    told = await visit.http.get("/readyz")
    assert (told.status_code, told.json()["database"]) == (200, "ok")
    page = (await visit.http.get("/")).text
    assert "tables" in page


@pytest.mark.usefixtures("away")
async def test_a_database_outage_shows_in_readyz_and_on_the_start_page(visit: Visit) -> None:
    told = await visit.http.get("/readyz")
    assert told.status_code == 503
    assert "10.1.2.3" in told.json()["database"]
    assert told.json()["stores"] == {"default": "ok"}
    assert (await visit.http.get("/healthz")).status_code == 200
    assert "10.1.2.3" in (await visit.http.get("/")).text


async def test_a_kit_without_tables_does_not_mention_a_database() -> None:
    app = create_app(Settings(store="memory://", public_url=BASE, seal_keys=SEAL_KEYS), [LOGIN])
    transport = httpx2.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        assert "database" not in (await client.get("/readyz")).json()


async def test_sessions_work_during_a_database_outage_and_the_rest_is_503(
    visit: Visit, request: pytest.FixtureRequest
) -> None:
    token = await visit.sign_in()
    pair = await visit.pair(token)
    request.getfixturevalue("away")
    assert await visit.works(token)
    assert (await visit.http.get("/api/patreon/license-status", headers=bearer(token))).status_code == 200
    refused = {
        "token": await visit.http.post("/api/auth/token", headers=bearer(token)),
        "refresh": await visit.refresh(pair["refreshToken"]),
        "quota": await visit.quota(token),
        "crash report": await visit.http.post(
            "/api/crash-report",
            json={
                "report_id": str(uuid4()),
                "crash_timestamp": "now",
                "error_message": "",
                "app_version": "1",
                "os_version": "2",
            },
        ),
    }
    for what, told in refused.items():
        assert (told.status_code, told.json()["code"]) == (503, "STORE_UNAVAILABLE"), (what, told.text)
        assert int(told.headers["retry-after"]) >= 1, what
        assert "10.1.2.3" not in told.text, what
    request.getfixturevalue("monkeypatch").undo()
    # Nobody was signed out, and the refresh token was not used up.
    assert (await visit.refresh(pair["refreshToken"])).status_code == 200
    assert await visit.works(token)


async def test_a_webhook_during_a_database_outage_invalidates_the_caches_and_asks_for_a_retry(
    visit: Visit, patreon: FakePatreon, request: pytest.FixtureRequest
) -> None:
    token = await visit.sign_in()
    request.getfixturevalue("away")
    patreon.cents = 900
    body = b'{"data": {"attributes": {"currently_entitled_amount_cents": 900}, "relationships": {"user": {"data": '
    body += b'{"id": "123"}}}}}'
    headers = {"x-patreon-event": "members:pledge:update", **signature(body)}
    told = await visit.http.post("/webhook", content=body, headers=headers)
    assert (told.status_code, told.json()["code"]) == (503, "STORE_UNAVAILABLE")
    valid = await visit.http.post("/api/session/validate", json={"session_token": token})
    assert valid.json()["plan"] == "Ultimate"
    request.getfixturevalue("monkeypatch").undo()
    again = await visit.http.post("/webhook", content=body, headers=headers)
    assert again.json()["planChangeRecorded"] is True


async def test_usage_events_and_crash_reports_expire_and_monthly_sums_stay(visit: Visit, clock: Clock) -> None:
    members = visit.members
    ledger, now_ms = members.ledger, clock()

    def report() -> CrashReport:
        return CrashReport(uuid4(), "then", "it broke", "1", "2")

    for age, event in ((400, "just kept"), (401, "forgotten"), (0, "new")):
        await ledger.record_usage("123", "Pro", event, 7, now_ms - age * DAY_MS)
    kept, old = report(), report()
    await ledger.add_crash_report(kept, now_ms - 90 * DAY_MS)
    await ledger.add_crash_report(old, now_ms - 91 * DAY_MS)
    [job] = members.jobs
    assert job.name == "membership.clean-up"
    found = await members._clean_up(Run(job.name, now_ms, 1))
    assert found == {"usage_events": 1, "crash_reports": 1}
    assert await ledger.find_crash_report(UUID(str(old.report_id))) is None
    assert await ledger.find_crash_report(kept.report_id) == kept
    tables = visit.app.state.tables
    for table, left in ((USAGE_EVENTS, 2), (CRASH_REPORTS, 1)):
        counted = select(func.count()).select_from(table)
        assert await tables.read(lambda connection, asked=counted: connection.execute(asked).scalar()) == left
    old_month = (await ledger.usage("123", month_of(now_ms - 401 * DAY_MS))).tokens_used
    assert old_month >= 7  # the usage event is deleted, and the monthly sum is not
    assert await members._clean_up(Run(job.name, now_ms, 2)) == {"usage_events": 0, "crash_reports": 0}


async def test_one_run_deletes_more_than_one_batch(visit: Visit, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keystead.kits.membership.service.members._BATCH", 2)
    for number in range(5):
        await visit.members.ledger.record_usage("123", "Pro", f"e{number}", 1, clock() - 500 * DAY_MS)
    assert (await visit.members._clean_up(Run("membership.clean-up", clock(), 1)))["usage_events"] == 5


def test_an_unusable_database_url_stops_startup_with_a_one_line_error(tmp_path: Path) -> None:
    for url in ("redis://ann:secret@127.0.0.1/0", "postgresql://ann:secret@127.0.0.1:1/app", "nonsense"):
        env = environment(
            {"KEYSTEAD_STORE": "sqlite:///app.db", "KEYSTEAD_DATABASE": url, "KEYSTEAD_KITS": "membership"}
        )
        served = forking.run(("serve", "--port", str(free_port())), tmp_path, env)
        assert served.returncode != 0
        assert "Traceback" not in served.stderr
        assert "secret" not in served.stderr.replace("keystead.secrets.toml", "").replace("seal secrets", "")
        assert [line for line in served.stderr.splitlines() if line.startswith("keystead:")], served.stderr
