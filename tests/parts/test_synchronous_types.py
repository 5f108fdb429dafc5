"""Synchronous calls as type checkers see them: results, not awaitables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.node_packages import node_with

pytestmark = pytest.mark.matrix

# Of somebody who has installed Keystead. `assert_type` is an error if a type is wider, an awaitable, or Any.
TYPED = """\
# pyright: strict
from collections.abc import Sequence
from typing import assert_type

from keystead import (
    Cache, Channel, Counter, Hash, Keyspace, List, Lock, Log, Policy, RateLimit, SessionRecord, Sessions, Set,
    SortedSet, Steps, Value, after, connect, link, never, procedure, sliding, wait,
)
from keystead.parts.apikeys import ApiKey, ApiKeys, IssuedApiKey, ListedApiKey
from keystead.parts.audit import Audit, AuditEntry
from keystead.parts.blobs import open_blobs
from keystead.parts.cache import LoadMarkers
from keystead.parts.datasessions import DataSession, DataSessions, data_session_keys
from keystead.parts.datasessions import Gone as DataGone
from keystead.parts.decorators import Cached, Locked, Once, lock as locked, cache as cached, once
from keystead.parts.feed import Feed
from keystead.parts.limit import Verdict
from keystead.parts.lock import HeldBy, Hold, Holder
from keystead.parts.outbox import DeliveryCounts, Outbox, OutboxKeys, OutboxMessage
from keystead.parts.refresh import NewChain, RefreshRecord, RefreshTokens, Retried, Rotated, RotationRefused
from keystead.parts.schedule import Busy, Job, JobNow, Run, RunEntry, Schedule, ScheduleKeys
from keystead.parts.sessions import Gone, Live, New
from keystead.parts.tables import TableSet, open_tables
from keystead.schema import Done
from keystead.stores.synchronous import enter, iterate


class User(SessionRecord):
    theme: str = "light"


class Token(RefreshRecord):
    uid: str
    sid: str


class Keys(Keyspace):
    name = Value("name:{id:int}", str, lifetime=after("1h"))
    count = Counter("count:{id}", lifetime=never("a test"), tag="id")
    tags = Set("tags:{id}", str, lifetime=after("1h"))
    queue = List("queue:{id}", int, lifetime=after("1h"))
    best = SortedSet("best:{id}", str, lifetime=after("1h"))
    fields = Hash("fields:{id}", dict[str, str], lifetime=after("1h"))
    hits = Counter("hits:{id}", lifetime=after("1m"))
    lock = Value("lock:{id}", Holder, lifetime=sliding("10s", touch_every="1s"), tag="id")
    fence = Counter("fence:{id}", lifetime=sliding("400d", touch_every="1d"), tag="id")
    report = Value("report:{id}", str, lifetime=after("1h"), tag="id")
    mark = LoadMarkers("report:{id}:mark", tag="id")
    user = Value(
        "sess:{sid:token}", User, lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True), tag="sid",
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))
    refresh = Value("refresh:{token:token}", Token, lifetime=after("30d"), leads_to=user)
    audit = Log("audit:app", AuditEntry, keep=1000, lifetime=sliding("90d", touch_every="1h"))
    log = Log("feed:{id}:log", str, keep=100, lifetime=sliding("7d", touch_every="1h"), tag="id")
    wakes = Channel("feed-wakes", str)
    api_keys = SortedSet("apikeys", str, lifetime=never("revoked"))
    api_key = Value("apikey:{id:alnum}", ApiKey, lifetime=never("revoked"), listed_in=api_keys.by(score="made_ms"))
    page = Cached("page:{id:int}", str, lifetime=after("5m"))
    receipt = Once("payment:{id:int}", int, lifetime=after("5m"))
    site = Locked("site:{id:int}")

    @procedure
    def take(self, id: str) -> Steps[int]:
        left = self.count(id).decrement()
        return Steps(left).giving(left)


async def load() -> str | None:
    return "report"


async def send(message: OutboxMessage) -> None: ...


async def work(run: Run) -> dict[str, int | str]:
    return {}


store = connect("memory://")
keys = Keys(store)

# Operations
assert_type(keys.name(1).get().wait(), str | None)
assert_type(wait(keys.name(1).get()), str | None)
assert_type(wait(keys.name(1).change(str.upper)), str | None)
assert_type(keys.count("a").increment().wait(), int)
assert_type(keys.tags("a").members().wait(), set[str])
assert_type(keys.queue("a").items().wait(), list[int])
assert_type(keys.best("a").add("ann", 1).wait(), bool)
assert_type(keys.fields("a").get().wait(), dict[str, str] | None)
for key in iterate(keys.name.scan()):
    assert_type(key.get().wait(), str | None)

# Batches and procedures
assert_type(wait(keys.run(keys.name(1).get(), keys.count("a").get())), tuple[str | None, int])
assert_type(wait(keys.atomically(keys.count("a").increment())), Done[tuple[int]])
assert_type(wait(keys.take("a")), Done[int])

# Parts
verdict = wait(RateLimit(keys.hits, "2/minute").hit("ann"))
assert_type(verdict, Verdict)
lock = Lock(keys.lock("a"), keys.fence("a"))
assert_type(wait(lock.holder()), HeldBy | None)
assert_type(wait(lock.acquire("ann")), Hold | HeldBy)
with enter(lock.holding("ann")) as hold:
    assert_type(hold, Hold)
cache = Cache(keys.report, keys.mark)
assert_type(wait(cache.get(keys.report("a"), load)), str | None)
assert_type(cache.invalidate(keys.report("a")).wait(), bool)
sessions = Sessions(keys.user, Policy())
assert_type(wait(sessions.create(User(uid="ann"))), New[User])
assert_type(wait(sessions.read("token")), Live[User] | Gone)
assert_type(wait(sessions.revoke("token")), bool)
assert_type(wait(sessions.list_for("ann")), list[Live[User]])
tokens = RefreshTokens(keys.refresh)
assert_type(wait(tokens.begin(Token(uid="ann", sid="s"))), NewChain[Token])
assert_type(wait(tokens.rotate("token")), Rotated[Token] | Retried[Token] | RotationRefused)
data = DataSessions(data_session_keys()(store))
assert_type(wait(data.create({"theme": "dark"}, user="ann")), DataSession)
assert_type(wait(data.load("token")), DataSession | DataGone)
api = ApiKeys(keys.api_key, keys.api_keys())
assert_type(wait(api.issue(42, "import")), IssuedApiKey)
assert_type(wait(api.user_of("token")), int | None)
assert_type(wait(api.list()), list[ListedApiKey])
assert_type(Audit(keys.audit()).note("signed-in").wait(), str)
assert_type(wait(Audit(keys.audit()).latest(5)), list[AuditEntry])
with enter(Feed(keys.log, keys.wakes())) as feed:
    assert_type(wait(feed.put(keys.log("ann"), {1: "hello"})), bool)
    assert_type(wait(feed.messages(keys.log("ann"), 1, 5)), dict[int, str])
outbox = Outbox(OutboxKeys(store), send)
assert_type(wait(outbox.deliver_due()), DeliveryCounts)
schedule = Schedule(ScheduleKeys(store), [Job("a.job", "* * * * *", work)])
assert_type(wait(schedule.run_now("a.job")), RunEntry | Busy)
assert_type(wait(schedule.list()), Sequence[JobNow])
blobs = open_blobs("memory://")
assert_type(wait(blobs.add("a", b"x")), bool)
assert_type(b"".join(iterate(blobs.read("a"))), bytes)
assert_type(wait(blobs.size("a")), int | None)
with enter(open_tables("sqlite:///tables.db", TableSet("app", ()))) as tables:
    assert_type(wait(tables.read(lambda connection: 1)), int)

# Decorators
@cached(keys.page)
def page(id: int) -> str:
    return f"page {id}"


@once(keys.receipt)
def pay(id: int) -> int:
    return id


assert_type(page(1), str)
assert_type(pay(1), int)
with locked(keys.site(1)) as block:
    assert_type(block, Hold)
"""

WRONG = """\
from typing import assert_type
from keystead import Counter, Keyspace, RateLimit, Value, after, connect, wait


class Keys(Keyspace):
    name = Value("name:{id:int}", str, lifetime=after("1h"))
    hits = Counter("hits:{id}", lifetime=after("1m"))


keys = Keys(connect("memory://"))
assert_type(keys.name(1).get().wait(), int)
assert_type(wait(keys.name(1).get()), str)
assert_type(wait(RateLimit(keys.hits, "2/minute").hit("ann")), bool)
wait(keys.hits("ann").get()).wait()
keys.name(1).set(5).wait()
wait(5)
"""
WRONG_LINES = [*range(11, 17)]


def errors_of(checker: str, folder: Path, program: str) -> list[str]:
    """The lines of errors, of a type checker that knows only what an installed Keystead says about itself."""
    (folder / "program.py").write_text(program)
    if checker == "mypy":
        command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary"]
        command += ["--cache-dir", str(folder / "types")]
    else:
        node, packages = node_with("pyright")
        command = [node, str(packages / "node_modules/pyright/index.js"), "--pythonpath", sys.executable]
    done = subprocess.run([*command, "program.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert done.stderr == ""
    errors = [line for line in done.stdout.splitlines() if re.search(r"program\.py:\d+.* error: ", line)]
    assert bool(errors) == (done.returncode == 1), done.stdout
    return errors


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_synchronous_calls_have_the_types_of_their_results(checker: str, tmp_path: Path) -> None:
    assert errors_of(checker, tmp_path, TYPED) == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_wrong_types_in_synchronous_calls_are_errors(checker: str, tmp_path: Path) -> None:
    lines = [re.search(r"program\.py:(\d+)", error) for error in errors_of(checker, tmp_path, WRONG)]
    assert [int(found[1]) for found in lines if found] == WRONG_LINES
