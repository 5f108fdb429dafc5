"""What the console refuses: forged and premature requests, other people's sessions, and a look at what is hidden."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from keystead.console import console_live
from keystead.console.console_access import ROLES, allows
from keystead.console.console_activity import ACTIVITY_ROUTES
from keystead.console.console_keys import ConsoleKeys
from keystead.console.console_routes import _ROUTES
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.sessions import SessionRecord
from keystead.schema import Hash, Keyspace, Log, Sealed, Set, Value, link, never, sliding
from keystead.schema.times import moment, now_ms
from tests.console.console_browser import HttpBrowser, opened
from tests.console.shop_keys import RING
from tests.console.test_console_acts import door

PAGES = Path(console_live.__file__).parent / "pages"
_FOREVER = never("for the test")


class Connection(BaseModel):
    host: str = "db.example"
    password: str = ""
    otp: int = 0
    token: Sealed[str] | None = None


class Config(BaseModel):
    name: str = "main"
    connection: Connection = Connection()
    extra: dict[str, Any] = {}


class OddKeys(Keyspace):
    """Values with credentials deep inside, and a pattern so wide that keys of the console fit it."""

    config = Value("config:{id}", Config, lifetime=_FOREVER, doc="A model with credentials in it.")
    free = Value("free:{id}", dict[str, Any], lifetime=_FOREVER, doc="Any JSON.")
    things = Hash("things:{id}", dict[str, str], lifetime=_FOREVER, doc="Any fields.")
    text = Value("text:{id}", str, lifetime=_FOREVER, doc="A text.")
    data = Value("data:{id}", bytes, lifetime=_FOREVER, doc="Bytes.")
    audit = Log("odd:audit", AuditEntry, keep=100, lifetime=_FOREVER, doc="Who did what.")
    visits = Set("visits:{uid}", str, lifetime=sliding("1d", touch_every="1h"), doc="Sessions of a user.")
    visit = Value(
        "visit:{sid:token}",
        SessionRecord,
        lifetime=sliding("1d", touch_every="1h"),
        listed_in=link("visits", admits=True),
        tag="sid",
        doc="A session.",
    )
    wide = Value("keystead:{kind}:{part}:{id}", dict[str, Any], lifetime=_FOREVER, doc="Everything else.")
    wide_log = Log("keystead:{kind}:{part}", AuditEntry, keep=10, lifetime=_FOREVER, doc="Logs.")


@pytest.fixture
async def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HttpBrowser]:
    async with opened(tmp_path, monkeypatch, [f"{__name__}:OddKeys"]) as (app, access):
        yield HttpBrowser(app, access, OddKeys(app.state.stores["default"], seal=RING))


async def version_at(browser: HttpBrowser, path: str) -> str:
    return str(re.findall(r'name="version" value="([^"]+)"', (await browser.get(path)).text)[0])


async def test_credentials_at_any_depth_are_in_no_page_no_form_and_no_bytes_and_survive_an_edit(
    odd: HttpBrowser,
) -> None:
    config = Config(
        connection=Connection(password="S3CRET-1", otp=531_642, token="S3CRET-2"),
        extra={"api_key": "S3CRET-3", "deep": [{"access_key": ["S3CRET-4"]}]},
    )
    await odd.keys.config("1").set(config)
    await odd.keys.free("1").set({"secretKey": "S3CRET-5", "cookies": {"a": "S3CRET-6"}})
    await odd.keys.things("1").set({"password": "S3CRET-7", "colour": "red"})
    await odd.enter("operator")
    for family in ("config", "free", "things"):
        for act in ("", "/edit"):
            page = (await odd.get(f"/console/key/OddKeys/{family}{act}?key={family}:1&raw=1")).text
            assert re.findall(r"S3CRET|531642|sealed\.", page) == [], (family, act)
    assert "red" in (await odd.get("/console/key/OddKeys/things?key=things:1")).text
    path = "/console/key/OddKeys/config/edit?key=config:1"
    fields = {"field.name": "other", "field.connection": '{"password": "x"}', "field.extra": "{}"}
    assert (await odd.post(path, version=await version_at(odd, path), **fields)).status_code == 303
    assert await odd.keys.config("1").get() == config.model_copy(update={"name": "other"})


async def test_no_family_of_another_keyspace_leads_to_the_keys_of_the_console(odd: HttpBrowser) -> None:
    await odd.enter("operator")
    store = odd.keys.wide.store
    _, raw_keys = (await store.run([("SCAN", "0", "MATCH", "keystead:console:*", "COUNT", 100)]))[0]
    [session] = [raw.decode() for raw in raw_keys if b":session:" in raw]
    log = ConsoleKeys(store).audit().key
    await odd.keys.wide("a", "b", "c").set({})
    listed = (await odd.get("/console/family/OddKeys/wide")).text
    assert "keystead:a:b:c" in listed
    assert "keystead:console" not in listed + (await odd.get("/console/family/OddKeys/wide_log")).text
    for family, key in (("wide", session), ("wide_log", log)):
        for act in ("", "/edit", "/delete", "/renew"):
            assert (await odd.get(f"/console/key/OddKeys/{family}{act}?key={key}")).status_code == 404, act
            if act:
                answer = await odd.post(f"/console/key/OddKeys/{family}{act}?key={key}", again=family)
                assert answer.status_code == 404, act
    assert (await odd.post("/console/find", q=session)).status_code == 200  # found nothing, so it leads nowhere
    assert (await odd.get("/console")).status_code == 200


async def test_an_operator_becomes_nobody_else_and_deletes_no_audit_log(odd: HttpBrowser) -> None:
    sid = "s" * 43
    await odd.keys.visit(sid).set(SessionRecord(uid="7"))
    await Audit(odd.keys.audit()).note("signed-in", who="user:7")
    await odd.enter("operator")
    path = f"/console/key/OddKeys/visit/edit?key=visit:{sid}"
    assert (await odd.get(path)).status_code == 400
    assert (await odd.post(path, version="", **{"field.uid": "1"})).status_code == 400
    path = "/console/key/OddKeys/audit"
    page = (await odd.get(f"{path}?key=odd:audit")).text
    assert "signed-in" in page
    assert "audit/delete" not in page
    assert (await odd.post(f"{path}/delete?key=odd:audit", again="odd:audit")).status_code == 403
    assert await odd.keys.audit().exists()


async def test_a_form_changes_no_line_end_and_no_byte_that_nobody_edited(odd: HttpBrowser) -> None:
    await odd.enter("operator")
    path = "/console/key/OddKeys/text/edit?key=text:1"
    for stored, entered, after in (
        ("a\nb", "a\r\nb\r\nc", "a\nb\nc"),
        ("a\r\nb\rc", "a\r\nb\r\nc", "a\r\nb\rc"),
    ):
        await odd.keys.text("1").set(stored)
        await odd.post(path, version=await version_at(odd, path), **{"field.whole": entered})
        assert await odd.keys.text("1").get() == after
    await odd.keys.data("1").set(b"\xff\xfe")
    assert "not text" in (await odd.get("/console/key/OddKeys/data/edit?key=data:1")).text
    await odd.keys.text("1").set("x" * 300_000)
    assert "larger than" in (await odd.get(path)).text


async def test_keys_that_nobody_can_type_are_listed_shown_and_deleted(odd: HttpBrowser) -> None:
    await odd.enter("operator")
    names = [" space", "two\nlines", "‮turned", "a&b=c#d?e%20", "x" * 100, "<b>"]
    for name in names:
        await odd.keys.text(name).set("x")
    page = (await odd.get("/console/family/OddKeys/text")).text
    links = [html.unescape(one) for one in re.findall(r'href="(/console/key/OddKeys/text\?[^"]+)"', page)]
    assert len(links) == len(names)
    for one in links:
        assert (await odd.get(one)).status_code == 200
        path = one.replace("/text?", "/text/delete?")
        typed = re.findall(r'for="again">[^<]*<code>([^<]*)</code>', (await odd.get(path)).text)
        assert (await odd.post(path, again=html.unescape(typed[0]))).status_code == 200
    for name in names:
        assert not await odd.keys.text(name).exists()


async def test_every_route_refuses_strangers_lower_roles_and_forged_posts(odd: HttpBrowser) -> None:
    for role in (None, *ROLES):
        if role is not None:
            await odd.enter(role)
        for route, needed, _ in (*_ROUTES, *ACTIVITY_ROUTES):
            method, path = route.split(" ")
            path = path.format(keyspace="OddKeys", family="text", kind="examine", act="retry")
            if path in ("/console/leave", "/console/live/changes"):
                continue
            if method == "POST":
                await odd.get("/console/enter")
                assert (await odd.post_from_elsewhere(path)).status_code == 403, path
                answer = await odd.post(path) if role is None or not allows(role, needed) else None
            else:
                answer = await odd.get(path)
            if answer is not None:
                expected = 401 if role is None else 403
                is_refused = role is None or not allows(role, needed)
                assert (answer.status_code == expected) == is_refused, (role, route, answer.status_code)
                assert "script-src 'self'" in answer.headers["content-security-policy"], route


async def test_of_two_browsers_with_one_link_one_gets_in(odd: HttpBrowser) -> None:
    secret = await odd.access.create_link("operator:ann", "admin")
    browsers = [HttpBrowser(odd.app, odd.access) for _ in range(4)]
    for one in browsers:
        await one.get("/console/enter")
    answers = await asyncio.gather(*(one.post("/console/enter", secret=secret) for one in browsers))
    assert sorted(one.status_code for one in answers) == [303, 403, 403, 403]


async def test_who_signs_out_of_the_application_loses_the_open_live_page_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_live, "CHECK_EVERY_S", 0.02)
    signed_in: dict[str, datetime | str] = {"id": "42", "since": moment(now_ms())}
    keyspaces = [f"{__name__}:OddKeys"]
    async with opened(tmp_path, monkeypatch, keyspaces, [door(signed_in)], viewers=["login:42"]) as (app, access):
        live, watching = app.state.kits["console"].live, asyncio.Event()
        real = live._changes_until_end

        def changes(*given: Any) -> Any:
            watching.set()
            return real(*given)

        monkeypatch.setattr(live, "_changes_until_end", changes)
        browser = HttpBrowser(app, access)
        await browser.get("/console/enter")
        assert (await browser.post("/console/enter/signed-in")).status_code == 303
        stream = asyncio.create_task(browser.get("/console/live/changes"))
        async with asyncio.timeout(30):
            await watching.wait()
            signed_in.clear()
            assert "event: bye" in (await stream).text


async def test_an_address_that_leads_nowhere_is_a_page_of_the_console(odd: HttpBrowser) -> None:
    assert (await odd.get("/console/nothing")).status_code == 401
    await odd.enter("viewer")
    for path in ("/console/nothing", "/console/family/OddKeys/none", "/console/key/OddKeys/text/leave?key=text:1"):
        answer = await odd.get(path)
        assert (answer.status_code, 'id="families"' in answer.text) == (404, True), path
    assert (await odd.get("/console/")).headers["location"] == "/console"
