"""My links: a signed-in user lists, copies, extends and ends only their own links."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead import Store
from keystead.kits.login import KIT as LOGIN
from keystead.kits.sharing import KIT, Sharing, Wanted
from keystead.kits.sharing.service import SharingRefused, User
from keystead.parts.digest import digest
from keystead.schema.erasure import erase
from keystead.schema.times import deadline_ms
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CONTENT,
    TOKEN_KEY,
    Clock,
    Kept,
    Reason,
    body_of,
    fetched,
    key_text,
    ok,
    refused,
    service_on,
    table,
)
from tests.kits.signing_in import OWN, Server, serving
from tests.parts.sessions.relays import Killed, Mortal

URL = "https://blob.vercel-storage.com/demo.zip"
HTML = {"accept": "text/html", "accept-language": "en"}
ADA, BOB = User("42", "login:42"), User("43", "login:43")
DAY_MS = 86_400_000


@asynccontextmanager
async def kits(folder: Path, **more: Any) -> AsyncIterator[Server]:
    async with serving([LOGIN, KIT], tables={"sharing": table(folder, **more)}) as server:
        yield server


def sharing_of(server: Server) -> Sharing:
    sharing: Sharing = server.app.state.kits["sharing"]
    return sharing


async def upload(client: httpx2.AsyncClient, **query: str) -> dict[str, Any]:
    return ok(await client.post("/api/receive/upload", params=query, content=CONTENT, headers=OWN))


async def test_a_signed_in_user_lists_copies_extends_and_ends_their_links_and_sees_downloads(folder: Path) -> None:
    async with kits(folder) as server:
        ada, bob = await server.sign_in("42", "Ada"), await server.sign_in("43", "Bob")
        made = await upload(ada, name="plan.pdf", maxDownloads="5", receiverName="Eve")
        await upload(bob, name="other.pdf")
        resolved = ok(await bob.get(f"/api/receive/resolve?t={made['shortToken']}"))
        assert (await bob.get(resolved["url"])).content == CONTENT

        told = ok(await ada.get("/api/receive/links"))
        [link] = told["links"]
        assert link == {
            "id": made["id"],
            "name": "plan.pdf",
            "shareUrl": made["shareUrl"],
            "exp": made["exp"],
            "downloads": 1,
            "maxDownloads": 5,
            "ready": True,
            "hasPassword": False,
            "size": len(CONTENT),
            "receiverName": "Eve",
        }
        assert told["used"] == len(CONTENT)
        assert [one["name"] for one in ok(await bob.get("/api/receive/links"))["links"]] == ["other.pdf"]

        later = made["exp"] + DAY_MS
        body = {"id": made["id"], "validUntil": later}
        assert ok(await ada.post("/api/receive/extend", json=body, headers=OWN))["exp"] == later
        status = ok(await ada.post("/api/receive/status", json={"id": made["id"]}, headers=OWN))
        assert (status["exp"], status["downloads"]) == (later, 1)

        ok(await ada.post("/api/receive/delete", json={"id": made["id"]}, headers=OWN))
        told = ok(await ada.get("/api/receive/links"))
        assert (told["links"], told["used"]) == ([], 0)
        assert refused(await ada.get(f"/api/receive/resolve?t={made['shortToken']}")) == (404, "TOKEN_NOT_FOUND")


async def test_a_user_id_with_a_colon_owns_registered_links_and_is_erased(folder: Path) -> None:
    async with kits(folder) as server:
        ada, bob = await server.sign_in("demo.urn:uuid:42", "Ada"), await server.sign_in("demo.urn", "Bob")
        await upload(bob, name="other.pdf")
        await upload(ada, name="plan.pdf")
        body = {"pathname": "a/b.zip", "downloadUrl": URL, "userId": "demo.urn:uuid:42", "displayName": "b.zip"}
        ok(await ada.post("/api/receive/edge-resolve", json=body, headers=OWN))
        names = sorted(one["name"] for one in ok(await ada.get("/api/receive/links"))["links"])
        assert names == ["b.zip", "plan.pdf"]
        erased = await erase([sharing_of(server).keys], "login:demo.urn:uuid:42")
        assert (erased.families["SharingKeys.link"], erased.left) == (2, 0)
        assert ok(await ada.get("/api/receive/links"))["links"] == []
        assert [one["name"] for one in ok(await bob.get("/api/receive/links"))["links"]] == ["other.pdf"]


async def test_only_the_owner_may_list_end_extend_or_inspect_links(folder: Path) -> None:
    async with kits(folder) as server:
        ada, bob, nobody = await server.sign_in("42", "Ada"), await server.sign_in("43", "Bob"), server.browser()
        made = await upload(ada, ownerOnly="true")
        body = {"id": made["id"], "validUntil": made["exp"] + DAY_MS}
        for other in (bob, nobody):
            for path in ("extend", "status", "delete"):
                answer = await other.post(f"/api/receive/{path}", json=body, headers=OWN)
                assert refused(answer) == (403, "NOT_OWNER"), path
            answer = await other.post("/api/receive/delete", json={"token": made["shortToken"]}, headers=OWN)
            assert refused(answer) == (403, "NOT_OWNER")
            for what in ("end", "extend"):
                form = {"what": what, "id": made["id"], "ms": "60000"}
                assert (await other.post("/share/links", data=form, headers=OWN)).status_code in (401, 403)
        assert refused(await nobody.get("/api/receive/links")) == (401, "NOT_SIGNED_IN")
        assert ok(await ada.get("/api/receive/links"))["links"][0]["exp"] == made["exp"]


@pytest.mark.parametrize("path", ["/api/receive/delete", "/api/receive/extend", "/api/receive/upload", "/share/links"])
async def test_cross_site_requests_cannot_act_for_a_user(folder: Path, path: str) -> None:
    async with kits(folder) as server:
        ada = await server.sign_in("42", "Ada")
        made = await upload(ada)
        body = {"id": made["id"], "validUntil": made["exp"] + DAY_MS}
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {}):
            if path == "/share/links":
                form = {"what": "end", "id": made["id"]}
                answer = await ada.post(path, data=form, headers={"accept": "application/json", **headers})
            else:
                answer = await ada.post(path, json=body, headers=headers)
            assert refused(answer) == (403, "CSRF"), headers
        assert len(ok(await ada.get("/api/receive/links"))["links"]) == 1


async def test_the_audit_log_names_the_user(folder: Path) -> None:
    async with kits(folder) as server:
        ada = await server.sign_in("42", "Ada")
        made = await upload(ada)
        issued = ok(await ada.post("/api/receive/token", json={"url": URL}, headers=OWN))
        body = {"id": made["id"], "validUntil": made["exp"] + 1}
        ok(await ada.post("/api/receive/extend", json=body, headers=OWN))
        for id in (made["id"], issued["id"]):
            ok(await ada.post("/api/receive/delete", json={"id": id}, headers=OWN))
        entries = [(entry.event, entry.who) for entry in reversed(await sharing_of(server).audit.latest(10))]
        assert entries == [
            ("link-issued", "login:42"),
            ("link-issued", "login:42"),
            ("link-extended", "login:42"),
            ("link-ended", "login:42"),
            ("link-deleted", "clean-up"),
            ("link-ended", "login:42"),
        ]


async def test_with_an_issue_key_a_user_needs_it_unless_users_may_share(folder: Path) -> None:
    key = "an issue key that is long"
    for allowed, status in ((False, 401), (True, 200)):
        async with kits(folder / str(allowed), issue_key=key, allow_users=allowed) as server:
            ada, nobody = await server.sign_in("42", "Ada"), server.browser()
            answer = await ada.post("/api/receive/upload", content=CONTENT, headers=OWN)
            assert answer.status_code == status
            answer = await ada.post("/api/receive/upload", content=CONTENT, headers=OWN | {"x-issue-key": key})
            assert ok(answer)["id"] in {link["id"] for link in ok(await ada.get("/api/receive/links"))["links"]}
            assert refused(await nobody.post("/api/receive/upload", content=CONTENT)) == (401, "UNAUTHORIZED")
            answer = await nobody.post(
                "/api/receive/upload", content=CONTENT, headers={"authorization": f"Bearer {key}"}
            )
            assert answer.status_code == 200


async def test_the_fields_of_a_registered_file_are_used(folder: Path) -> None:
    async with kits(folder) as server:
        ada, nobody = await server.sign_in("42", "Ada"), server.browser()
        for number, owner in enumerate(({"ownerDiscordId": "42"}, {"userId": "42"}, {"ownerDiscordId": "7"})):
            body = {
                "pathname": f"user_prize/42/{number}.zip",
                "downloadUrl": URL,
                "displayName": "prize.zip",
                "receiverName": "Eve",
                "theme": "rose",
                "message": "Well done",
                **owner,
            }
            made = ok(await nobody.post("/api/receive/edge-resolve", json=body))
        links = ok(await ada.get("/api/receive/links"))["links"]
        assert [(link["name"], link["receiverName"]) for link in links] == [("prize.zip", "Eve")] * 2
        page = (await nobody.get(f"/receive?key={made['key']}", headers=HTML)).text
        assert "A file for Eve" in page
        assert "Well done" in page
        assert 'data-theme="rose"' in page


async def test_a_link_to_an_external_file_takes_the_fields_of_an_upload(folder: Path) -> None:
    async with kits(folder) as server:
        nobody = server.browser()
        body = {"url": URL, "message": "Well done", "receiverName": "Eve", "theme": "ocean"}
        made = ok(await nobody.post("/api/receive/token", json=body))
        page = (await nobody.get(f"/receive?t={made['shortToken']}", headers=HTML)).text
        assert ("Well done" in page, "A file for Eve" in page, 'data-theme="ocean"' in page) == (True, True, True)
        for name in ("", "x" * 101, "a\u202eb", "  "):
            answer = await nobody.post("/api/receive/token", json={"url": URL, "receiverName": name})
            assert refused(answer) == (400, "BAD_RECEIVER"), ascii(name)


async def test_the_page_lists_extends_and_ends(folder: Path) -> None:
    async with kits(folder) as server:
        ada, nobody = await server.sign_in("42", "Ada"), server.browser()
        made = await upload(ada, name="plan.pdf", validUntil=str(server.clock() + 60_000))
        page = (await ada.get("/share/links", headers=HTML)).text
        assert made["shareUrl"] in page
        assert "plan.pdf" in page
        form = {"what": "extend", "id": made["id"], "ms": str(DAY_MS)}
        answer = await ada.post("/share/links", data=form, headers=OWN | HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, "/share/links")
        assert ok(await ada.get("/api/receive/links"))["links"][0]["exp"] == server.clock() + DAY_MS
        answer = await ada.post("/share/links", data=form | {"ms": "1000"}, headers=OWN | HTML)
        assert (answer.status_code, "already lasts longer than that" in answer.text) == (400, True)
        form = {"what": "end", "id": made["id"]}
        assert (await ada.post("/share/links", data=form, headers=OWN | HTML)).status_code == 303
        answer = await ada.post("/share/links", data=form, headers=OWN | HTML)
        assert (answer.status_code, "no longer have this link" in answer.text) == (403, True)
        assert "You have no links." in answer.text
        page = (await nobody.get("/share/links", headers=HTML)).text
        assert 'href="/login?returnTo=%2Fshare%2Flinks"' in page


@everywhere
async def test_an_extended_link_opens_in_both_forms_and_keeps_its_count(
    store: Store, folder: Path, clock: Clock
) -> None:
    sharing, kept = service_on(store, folder, clock), Kept(store)
    soon = clock() + 3_600_000
    wanted = Wanted(valid_until=soon, max_downloads=2, user_id=ADA.id)
    made = await sharing.upload(body_of(CONTENT), None, wanted, who=ADA.subject, where="")
    issued = await sharing.issue(URL, None, Wanted(valid_until=soon, user_id=ADA.id), who=ADA.subject, where="")
    assert await fetched(sharing, made.short_token) == CONTENT
    for one in (made, issued):
        assert await sharing.extend(one.id, soon + 7_200_000, user=ADA, where="") == soon + 7_200_000
        with Reason() as reason:
            await sharing.extend(one.id, soon, owner_key=one.owner_key, where="")
        assert reason.word == "BAD_EXPIRY"
    for key in await kept.all_keys():
        if key.startswith(("receive:token:", "receive:link:", "receive:downloads:")):
            assert 3_600_000 < await kept.left_ms(key) <= 3 * 3_600_000, key
    clock.move("2h")
    assert (await sharing.clean_up.run()).scanned == 0
    assert (await sharing.look(made.token)).expires_ms == soon + 7_200_000
    assert (await sharing.resolve(issued.token)).url == f"{URL}?download=1"
    assert await fetched(sharing, made.token) == CONTENT
    with Reason() as reason:
        await sharing.resolve(made.short_token)
    assert reason.word == "USED_UP"
    clock.move("2h")
    assert (await sharing.clean_up.run()).deleted == 1
    for token in (made.short_token, made.token, issued.short_token):
        with Reason() as reason:
            await sharing.look(token)
        assert reason.word == "EXPIRED"
    assert await sharing.links_of(ADA) == []


@everywhere
async def test_an_extended_link_stays_in_the_list_of_its_user(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    wanted = Wanted(valid_until=clock() + 3_600_000, user_id=ADA.id)
    made = await sharing.issue(URL, None, wanted, who=ADA.subject, where="")
    later = await sharing.extend(made.id, clock() + 3 * 3_600_000, user=ADA, where="")
    clock.move("2h")
    [listed] = await sharing.links_of(ADA)
    assert (listed.id, listed.expires_ms) == (made.id, later)
    clock.move("2h")
    assert await sharing.links_of(ADA) == []


@everywhere
async def test_a_crash_at_any_command_of_an_extension_leaves_no_orphans(
    store: Store, folder: Path, clock: Clock
) -> None:
    alive, lives = service_on(store, folder, clock), 0
    while True:
        wanted = Wanted(valid_until=clock() + DAY_MS, user_id=ADA.id)
        made = await alive.upload(body_of(CONTENT), None, wanted, who=ADA.subject, where="")
        dying = service_on(Mortal(store, lives), folder, clock)
        try:
            await dying.extend(made.id, clock() + 5 * DAY_MS, user=ADA, where="")
        except Killed:
            lives += 1
        else:
            break
        assert await fetched(alive, made.token) == CONTENT
        assert await fetched(alive, made.short_token) == CONTENT
        await alive.end(None, id=made.id, user=ADA, where="")
    assert lives >= 2
    clock.move("6d")
    assert (await alive.clean_up.run()).deleted == 1
    assert await Kept(store).keys() in ([], ["receive:user:42:links"])


@everywhere
async def test_the_longest_of_concurrent_extensions_wins(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    wanted = Wanted(valid_until=clock() + DAY_MS, user_id=ADA.id)
    made = await sharing.upload(body_of(CONTENT), None, wanted, who=ADA.subject, where="")
    times = [clock() + DAY_MS + number * 3_600_000 for number in range(1, 11)]

    async def extend(until_ms: int) -> int:
        with suppress(SharingRefused):  # another one is longer already
            return await sharing.extend(made.id, until_ms, user=ADA, where="")
        return 0

    told = await asyncio.gather(*(extend(one) for one in reversed(times)))
    assert max(told) == times[-1]
    assert (await sharing.look(made.token)).expires_ms == times[-1]
    meta = await sharing.keys.meta(made.id).get()
    assert meta is not None
    assert deadline_ms(meta.expires_at) == times[-1]  # and its file stays as long
    token = sharing.keys.token(digest(made.short_token)).key
    assert await Kept(store).left_ms(token) > times[-2] - clock()  # as does its short form
    [listed] = await sharing.keys.links_of_user(ADA.id).highest(1)
    assert listed == (made.id, times[-1])


@everywhere
async def test_an_end_wins_over_a_concurrent_extension(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    for _ in range(50):
        wanted = Wanted(valid_until=clock() + DAY_MS, user_id=ADA.id)
        made = await sharing.issue(URL, None, wanted, who=ADA.subject, where="")

        async def extend(id: str = made.id) -> None:
            with Reason():
                await sharing.extend(id, clock() + 5 * DAY_MS, user=ADA, where="")

        await asyncio.gather(extend(), sharing.end(None, id=made.id, user=ADA, where=""), extend())
        with Reason() as reason:
            await sharing.resolve(made.token)
        assert reason.word == "REVOKED"
    assert await sharing.links_of(ADA) == []


@everywhere
async def test_the_list_drops_missing_links(store: Store, folder: Path, clock: Clock) -> None:
    sharing, kept = service_on(store, folder, clock), Kept(store)
    for number in range(5):
        wanted = Wanted(valid_until=clock() + (number + 1) * DAY_MS, user_id=ADA.id)
        last = await sharing.issue(URL, f"{number}.zip", wanted, who=ADA.subject, where="")
    await sharing.issue(URL, "of-bob.zip", Wanted(user_id=BOB.id), who=BOB.subject, where="")
    assert [link.name for link in await sharing.links_of(ADA)] == [f"{number}.zip" for number in (4, 3, 2, 1, 0)]
    await kept.ask("DEL", sharing.keys.link(last.id).key)
    clock.move("3d")
    assert [link.name for link in await sharing.links_of(ADA)] == ["3.zip"]
    assert await kept.ask("ZCARD", sharing.keys.links_of_user(ADA.id).key) == 1
    clock.move("3d")
    assert await sharing.links_of(ADA) == []
    assert await kept.ask("EXISTS", sharing.keys.links_of_user(ADA.id).key) == 0


@everywhere
async def test_erasing_a_user_deletes_their_links(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    of_ada = await sharing.issue(URL, None, Wanted(user_id=ADA.id), who=ADA.subject, where="")
    of_bob = await sharing.issue(URL, None, Wanted(user_id=BOB.id), who=BOB.subject, where="")
    await erase([sharing.keys], ADA.subject)
    with Reason() as reason:
        await sharing.look(of_ada.token)
    assert reason.word == "REVOKED"
    assert (await sharing.look(of_bob.token)).name
    assert await sharing.links_of(ADA) == []


async def test_no_short_token_is_in_the_store_in_the_clear(folder: Path) -> None:
    async with kits(folder, token_keys=key_text(TOKEN_KEY)) as server:
        ada = await server.sign_in("42", "Ada")
        made = await upload(ada, receiverName="Eve-the-receiver")
        everything = await Kept(server.app.state.stores["default"]).everything()
        for secret in (made["shortToken"], made["ownerKey"], "Eve-the-receiver"):
            assert secret not in everything
