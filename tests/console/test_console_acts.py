"""What people do in the console to many keys, jobs, queues, sessions and limits: planned, confirmed, and in the log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import connect
from keystead.console.console_keys import ConsoleKeys
from keystead.http.routing import KitRouter
from keystead.kits.identity import SignedInUser, SignIn
from keystead.kits.kit import Kit
from keystead.parts.outbox import OutboxKeys, QueueName
from keystead.parts.outbox.outbox_keys import StoredMessage
from keystead.parts.outbox.queue_control import QueueControl
from keystead.schema import Keyspace, Value, after
from keystead.schema.doctor import examine, repair
from keystead.schema.restart import restart_lifetime, undo_restart
from keystead.schema.times import moment, now_ms
from tests.console.console_browser import HttpBrowser, opened
from tests.console.shop_keys import HOSTILE, fill, shop_limit, shop_sessions

QUEUE = QueueName("webhook", "orders")
TYPED = "again"


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBrowser]:
    async with opened(tmp_path, monkeypatch, ["tests.console.shop_keys:ShopKeys"]) as (app, access):
        keys = await fill(app.state.stores["default"], carts=8, orphans=4)
        yield HttpBrowser(app, access, keys)


async def text_when(browser: HttpBrowser, path: str, is_there: Callable[[str], bool]) -> str:
    """The page, once the work in the background is so far."""
    async with asyncio.timeout(60):
        while not is_there(text := (await browser.get(path)).text):
            pass
    return str(text)


async def finished(browser: HttpBrowser, kind: str) -> str:
    await browser.app.state.kits["console"].tasks.settle()
    return str((await browser.get(f"/console/task/{kind}")).text)


async def events(browser: HttpBrowser) -> list[str]:
    return [entry.event for entry in await browser.access.audit.latest(50)]


async def leave(browser: HttpBrowser) -> None:
    await browser.post("/console/leave")


async def expire(browser: HttpBrowser) -> None:
    """End the session as time does: its key is gone, and nothing else changes."""
    store = browser.keys.draft.store
    [(_, sessions)] = await store.run([("SCAN", "0", "MATCH", "keystead:console:session:*", "COUNT", 1000)])
    await store.run([("PEXPIRE", key, 1) for key in sessions])
    async with asyncio.timeout(30):
        while any(await store.run([("EXISTS", key) for key in sessions])):
            pass


async def test_all_findings_of_a_code_are_repaired_after_a_plan_and_its_typed_name(shop: HttpBrowser) -> None:
    await shop.enter("admin")
    path = "/console/findings/repair?code=orphan"
    assert (await shop.get(path)).status_code == 404  # nothing was examined yet
    await shop.post("/console/findings/examine")
    assert 'data-state="done"' in await finished(shop, "examine")
    assert "code-orphan" in (await shop.get("/console/findings")).text
    plan = (await shop.get(path)).text
    assert "ShopKeys.draft, 4: delete" in plan
    assert "More than 1 % of ShopKeys.draft" in plan
    assert (await shop.post(path)).status_code == 200
    assert (await shop.post(path, again="orphans")).status_code == 422
    assert await shop.keys.draft("gone-1").exists()
    one = await shop.post(f"{path}&key=shop:draft:gone-1", again="draft")
    assert one.status_code == 303
    await finished(shop, "repair")
    assert [await shop.keys.draft(f"gone-{number}").exists() for number in range(4)] == [True, False, True, True]
    assert (await shop.post(path, again="orphan")).status_code == 303
    done = await finished(shop, "repair")
    assert '<dd id="fixed">3</dd>' in done
    assert not await shop.keys.draft("gone-0").exists()
    assert await shop.keys.draft("1").get() == "two lamps, one table"
    assert "code-orphan" not in (await shop.get("/console/findings")).text
    assert (await events(shop))[:2] == ["console-repaired", "console-repaired"]


async def test_more_than_was_confirmed_is_not_repaired(shop: HttpBrowser) -> None:
    await shop.enter("admin")
    await shop.post("/console/findings/examine")
    await finished(shop, "examine")
    await shop.keys.draft("gone-later").set("nobody's")
    await shop.post("/console/findings/repair?code=orphan", again="orphan")
    assert "Nothing was repaired" in await finished(shop, "repair")
    assert await shop.keys.draft("gone-0").exists()


@pytest.mark.parametrize("end", [leave, expire])
async def test_a_bulk_repair_stops_when_its_session_ends_and_says_what_was_done(
    shop: HttpBrowser, monkeypatch: pytest.MonkeyPatch, end: Callable[[HttpBrowser], Awaitable[None]]
) -> None:
    await shop.enter("admin")
    await shop.post("/console/findings/examine")
    await finished(shop, "examine")
    # The second repair waits until its task is cancelled, which happens as soon as the session is gone.
    store = shop.keys.draft.store
    real, count, blocked = store.atomically, 0, asyncio.Event()

    async def atomically(steps: Any) -> Any:
        nonlocal count
        if any(b"gone-" in str(step).encode() and "DEL" in str(step) for step in steps):
            count += 1
            if count > 1:
                blocked.set()
                await asyncio.Event().wait()
        return await real(steps)

    monkeypatch.setattr(store, "atomically", atomically)
    await shop.post("/console/findings/repair?code=orphan", again="orphan")
    async with asyncio.timeout(60):
        await blocked.wait()
    await end(shop)
    asked = await shop.get("/console/task/repair")
    assert (asked.status_code, 'id="enter"' in asked.text) == (401, True)
    await shop.enter("viewer")
    text = await finished(shop, "repair")
    assert "the session that started it has ended" in text
    left = [await shop.keys.draft(f"gone-{number}").exists() for number in range(4)]
    assert sum(left) == 3
    assert await shop.keys.cart("1").exists()


async def test_edits_and_renewals_are_undone_once_and_only_by_their_session(shop: HttpBrowser) -> None:
    await shop.enter("operator")
    path = "/console/key/ShopKeys/cart/edit?key=shop:cart:1"
    page = (await shop.get(path)).text
    version = page.split('name="version" value="')[1].split('"')[0]
    saved = await shop.post(path, version=version, **{"field.items": "9"})
    undo = saved.headers["location"].split("undo=")[1]
    assert (await shop.keys.cart("1").get()).items == 9
    assert (await shop.post("/console/undo", undo="x" * 22)).status_code == 409
    assert "undone=yes" in (await shop.post("/console/undo", undo=undo)).headers["location"]
    assert (await shop.keys.cart("1").get()).items == 1
    assert (await shop.post("/console/undo", undo=undo)).status_code == 409
    await shop.keys.draft("1").shorten(60_000)
    renewed = await shop.post("/console/key/ShopKeys/draft/renew?key=shop:draft:1")
    undo = renewed.headers["location"].split("undo=")[1]
    await shop.post("/console/leave")
    await shop.enter("operator", "operator:eve")
    assert (await shop.post("/console/undo", undo=undo)).status_code == 409
    assert await shop.keys.draft("1").left_ms() > 60_000
    renewed = await shop.post("/console/key/ShopKeys/draft/renew?key=shop:draft:2")
    assert renewed.status_code == 404


@pytest.mark.parametrize("end", [leave, expire])
async def test_an_erasure_stops_when_its_session_ends_and_says_so(
    shop: HttpBrowser, monkeypatch: pytest.MonkeyPatch, end: Callable[[HttpBrowser], Awaitable[None]]
) -> None:
    await shop.enter("admin")
    store = shop.keys.cart.store
    real, blocked = store.atomically, asyncio.Event()

    async def atomically(steps: Any) -> Any:
        if any("DEL" in str(step) and "shop:cart:1" in str(step) for step in steps):
            blocked.set()
            await asyncio.Event().wait()
        return await real(steps)

    monkeypatch.setattr(store, "atomically", atomically)
    assert (await shop.post("/console/erase", subject="shop:1", again="shop:1")).status_code == 303
    async with asyncio.timeout(60):
        await blocked.wait()
    assert (await shop.post("/console/erase", subject="shop:2", again="shop:2")).status_code == 409
    assert 'data-state="running"' in (await shop.get("/console/task/erase")).text
    await end(shop)
    asked = await shop.get("/console/task/erase")
    assert (asked.status_code, 'id="enter"' in asked.text) == (401, True)
    await shop.enter("admin")
    text = await finished(shop, "erase")
    assert "the session that started it has ended" in text
    assert "Not all data was erased" in text
    assert await shop.keys.cart("1").exists()
    assert await shop.keys.cart("2").exists()


async def renewed(shop: HttpBrowser, key: str) -> str:
    """Renew a key in the browser. Returns what undoes it."""
    done = await shop.post(f"/console/key/ShopKeys/{key.split(':')[1]}/renew?key={key}")
    return str(done.headers["location"].split("undo=")[1])


async def test_a_renewal_is_undone_only_while_its_deadline_stands(shop: HttpBrowser) -> None:
    await shop.enter("operator")
    draft, store = shop.keys.draft("1"), shop.keys.draft.store

    async def undone(undo: str) -> bool:
        return "undone=yes" in (await shop.post("/console/undo", undo=undo)).headers["location"]

    await draft.shorten(60_000)
    assert await undone(await renewed(shop, draft.key))
    assert 0 < await draft.left_ms() <= 60_000
    # The application renews it itself, or writes another record under the key: neither is cut short.
    undo = await renewed(shop, draft.key)
    await draft.lasting(6 * 86_400_000).touch()
    assert not await undone(undo)
    await draft.shorten(60_000)
    undo = await renewed(shop, draft.key)
    await draft.delete()
    await draft.set("another order")
    await store.run([("PEXPIRE", draft.key, 500_000_000)])
    assert not await undone(undo)
    assert await draft.left_ms() > 400_000_000
    # A key that had no deadline gets none again.
    await store.run([("PERSIST", draft.key)])
    undo = await renewed(shop, draft.key)
    assert await draft.left_ms() > 0
    assert await undone(undo)
    assert await draft.left_ms() == -1


async def test_the_indexes_of_a_record_follow_its_renewal_and_its_undo(shop: HttpBrowser) -> None:
    keys, cart = shop.keys, shop.keys.cart("1")
    await cart.shorten(60_000)
    done = await restart_lifetime(keys.cart, cart.key)
    assert done is not None
    assert done.after_ms - done.before_ms > 6 * 86_400_000
    late = await keys.carts().score("1")
    assert await undo_restart(keys.cart, cart.key, done)
    assert late - await keys.carts().score("1") > 6 * 86_400_000
    assert await restart_lifetime(keys.cart, "shop:cart:nobody") is None


async def test_sessions_queues_limits_and_jobs_are_acted_on_after_a_typed_name(shop: HttpBrowser) -> None:
    await shop.enter("admin")
    sessions, limit = shop_sessions(shop.keys), shop_limit(shop.keys)
    assert len(await sessions.list_for("3")) == 4
    listed = await shop.post("/console/sessions", user="3")
    assert "End 4 sessions" in listed.text
    assert "differ" in (await shop.post("/console/sessions", user="3", again="4")).text
    assert "4 sessions of 3 were ended" in (await shop.post("/console/sessions", user="3", again="3")).text
    assert (await sessions.list_for("3"), len(await sessions.list_for("2"))) == ([], 4)

    path = "/console/key/ShopKeys/hits/reset?key=shop:hits:10.0.0.1"
    assert (await shop.post(path)).status_code == 200
    assert (await limit.peek("10.0.0.1")).remaining == 99
    assert (await shop.post(path, again="shop:hits:10.0.0.1")).status_code == 200
    assert (await limit.peek("10.0.0.1")).remaining == 100

    outbox = OutboxKeys(shop.keys.draft.store)
    page = (await shop.get("/console/queues")).text
    assert "the receiver is down" in page
    where = "topic=webhook&name=orders"
    for act, left in (
        ("retry", (1, False, 1)),
        ("retry_dead", (2, False, 0)),
        ("drop_dead", (2, False, 0)),
        ("drop_waiting", (0, False, 0)),
    ):
        if act == "drop_dead":
            await outbox.dead(*QUEUE).append(StoredMessage(id="msg_2", created_ms=0, payload={}))
        assert (await shop.post(f"/console/queues/{act}?{where}")).status_code == 200
        assert (await shop.post(f"/console/queues/{act}?{where}", again="webhook/orders")).status_code == 303
        now = await QueueControl(outbox).state(QUEUE)
        assert (now.waiting, now.trouble is not None, len(now.given_up)) == left, act
        assert now.dead == left[2], act
    assert (await shop.get(f"/console/queues/retry?{where}")).status_code == 404

    path = "/console/jobs/run?name=console.measure"
    assert (await shop.post(path)).status_code == 200
    assert (await shop.post(path, again="console.measure")).status_code == 303
    assert "by hand" in await text_when(shop, "/console/jobs", lambda text: "by hand" in text)
    assert (await events(shop))[:1] == ["console-job-run"]
    audit = (await shop.get("/console/audit?event=queue&who=ann")).text
    assert audit.count("console-queue") == 2
    assert "console-dead-letters-retried" in (await shop.get("/console/audit?event=dead")).text
    assert "console-job-run" not in audit


async def test_unknown_keys_become_a_draft_that_declares_them_and_nothing_else(shop: HttpBrowser) -> None:
    await shop.enter("operator")
    assert "legacy:{int}:user" in (await shop.get("/console/unknown")).text
    await shop.post("/console/unknown/draft")
    text = await finished(shop, "draft")
    assert "legacy:{legacy_id:int}:user" in text
    assert "shop:cart" not in text


async def test_a_viewer_sees_what_goes_on_and_can_do_nothing(shop: HttpBrowser) -> None:
    await shop.enter("viewer")
    for path in ("", "/findings", "/unknown", "/jobs", "/queues", "/sessions"):
        page = await shop.get(f"/console{path}")
        assert page.status_code == 200, path
        assert HOSTILE not in page.text, path
    refused = {
        "/console/findings/examine": {},
        "/console/findings/repair?code=orphan": {TYPED: "orphan"},
        "/console/unknown/draft": {},
        "/console/jobs/run?name=console.measure": {TYPED: "console.measure"},
        "/console/queues/drop_dead?topic=webhook&name=orders": {TYPED: "webhook/orders"},
        "/console/sessions": {"user": "3", TYPED: "3"},
        "/console/key/ShopKeys/hits/reset?key=shop:hits:10.0.0.1": {TYPED: "shop:hits:10.0.0.1"},
        "/console/undo": {"undo": "x"},
        "/console/erase": {"subject": "shop:1", TYPED: "shop:1"},
    }
    for path, fields in refused.items():
        assert (await shop.post(path, **fields)).status_code == 403, path
    assert await events(shop) == ["signed-in", "console-link-created"]
    assert len(await shop_sessions(shop.keys).list_for("3")) == 4


class DoorSettings(BaseModel):
    """None."""


class DoorKeys(Keyspace):
    """Nothing."""

    door = Value("door:{id}", str, lifetime=after("1m"), doc="nothing")


@asynccontextmanager
async def _no_service(keys: Any, settings: Any, site: Any) -> AsyncIterator[None]:
    yield None


def door(signed_in: dict[str, Any]) -> Kit:
    """A kit that signs in whoever `signed_in` says."""

    async def identify(service: Any, connection: Any) -> SignedInUser | None:
        return SignedInUser("login", signed_in["id"], "Ann", "cookie", signed_in["since"]) if signed_in else None

    return Kit(
        name="door",
        doc="signs in",
        keyspace=DoorKeys,
        settings=DoorSettings,
        router=lambda: KitRouter("door", lambda error: None),
        service=_no_service,
        sign_in=SignIn(identify),
    )


async def test_users_on_the_list_come_in_signed_in_and_act_on_many_keys_only_after_a_recent_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann: dict[str, Any] = {}
    keyspaces = ["tests.console.shop_keys:ShopKeys"]
    async with opened(tmp_path, monkeypatch, keyspaces, [door(ann)], admins=["login:42"]) as (app, access):
        browser = HttpBrowser(app, access)
        assert "/login?returnTo=/console/enter" in (await browser.get("/console/enter")).text
        assert (await browser.post("/console/enter/signed-in")).status_code == 403
        ann.update(id="7", since=moment(now_ms()))
        assert (await browser.post("/console/enter/signed-in")).status_code == 403
        ann.update(id="42", since=moment(now_ms()) - timedelta(hours=1))
        assert (await browser.post("/console/enter/signed-in")).status_code == 303
        assert (await browser.get("/console")).status_code == 200
        stale = await browser.get("/console/erase")
        assert (stale.status_code, "Sign in again" in stale.text) == (403, True)
        keys = await fill(app.state.stores["default"], carts=1)
        await keys.draft("gone").set("nobody's")
        await browser.post("/console/findings/examine")
        await app.state.kits["console"].tasks.settle()
        queue = "topic=webhook&name=orders"
        bulk = {
            f"/console/queues/{act}?{queue}": "webhook/orders" for act in ("retry_dead", "drop_dead", "drop_waiting")
        }
        bulk |= {"/console/findings/repair?code=orphan": "orphan", "/console/erase": "shop:0"}
        for path, typed in bulk.items():
            assert (await browser.get(path)).status_code == 403, path
            assert (await browser.post(path, again=typed, subject=typed)).status_code == 403, path
        queues = QueueControl(OutboxKeys(app.state.stores["default"]))
        assert ((await queues.state(QUEUE)).waiting, (await queues.state(QUEUE)).dead) == (1, 1)
        assert await keys.draft("gone").exists()
        assert await keys.cart("0").exists()
        assert (await browser.post("/console/sessions", user="3")).status_code == 200
        assert (await browser.post("/console/sessions", user="3", again="3")).status_code == 403
        assert len(await shop_sessions(keys).list_for("3")) == 4
        ann["since"] = moment(now_ms())  # they sign in once more
        for path in bulk:
            assert (await browser.get(path)).status_code == 200, path
        assert (await browser.post("/console/sessions", user="3", again="3")).status_code == 200
        assert await shop_sessions(keys).list_for("3") == []
        [entry, *_] = await access.audit.latest(1)
        assert (entry.event, entry.who) == ("console-sessions-ended", "login:42")
        ann.clear()  # they sign out of the application
        assert (await browser.get("/console")).status_code == 401


async def test_a_repair_of_some_codes_and_keys_leaves_all_others() -> None:
    async with connect("memory://") as store:
        keys = await fill(store, carts=3, orphans=3)
        await store.run([("PERSIST", "shop:cart:1"), ("PERSIST", "shop:cart:2")])
        report = await repair([keys], codes={"no-deadline"}, keys={"shop:cart:2"}, set_aside="all")
        assert report.fixed == {"no-deadline": 1}
        assert await keys.cart("1").left_ms() == -1
        assert await keys.cart("2").left_ms() > 0
        await repair([keys], codes={"no-deadline"})
        left = await examine([keys])
        assert {code: left.count(code) for code in ("no-deadline", "orphan")} == {"no-deadline": 0, "orphan": 3}


async def test_an_audit_entry_that_cannot_be_written_stops_the_act(
    shop: HttpBrowser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.enter("admin")
    store = shop.keys.draft.store
    await store.run([("SET", ConsoleKeys(store).audit().key, "not a log")])
    for path, name in (
        ("/console/key/ShopKeys/cart/delete?key=shop:cart:1", "shop:cart:1"),
        ("/console/queues/drop_dead?topic=webhook&name=orders", "webhook/orders"),
    ):
        assert (await shop.post(path, again=name)).status_code >= 400
    assert await shop.keys.cart("1").exists()
    assert len((await QueueControl(OutboxKeys(store)).state(QUEUE)).given_up) == 1


async def test_the_calls_of_a_keyspace_that_no_kit_has_are_counted_by_family(shop: HttpBrowser) -> None:
    await shop.enter("viewer")
    await shop.keys.seen("1").members()
    calls = (await shop.get("/console")).text.partition('id="calls"')[2].partition("</section>")[0]
    assert "ShopKeys.seen" in calls
