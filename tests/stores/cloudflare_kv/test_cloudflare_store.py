"""What Cloudflare KV stores, what a reader sees, and what it refuses."""

import asyncio
import json
import time

import pytest
from pydantic import BaseModel

from keystead import connect
from keystead.errors import BadArgument, BadUrl, DoesNotFit, StoreReadOnly, StoreRefused, UnknownCommand
from keystead.kits.login.keys import LoginKeys
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.sessiondata.keys import SessionDataKeys
from keystead.kits.sharing.keys import SharingKeys
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.widgets.keys import WidgetKeys
from keystead.parts.decorators import Once
from keystead.parts.limit import Limited
from keystead.parts.lock import Locked
from keystead.schema import Counter, Hash, Keyspace, Steps, Value, after, procedure, sliding
from keystead.schema.check import check
from keystead.schema.doctor import examine
from keystead.schema.store_fit import misfits
from keystead.stores import Guarantees
from keystead.stores.cloudflare_kv import CloudflareKvStore
from keystead.stores.cloudflare_kv.cloudflare_settings import CloudflareSettings
from keystead.stores.cloudflare_kv.cloudflare_store import GUARANTEES
from tests.servers import CloudflareServer
from tests.servers.cloudflare_server import READ_TOKEN

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    def __call__(self) -> int:
        return self.now_ms


# --- entries ---------------------------------------------------------------------------------------------------


async def test_a_lifetime_below_a_minute_ends_on_time_by_the_deadline_in_the_record(server: CloudflareServer) -> None:
    clock = Clock()
    async with CloudflareKvStore(CloudflareSettings.of(server.url), clock=clock) as store:
        await store.run([("SET", "code", "123", "PX", 10_000)])
        ends_ms = clock.now_ms + 10_000
        for at_ms, seen in ((ends_ms - 1, [b"123", 1, 1]), (ends_ms, [None, -2, 0])):
            clock.now_ms = at_ms
            assert await store.run([("GET", "code"), ("PTTL", "code"), ("EXISTS", "code")]) == seen
            assert [key async for page in store.scan() for key in page] == ([b"code"] if seen[0] else [])


async def test_what_a_worker_wrote_is_read_as_it_is(server: CloudflareServer) -> None:
    expires_s = int(time.time()) + 3600
    server.put("text", b"hello", expiration=expires_s, metadata={"colour": "green"})
    server.put("bytes", b"\x00\xff")
    server.put("marked", "\ufffd".encode())
    async with connect(server.url) as store:
        assert await store.run([("MGET", "text", "bytes", "marked")]) == [[b"hello", b"\x00\xff", "\ufffd".encode()]]
        assert await store.run([("PEXPIRETIME", "text"), ("PTTL", "bytes")]) == [expires_s * 1000, -1]


async def test_a_text_that_starts_with_a_byte_order_mark_is_kept_whole(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        await store.run([("SET", "a", "\ufeffhello")])
        assert await store.run([("GET", "a")]) == ["\ufeffhello".encode()]


async def test_values_that_exceed_one_answer_together_are_read_in_several(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        large = b"x" * 9_000_000
        for name in "abc":
            await store.run([("SET", name, large, "EX", 3600)])
        [found, left_ms] = await store.run([("MGET", *"abc"), ("PTTL", "a")])
        assert found == [large] * 3
        assert 0 < left_ms <= 3_600_000


# --- sharing and pace ------------------------------------------------------------------------------------------


async def test_concurrent_reads_share_a_request_and_so_do_concurrent_writes(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        before = server.requests
        await asyncio.gather(*(store.run([("SET", f"k{n}", n)]) for n in range(32)))
        found = await asyncio.gather(*(store.run([("GET", f"k{n}")]) for n in range(32)))
        assert found == [[b"%d" % n] for n in range(32)]
        after_ = server.requests
        assert {kind: count - before.get(kind, 0) for kind, count in after_.items() if count != before.get(kind)} == {
            "PUT /bulk": 1,
            "POST /bulk/get": 1,
        }


async def test_a_key_is_written_once_a_second_and_of_those_that_wait_the_last_is_sent(server: CloudflareServer) -> None:
    server.control(limitsWrites=True)
    async with connect(server.url_with("timeout=30s")) as store:
        await store.run([("SET", "a", "first"), ("SET", "b", "other")])
        await asyncio.gather(*(store.run([("SET", "a", n)]) for n in range(20)))
        assert await store.run([("MGET", "a", "b")]) == [[b"19", b"other"]]
        assert server.control()["written"][1:] == [["a", "b"], ["a"]]


# --- staleness -------------------------------------------------------------------------------------------------


async def test_a_reader_may_see_the_earlier_value_until_a_write_has_spread(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        assert store.guarantees.consistency == "eventual"
        await store.run([("SET", "a", "1"), ("SET", "gone", "1")])
        server.control(lagging=True)
        await store.run([("SET", "a", "2"), ("DEL", "gone"), ("SET", "new", "1")])
        assert await store.run([("MGET", "a", "gone", "new")]) == [[b"1", b"1", None]]
        server.control(lagging=False)
        assert await store.run([("MGET", "a", "gone", "new")]) == [[b"2", None, b"1"]]


async def test_a_delete_is_sent_although_this_reader_does_not_see_the_key_yet(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        server.control(lagging=True)
        await store.run([("SET", "a", "1")])
        assert await store.run([("DEL", "a")]) == [0]
        server.control(lagging=False)
        assert await store.run([("GET", "a")]) == [None]


# --- what does not fit -----------------------------------------------------------------------------------------


class CachedKeys(Keyspace):
    plan = Value("membership:{user}", str, lifetime=after("10m"), role="cache", doc="the plan of a user")


class RefusedKeys(Keyspace):
    session = Value("session:{id}", str, lifetime=after("1d"), doc="who is logged in")
    visits = Counter("visits:{page}", lifetime=after("1d"), role="cache", doc="visits of a page")
    profile = Hash("profile:{id}", dict[str, str], lifetime=after("1d"), role="cache", doc="fields of a profile")
    draft = Value("draft:{id}", str, lifetime=sliding("1d", touch_every="1h"), role="cache", doc="what a user writes")


WHY = {
    "RefusedKeys.session": "a read may miss an acknowledged write, which only the role cache allows",
    "RefusedKeys.visits": "the store cannot add to a number",
    "RefusedKeys.profile": "the store does not support Hash; written as a whole it fits, as "
    'Value("profile:{id}", dict[str, ...] or a model, ...)',
    "RefusedKeys.draft": "its lifetime is sliding",
}


async def test_the_role_cache_fits(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        keys = CachedKeys(store)
        await keys.plan("ann").set("pro")
        assert await keys.plan("ann").get() == "pro"
        assert await keys.plan("ann").delete()
        with pytest.raises(UnknownCommand, match="cannot compare before it writes"):
            await keys.plan("ann").add("free")
        with pytest.raises(UnknownCommand, match="GETDEL membership:ann: Cloudflare KV cannot change a value"):
            await keys.plan("ann").consume()


async def test_families_beyond_the_guarantees_are_refused_on_bind_and_by_check(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        with pytest.raises(DoesNotFit) as refused:
            RefusedKeys(store)
        for place, why in WHY.items():
            assert any(line.startswith(place) and why in line for line in str(refused.value).splitlines()), place
        found = check([RefusedKeys], {"default": (store.url, store.guarantees)})
        unfit = {finding.family for finding in found if finding.code == "role-unfit"}
        assert unfit == set(WHY)


class PartKeys(Keyspace):
    """What needs atomic steps, with the role that KV is for."""

    lock = Locked("lock:{id}", role="cache")
    logins = Limited("logins:{ip}", "10/minute", role="cache")
    payment = Once("payment:{id}", str, lifetime=after("1d"), role="cache", doc="a payment runs once")
    seats = Counter("seats:{id}", lifetime=after("1d"), role="cache", doc="seats in use")


async def test_locks_limits_counters_and_what_runs_once_are_refused_on_bind_and_by_check(
    server: CloudflareServer,
) -> None:
    async with connect(server.url) as store:
        with pytest.raises(DoesNotFit) as refused:
            PartKeys(store)
        for name in PartKeys.families:
            assert f"PartKeys.{name} " in str(refused.value), name
        found = check([PartKeys], {"default": (store.url, store.guarantees)})
        unfit = {finding.family for finding in found if finding.code == "role-unfit"}
        assert unfit == {f"PartKeys.{name}" for name in PartKeys.families}
        assert unfit > {"PartKeys.lock", "PartKeys.lock_fence", "PartKeys.payment_lease"}


class CodeKeys(Keyspace):
    code = Value("code:{code:token}", str, lifetime=after("10m"), role="cache", doc="a code that works once")
    invitation = Value("invitation:{code:token}", str, lifetime=after("10m"), doc="an invitation")


def test_check_warns_of_tokens_in_the_role_cache_where_reads_lag() -> None:
    found = check([CodeKeys], {"default": ("memory://", Guarantees()), "cache": ("cloudflare-kv://a/k", GUARANTEES)})
    [weak] = [finding for finding in found if finding.code == "role-weak" and "tokens" in finding.sentence]
    assert weak.family == "CodeKeys.code"
    assert "works once, or must end at once, needs another role and store" in weak.sentence
    assert not check([CodeKeys], {"default": ("memory://", Guarantees())})


async def test_more_keys_than_one_answer_lists_are_listed_in_pages(server: CloudflareServer) -> None:
    keys = {f"seats:{n}".encode() for n in range(2_345)}
    async with connect(server.url) as store:
        await store.run([("SET", key, "1") for key in keys])
        pages = [page async for page in store.scan("seats:*")]
        assert sorted(key for page in pages for key in page) == sorted(keys)
        assert len(pages) > 2
        assert await store.run([("DBSIZE",)]) == [2_345]
        found, cursor, walked = [], b"0", 0
        while walked == 0 or cursor != b"0":
            [[cursor, page]] = await store.run([("SCAN", cursor, "MATCH", "seats:1*", "COUNT", 1000)])
            found += page
            walked += 1
        assert sorted(found) == sorted(key for key in keys if key.startswith(b"seats:1"))
        assert walked == 2  # of 1,111 keys


class Team(BaseModel):
    name: str
    size: int = 1


class PackedKeys(Keyspace):
    tags = Value("tags:{id<=100}", set[str], lifetime=after("1d"), role="cache", doc="what a Worker reads")
    scores = Value("scores:{id<=100}", dict[str, float], lifetime=after("1d"), role="cache", doc="what a Worker reads")
    news = Value("news:{id<=100}", list[Team], lifetime=after("1d"), role="cache", doc="what a Worker reads")


async def test_other_kinds_are_packed_into_a_value(server: CloudflareServer) -> None:
    assert not check([PackedKeys], {"default": ("cloudflare-kv://account/keys", GUARANTEES)})
    async with connect(server.url) as edge, connect("memory://") as store:
        for keys in (PackedKeys(edge), PackedKeys(store)):
            await keys.tags("a").set({"x", "y"})
            await keys.scores("a").set({"ann": 1.5})
            await keys.news("a").set([Team(name="red"), Team(name="blue", size=2)])
            assert await keys.tags("a").get() == {"x", "y"}
            assert await keys.scores("a").get() == {"ann": 1.5}
            assert await keys.news("a").get() == [Team(name="red"), Team(name="blue", size=2)]
        # A Worker reads plain JSON. Where the store can compare, entries are changed without losing those of others.
        assert json.loads((await edge.run([("GET", "scores:a")]))[0]) == {"ann": 1.5}
        add = [keys.tags("a").change(lambda old, tag=tag: {*(old or ()), tag}) for tag in "123"]  # type: ignore[misc]
        await asyncio.gather(*add)
        assert await keys.tags("a").get() == {"x", "y", "1", "2", "3"}


class SwitchKeys(CachedKeys):
    @procedure
    def switch(self, user: str) -> Steps[None]:
        """Change the plan of a user who has one."""
        return Steps(self.plan(user).exists().required(), self.plan(user).set("pro"))


def test_check_finds_procedures_on_families_in_kv() -> None:
    found = check([SwitchKeys], {"default": ("cloudflare-kv://account/keys", GUARANTEES)})
    [one] = [finding for finding in found if finding.code == "role-unfit"]
    assert one.where.startswith("SwitchKeys.switch")
    assert "plan is in cloudflare-kv://account/keys, which has no atomic steps" in one.sentence


def test_of_the_kits_only_cached_values_fit() -> None:
    """No session, token, link, count, lock or index of them is accepted."""
    fitting = {
        f"{keyspace.__name__}.{name}"
        for keyspace in (LoginKeys, SharingKeys, MembershipKeys, TeamworkKeys, WidgetKeys, SessionDataKeys)
        for name, family in keyspace.families.items()
        if not list(misfits(family, GUARANTEES))
    }
    assert fitting == {f"MembershipKeys.{name}" for name in ("membership", "membership_stale", "quota", "auth")}


async def test_doctor_finds_what_a_worker_wrote_wrongly(
    server: CloudflareServer,
) -> None:
    async with connect(server.url) as store:
        keys = CountedKeys(store)
        await keys.seats("ann").set(3)
        server.put("seats:bob", b"three", expirationTtl=300)
        server.put("seats:eve", b"3")
        found = {(one.finding.code, one.finding.key) for one in (await examine([keys])).found}
        assert found == {("unreadable", "seats:bob"), ("no-deadline", "seats:eve")}


class CountedKeys(Keyspace):
    seats = Value("seats:{user<=120}", int, lifetime=after("10m"), role="cache", doc="the seats of a user")


async def test_roles_put_a_cache_into_kv_and_sessions_into_another_store(server: CloudflareServer) -> None:
    class AppKeys(CachedKeys):
        session = Value("session:{id}", str, lifetime=after("1d"), doc="who is logged in")
        token = Value("token:{id}", str, lifetime=after("10m"), doc="a link that works once")

    async with connect("memory://") as database, connect(server.url) as kv:
        keys = AppKeys(database, cache=kv)
        await keys.plan("ann").set("pro")
        await keys.session("s1").set("ann")
        await keys.token("t1").set("ann")
        assert (await keys.token("t1").consume(), await keys.token("t1").consume()) == ("ann", None)
        assert [key async for page in kv.scan() for key in page] == [b"membership:ann"]
        assert await database.run([("EXISTS", "session:s1", "membership:ann")]) == [1]


# --- opening ---------------------------------------------------------------------------------------------------


async def test_a_token_that_may_only_read_is_refused_at_the_start(server: CloudflareServer) -> None:
    with pytest.raises(StoreReadOnly, match="Workers KV Storage, Edit"):
        await connect(server.url_with(token=READ_TOKEN)).open()


async def test_a_wrong_token_and_an_unknown_namespace_are_refused_by_name(server: CloudflareServer) -> None:
    with pytest.raises(StoreRefused, match="rejects the token") as refused:
        await connect(server.url_with(token="wrong-secret")).open()
    assert "wrong-secret" not in str(refused.value)
    with pytest.raises(StoreRefused, match="no such account or namespace"):
        await connect(server.url_with(namespace="nowhere")).open()


async def test_the_token_may_come_from_the_environment(
    server: CloudflareServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.url.replace(":token-of-tests-only@", "")
    with pytest.raises(BadUrl, match="set CLOUDFLARE_API_TOKEN"):
        connect(url)
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token-of-tests-only")
    async with connect(url) as store:
        assert store.url == "cloudflare-kv://account/keys"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("cloudflare-kv://:s3cret@account", "write cloudflare-kv://account/namespace"),
        ("cloudflare-kv://s3cret@account/namespace", "write cloudflare-kv://account/namespace"),
        ("cloudflare-kv://:s3cret@acc%20ount/namespace", "write cloudflare-kv://account/namespace"),
        ("cloudflare-kv://:s3cret@account/namespace?speed=1", "unknown option 'speed'"),
        ("cloudflare-kv://:s3cret@account/namespace?timeout=5", "is not a duration"),
        ("cloudflare-kv://:s3cret@account/namespace?api=http://example.com/v4", "for this machine only"),
        ("cloudflare-kv://:s3cret%0A@account/namespace", "is not a token"),
    ],
)
async def test_a_url_that_cannot_be_used_is_refused_without_showing_the_token(url: str, why: str) -> None:
    with pytest.raises(BadUrl, match=why) as refused:
        connect(url)
    assert "s3cret" not in str(refused.value)


async def test_a_key_or_a_value_that_is_too_large_is_refused_and_the_rest_is_written(server: CloudflareServer) -> None:
    async with connect(server.url) as store:
        with pytest.raises(BadArgument, match="more than 512 bytes") as raised:
            await store.run([("SET", "k" * 513, "x"), ("SET", "a", "x"), ("SET", "b", b"x" * (25 * 2**20 + 1))])
        assert raised.value.replies is not None
        assert [getattr(reply, "code", reply) for reply in raised.value.replies] == [
            "bad-argument",
            b"OK",
            "bad-argument",
        ]
        assert await store.run([("MGET", "a", "b")]) == [[b"x", None]]
