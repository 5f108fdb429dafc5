"""An ended link opens nothing and leaves nothing, and no request in flight revives it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from keystead import Store
from keystead.kits.sharing import Sharing, SharingRefused, Wanted
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    CONTENT,
    Clock,
    Kept,
    Reason,
    Running,
    body_of,
    files_in,
    ok,
    refused,
    service_on,
)
from tests.parts.sessions.relays import Actor, Gated, every_order, in_order

memory = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
SHORT = "a-short-to"


@everywhere
async def test_ending_a_link_ends_both_forms_and_all_tickets_and_deletes_everything(stored_site: Running) -> None:
    visitor = stored_site.visitor()
    headers = {"x-link-password": "open%20sesame"}
    uploaded = await visitor.upload(headers=headers, maxDownloads=5, ownerOnly="true", message="Here it is")
    right = {"t": uploaded["token"], "password": "open sesame"}
    wrong = {"t": uploaded["token"], "password": "shut"}
    url = ok(await visitor.post("/api/receive/resolve", right))["url"]
    assert refused(await visitor.post("/api/receive/resolve", wrong)) == (403, "PASSWORD_WRONG")
    assert (await visitor.http.get(url, headers={"range": "bytes=0-9"})).content == CONTENT[:10]

    ok(await visitor.end(token=uploaded["shortToken"], ownerKey=uploaded["ownerKey"]))
    assert refused(await visitor.resolve(uploaded["shortToken"])) == (404, "TOKEN_NOT_FOUND")
    assert refused(await visitor.post("/api/receive/resolve", right)) == (410, "REVOKED")
    assert refused(await visitor.http.get(url)) == (410, "GONE")
    assert refused(await visitor.end(token=uploaded["token"])) == (410, "REVOKED")
    assert stored_site.files() == []
    guesses, ticket = await stored_site.keys()  # they go by themselves
    assert guesses.startswith("receive:guess:")
    assert 0 < await stored_site.left_ms(guesses) <= 3_600_000
    assert ticket.startswith("receive:ticket:")
    assert 0 < await stored_site.left_ms(ticket) <= 600_000


@everywhere
async def test_ending_a_link_to_an_external_file_deletes_everything(stored_site: Running) -> None:
    visitor = stored_site.visitor()
    issued = await visitor.issue(maxDownloads=5)
    ok(await visitor.resolve(issued["token"]))
    ok(await visitor.end(token=issued["token"]))
    assert await stored_site.keys() == []


@everywhere
async def test_the_clean_up_deletes_everything_including_tickets(stored_site: Running) -> None:
    visitor = stored_site.visitor()
    uploaded = await visitor.upload()
    url = ok(await visitor.resolve(uploaded["shortToken"]))["url"]
    stored_site.clock.move("8d")
    assert ok(await visitor.clean_up())["deleted"] == 1
    assert stored_site.files() == []
    [ticket] = await stored_site.keys()
    assert ticket.startswith("receive:ticket:")
    assert refused(await visitor.http.get(url)) == (410, "GONE")


# --- at the same moment ----------------------------------------------------------------------------------------


class Race:
    """Two programs on one link, in every interleaving of their store calls."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder

    async def run(
        self,
        prepare: Callable[[Sharing, Clock], Awaitable[Any]],
        programs: Callable[[Sharing, Clock, Any], dict[Actor, Callable[[], Awaitable[Any]]]],
        check: Callable[[Sharing, Clock, Any, dict[Actor, Any]], Awaitable[None]],
        switches: int = 2,
    ) -> int:
        async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
            for key in await Kept(self.store).all_keys():
                await self.store.run([("DEL", key)])
            clock, gated = Clock(), Gated(self.store)
            sharing = service_on(gated, self.folder, clock)
            made = await prepare(sharing, clock)
            order, results = await in_order(gated, programs(sharing, clock, made), first)
            await check(sharing, clock, made, results)
            return order

        return await every_order(one, switches=switches)

    async def nothing_is_left(self) -> None:
        # Tickets and guesses of a client go by themselves.
        passing = ("receive:ticket:", "receive:guess:")
        left = [key for key in await Kept(self.store).keys() if not key.startswith(passing)]
        assert left == []
        assert files_in(self.folder) == []


@pytest.fixture
def race(store: Store, folder: Path) -> Race:
    return Race(store, folder)


async def said(asked: Awaitable[Any]) -> str:
    with Reason() as reason:
        await asked
    return reason.word


async def uploaded(sharing: Sharing, clock: Clock) -> Any:
    return await sharing.upload(body_of(b"x"), None, Wanted(max_downloads=9), who="", where="")


async def is_dead(sharing: Sharing, made: Any) -> None:
    assert await said(sharing.resolve(made.short_token)) in ("TOKEN_NOT_FOUND", "REVOKED")
    assert await said(sharing.resolve(made.token)) == "REVOKED"


@memory
async def test_a_resolve_in_flight_does_not_revive_a_link(race: Race) -> None:
    async def check(sharing: Sharing, clock: Clock, made: Any, results: dict[Actor, Any]) -> None:
        assert results["b"] == ""
        assert results["a"] in ("", "REVOKED", "TOKEN_NOT_FOUND")
        await is_dead(sharing, made)
        await race.nothing_is_left()

    count = await race.run(
        uploaded,
        lambda sharing, clock, made: {
            "a": lambda: said(sharing.resolve(made.short_token)),
            "b": lambda: said(sharing.end(made.token, owner_key=None, where="")),
        },
        check,
    )
    assert count > 10


@memory
async def test_a_password_in_flight_leaves_nothing_of_an_ended_link(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(password: str, kept: str = "") -> Any:
        return False if kept else "a hash"

    # A slow hash is slow in every order.
    monkeypatch.setattr("keystead.kits.sharing.service.issuing.hash_password", at_once)
    monkeypatch.setattr("keystead.kits.sharing.service.link_access.matches", at_once)

    async def prepare(sharing: Sharing, clock: Clock) -> Any:
        wanted = Wanted(password="open")
        return await sharing.issue("https://blob.vercel-storage.com/", None, wanted, who="", where="")

    async def check(sharing: Sharing, clock: Clock, made: Any, results: dict[Actor, Any]) -> None:
        assert results["a"] in ("PASSWORD_WRONG", "REVOKED", "TOKEN_NOT_FOUND")
        await race.nothing_is_left()

    count = await race.run(
        prepare,
        lambda sharing, clock, made: {
            "a": lambda: said(sharing.resolve(made.short_token, password="shut")),
            "b": lambda: said(sharing.end(made.token, owner_key=made.owner_key, where="")),
        },
        check,
    )
    assert count > 5


@pytest.mark.matrix
@memory
async def test_one_of_two_concurrent_ends_succeeds_and_nothing_is_left(race: Race) -> None:
    async def check(sharing: Sharing, clock: Clock, made: Any, results: dict[Actor, Any]) -> None:
        assert sorted(results.values()) in (["", "REVOKED"], ["", "NOT_OWNER"], ["", "TOKEN_NOT_FOUND"])
        await is_dead(sharing, made)
        await race.nothing_is_left()

    count = await race.run(
        uploaded,
        lambda sharing, clock, made: {
            "a": lambda: said(sharing.end(made.short_token, owner_key=None, where="")),
            "b": lambda: said(sharing.end(None, id=made.id, owner_key=made.owner_key, where="")),
        },
        check,
    )
    assert count > 10


@pytest.mark.matrix
@memory
async def test_a_concurrent_clean_up_and_end_leave_nothing(race: Race) -> None:
    async def prepare(sharing: Sharing, clock: Clock) -> Any:
        made = await uploaded(sharing, clock)
        clock.stand_at(made.expires_ms)
        return made

    async def check(sharing: Sharing, clock: Clock, made: Any, results: dict[Actor, Any]) -> None:
        counts, ended = results["a"], results["b"]
        assert ended in ("", "NOT_OWNER", "REVOKED")
        assert counts.scanned == counts.deleted <= 1
        await race.nothing_is_left()

    count = await race.run(
        prepare,
        lambda sharing, clock, made: {
            "a": sharing.clean_up.run,
            "b": lambda: said(sharing.end(None, id=made.id, owner_key=made.owner_key, where="")),
        },
        check,
    )
    assert count > 10


@memory
async def test_an_upload_ended_in_progress_creates_nothing(race: Race, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keystead.kits.sharing.service.issuing._new_short", lambda: SHORT)
    seen = set()

    async def nothing(sharing: Sharing, clock: Clock) -> Any:
        return None

    async def upload(sharing: Sharing) -> Any:
        with suppress(SharingRefused):
            return await sharing.upload(body_of(b"x", b"y"), None, Wanted(), who="", where="")
        return None

    async def check(sharing: Sharing, clock: Clock, _: Any, results: dict[Actor, Any]) -> None:
        made, ended = results["a"], results["b"]
        seen.add((made is not None, ended))
        if ended == "":
            await race.nothing_is_left()
        else:
            assert ended == "TOKEN_NOT_FOUND"  # it was too early
            assert made is not None
            await sharing.resolve(SHORT)
            await sharing.end(SHORT, owner_key=None, where="")
            await race.nothing_is_left()

    await race.run(
        nothing,
        lambda sharing, clock, made: {
            "a": lambda: upload(sharing),
            "b": lambda: said(sharing.end(SHORT, owner_key=None, where="")),
        },
        check,
    )
    assert seen == {(True, ""), (False, ""), (True, "TOKEN_NOT_FOUND")}


@memory
async def test_a_clean_up_during_an_upload_leaves_no_orphans(race: Race) -> None:
    """A link of one millisecond: it expires during its upload."""

    async def nothing(sharing: Sharing, clock: Clock) -> Any:
        clock.stand_at(now_ms := clock())
        return now_ms

    async def upload(sharing: Sharing, now_ms: int) -> Any:
        with suppress(SharingRefused):
            return await sharing.upload(body_of(b"x"), None, Wanted(valid_until=now_ms + 60_000), who="", where="")
        return None

    async def clean_up(sharing: Sharing, clock: Clock, now_ms: int) -> Any:
        clock.stand_at(now_ms + 60_001)
        return await sharing.clean_up.run()

    async def check(sharing: Sharing, clock: Clock, now_ms: int, results: dict[Actor, Any]) -> None:
        assert results["b"].scanned == results["b"].deleted
        await sharing.clean_up.run()
        clock.move("1h")
        await sharing.clean_up.run()
        await race.nothing_is_left()

    await race.run(
        nothing,
        lambda sharing, clock, now_ms: {
            "a": lambda: upload(sharing, now_ms),
            "b": lambda: clean_up(sharing, clock, now_ms),
        },
        check,
    )


@everywhere
async def test_concurrent_resolves_do_not_revive_an_ended_link(store: Store, folder: Path, clock: Clock) -> None:
    sharing = service_on(store, folder, clock)
    made = await uploaded(sharing, clock)
    await asyncio.gather(
        *(said(sharing.resolve(made.short_token)) for _ in range(25)),
        sharing.end(made.token, owner_key=None, where=""),
        *(said(sharing.resolve(made.token)) for _ in range(25)),
    )
    await is_dead(sharing, made)
    left = [key for key in await Kept(store).keys() if not key.startswith("receive:ticket:")]
    assert left == []
    assert files_in(folder) == []
