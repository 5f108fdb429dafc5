"""The life of a link, from issue to end."""

from keystead.parts.digest import digest
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import BASE, CONTENT, URL, WEEK_MS, Running, Visitor, ok, refused


@everywhere
async def test_a_link_to_a_url_resolves_in_both_forms(stored_site: Running) -> None:
    visitor = stored_site.visitor()
    now_ms = stored_site.clock()
    issued = await visitor.issue(name="demo.zip", purpose="prizes")
    assert issued["shareUrl"] == f"{BASE}/receive?t={issued['shortToken']}"
    assert len(issued["shortToken"]) == 10
    assert 0 <= issued["exp"] - now_ms - WEEK_MS < 10_000
    for token in (issued["shortToken"], issued["token"]):
        assert ok(await visitor.resolve(token)) == {
            "ok": True,
            "url": f"{URL}?download=1",
            "name": "demo.zip",
            "exp": issued["exp"],
            "purpose": "prizes",
        }
        moved = await visitor.resolve(token, redirect=1)
        assert (moved.status_code, moved.headers["location"]) == (302, f"{URL}?download=1")


@everywhere
async def test_an_upload_is_downloaded_unchanged_and_deleted_with_its_link(
    stored_site: Running,
) -> None:
    visitor, receiver = stored_site.visitor(), stored_site.visitor()
    uploaded = await visitor.upload(name="report.pdf")
    assert (uploaded["fileName"], uploaded["size"]) == ("report.pdf", len(CONTENT))
    assert len(stored_site.files()) == 1
    for token in (uploaded["shortToken"], uploaded["token"]):
        assert (await receiver.download(token)).content == CONTENT
    status = {"id": uploaded["id"], "ownerKey": uploaded["ownerKey"]}
    assert ok(await visitor.post("/api/receive/status", status)) == {
        "ok": True,
        "exp": uploaded["exp"],
        "downloads": 2,
        "maxDownloads": None,
        "ready": True,
    }
    assert ok(await receiver.end(token=uploaded["shortToken"])) == {"ok": True}
    assert stored_site.files() == []
    assert refused(await receiver.resolve(uploaded["shortToken"])) == (404, "TOKEN_NOT_FOUND")
    assert refused(await receiver.resolve(uploaded["token"])) == (410, "REVOKED")


async def test_a_registered_upload_resolves_by_its_key_in_the_documented_format(
    site: Running, visitor: Visitor
) -> None:
    body = {
        "pathname": "user_prize/1/2/demo.zip",
        "downloadUrl": URL,
        "ownerDiscordId": "1",
        "userId": "2",
        "receiverName": "Ann",
        "displayName": "prize.zip",
        "message": "Well done!",
        "theme": "gold",
    }
    registered = ok(await visitor.post("/api/receive/edge-resolve", body))
    assert registered["shareUrl"] == f"{BASE}/receive?key={registered['key']}"
    assert ok(await visitor.get("/api/receive/edge-resolve", key=registered["key"])) == {
        "ok": True,
        "blobName": "prize.zip",
        "downloadUrl": f"{URL}?download=1",
        "displayName": "prize.zip",
        "expiresAt": registered["expiresAt"],
        "message": "Well done!",
        "theme": "gold",
    }
    assert refused(await visitor.post("/api/receive/edge-resolve", body)) == (409, "PATH_TAKEN")
    assert refused(await visitor.get("/api/receive/edge-resolve", key="AAAAAAAAAA")) == (404, "NOT_FOUND")
    assert refused(await visitor.get("/api/receive/edge-resolve")) == (400, "KEY_REQUIRED")
    ended = ok(await visitor.post("/api/receive/edge-resolve", body | {"pathname": "user_prize/1/2/other.zip"}))
    long = (await site.ask("GET", f"receive:token:{digest(ended['key'])}")).decode()
    ok(await visitor.end(token=ended["key"]))
    for key in (ended["key"], long):
        assert refused(await visitor.get("/api/receive/edge-resolve", key=key)) == (404, "NOT_FOUND")
    site.clock.move("8d")
    assert refused(await visitor.get("/api/receive/edge-resolve", key=registered["key"])) == (410, "EXPIRED")


async def test_a_link_can_be_ended_by_its_id_and_owner_key(visitor: Visitor) -> None:
    issued = await visitor.issue()
    assert refused(await visitor.end(id=issued["id"], ownerKey="x")) == (403, "NOT_OWNER")
    assert refused(await visitor.end(id="AAAAAAAAAA", ownerKey=issued["ownerKey"])) == (403, "NOT_OWNER")
    ok(await visitor.end(id=issued["id"], ownerKey=issued["ownerKey"]))
    assert refused(await visitor.resolve(issued["token"])) == (410, "REVOKED")
    assert refused(await visitor.end(id=issued["id"], ownerKey=issued["ownerKey"])) == (403, "NOT_OWNER")


async def test_an_owner_only_link_is_not_ended_by_other_holders(visitor: Visitor) -> None:
    issued = await visitor.issue(ownerOnly=True)
    assert refused(await visitor.end(token=issued["shortToken"])) == (403, "NOT_OWNER")
    assert refused(await visitor.end(token=issued["shortToken"], ownerKey="x")) == (403, "NOT_OWNER")
    ok(await visitor.resolve(issued["shortToken"]))
    ok(await visitor.end(token=issued["shortToken"], ownerKey=issued["ownerKey"]))
    assert refused(await visitor.resolve(issued["token"])) == (410, "REVOKED")


async def test_health_is_public_on_each_path_and_uses_no_store(visitor: Visitor) -> None:
    for path in ("resolve", "token", "upload", "download", "edge-resolve", "delete", "status"):
        answer = await visitor.get(f"/api/receive/{path}", health=1)
        assert ok(answer) == {"ok": True, "route": f"/api/receive/{path}"}
