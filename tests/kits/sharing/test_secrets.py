"""Link secrets are not in the store or a log (promises 4 and 5)."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from keystead.kits.sharing import Wanted
from keystead.parts.digest import digest
from tests.kits.login.test_secrets import Heard, heard
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CLEANUP_SECRET,
    RING_TEXT,
    TOKEN_KEY,
    URL,
    Running,
    Visitor,
    key_text,
    ok,
    refused,
    running,
)
from tests.serving import keystead_serving

__all__ = ["heard"]

PASSWORD = "correct horse battery staple"
ISSUE_KEY = "the key of those who issue"


async def every_happy_path(site: Running, dumps: list[str]) -> dict[str, list[str]]:
    """Use every feature of links; returns the secrets by kind."""
    visitor = site.visitor()
    secrets: dict[str, list[str]] = {"short": [], "long": [], "owner": [], "ticket": [], "password": [PASSWORD]}

    async def note(told: dict[str, Any]) -> None:
        secrets["short"].append(told.get("shortToken") or told["key"])
        secrets["owner"].append(told["ownerKey"])
        secrets["long"] += [told["token"]] if "token" in told else []
        dumps.append(await site.everything())

    for password in (None, PASSWORD):
        issued = await visitor.issue(name="demo.zip", password=password, message="Here")
        await note(issued)
        uploaded = await visitor.upload(
            name="report.pdf", headers={} if password is None else {"x-link-password": quote(password)}
        )
        await note(uploaded)
        body = {"pathname": f"a/{bool(password)}.zip", "downloadUrl": URL, "password": password, "message": "Here"}
        await note(ok(await visitor.post("/api/receive/edge-resolve", body)))
        for made in (issued, uploaded):
            told = ok(await visitor.post("/api/receive/resolve", {"t": made["token"], "password": password}))
            dumps.append(await site.everything())
            if "ticket=" in told["url"]:
                secrets["ticket"].append(told["url"].partition("ticket=")[2])
                assert (await visitor.http.get(told["url"])).status_code == 200
            await visitor.post("/api/receive/resolve", {"t": made["token"], "password": f"{PASSWORD}!"})
            await visitor.get("/receive", t=made["shortToken"])
            await visitor.http.head("/api/receive/resolve", params={"t": made["shortToken"]})
            owned = {"id": made["id"], "ownerKey": made["ownerKey"]}
            ok(await visitor.post("/api/receive/status", owned))
            dumps.append(await site.everything())
            ok(await visitor.post("/api/receive/delete", owned))
            dumps.append(await site.everything())
    site.clock.move("15d")
    ok(await visitor.clean_up())
    dumps.append(await site.everything())
    return secrets


@everywhere
async def test_no_link_secret_is_in_the_store_or_a_log(stored_site: Running, heard: Heard) -> None:
    dumps: list[str] = []
    secrets = await every_happy_path(stored_site, dumps)
    assert [len(found) for found in secrets.values()] == [6, 4, 6, 2, 1]
    held = "\n".join(dumps)
    for kind, found in secrets.items():
        for secret in found:
            assert secret not in heard.of("keystead", "uvicorn", "granian", "fastapi", "asyncio"), kind
            if kind == "long":
                continue  # it is the value of its short token, as the document has it
            assert secret not in held, kind
    # The sealed link is in one place: under the digest of its short token.
    for long, short in zip(
        secrets["long"], (one for at, one in enumerate(secrets["short"]) if at % 3 != 2), strict=True
    ):
        lines = {line.partition(" ")[0] for line in held.splitlines() if long in line}
        assert lines == {f"receive:token:{digest(short)}"}
    for secret in (key_text(TOKEN_KEY), RING_TEXT.partition(":")[2], CLEANUP_SECRET):
        assert secret not in held
        assert secret not in heard.of("keystead")
    assert "receive/resolve" in heard.of("keystead")  # or nothing was listened to


async def test_a_link_password_is_stored_as_a_sealed_scrypt_hash(site: Running, visitor: Visitor) -> None:
    one, other = [await visitor.issue(password=PASSWORD) for _ in range(2)]
    records = [json.loads(await site.ask("GET", f"receive:link:{issued['id']}")) for issued in (one, other)]
    for record in records:
        assert record["password"].startswith("sealed.test.")
        assert "scrypt" not in json.dumps(record)
    opened = [await site.sharing.keys.link(issued["id"]).get() for issued in (one, other)]
    hashes = {link.password for link in opened if link is not None}
    assert len(hashes) == 2  # each with a salt of its own
    assert all(kept is not None and kept.startswith("scrypt.") for kept in hashes)


async def test_refusals_are_audited_without_secrets(site: Running, visitor: Visitor) -> None:
    issued = await visitor.issue(password=PASSWORD, ownerOnly=True)
    for body in ({"t": issued["token"], "password": "a wrong one"}, {"t": f"{issued['token'][:-4]}AAAA"}):
        await visitor.post("/api/receive/resolve", body)
    await visitor.resolve("a-made-up1")
    await visitor.end(token=issued["token"], ownerKey="a made up key of an owner")
    entries = await site.sharing.refusals.latest(10)
    assert [(entry.event, entry.why, entry.what) for entry in reversed(entries)] == [
        ("resolve-refused", "PASSWORD_WRONG", issued["id"]),
        ("resolve-refused", "INVALID_PAYLOAD", None),
        ("resolve-refused", "TOKEN_NOT_FOUND", None),
        ("end-refused", "NOT_OWNER", issued["id"]),
    ]
    assert all(entry.where is not None and entry.where.startswith("10.") for entry in entries)
    held = await site.everything()
    for secret in ("a wrong one", "a-made-up1", "a made up key", issued["token"][:-4] + "AAAA"):
        assert secret not in held


async def test_changes_are_audited(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload(purpose="prizes")
    assert (await visitor.download(uploaded["token"])).status_code == 200
    ok(await visitor.end(token=uploaded["token"]))
    entries = [(entry.event, entry.who, entry.what) for entry in reversed(await site.sharing.audit.latest(10))]
    assert entries == [
        ("link-issued", "visitor", uploaded["id"]),
        ("link-ended", "receiver", uploaded["id"]),
        ("link-deleted", "clean-up", uploaded["id"]),
    ]
    [used] = await site.sharing.uses.latest(10)  # apart, so that nobody pushes the others out by using a link often
    assert (used.event, used.who, used.what) == ("link-downloaded", "receiver", uploaded["id"])


def test_a_server_at_debug_level_logs_no_query_and_no_secret(tmp_path: Path) -> None:
    with keystead_serving(
        tmp_path,
        None,
        *("--kits", "sharing"),
        KEYSTEAD_LOG_LEVEL="debug",
        RECEIVE_ISSUE_KEY=ISSUE_KEY,
        RECEIVE_CLEANUP_SECRET=CLEANUP_SECRET,
        RECEIVE_TOKEN_KEY=key_text(TOKEN_KEY),
    ) as server:
        with httpx2.Client(base_url=server.url, headers={"authorization": f"Bearer {ISSUE_KEY}"}) as http:
            headers = {"x-link-password": quote(PASSWORD)}
            uploaded = ok(http.post("/api/receive/upload?name=secret-plan.pdf", content=b"x", headers=headers))
            body = {"t": uploaded["shortToken"], "password": PASSWORD}
            told = ok(http.post("/api/receive/resolve", json=body))
            assert http.get(told["url"]).content == b"x"
            assert refused(http.get(f"/api/receive/resolve?t={uploaded['token']}")) == (401, "PASSWORD_REQUIRED")
            http.get(f"/receive?t={uploaded['shortToken']}", headers={"accept": "text/html"})
            http.get("/api/receive/resolve?t=a-made-up1&x=a-query")
            ok(http.post(f"/api/receive/delete?t={uploaded['token']}", json={"ownerKey": uploaded["ownerKey"]}))
            ok(http.post("/api/cron/receive-cleanup", headers={"authorization": CLEANUP_SECRET}))
        assert server.stop() == 0
        said = server.said
    ticket = told["url"].partition("ticket=")[2]
    for secret in (
        *(uploaded[name] for name in ("token", "shortToken", "ownerKey")),
        *(ticket, PASSWORD, quote(PASSWORD), ISSUE_KEY, CLEANUP_SECRET, key_text(TOKEN_KEY)),
        *("a-made-up1", "a-query", "secret-plan"),
    ):
        assert secret not in said
    assert "/api/receive/resolve" in said  # or nothing was logged


async def test_settings_and_services_show_no_secret(folder: Path) -> None:
    async with running("memory://", folder, issue_key=ISSUE_KEY) as site:
        visitor = site.visitor()
        shown = "\n".join(
            [
                repr(site.sharing.settings),
                str(vars(site.sharing)),
                repr(site.app.state.settings),
                (await visitor.get("/openapi.json")).text,
                (await visitor.get("/")).text,
            ]
        )
    for secret in (ISSUE_KEY, CLEANUP_SECRET, key_text(TOKEN_KEY)):
        assert secret not in shown


@pytest.mark.parametrize("name", ["token", "short_token", "owner_key"])
async def test_the_repr_of_an_issued_link_has_no_secret(site: Running, name: str) -> None:
    issued = await site.sharing.issue(URL, None, Wanted(password=PASSWORD), who="", where="")
    assert getattr(issued, name) not in repr(issued)
    assert PASSWORD not in repr(Wanted(password=PASSWORD))
