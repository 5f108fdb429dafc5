"""Lifetimes of links: on the clock of the server, and in the store."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keystead import Store
from keystead.kits.sharing import SharingRefused, Wanted
from keystead.parts.digest import digest
from keystead.schema.times import moment
from tests.kits.sharing.conftest import everywhere
from tests.kits.sharing.visiting import (
    LONGEST_MS,
    URL,
    WEEK_MS,
    Clock,
    Kept,
    Reason,
    Running,
    Visitor,
    body_of,
    ok,
    refused,
    running,
    service_on,
)

SLACK_MS = 20_000


async def test_a_link_lives_a_week_by_default_and_two_at_most(site: Running) -> None:
    site.clock.stand_at(now_ms := site.clock())
    visitor = site.visitor()
    far = now_ms + 10 * LONGEST_MS
    for valid_until, lives_ms in (
        (None, WEEK_MS),
        (now_ms + 1, 1),
        (now_ms + 86_400_000, 86_400_000),
        (str(now_ms + 60_000), 60_000),
        (now_ms + LONGEST_MS, LONGEST_MS),
        (now_ms + LONGEST_MS + 1, LONGEST_MS),
        (far, LONGEST_MS),
        ("9999-12-31T23:59:59Z", LONGEST_MS),
        (moment(now_ms + 60_000).isoformat(), 60_000),
        (moment(now_ms + 60_000).isoformat().replace("+00:00", "Z"), 60_000),
        (moment(now_ms + 60_000).astimezone().isoformat(), 60_000),
        ((moment(now_ms + 60_000) + timedelta(hours=9)).isoformat().replace("+00:00", "+09:00"), 60_000),
    ):
        assert (await visitor.issue(validUntil=valid_until))["exp"] == now_ms + lives_ms, valid_until
        if valid_until is not None and lives_ms > 1:
            assert (await visitor.upload(validUntil=valid_until))["exp"] == now_ms + lives_ms, valid_until


async def test_an_expiry_in_the_past_is_refused_and_nothing_is_written(site: Running) -> None:
    site.clock.stand_at(now_ms := site.clock())
    visitor = site.visitor()
    for past in (now_ms, now_ms - 1, 0, -1, "0", "-5", "1999-01-01T00:00:00Z", moment(now_ms).isoformat()):
        answer = await visitor.post("/api/receive/token", {"url": URL, "validUntil": past})
        assert refused(answer) == (400, "BORN_EXPIRED"), past
        assert refused(await visitor.try_upload(validUntil=past)) == (400, "BORN_EXPIRED"), past
    assert await site.keys() == []
    assert site.files() == []


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "tomorrow",
        "2999-01-01T00:00:00",  # of which time zone?
        "2999-01-01",
        "2999-13-01T00:00:00Z",
        "--5",
        "5-",
        "²",
        "٣",
        "1e15",
        " 1999999999999 ",
        "99999999999999999999",
        "9" * 19,
        10**18,
        -(10**18),
        10**40,
    ],
)
async def test_an_invalid_time_is_refused(site: Running, visitor: Visitor, wrong: int | str) -> None:
    answer = await visitor.post("/api/receive/token", {"url": URL, "validUntil": wrong})
    assert refused(answer) == (400, "BAD_EXPIRY")
    assert refused(await visitor.try_upload(validUntil=wrong)) == (400, "BAD_EXPIRY")
    assert await site.keys() == []


async def test_the_settings_set_the_lifetime_of_links(folder: Path) -> None:
    async with running("memory://", folder, ttl="2d", max_ttl="1d") as site:
        site.clock.stand_at(now_ms := site.clock())
        visitor = site.visitor()
        assert (await visitor.issue())["exp"] == now_ms + 86_400_000
        assert (await visitor.issue(validUntil=now_ms + LONGEST_MS))["exp"] == now_ms + 86_400_000


async def test_a_link_opens_until_the_last_millisecond_and_not_after(site: Running, visitor: Visitor) -> None:
    issued, uploaded = await visitor.issue(), await visitor.upload()
    for made in (issued, uploaded):
        for token in (made["shortToken"], made["token"]):
            site.clock.stand_at(made["exp"] - 1)
            ok(await visitor.resolve(token))
            for after_ms in (0, 1):
                site.clock.stand_at(made["exp"] + after_ms)
                answer = await visitor.resolve(token)
                assert refused(answer) == (410, "EXPIRED")
                assert answer.json()["exp"] == made["exp"]
                assert refused(await visitor.end(token=token)) == (410, "EXPIRED")


async def test_the_clean_up_deletes_an_upload_from_its_expiry_on(site: Running, visitor: Visitor) -> None:
    uploaded = await visitor.upload()
    site.clock.stand_at(uploaded["exp"] - 1)
    assert ok(await visitor.clean_up())["scanned"] == 0
    site.clock.stand_at(uploaded["exp"])
    assert ok(await visitor.clean_up())["deleted"] == 1


class Ticking(Clock):
    """A clock that advances by a millisecond whenever it is read."""

    def __call__(self) -> int:
        now_ms = super().__call__()
        self.stand_at(now_ms + 1)
        return now_ms


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_a_link_that_expires_during_a_request_has_expired(store: Store, folder: Path) -> None:
    clock = Ticking()
    clock.stand_at(clock() + 3_600_000)  # so that nothing expires by the clock of the store
    service = service_on(store, folder, clock)
    words: dict[str, set[str]] = {"issue": set(), "upload": set(), "resolve": set()}
    lasting = await service.upload(body_of(b"x"), None, Wanted(), who="", where="")
    for moments in range(40):
        soon = Wanted(valid_until=clock() + moments)
        with Reason() as reason:
            await service.issue(URL, None, soon, who="", where="")
        words["issue"].add(reason.word)
        with Reason() as reason:
            await service.upload(body_of(b"x"), None, Wanted(valid_until=clock() + moments), who="", where="")
        words["upload"].add(reason.word)
    for moments in range(12):
        clock.stand_at(lasting.expires_ms - moments)
        with Reason() as reason:
            await service.resolve(lasting.token)
        words["resolve"].add(reason.word)
    assert words == {
        "issue": {"BORN_EXPIRED", ""},
        "upload": {"BORN_EXPIRED", "REVOKED", ""},
        "resolve": {"EXPIRED", ""},
    }


@everywhere
async def test_keys_live_as_long_as_their_link(store: Store, folder: Path, clock: Clock) -> None:
    service, kept = service_on(store, folder, clock), Kept(store)
    expires_ms = clock() + 3 * 86_400_000
    wanted = Wanted(valid_until=expires_ms, password="open", max_downloads=5)
    issued = await service.upload(body_of(b"x"), None, wanted, who="", where="")
    ticket = (await service.resolve(issued.short_token, password="open")).ticket
    assert ticket is not None
    begun = aiter((await service.download(ticket)).body)
    await anext(begun)
    await service.limit.count("resolve", "10.0.0.1")
    lives_ms = {
        f"receive:token:{digest(issued.short_token)}": expires_ms - clock(),
        await kept.key("receive:link:"): expires_ms - clock(),
        await kept.key("receive:downloads:"): expires_ms - clock(),
        await kept.key("receive:ticket:"): 600_000,
        f"receive:past:{digest(issued.short_token)}": expires_ms - clock() + 30 * 86_400_000,
        "receive:stored:all": 30 * 86_400_000,
        await kept.key("receive:wrong:"): 3_600_000,
        "audit:sharing": 90 * 86_400_000,
        "audit:sharing:used": 90 * 86_400_000,
    }
    [counter] = [key for key in await kept.all_keys() if key.startswith("receive:rl:")]
    lives_ms[counter] = 70_000
    for key, lives in lives_ms.items():
        left = await kept.left_ms(key)
        assert lives - SLACK_MS < left <= lives + SLACK_MS, key
        if key != counter and not key.startswith("audit:"):
            assert left <= lives, key
    for_ever = {
        await kept.key("receive:edge:meta:"),
        await kept.key("receive:edge:file:"),
        "receive:edge:index",
        "receive:files",
    }
    for key in for_ever:
        assert await kept.left_ms(key) == -1, key
    assert set(await kept.all_keys()) == lives_ms.keys() | for_ever
    [[member, score]] = await kept.ask("ZRANGE", "receive:edge:index", 0, -1, "WITHSCORES")
    assert (member, float(score)) == (issued.id.encode(), expires_ms)


@everywhere
async def test_password_counters_expire_within_the_hour(store: Store, folder: Path, clock: Clock) -> None:
    service, kept = service_on(store, folder, clock), Kept(store)
    issued = await service.issue(URL, None, Wanted(password="open"), who="", where="")
    with Reason() as reason:
        await service.resolve(issued.token, password="shut")
    assert reason.word == "PASSWORD_WRONG"
    for prefix in ("receive:wrong:", "receive:guess:"):
        left = await kept.left_ms(await kept.key(prefix))
        assert 3_600_000 - SLACK_MS < left <= 3_600_000


async def test_times_are_in_milliseconds_and_iso_8601(visitor: Visitor) -> None:
    body = {"pathname": "a/b.zip", "downloadUrl": URL, "validUntil": "2999-12-31T00:00:00+09:00"}
    told = ok(await visitor.post("/api/receive/edge-resolve", body))["expiresAt"]
    assert told.endswith("Z")
    assert datetime.fromisoformat(told).tzinfo == UTC


@everywhere
async def test_an_expired_link_is_reported_as_expired_for_thirty_days(store: Store, folder: Path, clock: Clock) -> None:
    sharing, kept = service_on(store, folder, clock), Kept(store)
    issued = [
        await sharing.upload(body_of(b"x"), None, Wanted(), who="", where=""),
        await sharing.issue(URL, None, Wanted(), who="", where=""),
    ]
    ended = await sharing.issue(URL, None, Wanted(), who="", where="")
    await sharing.end(ended.token, owner_key=None, where="")
    clock.move("8d")
    assert (await sharing.clean_up.run()).deleted == 1
    for one in issued:
        await kept.ask("DEL", f"receive:token:{digest(one.short_token)}")  # as the store does by itself
        for looking in (sharing.look(one.short_token), sharing.resolve(one.short_token)):
            with pytest.raises(SharingRefused, match="has expired") as refusal:
                await looking
            assert (refusal.value.reason, refusal.value.more) == ("EXPIRED", {"exp": one.expires_ms})
        left = await kept.left_ms(f"receive:past:{digest(one.short_token)}")
        assert 36 * 86_400_000 < left <= 37 * 86_400_000  # 7 days of the link, and 30 more
    for token in (ended.short_token, "never-was1"):
        with Reason() as reason:
            await sharing.resolve(token)
        assert reason.word == "TOKEN_NOT_FOUND"
