"""Every part from plain threads: no event loop of the program's own, the same results, and no race is lost."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import Connection, select, update

from keystead import (
    Cache,
    Channel,
    Counter,
    KeyRing,
    Keyspace,
    Lock,
    Log,
    Policy,
    RateLimit,
    SessionRecord,
    Sessions,
    Set,
    SortedSet,
    Store,
    Value,
    after,
    connect,
    link,
    never,
    sliding,
    until,
    wait,
)
from keystead.parts.apikeys import ApiKey, ApiKeys
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.blobs import BlobGone, open_blobs
from keystead.parts.cache import LoadMarkers
from keystead.parts.datasessions import DataSession, DataSessions, data_session_keys
from keystead.parts.feed import Feed, FeedItem
from keystead.parts.jwt import Access, AccessTokens, Denied, RevokedTokens, SigningKeys
from keystead.parts.lock import Holder
from keystead.parts.outbox import DeliveryCounts, Outbox, OutboxKeys, OutboxMessage
from keystead.parts.refresh import RefreshRecord, RefreshTokens, Retried, Rotated, RotationRefused
from keystead.parts.schedule import Busy, Job, Run, RunEntry, Schedule, ScheduleKeys
from keystead.parts.sessions import Gone, Live
from keystead.parts.tables import locked_row, open_tables
from keystead.schema.watching import watch
from keystead.stores.synchronous import enter, iterate
from tests.every_database import database_url, on_databases
from tests.every_store import EVERY, mariadb_server, on_urls, postgres_server, redis_server, urls, valkey_cluster
from tests.parts.tables.things import TEST_TABLES, THINGS
from tests.serving import wait_until

T = TypeVar("T")
THREADS = 8
PATIENCE_S = 60.0

pytestmark = pytest.mark.everyday("memory")

__all__ = [
    "database_url",
    "mariadb_server",
    "postgres_server",
    "redis_server",
    "urls",
    "valkey_cluster",
]


class User(SessionRecord):
    seen: int = 0


class RefreshToken(RefreshRecord):
    uid: str
    sid: str


class Keys(Keyspace):
    session = Value(
        "sess:{sid:token}",
        User,
        lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True),
        tag="sid",
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))
    signed_in = Value("signed-in:{sid:token}", str, lifetime=after("30d"))
    refresh = Value("refresh:{token:token}", RefreshToken, lifetime=after("30d"), leads_to=signed_in)
    api_keys = SortedSet("apikeys", str, lifetime=never("revoked"))
    api_key = Value("apikey:{id:alnum}", ApiKey, lifetime=never("revoked"), listed_in=api_keys.by(score="made_ms"))
    audit = Log("audit:app", AuditEntry, keep=1000, lifetime=sliding("90d", touch_every="1h"))
    feed = Log("feed:{user}:log", str, keep=100, lifetime=sliding("7d", touch_every="1h"), tag="user")
    wakes = Channel("feed-wakes", str)
    total = Counter("total:{id}", lifetime=never("a test"), tag="id")
    report = Value("report:{id}", str, lifetime=after("1h"), tag="id")
    mark = LoadMarkers("report:{id}:mark", tag="id")
    revoked = Value("jwt:revoked:{jti}", str, lifetime=until("expires_at"))
    since = Value("jwt:since:{sub}", int, lifetime=after("2h"))
    hits = Counter("hits:{id}", lifetime=after("1m"))
    lock = Value("lock:{id}", Holder, lifetime=sliding("10s", touch_every="1s"), tag="id")
    fence = Counter("fence:{id}", lifetime=sliding("400d", touch_every="1d"), tag="id")


@pytest.fixture
def plain_store(urls: dict[str, str]) -> Iterator[Store]:
    """A store that nobody has opened: the first synchronous call does."""
    store = connect(urls["default"])
    yield store
    wait(store.close())


@pytest.fixture
def keys(plain_store: Store) -> Keys:
    return Keys(plain_store, seal=KeyRing({"test": b"k" * 32}))


everywhere = on_urls(*EVERY, "cluster")


def together(work: Callable[[int], T]) -> list[T]:
    """What `work` returns in each of eight threads that start at the same moment."""
    barrier = threading.Barrier(THREADS)

    def start(number: int) -> T:
        barrier.wait(PATIENCE_S)
        return work(number)

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(start, range(THREADS), timeout=PATIENCE_S))


# --- sessions and tokens -------------------------------------------------------------------------------------


@everywhere
def test_sessions_are_capped_changed_and_revoked(keys: Keys) -> None:
    sessions = Sessions(keys.session, Policy(cap=THREADS))
    made = together(lambda _: wait(sessions.create(User(uid="ann"))))
    assert {one.id for one in wait(sessions.list_for("ann"))} == {one.id for one in made}
    token = made[0].token

    def see(_: int) -> bool:
        return bool(wait(sessions.change(token, lambda user: user.model_copy(update={"seen": user.seen + 1}))))

    assert all(together(see))
    found = wait(sessions.read(token))
    assert isinstance(found, Live)
    assert found.session.seen == THREADS, "a change was lost"
    assert sum(together(lambda _: wait(sessions.revoke(token)))) == 1
    assert isinstance(wait(sessions.read(token)), Gone)
    wait(sessions.create(User(uid="ann")))
    [evicted] = wait(sessions.create(User(uid="ann"))).evicted
    assert evicted in {one.id for one in made}
    assert wait(sessions.revoke_all("ann")) == THREADS
    assert not any(together(lambda at: bool(wait(sessions.read(made[at].token)))))


@everywhere
def test_data_sessions_keep_what_each_thread_changes(plain_store: Store) -> None:
    sessions = DataSessions(data_session_keys()(plain_store))
    made = wait(sessions.create({"cart": []}, client="192.0.2.1"))

    def add(number: int) -> None:
        session = wait(sessions.load(made.token))
        assert isinstance(session, DataSession)
        session.data[f"item {number}"] = number
        assert wait(sessions.save(session))

    together(add)
    session = wait(sessions.load(made.token))
    assert isinstance(session, DataSession)
    assert session.data == {"cart": [], **{f"item {number}": number for number in range(THREADS)}}
    signed_in = wait(sessions.sign_in(session, "ann"))
    assert isinstance(signed_in, DataSession)
    assert (signed_in.user, signed_in.data) == ("ann", session.data)
    wait(sessions.end(signed_in))
    assert not wait(sessions.load(signed_in.token))


@everywhere
def test_threads_that_rotate_one_refresh_token_get_one_successor(keys: Keys) -> None:
    keys.signed_in("s").set("ann").wait()
    tokens = RefreshTokens(keys.refresh)
    begun = wait(tokens.begin(RefreshToken(uid="ann", sid="s")))
    rotated = together(lambda _: wait(tokens.rotate(begun.token)))
    assert sorted(type(one).__name__ for one in rotated) == ["Retried"] * (THREADS - 1) + ["Rotated"]
    [successor] = {one.token for one in rotated if isinstance(one, Rotated | Retried)}
    assert isinstance(wait(tokens.rotate(successor)), Rotated)
    assert isinstance(wait(tokens.rotate(begun.token)), RotationRefused), "reuse of an old token"
    assert isinstance(wait(tokens.rotate(successor)), RotationRefused), "which ended the chain"


@everywhere
def test_api_keys_work_until_they_are_revoked(keys: Keys) -> None:
    api_keys = ApiKeys(keys.api_key, keys.api_keys())
    issued = together(lambda user: wait(api_keys.issue(user, "import")))
    assert together(lambda user: wait(api_keys.user_of(issued[user].token))) == [*range(THREADS)]
    assert {one.id for one in wait(api_keys.list())} == {one.id for one in issued}
    assert together(lambda user: wait(api_keys.revoke(issued[user].id))) == [True] * THREADS
    assert together(lambda user: wait(api_keys.user_of(issued[user].token))) == [None] * THREADS


@everywhere
def test_an_access_token_is_refused_once_it_is_revoked(keys: Keys) -> None:
    access = AccessTokens(
        SigningKeys.from_text(f"k1:{SigningKeys.new_key('EdDSA')}"),
        issuer="https://relay.example",
        audience="app-client",
        revoked=RevokedTokens(keys.revoked, keys.since, may_forget=True),
    )
    issued = [access.issue(f"user {number}").token for number in range(THREADS)]

    def check_and_revoke(number: int) -> tuple[bool, Access | Denied]:
        found = wait(access.admitted(issued[number]))
        assert isinstance(found, Access)
        return access.revoke(found).wait(), wait(access.admitted(issued[number]))

    assert together(check_and_revoke) == [(True, Denied("revoked"))] * THREADS
    later = access.issue("user 0").token
    assert wait(access.admitted(later))
    wait(access.revoke_all("user 0"))
    assert wait(access.admitted(later)) == Denied("revoked")


# --- background work -----------------------------------------------------------------------------------------


@everywhere
def test_of_threads_that_run_a_job_one_does_and_the_others_are_busy(plain_store: Store) -> None:
    all_others_were_busy, busy = asyncio.Event(), threading.Semaphore(0)

    async def work(run: Run) -> dict[str, int | str]:
        await all_others_were_busy.wait()
        return {"number": run.number}

    async def let_it_end() -> None:
        all_others_were_busy.set()

    schedule = Schedule(ScheduleKeys(plain_store), [Job("a.job", "0 15 1 1 *", work)])

    def run_now(_: int) -> RunEntry | Busy:
        told = wait(schedule.run_now("a.job"))
        if isinstance(told, Busy):
            busy.release()
        return told

    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(together, run_now)
        try:
            for _ in range(THREADS - 1):
                assert busy.acquire(timeout=PATIENCE_S)
        finally:
            wait(let_it_end())
        [entry] = [one for one in told.result(PATIENCE_S) if isinstance(one, RunEntry)]
    assert (entry.number, entry.outcome) == (1, "done")
    assert [*wait(schedule.history("a.job"))] == [entry]
    [listed] = wait(schedule.list())
    assert listed.job.name == "a.job"


@everywhere
def test_messages_are_delivered_in_order_by_a_call_and_while_nobody_calls(plain_store: Store, keys: Keys) -> None:
    got: list[OutboxMessage] = []

    async def send(message: OutboxMessage) -> None:
        got.append(message)

    outbox = Outbox(OutboxKeys(plain_store), send)

    def add(number: int) -> None:
        for at in range(5):
            change = keys.total(str(number)).increment()
            wait(outbox.announce("order", str(number)))
            assert wait(keys.atomically(change, *outbox.add("order", str(number), {"at": at})))

    def numbers() -> dict[str, list[int]]:
        return {name: [one.payload["at"] for one in got if one.name == name] for name in {one.name for one in got}}

    together(add)
    assert wait(outbox.deliver_due()) == DeliveryCounts(delivered=5 * THREADS)
    assert numbers() == {str(number): [*range(5)] for number in range(THREADS)}
    got.clear()
    with enter(outbox):
        together(add)
        wait_until(lambda: len(got) == 5 * THREADS, "the background thread delivers")
    assert numbers() == {str(number): [*range(5)] for number in range(THREADS)}
    assert together(lambda number: keys.total(str(number)).get().wait()) == [10] * THREADS


@everywhere
def test_a_message_of_a_feed_is_put_once_and_read_in_order(keys: Keys) -> None:
    log, texts = keys.feed("ann"), {place: f"message {place}" for place in range(1, 6)}
    with enter(Feed(keys.feed, keys.wakes())) as feed:
        for place, text in texts.items():
            put = together(lambda _, place=place, text=text: wait(feed.put(log, {place: text})))  # type: ignore[misc]
            assert sum(put) == 1
        assert wait(feed.messages(log, 1, 100)) == texts

        def follow(_: int) -> list[FeedItem[str]]:
            found: list[FeedItem[str]] = []
            for one in iterate(feed.follow(log, after=0)):
                found += one if isinstance(one, list) else []
                if len(found) == len(texts):
                    break
            return found

        assert together(follow) == [[FeedItem(*item) for item in texts.items()]] * THREADS


@everywhere
def test_changes_of_all_threads_are_watched(keys: Keys) -> None:
    with enter(watch([keys], [Keys.total], every_s=0.02)) as changes:
        together(lambda number: keys.total(str(number)).increment().wait())
        seen: set[str] = set()
        for change in iterate(changes):
            assert (change.family_name, change.kind) == ("Keys.total", "written")
            seen.add(change.key)
            if len(seen) == THREADS:
                break
    assert seen == {keys.total(str(number)).key for number in range(THREADS)}


@everywhere
def test_every_entry_of_the_audit_log_is_there(keys: Keys) -> None:
    audit = Audit(keys.audit())
    ids = together(lambda number: audit.note("link-issued", who=f"user:{number}").wait())
    assert len(set(ids)) == THREADS
    assert {entry.who for entry in wait(audit.latest(50))} == {f"user:{number}" for number in range(THREADS)}


# --- cache, limit, lock --------------------------------------------------------------------------------------


@everywhere
def test_concurrent_misses_of_threads_load_once(keys: Keys) -> None:
    cache, loads = Cache(keys.report, keys.mark), []

    async def load() -> str:
        loads.append(1)
        return f"report {len(loads)}"

    assert together(lambda _: wait(cache.get(keys.report("may"), load))) == ["report 1"] * THREADS
    assert cache.invalidate(keys.report("may")).wait()
    assert together(lambda _: wait(cache.get(keys.report("may"), load))) == ["report 2"] * THREADS
    wait(cache.close())


@everywhere
def test_threads_together_get_no_more_than_the_limit(keys: Keys) -> None:
    limit = RateLimit(keys.hits, "10/minute")
    allowed = together(lambda _: [bool(wait(limit.hit("ann"))) for _ in range(5)])
    assert sum(map(sum, allowed)) == 10


@everywhere
def test_one_thread_at_a_time_holds_a_lock(keys: Keys) -> None:
    lock, inside, fences = Lock(keys.lock("import"), keys.fence("import")), [0], []

    def work(number: int) -> None:
        with enter(lock.holding(f"thread {number}", wait="1m")) as hold:
            before = inside[0]
            keys.total("import").increment().wait()  # time for another to come in
            inside[0] = before + 1
            fences.append(hold.fence)

    together(work)
    assert inside == [THREADS]
    assert fences == sorted(set(fences))
    assert wait(lock.holder()) is None


# --- blobs and tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "folder"])
def test_blobs_are_put_read_and_deleted(place: str, tmp_path: Path) -> None:
    blobs = open_blobs("memory://" if place == "memory" else tmp_path / "files")

    async def pieces(number: int) -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes([number]) * 100_000

    def walk(number: int) -> bytes:
        path = f"of/{number}"
        assert wait(blobs.put(path, pieces(number), max_bytes=1_000_000)) == 300_000
        read = b"".join(iterate(blobs.read(path)))
        assert wait(blobs.size(path)) == 300_000
        assert wait(blobs.delete(path))
        with pytest.raises(BlobGone):
            b"".join(iterate(blobs.read(path)))
        return read

    assert together(walk) == [bytes([number]) * 300_000 for number in range(THREADS)]
    assert sum(together(lambda number: wait(blobs.add("one", bytes([number]))))) == 1


@on_databases()
def test_transactions_of_threads_lose_no_update_and_a_failed_one_leaves_nothing(database_url: str) -> None:
    def add_one(connection: Connection) -> int:
        row = locked_row(connection, select(THINGS.c.number), THINGS, {"name": "apple", "number": 0})
        connection.execute(update(THINGS).values(number=row.number + 1))
        return int(row.number + 1)

    def fail(connection: Connection) -> None:
        add_one(connection)
        raise ZeroDivisionError

    with enter(open_tables(database_url, TEST_TABLES)) as tables:
        numbers = together(lambda _: [wait(tables.write(add_one)) for _ in range(5)])
        assert sorted(number for some in numbers for number in some) == [*range(1, 5 * THREADS + 1)]
        with pytest.raises(ZeroDivisionError):
            wait(tables.write(fail))
        assert wait(tables.read(lambda db: db.execute(select(THINGS.c.number)).scalar_one())) == 5 * THREADS
